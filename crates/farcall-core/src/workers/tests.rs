//! Tests of pools and jobs: how many threads a host leaves to others, which threads receive after deferred
//! work, what a spare thread does, and when threads that run jobs end.
//! They are not in `pool.rs` because loom's test includes that file.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Habit, Jobs, Pace, Plan, Pool, Refused, Replacement, Threads, Watch, Worker};
use crate::System;
use crate::env::{Env, Event, Socket, SocketOptions, Time};

#[test]
fn one_host_leaves_threads_to_the_calls_of_others() {
    let mut pool = Pool::new(4, Threads::new(128));
    pool.add_first();
    let [harm, honest] = [6, 1];
    let worker = || Worker::new(System.event());
    let begins = |pool: &mut Pool, worker: &Worker, host: u64, pace| {
        matches!(pool.plan(worker, host, pace, Time::default), Plan::Execute(Some(_)))
    };
    let mut workers: Vec<Arc<Worker>> = (0..200).map(|_| worker()).collect();
    let many = workers.iter().take_while(|worker| begins(&mut pool, worker, harm, Pace::Blocking)).count();
    assert_eq!(many, 127 - 15, "an eighth is left");
    for pace in [Pace::Blocking, Pace::Any] {
        assert!(!pool.may_begin(harm, pace) && pool.may_begin(honest, pace));
        assert!(matches!(pool.plan(&workers[many], harm, pace, Time::default), Plan::Queue));
    }
    assert!(pool.may_begin(harm, Pace::Quick));
    let others =
        workers[many..].iter().take_while(|worker| begins(&mut pool, worker, honest, Pace::Blocking)).count();
    assert_eq!(others, 1, "a 16th of that, for each host");
    // When enough calls have ended, there is room again.
    pool.done(&workers[many]);
    assert!(pool.may_begin(honest, Pace::Blocking) && !pool.may_begin(harm, Pace::Blocking));
    workers.truncate(many);
    workers.iter().for_each(|worker| pool.done(worker));
    assert!(pool.may_begin(harm, Pace::Blocking));
}

#[test]
fn a_thread_receives_again_after_deferred_work_even_if_no_call_may_begin() {
    let mut pool = Pool::new(1, Threads::new(8));
    pool.add_first();
    let [executes, first, second] = [(); 3].map(|_| Worker::new(System.event()));
    assert!(matches!(pool.plan(&executes, 1, Pace::Any, Time::default), Plan::Execute(Some(_))));
    assert!(pool.one_more_for_queue(Pace::Blocking).is_some());
    assert_eq!((pool.receiving(), pool.executing().0), (2, 1));
    // The first of two receivers needs no replacement when it executes. The last receiver is guarded by the
    // watchdog instead.
    assert!(matches!(pool.plan_deferred(&first), Plan::Execute(None)));
    assert!(matches!(pool.plan_deferred(&second), Plan::Guarded(true)));
    assert_eq!((pool.receiving(), pool.executing().0), (0, 3));
    pool.done(&first);
    pool.done(&second);
    pool.done(&executes);
    assert_eq!((pool.receiving(), pool.executing().0), (3, 0));
}

