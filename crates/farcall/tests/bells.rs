//! Whoever gathers hears of every bell, in every interleaving that loom finds.
#![allow(missing_docs)]

#[path = "../src/multi/bells.rs"]
#[allow(dead_code)]
mod bells;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    loom::thread_local! {
        static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// Given by the test.
    pub(super) fn this_thread() -> usize {
        NUMBER.with(std::cell::Cell::get)
    }

    pub(super) fn be_thread(number: usize) {
        NUMBER.with(|place| place.set(number));
    }
}

use std::sync::Arc;

use bells::{Bells, Interrupt};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// An event, as `Env` has it.
#[derive(Default)]
struct Seat {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt for Seat {
    fn interrupt(&self, _: bool) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// `Parking::wait`.
fn wait(bells: &Bells, seat: &Arc<Seat>) {
    let sleep = || {
        let mut set = seat.set.lock().unwrap();
        while !bells.any() && !*set {
            set = seat.changed.wait(set).unwrap();
        }
        *set = false;
    };
    bells.hear(Arc::as_ptr(seat).addr(), || seat.clone(), sleep);
}

#[test]
fn a_thread_that_waits_hears_all_of_them() {
    // Without a bound it takes minutes; it has been tried.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        sync::be_thread(1);
        let bells = Bells::default();
        let ringers: Vec<_> = (0..2)
            .map(|member| {
                let bell = bells.of(member);
                thread::spawn(move || {
                    sync::be_thread(2 + member as usize);
                    bell.ring();
                })
            })
            .collect();
        let seat = Arc::new(Seat::default());
        let mut heard = Vec::new();
        while heard.len() < 2 {
            match bells.answer() {
                Some(member) => heard.push(member),
                None => wait(&bells, &seat),
            }
        }
        heard.sort_unstable();
        assert_eq!(heard, [0, 1]);
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
    });
}

#[test]
fn one_that_rings_itself_is_not_interrupted_and_looks() {
    loom::model(|| {
        sync::be_thread(1);
        let bells = Bells::default();
        let (bell, seat) = (bells.of(7), Arc::new(Seat::default()));
        bells.hear(Arc::as_ptr(&seat).addr(), || seat.clone(), || bell.ring());
        assert!(!*seat.set.lock().unwrap());
        assert_eq!(bells.answer(), Some(7));
        assert_eq!(bells.answer(), None);
    });
}
