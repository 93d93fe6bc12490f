//! Tests that a thread that waits for several calls learns of each call that becomes ready.

use std::sync::Arc;

use crate::ready::{Interrupt, ReadyList};
use crate::sync;
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// An event that ends a thread's wait, like the events of `Env`.
#[derive(Default)]
struct Event {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt for Event {
    fn interrupt(&self, _: bool) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// Waits for a call to become ready, as `Parking::wait` does.
fn wait(list: &ReadyList, event: &Arc<Event>) {
    let sleep = || {
        let mut set = event.set.lock().unwrap();
        while !list.any() && !*set {
            set = event.changed.wait(set).unwrap();
        }
        *set = false;
    };
    list.wait_with(Arc::as_ptr(event).addr(), || event.clone(), sleep);
}

#[test]
fn a_thread_that_waits_learns_of_each_ready_call() {
    // Without a bound on preemptions this test takes minutes. It has passed without the bound, too.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        sync::be_thread(1);
        let list = ReadyList::default();
        let others: Vec<_> = (0..2)
            .map(|call| {
                let token = list.token(call);
                thread::spawn(move || {
                    sync::be_thread(2 + call as usize);
                    token.mark_ready();
                })
            })
            .collect();
        let event = Arc::new(Event::default());
        let mut taken = Vec::new();
        while taken.len() < 2 {
            match list.take() {
                Some(call) => taken.push(call),
                None => wait(&list, &event),
            }
        }
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_thread_that_marks_a_call_in_its_own_wait_is_not_interrupted() {
    loom::model(|| {
        sync::be_thread(1);
        let list = ReadyList::default();
        let (token, event) = (list.token(7), Arc::new(Event::default()));
        list.wait_with(Arc::as_ptr(&event).addr(), || event.clone(), || token.mark_ready());
        assert!(!*event.set.lock().unwrap());
        assert_eq!(list.take(), Some(7));
        assert_eq!(list.take(), None);
    });
}