#[test]
fn a_spare_thread_receives_for_a_stuck_receiver_but_no_more_calls_are_executed_than_before() {
    let mut pool = Pool::new(8, Threads::new(3)).with_spare();
    pool.add_first();
    let [first, second, third, fourth] = [(); 4].map(|_| Worker::new(System.event()));
    let plan = |pool: &mut Pool, worker: &Worker, pace| pool.plan(worker, 0, pace, Time::default);
    for worker in [&first, &second] {
        let planned = plan(&mut pool, worker, Pace::Any);
        assert!(matches!(planned, Plan::Execute(Some(Replacement::New))));
    }
    assert!(matches!(plan(&mut pool, &third, Pace::Quick), Plan::Guarded(true)));
    let mut watch =
        Watch::new(Habit { nap: Duration::from_micros(100), calls: 8, looks: 8, finds_long: false });
    let looks = [(); 4].map(|()| watch.look(&mut pool).replacement.is_some());
    assert_eq!(looks, [false, true, false, false]);
    for pace in [Pace::Quick, Pace::Any, Pace::Blocking] {
        assert!(matches!(plan(&mut pool, &fourth, pace), Plan::Queue));
    }
    assert!(pool.may_wait().is_err());
    assert!(matches!(pool.plan_deferred(&fourth), Plan::Guarded(false)));
    pool.done(&fourth);

    // The stuck one has ended its call, and executes quick calls again, or rests.
    pool.done(&third);
    assert!(matches!(plan(&mut pool, &third, Pace::Any), Plan::Queue));
    assert!(matches!(plan(&mut pool, &third, Pace::Quick), Plan::Guarded(false)));
    pool.done(&third);
    assert!(pool.rest(&third) && !pool.rest(&fourth));
    assert!(matches!(plan(&mut pool, &fourth, Pace::Quick), Plan::Guarded(false)));
    pool.done(&fourth);
    // Another one rests too, and may be called for a call. The last that rests may not.
    pool.done(&first);
    assert!(pool.rest(&first));
    let planned = plan(&mut pool, &fourth, Pace::Any);
    assert!(
        matches!(planned, Plan::Execute(Some(Replacement::Rested(called))) if Arc::ptr_eq(&called, &first))
    );
    assert!(matches!(plan(&mut pool, &first, Pace::Any), Plan::Queue));
    // A receiver that is stuck again is replaced by it.
    assert!(matches!(plan(&mut pool, &first, Pace::Quick), Plan::Guarded(false)));
    let looks = [(); 3].map(|()| watch.look(&mut pool).replacement.is_some());
    assert_eq!(looks, [false, true, false]);
    assert!(matches!(plan(&mut pool, &third, Pace::Quick), Plan::Queue));
    // When one thread has ended, the pool keeps to its budget without a spare thread.
    [&first, &second].into_iter().for_each(|worker| pool.done(worker));
    assert!(pool.rest(&second) && pool.retire(&second));
    assert_eq!((pool.receiving_to_execute(), pool.receiving(), pool.executing().1), (2, 2, 3));
}

/// An environment whose threads can be joined, and where every time limit is over at once.
#[derive(Default)]
struct Hasty(Mutex<Vec<JoinHandle<()>>>);

struct Over;

impl Event for Over {
    fn set(&self) {}

    fn wait(&self, timeout: Option<Duration>) -> bool {
        timeout.is_none()
    }
}

impl Env for Hasty {
    fn now(&self) -> Time {
        Time::default()
    }

    fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn(&self, _: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.0.lock().unwrap().push(thread::spawn(run));
        Ok(())
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Over)
    }

    fn entropy(&self, _: &mut [u8]) {}
}

#[test]
fn a_thread_that_is_idle_for_long_ends_and_the_next_job_gets_another() {
    let env = Arc::new(Hasty::default());
    let jobs = Jobs::new(env.clone(), "test", Threads::besides_waiting(1, 1), 1);
    for _ in 0..2 {
        let (ran, has_run) = mpsc::channel();
        assert!(jobs.submit(Box::new(move || ran.send(thread::current().id()).unwrap())).is_ok());
        let thread = env.0.lock().unwrap().pop().expect("a new thread");
        assert_eq!(has_run.recv().unwrap(), thread.thread().id());
        thread.join().unwrap();
        assert_eq!(jobs.busy(), 0);
    }
    jobs.close();
    assert!(matches!(jobs.submit(Box::new(|| ())), Err(Refused::Full)));
}

#[test]
fn no_more_jobs_run_or_are_queued_than_may_until_one_thread_more_is_allowed() {
    let env = Arc::new(Hasty::default());
    let jobs = Jobs::new(env.clone(), "test", Threads::besides_waiting(1, 1), 1);
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (ran, has_run) = mpsc::channel();
    let (began, has_begun) = mpsc::channel();
    let first = move || {
        began.send(()).unwrap();
        may_go_on.recv().unwrap();
    };
    assert!(jobs.submit(Box::new(first)).is_ok());
    has_begun.recv().unwrap();
    assert!(jobs.submit(Box::new(move || ran.send(()).unwrap())).is_ok());
    assert!(matches!(jobs.submit(Box::new(|| ())), Err(Refused::Full)));
    assert_eq!((env.0.lock().unwrap().len(), jobs.busy()), (1, 1));
    // The thread begins to wait.
    assert!(jobs.member().begin_wait(false).unwrap());
    has_run.recv().unwrap();
    go_on.send(()).unwrap();
    env.0.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap());
}
