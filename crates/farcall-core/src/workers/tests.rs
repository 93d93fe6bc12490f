//! Tests of pools and jobs: how many threads a host leaves to others, which threads receive after deferred
//! work, what a spare thread does, and when threads that run jobs end.
//! They are not in `pool.rs` because loom's test includes that file.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Habit, Jobs, Pace, Plan, Pool, Refused, Replacement, Threads, WaitWatch, Watch, Worker, held};
use crate::System;
use crate::env::{Env, Event, Socket, SocketOptions, Time};
use crate::host::Host;

/// Returns how many of the workers begin a call of this host that may wait, one after the other.
fn begin_waiting(pool: &mut Pool, workers: &[Arc<Worker>], host: u64) -> usize {
    let begins = |worker: &&Arc<Worker>| {
        matches!(pool.plan(worker, host, Pace::Blocking, Time::default), Plan::Execute(_))
    };
    workers.iter().take_while(begins).count()
}

/// A pool of 128 threads, and workers for more calls than that.
fn pool_of_128() -> (Pool, Vec<Arc<Worker>>) {
    let mut pool = Pool::new(4, Threads::new(128));
    pool.add_first();
    (pool, (0..200).map(|_| Worker::new(System.event())).collect())
}

/// The numbers of three hosts of different networks.
const HARM: u64 = 6 << 16;
const HONEST: u64 = 1 << 16;
const NEWCOMER: u64 = 2 << 16;

/// Begins a call that may wait at each of the workers, each of another host of one network. Returns how many
/// begin.
fn begin_of_hosts(pool: &mut Pool, workers: &[Arc<Worker>], network: u64) -> usize {
    let mut hosts = network..;
    workers
        .iter()
        .take_while(|worker| begin_waiting(pool, &[(*worker).clone()], hosts.next().unwrap()) == 1)
        .count()
}

#[test]
fn one_host_leaves_threads_to_the_calls_of_others() {
    let (mut pool, mut workers) = pool_of_128();
    let first = begin_waiting(&mut pool, &workers[..70], HARM);
    assert!(first == 70 && begin_waiting(&mut pool, &workers[70..71], HONEST) == 1);
    let many = 71 + begin_waiting(&mut pool, &workers[71..], HARM);
    assert_eq!(many, 127 - 15, "an eighth is left");
    for pace in [Pace::Blocking, Pace::Any] {
        assert!(!pool.may_begin(HARM, pace) && !pool.may_begin(HONEST, pace));
        assert!(pool.may_begin(NEWCOMER, pace));
        assert!(matches!(pool.plan(&workers[many], HARM, pace, Time::default), Plan::Queue));
    }
    assert!(pool.may_begin(HARM, Pace::Quick));
    assert_eq!(begin_waiting(&mut pool, &workers[many..], NEWCOMER), 1, "a 16th of that, for each host");
    // When enough calls have ended, there is room again.
    pool.done(&workers[many]);
    assert!(pool.may_begin(NEWCOMER, Pace::Blocking) && !pool.may_begin(HARM, Pace::Blocking));
    workers.truncate(many);
    workers.iter().for_each(|worker| pool.done(worker));
    assert!(pool.may_begin(HARM, Pace::Blocking));
    // The other hosts are forgotten when the server is at rest.
    workers.iter().for_each(|worker| assert!(pool.rest(worker)));
    assert_eq!(begin_waiting(&mut pool, &workers, HARM), many);
    assert!(pool.may_begin(HARM, Pace::Blocking));
}

#[test]
fn a_host_that_calls_alone_has_all_threads_but_a_few_for_the_next_host() {
    let (mut pool, workers) = pool_of_128();
    let many = begin_waiting(&mut pool, &workers, HARM);
    assert_eq!(many, 127 - 2);
    assert!(!pool.may_begin(HARM, Pace::Blocking));
    // The next host begins at once. From now on the whole reserve counts.
    assert_eq!(begin_waiting(&mut pool, &workers[many..], HONEST), 1);
    assert_eq!(begin_waiting(&mut pool, &workers[many + 1..], NEWCOMER), 1);
    for worker in &workers[..10] {
        pool.done(worker);
        assert!(
            !pool.may_begin(HARM, Pace::Blocking) && pool.may_begin(NEWCOMER + (1 << 16), Pace::Blocking)
        );
    }
}

