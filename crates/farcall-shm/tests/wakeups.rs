//! Wake words and answer words in every interleaving that loom finds: no thread sleeps while there is work
//! for it. This is a binary of its own because it compiles the library's files with loom's types.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../src/answer_word.rs"]
#[allow(dead_code)]
mod answer_word;
mod futex;
#[path = "../src/wake_word.rs"]
#[allow(dead_code)]
mod wake_word;

mod sync {
    pub(super) use crate::futex::{sleep, sleep_at_either, wake_one, wake_private};
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
}

use std::sync::Arc;
use std::time::Duration;

use answer_word::AnswerWord;
use futex::Kernel;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use wake_word::{PrivateWake, WakeWord};

const FOREVER: Duration = Duration::MAX;

/// Runs two threads with one honest kernel.
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

/// Waits as the server's receiving thread does.
fn receive(ready: &AtomicU64, word: &WakeWord, seen: u64) -> u64 {
    loop {
        let found = ready.load(Ordering::Acquire);
        if found != seen {
            return found;
        }
        word.announce_sleep();
        if ready.load(Ordering::Acquire) == seen {
            word.sleep(FOREVER);
        }
        word.announce_awake();
    }
}

#[test]
fn a_receiver_finds_each_request() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU64::new(0), WakeWord::new()));
        let caller = shared.clone();
        let call = move || {
            for bit in [1, 2] {
                caller.0.fetch_xor(bit, Ordering::AcqRel);
                caller.1.wake();
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
fn a_receiver_finds_the_requests_of_two_callers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU64::new(0), WakeWord::new()));
        let (first, second) = (shared.clone(), shared.clone());
        let kernel = Kernel::new(false);
        kernel.enter();
        let call = |shared: Arc<(AtomicU64, WakeWord)>, bit: u64| {
            let kernel = kernel.clone();
            thread::spawn(move || {
                kernel.enter();
                shared.0.fetch_xor(bit, Ordering::AcqRel);
                shared.1.wake();
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

/// A session is closed while its receiving thread waits, in three cases: the peer is honest; the peer moves
/// the sleeping thread to a word of its own; the system cannot wait at two words.
#[test]
fn a_sleeping_thread_is_woken_by_its_own_process_whatever_the_peer_does() {
    for kernel in [|| Kernel::new(false), || Kernel::new(true), Kernel::without_waitv] {
        loom::model(move || {
            let shared = Arc::new((WakeWord::new(), PrivateWake::new(), AtomicBool::new(false)));
            let closing = shared.clone();
            let close = move || {
                closing.2.store(true, Ordering::Release);
                closing.1.wake(&closing.0);
            };
            both_in(kernel(), close, || {
                let (word, private, closed) = &*shared;
                while !closed.load(Ordering::Acquire) {
                    let intent = private.announce_sleep(word);
                    if !closed.load(Ordering::Acquire) {
                        word.sleep_until_private_wake(private, intent);
                    }
                    word.announce_awake();
                }
            });
        });
    }
}

#[test]
fn a_sleeping_caller_gets_its_answer_with_all_that_belongs_to_it() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), AnswerWord::new()));
        let server = shared.clone();
        let answer = move || {
            server.0.store(42, Ordering::Relaxed);
            assert!(!server.1.publish(1));
        };
        both(answer, || {
            while !shared.1.has(1) {
                shared.1.sleep(1, FOREVER, || false);
            }
            assert_eq!(shared.0.load(Ordering::Relaxed), 42);
        });
    });
}

/// Another thread than the one that waits is told of the answer, as a caller's service thread is.
#[test]
fn a_watched_answer_wakes_the_service_thread() {
    loom::model(|| {
        let shared = Arc::new((AnswerWord::new(), WakeWord::new()));
        let server = shared.clone();
        let answer = move || {
            if server.0.publish(1) {
                server.1.wake();
            }
        };
        both(answer, || {
            if !shared.0.watch(1) {
                return assert!(shared.0.has(1));
            }
            loop {
                shared.1.announce_sleep();
                if shared.0.has(1) {
                    return;
                }
                shared.1.sleep(FOREVER);
            }
        });
    });
}

/// A slot is used again and again: a flag that an earlier wait left does not hide a later answer.
#[test]
fn one_slot_answers_twice() {
    loom::model(|| {
        let shared = Arc::new((AnswerWord::new(), AtomicU64::new(0)));
        let server = shared.clone();
        let answer = move || {
            server.0.publish(1);
            while server.1.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            server.0.publish(2);
        };
        both(answer, || {
            for number in [1, 2] {
                while !shared.0.has(number) {
                    shared.0.sleep(number, FOREVER, || false);
                }
                shared.1.store(1, Ordering::Release);
            }
        });
    });
}

/// Work for the caller comes before the answer: the sleeping caller learns of both.
#[test]
fn a_caller_is_woken_before_its_answer() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Arc::new((AnswerWord::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let server = shared.clone();
        let answer = move || {
            server.1.store(1, Ordering::Release);
            server.0.wake_early();
            // The answer waits until the caller has begun.
            while server.2.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            server.0.publish(1);
        };
        both(answer, || {
            let has_work = || shared.1.load(Ordering::Acquire) == 1;
            while !has_work() {
                shared.0.sleep(1, FOREVER, has_work);
            }
            shared.2.store(1, Ordering::Release);
            while !shared.0.has(1) {
                shared.0.sleep(1, FOREVER, || false);
            }
        });
    });
}
