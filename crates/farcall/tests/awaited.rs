//! Awaited calls through shared memory, under loom: in every interleaving the task that awaits a call is
//! woken.
//!
//! This is a binary of its own, because it compiles the library's files with loom's types.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../../farcall-shm/src/answer_word.rs"]
#[allow(dead_code)]
mod answer_word;
#[path = "../../farcall-shm/tests/futex/mod.rs"]
#[allow(dead_code)]
mod futex;
#[path = "../src/shm/handover.rs"]
#[allow(dead_code)]
mod handover;
mod modelled;
#[path = "../src/shm/service.rs"]
mod service;
#[path = "../../farcall-shm/src/wake_word.rs"]
#[allow(dead_code)]
mod wake_word;

mod sync {
    pub(super) use crate::futex::{sleep, sleep_at_either, wake_one, wake_private};
    pub(super) use crate::link::Caller;
    pub(super) use crate::modelled::AtomicBool;
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
}

mod env {
    pub(crate) use farcall_proto::Time;
}

mod guard {
    pub(crate) fn run_alone(_: &str, user: impl FnOnce()) {
        user();
    }
}

mod watch {
    use std::time::Duration;

    pub(super) const FIRST_NAP: Duration = Duration::from_secs(1);
    pub(super) const LONGEST_NAP: Duration = FIRST_NAP;
}

mod link {
    //! A model of a connection: its memory, and the operating system.
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread::{self, JoinHandle};

    use crate::answer_word::AnswerWord;
    use crate::env::Time;
    use crate::futex::Kernel;
    use crate::service::{Connection, Service};
    use crate::wake_word::{PrivateWake, SleepIntent, WakeWord};

    pub(super) struct Link {
        pub(super) env: Env,
        pub(super) caller: Arc<Caller>,
        pub(super) service: Once<Arc<Service>>,
        pub(super) watch: Watch,
    }

    /// Stands for `farcall_shm::Caller`. A slot identifies its one call.
    pub(super) struct Caller {
        pub(super) answers: [AnswerWord; 2],
        pub(super) wake: WakeWord,
        private: PrivateWake,
        /// Whether the service thread knows a time at which it must look.
        timed: AtomicBool,
        late: AtomicBool,
        /// Whether the server is dead, and will never answer.
        dead: AtomicBool,
    }

    pub(super) struct Env {
        pub(super) caller: Arc<Caller>,
        pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
        /// How many starts of a thread fail.
        pub(super) scarce: Mutex<u32>,
        kernel: Arc<Kernel>,
    }

    /// A value that is made once, by a lock that loom sees.
    pub(super) struct Once<T>(Mutex<()>, OnceLock<T>);

    impl<T> Once<T> {
        fn new() -> Once<T> {
            Once(Mutex::new(()), OnceLock::new())
        }