#[test]
fn the_hosts_of_one_network_leave_half_of_the_reserve_to_other_networks() {
    let (mut pool, workers) = pool_of_128();
    let first = begin_of_hosts(&mut pool, &workers[..70], HARM);
    assert!(first == 70 && begin_waiting(&mut pool, &workers[70..71], HONEST) == 1);
    let many = 71 + begin_of_hosts(&mut pool, &workers[71..], HARM + 1000);
    assert_eq!(many, 127 - 7, "half of the eighth is left");
    let another = HARM + 5000;
    for pace in [Pace::Blocking, Pace::Any] {
        assert!(!pool.may_begin(another, pace) && !pool.may_begin(HONEST + 1, pace));
        assert!(pool.may_begin(NEWCOMER, pace));
        assert!(matches!(pool.plan(&workers[many], another, pace, Time::default), Plan::Queue));
    }
    assert!(pool.may_begin(another, Pace::Quick));
    // Each other network has a host's share of it.
    assert_eq!(begin_of_hosts(&mut pool, &workers[many..], NEWCOMER), 1);
    assert_eq!(begin_of_hosts(&mut pool, &workers[many + 1..], NEWCOMER + (1 << 16)), 1);
    // When the crowd has left half of the reserve, its further hosts begin again.
    for worker in &workers[..3] {
        pool.done(worker);
        assert!(pool.rest(worker));
    }
    assert!(pool.may_begin(another, Pace::Blocking) && !pool.may_begin(HARM + 1000, Pace::Blocking));
}

#[test]
fn a_network_that_calls_alone_has_all_threads_but_one_share_for_the_next_network() {
    for (threads, share) in [(128, 1), (1024, 7)] {
        let mut pool = Pool::new(4, Threads::new(threads));
        pool.add_first();
        let workers: Vec<_> = (0..threads).map(|_| Worker::new(System.event())).collect();
        let many = begin_of_hosts(&mut pool, &workers, HARM);
        assert_eq!(many, threads - 1 - share);
        assert!(!pool.may_begin(HARM + 5000, Pace::Blocking));
        // The next network's hosts begin at once. From now on half of the reserve counts.
        assert_eq!(begin_of_hosts(&mut pool, &workers[many..], NEWCOMER), share);
        for worker in &workers[..share] {
            pool.done(worker);
            assert!(!pool.may_begin(HARM + 5000, Pace::Blocking) && pool.may_begin(HONEST, Pace::Blocking));
        }
    }
}

