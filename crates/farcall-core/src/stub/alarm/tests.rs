//! Tests the alarm by a clock that passes only while the alarm's thread waits. That thread is the test's own.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::task::Wake;

use super::*;
use crate::broken::Mutant;
#[cfg(feature = "mutants")]
use crate::broken::Rule;
use crate::env::{Socket, SocketOptions};

type Act = (u64, Box<dyn FnOnce() + Send>);

/// A clock in milliseconds, and what happens at which time.
#[derive(Default)]
struct Script {
    now: AtomicU64,
    acts: Mutex<VecDeque<Act>>,
    is_set: AtomicBool,
    thread: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct Scripted(Arc<Script>, Mutant);

impl Env for Scripted {
    fn now(&self) -> Time {
        at(self.0.now.load(Ordering::Relaxed))
    }

    fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn(&self, _: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        *lock(&self.0.thread) = Some(run);
        Ok(())
    }

    #[cfg(feature = "mutants")]
    fn mutant(&self) -> Mutant {
        self.1
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Changed(self.0.clone()))
    }

    fn entropy(&self, _: &mut [u8]) {}
}

struct Changed(Arc<Script>);

impl Event for Changed {
    fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let script = &self.0;
        let end = script.now.load(Ordering::Relaxed) + timeout.unwrap().as_millis() as u64;
        while !script.is_set.swap(false, Ordering::Relaxed) {
            let act = lock(&script.acts).pop_front_if(|(time, _)| *time <= end);
            let Some((time, act)) = act else {
                script.now.store(end, Ordering::Relaxed);
                return false;
            };
            script.now.store(time, Ordering::Relaxed);
            act();
        }
        true
    }
}

/// Notes when it is woken.
struct Notes(u32, Arc<Script>, Arc<Mutex<Vec<(u64, u32)>>>);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        lock(&self.2).push((self.1.now.load(Ordering::Relaxed), self.0));
    }
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// What happens to one of two timers at 10 ms. Both were set to 100 ms before.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Set(u64),
    Stop,
    End,
}

/// Returns when which timer wakes its task, if this happens to the second one.
fn woken(then: Then, mutant: Mutant) -> Vec<(u64, u32)> {
    let (script, woken) = (Arc::<Script>::default(), Arc::<Mutex<Vec<_>>>::default());
    let alarm = Alarm::new(Arc::new(Scripted(script.clone(), mutant)));
    let waker = |number| Waker::from(Arc::new(Notes(number, script.clone(), woken.clone())));
    let (first, second) = (alarm.timer(), alarm.timer());
    first.set(at(100), &waker(1)).unwrap();
    second.set(at(100), &waker(2)).unwrap();
    let task = waker(2);
    let act = move || match then {
        Then::Nothing => {}
        Then::Set(millis) => second.set(at(millis), &task).unwrap(),
        Then::Stop => second.stop(),
        Then::End => second.end(),
    };
    let act = Arc::new(Mutex::new(Some(act)));
    // It keeps the timer: a timer that is dropped wakes nobody.
    let acts = act.clone();
    lock(&script.acts).push_back((10, Box::new(move || lock(&acts).as_mut().unwrap()())));
    let thread = lock(&script.thread).take().expect("the first timer has started the thread");
    thread();
    drop(lock(&act).take());
    std::mem::take(&mut lock(&woken))
}

#[test]
fn a_task_is_woken_at_the_time_that_was_set_last() {
    for (then, expected) in [
        (Then::Nothing, vec![(100, 1), (100, 2)]),
        (Then::Set(50), vec![(50, 2), (100, 1)]),
        (Then::Set(20_000), vec![(100, 1), (20_000, 2)]),
        (Then::Stop, vec![(100, 1)]),
        (Then::End, vec![(10, 2), (100, 1)]),
    ] {
        assert_eq!(woken(then, Mutant::NONE), expected);
    }
}

#[test]
#[cfg(feature = "mutants")]
fn broken_rules_of_timers_are_noticed() {
    let woken = |then, rule| woken(then, Mutant::of(rule));
    assert_eq!(woken(Then::Set(50), Rule::EarlierTimeInterrupts), [(100, 2), (100, 1)]);
    assert_eq!(woken(Then::Set(20_000), Rule::LastTimeCounts), [(100, 1), (100, 2)]);
}