        pub(super) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let _one = self.0.lock().unwrap();
            self.1.get_or_init(make)
        }
    }

    /// What the last look at the server showed.
    pub(super) struct Watch {
        caller: Arc<Caller>,
        broken: AtomicBool,
    }

    pub(super) const NUMBER: u64 = 1;

    impl Link {
        pub(super) fn new(scarce: u32, dead: bool) -> Arc<Link> {
            let kernel = Kernel::new(false);
            kernel.enter();
            let [timed, late, dead, broken] = [false, false, dead, false].map(AtomicBool::new);
            let answers = [AnswerWord::new(), AnswerWord::new()];
            let caller = Arc::new(Caller {
                answers,
                wake: WakeWord::new(),
                private: PrivateWake::new(),
                timed,
                late,
                dead,
            });
            let watch = Watch { caller: caller.clone(), broken };
            let (threads, scarce) = (Mutex::new(Vec::new()), Mutex::new(scarce));
            let env = Env { caller: caller.clone(), threads, scarce, kernel };
            Arc::new(Link { env, caller, service: Once::new(), watch })
        }

        /// Waits for the threads that are left, once the last reference is gone.
        pub(super) fn end(self: Arc<Self>) {
            let threads = std::mem::take(&mut *self.env.threads.lock().unwrap());
            drop(self);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }

    impl Connection for Link {
        fn service(&self) -> &Arc<Service> {
            self.service.get_or_init(Arc::default)
        }

        fn caller(&self) -> &Arc<Caller> {
            &self.caller
        }

        fn now(&self) -> Time {
            self.env.now()
        }

        fn look(&self) {
            self.watch.look();
        }

        fn spawn(&self, _: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
            self.env.spawn(run)
        }
    }

    impl Drop for Link {
        fn drop(&mut self) {
            if let Some(service) = self.service.1.get() {
                service.stop();
                self.caller.wake();
            }
        }
    }

    impl Caller {
        pub(super) fn is_answered(&self, slot: usize) -> bool {
            self.answers[slot].has(NUMBER)
        }

        pub(super) fn watch(&self, slot: usize) -> bool {
            self.answers[slot].watch(NUMBER)
        }

        /// Answers as `farcall_shm::Server::publish` does.
        pub(super) fn give(&self, slot: usize) {
            if self.answers[slot].publish(NUMBER) {
                self.wake.wake();
            }
        }

        pub(super) fn announce_sleep(&self) -> SleepIntent {
            self.private.announce_sleep(&self.wake)
        }

        /// Sleeps until a thread wakes the sleeper. A timed sleep ends by itself, if the server is dead or a
        /// call has a time at which to look: perhaps no thread wakes the sleeper then.
        pub(super) fn sleep_until_woken(&self, intent: SleepIntent, most: Option<Duration>) {
            match most {
                None => self.wake.sleep_until_private_wake(&self.private, intent),
                Some(_) if self.dead.load(Ordering::SeqCst) => {}
                Some(_) if self.timed.load(Ordering::SeqCst) => self.late.store(true, Ordering::SeqCst),
                Some(most) => self.wake.sleep(most),
            }
        }

        pub(super) fn wake(&self) {
            self.private.wake(&self.wake);
        }

        pub(super) fn note(&self, until: Option<Time>) {
            self.timed.store(until.is_some(), Ordering::SeqCst);
        }
    }

    impl Env {
        pub(super) fn now(&self) -> Time {
            Time::from_nanos(self.caller.late.load(Ordering::SeqCst).into())
        }

        fn spawn(&self, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
            let mut scarce = self.scarce.lock().unwrap();
            if *scarce > 0 {
                *scarce -= 1;
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            let kernel = self.kernel.clone();
            let thread = thread::spawn(move || {
                kernel.enter();
                run();
            });
            self.threads.lock().unwrap().push(thread);
            Ok(())
        }

        /// Runs a thread of a caller or of the server.
        pub(super) fn run(&self, run: impl FnOnce() + 'static) -> JoinHandle<()> {
            let kernel = self.kernel.clone();
            thread::spawn(move || {
                kernel.enter();
                run();
            })
        }
    }

    impl Watch {
        fn look(&self) {
            self.broken.store(self.caller.dead.load(Ordering::SeqCst), Ordering::SeqCst);
        }

        pub(super) fn broken(&self) -> bool {
            self.broken.load(Ordering::SeqCst)
        }
    }
}

mod started {
    //! A model of a started call: `Started` without the encoding.
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Duration;

    use crate::env::Time;
    use crate::handover::Handover;
    use crate::link::{Link, NUMBER};
    use crate::service::{AwaitedCall, Service};

    pub(super) struct Started {
        pub(super) link: Arc<Link>,
        pub(super) ticket: usize,
        pub(super) deadline: Option<Time>,
        handover: Handover<Ended>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Ended {
        Answered,
        Cancelled,
        Broken,
    }

    /// The outcome of a poll.
    pub(super) enum Polled {
        Ready(Ended),
        Pending,
        NoThread,
    }

    /// The time at which a cancelled call ends although the server has not answered.
    const LATE: Time = Time::from_nanos(1);

    impl Started {
        pub(super) fn new(link: &Arc<Link>, ticket: usize) -> Arc<Started> {
            Arc::new(Started { link: link.clone(), ticket, deadline: None, handover: Handover::new() })
        }

        pub(super) fn poll(self: &Arc<Self>, waker: &Waker) -> Polled {
            if let Some(ended) = self.handover.give() {
                return Polled::Ready(ended);
            }
            let Ok(service) = Service::of(&self.link) else { return Polled::NoThread };
            let (former, is_new) = self.handover.listen(waker);
            drop(former);
            if is_new {
                service.add(self.clone(), self.deadline.is_some());
            }
            self.handover.give().map_or(Polled::Pending, Polled::Ready)
        }

        pub(super) fn wait(&self) -> Ended {
            if let Some(ended) = self.handover.give() {
                return ended;
            }
            let answer = &self.link.caller.answers[self.ticket];
            while !answer.has(NUMBER) {
                answer.sleep(NUMBER, Duration::MAX, || false);
            }
            if self.handover.take() {
                return Ended::Answered;
            }
            self.handover.wait_while_taken();
            self.handover.give().expect("the thread that took the answer has stored the outcome")
        }

        pub(super) fn cancel(&self) {
            if self.handover.cancel(LATE, || {}) && self.handover.is_awaited() {
                self.link.caller.wake();
            }
        }
    }

    impl AwaitedCall for Started {
        fn watch(&self) -> bool {
            self.link.caller.watch(self.ticket)
        }

        fn until(&self, _: Time) -> Option<Time> {
            let until = self.handover.cancelled();
            self.link.caller.note(until);
            until
        }

        fn settle(&self, now: Time) -> Option<Option<Waker>> {
            let ended = match self.link.caller.is_answered(self.ticket) {
                true => Ended::Answered,
                false if self.link.watch.broken() => Ended::Broken,
                false if self.handover.cancelled().is_some_and(|until| until <= now) => Ended::Cancelled,
                false if self.handover.is_sent() => return None,
                false => return Some(self.handover.waker()),
            };
            if !self.handover.take_to_keep() {
                return Some(self.handover.waker());
            }
            Some(self.handover.keep(ended))
        }
    }
}

use std::sync::Arc;
use std::task::Waker;

use link::Link;
use modelled::{Event, check};
use started::{Ended, Polled, Started};

/// Awaits a call, as a task does, and returns its outcome.
fn await_call(call: &Arc<Started>) -> Ended {
    let woken = Arc::new(Event::default());
    let waker = Waker::from(woken.clone());
    loop {
        match call.poll(&waker) {
            Polled::Ready(ended) => return ended,
            Polled::Pending => woken.wait(),
            Polled::NoThread => {}
        }
    }
}

/// Starts a server that answers these calls, in this order.
fn answer(link: &Link, slots: &'static [usize]) -> loom::thread::JoinHandle<()> {
    let caller = link.caller.clone();
    link.env.run(move || slots.iter().for_each(|slot| caller.give(*slot)))
}

#[test]
fn whoever_awaits_a_call_hears_of_its_answer() {
    check(3, || {
        let link = Link::new(0, false);
        let server = answer(&link, &[0]);
        assert_eq!(await_call(&Started::new(&link, 0)), Ended::Answered);
        server.join().unwrap();
        link.end();
    });
}

#[test]
fn whoever_awaits_a_call_hears_of_the_death_of_its_server() {
    check(3, || {
        let link = Link::new(0, true);
        assert_eq!(await_call(&Started::new(&link, 0)), Ended::Broken);
        link.end();
    });
}

#[test]
fn a_call_is_answered_though_its_first_poll_got_no_thread() {
    check(2, || {
        let link = Link::new(1, false);
        let server = answer(&link, &[0]);
        assert_eq!(await_call(&Started::new(&link, 0)), Ended::Answered);
        server.join().unwrap();
        link.end();
    });
}

#[test]
fn whoever_awaits_two_calls_hears_of_both_answers() {
    check(2, || {
        let link = Link::new(0, false);
        let calls = [0, 1].map(|slot| Started::new(&link, slot));
        let server = answer(&link, &[1, 0]);
        // Both calls are polled before the task waits for one.
        let (first, second) = (Arc::new(Event::default()), Arc::new(Event::default()));
        let wakers = [&first, &second].map(|woken| Waker::from(woken.clone()));
        let mut polled = [0, 1].map(|which| calls[which].poll(&wakers[which]));
        for (which, woken) in [first, second].iter().enumerate() {
            while let Polled::Pending = polled[which] {
                woken.wait();
                polled[which] = calls[which].poll(&wakers[which]);
            }
        }
        server.join().unwrap();
        drop(calls);
        link.end();
    });
}

#[test]
fn two_threads_that_await_their_first_calls_hear_of_the_answers() {
    check(2, || {
        let link = Link::new(0, false);
        let call = Started::new(&link, 1);
        let other = link.env.run(move || assert_eq!(await_call(&call), Ended::Answered));
        link.caller.give(1);
        let mine = Started::new(&link, 0);
        link.caller.give(0);
        assert_eq!(await_call(&mine), Ended::Answered);
        drop(mine);
        other.join().unwrap();
        link.end();
    });
}

#[test]
fn whoever_waits_for_a_call_that_was_awaited_before_has_its_outcome() {
    check(2, || {
        let link = Link::new(0, false);
        let server = answer(&link, &[0]);
        let call = Started::new(&link, 0);
        let ended = match call.poll(Waker::noop()) {
            Polled::Ready(ended) => ended,
            _ => call.wait(),
        };
        assert_eq!(ended, Ended::Answered);
        drop(call);
        server.join().unwrap();
        link.end();
    });
}

#[test]
fn whoever_cancels_a_call_that_is_awaited_hears_of_its_end_though_the_server_is_silent() {
    check(3, || {
        let link = Link::new(0, false);
        let call = Started::new(&link, 0);
        let woken = Arc::new(Event::default());
        let waker = Waker::from(woken.clone());
        assert!(matches!(call.poll(&waker), Polled::Pending));
        call.cancel();
        woken.wait();
        assert!(matches!(call.poll(&waker), Polled::Ready(Ended::Cancelled)));
        drop(call);
        link.end();
    });
}