#[test]
fn hosts_have_one_network_as_their_addresses_have() {
    let of = |address: &str| Host::at(address.parse().unwrap());
    let hosts = ["10.0.0.7", "10.0.255.1", "10.1.0.7", "127.0.0.1", "127.255.7.1", "::1", "2001:db8::1"];
    let hosts = hosts.into_iter().chain(["2001:db8:0:ffff::1", "2001:db8:1::1", "::ffff:10.0.0.8"]).map(of);
    let hosts: Vec<Host> = hosts.collect();
    for (one, other) in hosts.iter().flat_map(|one| hosts.iter().map(move |other| (one, other))) {
        let [a, b] = [one, other].map(|host| held::network(host.number().get()));
        assert_eq!(a == b, one.network() == other.network(), "{one:?} {other:?}");
    }
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

/// A pool with two workers' room, while more calls queue, and the time of its watchdog.
struct Queueing {
    pool: Pool,
    waits: WaitWatch,
    now: Time,
    begun: Vec<Arc<Worker>>,
}

impl Queueing {
    fn new() -> Queueing {
        let mut pool = Pool::new(2, Threads::new(10_000));
        pool.add_first();
        let now = Time::default() + Duration::from_secs(10);
        let mut queueing = Queueing { pool, waits: WaitWatch::default(), now, begun: Vec::new() };
        queueing.begin();
        queueing
    }

    /// Begins as many calls as there is room for. The number of a thread is that of its call.
    fn begin(&mut self) {
        while self.pool.has_room(Pace::Any, 1) {
            let worker = Worker::in_thread(System.event(), Some(self.begun.len() as u32));
            self.pool.register(&worker);
            assert!(matches!(self.pool.plan(&worker, 0, Pace::Any, Time::default), Plan::Execute(_)));
            self.begun.push(worker);
        }
    }

    /// Looks when it is time, and begins the calls for which there is room then. Returns how long after the
    /// last look this one was.
    fn look(&mut self, sleeps: impl Fn(u32) -> bool) -> Duration {
        let next = self.waits.next_look(self.now);
        let nap = next.since(self.now);
        self.now = next;
        let mut threads = self.waits.look(&self.pool, self.now);
        threads.iter_mut().for_each(|thread| thread.ask(&sleeps));
        self.waits.park(&mut self.pool, &threads, true, self.now);
        self.begin();
        nap
    }

    /// Looks when it is time, and begins nothing. `may_begin` says whether a queued call may begin once a
    /// thread is parked.
    fn waits_only(&mut self, may_begin: bool) -> Duration {
        let next = self.waits.next_look(self.now);
        let nap = next.since(self.now);
        self.now = next;
        let mut threads = self.waits.look(&self.pool, self.now);
        threads.iter_mut().for_each(|thread| thread.ask(|_| true));
        self.waits.park(&mut self.pool, &threads, may_begin, self.now);
        nap
    }

    /// Ends the call that began as this one.
    fn end(&mut self, call: usize) {
        self.pool.done(&self.begun[call]);
    }
}

#[test]
fn calls_that_sleep_make_way_at_the_second_look_and_the_looks_follow_soon() {
    let mut queueing = Queueing::new();
    let begun = queueing.now;
    assert_eq!(queueing.look(|_| true), Duration::from_millis(1));
    assert_eq!(queueing.begun.len(), 2);
    (0..150).for_each(|_| _ = queueing.look(|_| true));
    assert_eq!(queueing.begun.len(), 2 + 150);
    assert!(queueing.now.since(begun) < Duration::from_millis(20));
}

#[test]
fn once_suspicions_have_proven_right_more_calls_begin_between_two_looks_until_one_computes() {
    let mut queueing = Queueing::new();
    let begun = queueing.now;
    while queueing.begun.len() < 600 {
        queueing.look(|_| true);
    }
    let took = queueing.now.since(begun);
    assert!(took < Duration::from_millis(30), "{took:?}");
    let (before, executing) = (queueing.begun.len(), queueing.pool.executing().0);
    (0..6).for_each(|_| _ = queueing.look(|thread| thread as usize != before - 1));
    // All but one have made way, and as many as there are workers, and the one that computes, have begun.
    assert!(queueing.begun.len() <= before + 2 * 6, "{} of {executing}", queueing.begun.len() - before);
}

#[test]
fn calls_that_compute_make_way_only_once_they_are_long_and_the_looks_become_rare() {
    let mut queueing = Queueing::new();
    let naps: Vec<Duration> = (0..6).map(|_| queueing.look(|_| false)).collect();
    assert_eq!(naps, [1, 2, 4, 8, 16, 20].map(Duration::from_millis));
    assert_eq!(queueing.begun.len(), 2 + 2);
}

#[test]
fn a_call_that_sleeps_makes_way_while_another_computes() {
    let mut queueing = Queueing::new();
    (0..2).for_each(|_| _ = queueing.look(|thread| thread == 1));
    assert_eq!(queueing.begun.len(), 2 + 1);
}

#[test]
fn short_calls_that_sleep_for_one_lock_get_few_more_threads() {
    let mut queueing = Queueing::new();
    let (mut most, mut looks, mut sum) = (0, 0, 0);
    for ended in 0..10_000 {
        // Each call has the lock for 100 µs.
        let end = Time::default() + Duration::from_secs(10) + Duration::from_micros(100 * (ended + 1));
        while queueing.waits.next_look(queueing.now) <= end {
            queueing.look(|_| true);
            looks += 1;
        }
        queueing.end(ended as usize);
        queueing.begin();
        let (executing, _) = queueing.pool.executing();
        (most, sum) = (most.max(executing), sum + executing);
    }
    assert!(most <= 2 + 64, "{most} queue for the lock");
    assert!(sum / 10_000 < 10, "{} on average", sum / 10_000);
    assert!(looks < 600, "{looks} looks in a second");
}

#[test]
fn a_full_server_whose_calls_all_sleep_is_looked_at_rarely() {
    let mut queueing = Queueing { pool: Pool::new(2, Threads::new(3)), ..Queueing::new() };
    queueing.pool.add_first();
    queueing.begun.clear();
    queueing.begin();
    let naps: Vec<Duration> = (0..8).map(|_| queueing.waits_only(true)).collect();
    assert_eq!(naps[7], Duration::from_millis(20));
}

/// The waiting calls of a host may hold all threads that it may have, while it sends more.
#[test]
fn a_server_whose_queued_calls_may_not_begin_is_looked_at_rarely() {
    let mut queueing = Queueing::new();
    let mut naps = Vec::new();
    for _ in 0..8 {
        naps.push(queueing.waits_only(false));
        // Calls of other hosts begin meanwhile.
        queueing.begin();
    }
    assert_eq!(naps, [1, 2, 4, 8, 16, 20, 20, 20].map(Duration::from_millis));
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
