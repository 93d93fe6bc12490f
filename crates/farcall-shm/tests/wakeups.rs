//! Bells and turns, in every interleaving that loom finds: nobody sleeps while there is something for him.
//! A binary of its own: it compiles the library's files with loom's types.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../src/bell.rs"]
#[allow(dead_code)]
mod bell;
mod futex;
#[path = "../src/turn.rs"]
#[allow(dead_code)]
mod turn;

mod sync {
    pub(super) use crate::futex::{sleep, sleep_at_either, wake_one, wake_private};
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
}

use std::sync::Arc;
use std::time::Duration;

use bell::{Bell, Recall};
use futex::Kernel;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use turn::Turn;

const LONG: Duration = Duration::MAX;

/// Two threads with one kernel.
fn both(other: impl FnOnce() + 'static, one: impl FnOnce()) {
    both_in(Kernel::new(false), other, one);
}

fn both_in(kernel: Arc<Kernel>, other: impl FnOnce() + 'static, one: impl FnOnce()) {
    kernel.enter();
    let thread = thread::spawn(move || {
        kernel.enter();
        other();
    });
    one();
    thread.join().unwrap();
}

/// What `Receiver::wait` does.
fn receive(ready: &AtomicU64, bell: &Bell, seen: u64) -> u64 {
    loop {
        let found = ready.load(Ordering::Acquire);
        if found != seen {
            return found;
        }
        bell.lie_down();
        if ready.load(Ordering::Acquire) == seen {
            bell.sleep(LONG);
        }
        bell.get_up();
    }
}

#[test]
fn a_receiver_hears_of_each_request() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU64::new(0), Bell::new()));
        let caller = shared.clone();
        let call = move || {
            for bit in [1, 2] {
                caller.0.fetch_xor(bit, Ordering::AcqRel);
                caller.1.ring();
            }
        };
        both(call, || {
            let mut seen = 0;
            while seen != 3 {
                seen = receive(&shared.0, &shared.1, seen);
            }
        });
    });
}

#[test]
fn a_receiver_hears_of_two_callers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU64::new(0), Bell::new()));
        let (first, second) = (shared.clone(), shared.clone());
        let kernel = Kernel::new(false);
        kernel.enter();
        let call = |shared: Arc<(AtomicU64, Bell)>, bit: u64| {
            let kernel = kernel.clone();
            thread::spawn(move || {
                kernel.enter();
                shared.0.fetch_xor(bit, Ordering::AcqRel);
                shared.1.ring();
            })
        };
        let threads = [call(first, 1), call(second, 2)];
        let mut seen = 0;
        while seen != 3 {
            seen = receive(&shared.0, &shared.1, seen);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// `Post::close` and `Receiver::wait` in three cases: the peer is honest; the peer moves the sleeping
/// receiver to a word of its own; the system cannot wait at two words.
#[test]
fn whoever_sleeps_at_a_bell_is_recalled_whatever_the_peer_does() {
    for kernel in [|| Kernel::new(false), || Kernel::new(true), Kernel::without_waitv] {
        loom::model(move || {
            let shared = Arc::new((Bell::new(), Recall::new(), AtomicBool::new(false)));
            let closing = shared.clone();
            let close = move || {
                closing.2.store(true, Ordering::Release);
                closing.1.make(&closing.0);
            };
            both_in(kernel(), close, || {
                let (bell, recall, closed) = &*shared;
                while !closed.load(Ordering::Acquire) {
                    let made = recall.made();
                    bell.lie_down();
                    if !closed.load(Ordering::Acquire) {
                        bell.sleep_until_recalled(recall, made);
                    }
                    bell.get_up();
                }
            });
        });
    }
}

#[test]
fn a_caller_who_sleeps_has_its_answer_with_all_that_belongs_to_it() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), Turn::new()));
        let server = shared.clone();
        let answer = move || {
            server.0.store(42, Ordering::Relaxed);
            assert!(!server.1.give(1));
        };
        both(answer, || {
            while !shared.1.is(1) {
                shared.1.sleep(1, LONG, || false);
            }
            assert_eq!(shared.0.load(Ordering::Relaxed), 42);
        });
    });
}

/// What `Service::live` and `Awaited::add` do: somebody else than who waits is told.
#[test]
fn an_answer_that_is_watched_rings() {
    loom::model(|| {
        let shared = Arc::new((Turn::new(), Bell::new()));
        let server = shared.clone();
        let answer = move || {
            if server.0.give(1) {
                server.1.ring();
            }
        };
        both(answer, || {
            if !shared.0.watch(1) {
                return assert!(shared.0.is(1));
            }
            loop {
                shared.1.lie_down();
                if shared.0.is(1) {
                    return;
                }
                shared.1.sleep(LONG);
            }
        });
    });
}

/// A slot is used again and again: a flag that an earlier wait left does not hide a later answer.
#[test]
fn one_slot_answers_twice() {
    loom::model(|| {
        let shared = Arc::new((Turn::new(), AtomicU64::new(0)));
        let server = shared.clone();
        let answer = move || {
            server.0.give(1);
            while server.1.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            server.0.give(2);
        };
        both(answer, || {
            for number in [1, 2] {
                while !shared.0.is(number) {
                    shared.0.sleep(number, LONG, || false);
                }
                shared.1.store(1, Ordering::Release);
            }
        });
    });
}

/// Something to do comes before the answer: who sleeps hears of both.
#[test]
fn a_caller_is_nudged_before_its_answer() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Arc::new((Turn::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let server = shared.clone();
        let answer = move || {
            server.1.store(1, Ordering::Release);
            server.0.nudge();
            // The answer waits until the caller has begun.
            while server.2.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            server.0.give(1);
        };
        both(answer, || {
            let has_work = || shared.1.load(Ordering::Acquire) == 1;
            while !has_work() {
                shared.0.sleep(1, LONG, has_work);
            }
            shared.2.store(1, Ordering::Release);
            while !shared.0.is(1) {
                shared.0.sleep(1, LONG, || false);
            }
        });
    });
}
