//! The serving end: one socket, threads that take turns at receiving from it, and what they offer.
//!
//! ```text
//! work             a worker's life: it receives, executes and sends;  call: what is executed
//! workers          how the pool of worker threads (farcall-core) works with the server's socket
//! queue            calls that wait for a worker, fairly;  payer: for whom
//! exported         an interface that is offered;  executor: what executes its calls
//! parts            long bytes of a result that are not copied
//! task             calls that are executed as futures;  finish: what a dispatch's end means to the protocol
//! watched          interceptors around what executes calls
//! accesses         reading and writing memory, which the receiving thread executes itself
//! external         calls that came otherwise than by the socket;  reply_to: where their outcomes go
//! counter_segment  what was counted, where others read it
//! watchdog         looks after a lone receiver, and acts on the protocol's timers
//! ```
//!
//! **Who receives.** `farcall_core::workers` says which worker receives. While calls are rare, or not quick,
//! two workers wait in the socket: the kernel wakes one, which executes what came, and the other still
//! receives. Where quick calls come fast one worker receives, executes them itself, and keeps the socket
//! meanwhile. Two threads at the socket need no watchdog, but a plain ping-pong alternates between them,
//! which costs 3 % of its time; a watchdog's looks cost more than rare calls do. So the rate decides. Where
//! the receiving thread spins, one thread does.
//!
//! **What waits.** When the limit of workers is reached, calls wait in a queue that is bounded and fair. When
//! there can be no more threads, calls wait for one, at most for [`Limits::queue_time`].
//!
//! Quick calls that came together are executed one after the other, and their results leave together, some at
//! a time. They wait where every worker finds them, so that one that gets stuck holds up no other.

mod accesses;
mod call;
mod counter_segment;
mod executor;
mod exported;
mod external;
mod finish;
mod parts;
mod payer;
mod queue;
mod reply_to;
mod task;
mod watchdog;
mod watched;
mod work;
mod workers;

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use farcall_proto::server::{CallKey, Transmit};
use farcall_proto::{Failure, Kind, Ran, ServerConfig, Time, server as proto};

use accesses::Backlog;
pub(crate) use call::Work;
pub use executor::Task;
pub(crate) use executor::{Direct, Executor, Spawned};
pub(crate) use exported::Exported;
use exported::Exports;
pub(crate) use payer::Caller;
pub(crate) use reply_to::{Back, Outlet};
pub(crate) use watched::watched;

use crate::context::CallServer;
use crate::depart::{Departing, depart};
use crate::env::{Env, Event, Socket};
use crate::notice::{Notice, Notices};
use crate::sys::fork;
use crate::workers::{Pace, Pool, Replacement, Threads, start};
use crate::{CallFailed, stats};
use counter_segment::CounterSegment;
use external::Offers;
use farcall_memory::Accessor;
use queue::Queue;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Procedures that execute at the same time, not counting those that wait.
    pub(crate) workers: usize,
    /// Threads, all in all.
    pub(crate) threads: usize,
    /// Calls that wait for a worker, and how long they do.
    pub(crate) queue: usize,
    pub(crate) queue_time: Duration,
    /// Bytes of their arguments.
    pub(crate) queue_bytes: usize,
    /// Calls that take longer are logged.
    pub(crate) slow: Option<Duration>,
    /// Who receives spins first.
    pub(crate) spins: bool,
}

/// Runs a worker's life inside a runtime.
pub(crate) type Inside = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// A socket at which interfaces are exported.
pub(crate) struct Server {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    generation: u64,
    limits: Limits,
    /// The budget of threads, which the carriers of this server share.
    threads: Arc<Threads>,
    core: Mutex<Core>,
    /// The exports again, for calls that came otherwise than by the socket.
    offers: RwLock<Offers>,
    /// Wakes the watchdog.
    watchdog: Arc<dyn Event>,
    /// What time it was when the watchdog last looked, in nanoseconds; 0 while it does not watch.
    looked: AtomicU64,
    stopped: AtomicBool,
    /// Whether [`Core::cancelled`] has any.
    any_cancelled: AtomicBool,
    /// Procedures that are to be told when their calls are given up.
    notices: Notices,
    /// What a worker does around its life: makes its runtime the current one.
    enter: Inside,
}

/// Everything that changes with each call, under one lock.
struct Core {
    protocol: proto::Server,
    exports: Exports,
    /// Accesses to memory that came with more than is done while nobody else is served.
    backlog: Backlog,
    /// Who accesses memory now, and whom the accesses so far are to wake.
    accessor: Accessor,
    /// Quick calls that came in one train, of which one or more are being executed.
    batch: VecDeque<Work>,
    queue: Queue,
    pool: Pool,
    /// None if nobody is to read what is counted.
    counter_segment: Option<CounterSegment>,
    /// Calls that execute, and whose callers have given them up.
    cancelled: HashSet<CallKey>,
    /// When the watchdog is to look at the queue, while there is any.
    queue_look: Option<Time>,
    /// Until when the watchdog sleeps; `None` if it does until it is woken.
    sleeping: Option<Time>,
}

/// How often the watchdog looks at a queue.
const QUEUE_LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who is to see to calls that wait.
enum Assignee {
    /// A worker that is woken or started to execute the calls that wait.
    Worker(Replacement),
    /// Whoever receives: there can be no other thread.
    Receiver,
}

impl Core {
    /// Whether no call waits to be executed.
    #[inline]
    fn is_free(&self) -> bool {
        self.batch.is_empty() && self.queue.is_empty()
    }

    /// Has a call wait for a worker, or, if its result will be long, until its client has fetched other
    /// results. Returns the calls for which there is no room.
    #[must_use]
    fn line_up(&mut self, work: Work) -> Vec<Work> {
        let usual = work.usual_result();
        let held = usual > 0 && !self.may_begin(work.call.key, usual);
        self.watch_queue(work.arrived());
        self.queue.push(work, held)
    }

    /// Has the watchdog look at the queue soon.
    fn watch_queue(&mut self, now: Time) {
        self.queue_look.get_or_insert(now + QUEUE_LOOK_EVERY);
    }

    /// Who is to see to the calls that wait, if anybody may.
    fn assign_queue(&mut self) -> Option<Assignee> {
        let pace = if self.batch.is_empty() { self.next_pace()? } else { Pace::Quick };
        if !self.pool.has_room(pace, 1) {
            return None;
        }
        let helper = self.pool.one_more_for_queue(pace);
        Some(helper.map_or(Assignee::Receiver, Assignee::Worker))
    }

    /// Somebody to execute what is queued, if there may be.
    fn replacement_for_queue(&mut self) -> Option<Replacement> {
        let pace = self.next_pace()?;
        self.pool.one_more_for_queue(pace)
    }

    /// The pace of the call that is to begin next.
    fn next_pace(&mut self) -> Option<Pace> {
        let pool = &self.pool;
        self.queue.next_pace(|work| pool.may_begin(work.host(), work.pace()))
    }

    /// Takes out the waiting call that is to begin next.
    fn next_waiting(&mut self) -> Option<Work> {
        let pool = &self.pool;
        self.queue.pop(|work| pool.may_begin(work.host(), work.pace()))
    }

    /// The failure of a call for which there is no thread.
    #[cold]
    fn stuck(&self) -> Failure {
        let max = self.pool.max_threads();
        let why = format!("all {max} threads wait in calls of their own (FARCALL_THREADS)");
        Failure::new(Kind::Overloaded, Ran::No).with_detail(why)
    }

    /// Whether a call that came, and whose result will be long, may be executed.
    #[cold]
    fn may_begin(&mut self, key: CallKey, usual: usize) -> bool {
        !self.queue.holds(key.conversation) && self.protocol.may_execute(key, usual)
    }

    /// Calls whose clients have fetched something wait for a worker. Whether there are any.
    fn admit(&mut self) -> bool {
        let mut any = false;
        while let Some(conversation) = self.protocol.next_with_room() {
            let may = |work: &Work| self.protocol.may_execute(work.call.key, work.usual_result());
            any |= self.queue.admit(conversation, may);
        }
        any
    }

    /// Takes out a call that waits, and whose caller has given it up.
    fn remove(&mut self, caller: Caller, key: CallKey) -> Option<Work> {
        match self.batch.iter().position(|work| work.call.key == key) {
            Some(at) => self.batch.remove(at),
            None => self.queue.remove(caller, key),
        }
    }

    /// Whether the watchdog is to be woken because the protocol has an earlier timer than it knows.
    #[inline]
    fn alarm(&mut self) -> bool {
        let timer = match (self.protocol.timeout(), self.queue_look) {
            (Some(timer), None) | (None, Some(timer)) => timer,
            (Some(timer), Some(look)) => timer.min(look),
            (None, None) => return false,
        };
        let early = self.sleeping.is_none_or(|until| timer < until);
        if early {
            self.sleeping = Some(timer);
        }
        early
    }
}

impl Server {
    /// A server at `socket`; its workers run inside `enter`.
    ///
    /// # Errors
    /// When there can be no threads.
    pub(crate) fn new(
        env: Arc<dyn Env>,
        socket: Arc<dyn Socket>,
        mut config: ServerConfig,
        limits: Limits,
        enter: Inside,
    ) -> std::io::Result<Arc<Server>> {
        let window = u32::try_from(socket.receive_buffer() / 2).unwrap_or(u32::MAX);
        config.window = config.window.min(window.max(farcall_proto::BASE_DATAGRAM as u32));
        let mut secret = [0; 32];
        env.entropy(&mut secret);
        let threads = Threads::new(limits.threads.max(limits.workers + 1));
        let pool = Pool::new(limits.workers, threads.clone());
        let core = Core {
            protocol: proto::Server::new(config, env.now(), secret),
            exports: Exports::default(),
            backlog: Backlog::default(),
            accessor: Accessor::default(),
            batch: VecDeque::new(),
            queue: Queue::new(limits.queue, limits.queue_bytes),
            pool: if limits.spins { pool } else { pool.in_pairs() },
            counter_segment: None,
            cancelled: HashSet::new(),
            queue_look: None,
            sleeping: None,
        };
        let server = Arc::new(Server {
            watchdog: env.event(),
            env,
            socket,
            generation: fork::generation(),
            limits,
            threads,
            core: Mutex::new(core),
            offers: RwLock::default(),
            looked: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            any_cancelled: AtomicBool::new(false),
            notices: Notices::default(),
            enter,
        });
        server.lock().pool.add_first();
        start(&server)?;
        server.clone().spawn_watchdog().inspect_err(|_| server.stop())?;
        Ok(server)
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// What only this incarnation answers to the holder of one of its tickets.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn prove(&self, holder: &farcall_proto::Holder, question: &[u8]) -> [u8; 16] {
        self.lock().protocol.prove(holder, question)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Offers an interface.
    pub(crate) fn export(&self, offer: proto::Export, exported: Arc<Exported>) {
        self.offer(&exported);
        let mut core = self.lock();
        core.protocol.export(offer);
        core.exports.add(exported);
    }

    /// Offers it no longer. Calls of it that were begun are finished.
    pub(crate) fn withdraw(&self, id: u64) {
        if self.generation != fork::generation() {
            return;
        }
        self.take_back(id);
        let mut core = self.lock();
        core.protocol.withdraw(id);
        core.exports.remove(id);
    }

    /// Refuses every new call, and waits until those that have begun are finished, but no longer
    /// than `time`. True if they are.
    pub(crate) fn drain(&self, time: Duration) -> bool {
        self.refuse_offers();
        let exports = {
            let mut core = self.lock();
            core.protocol.drain();
            core.exports.clone()
        };
        let end = self.now() + time;
        exports.iter().all(|exported| exported.wait_idle(&*self.env, end.since(self.now())))
    }

    /// Ends its threads, once they have finished what they execute.
    pub(crate) fn stop(&self) {
        if self.generation != fork::generation() || self.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        self.watchdog.set();
        let (receiving, resting) = {
            let core = self.lock();
            (core.pool.receiving(), core.pool.resting())
        };
        resting.iter().for_each(|seat| seat.wake());
        (0..receiving.max(1)).for_each(|_| self.socket.wake());
    }

    /// What the protocol, and each export, counted.
    pub(crate) fn stats(&self) -> (proto::Stats, Vec<stats::Export>) {
        let core = self.lock();
        (*core.protocol.stats(), counter_segment::exports(&core.protocol, &core.exports).collect())
    }

    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.env.now()
    }

    /// About what time it is. To look at the clock costs as much as a quick procedure, so while the watchdog
    /// watches it is the time of its last look.
    #[inline]
    fn about_now(&self) -> Time {
        match self.looked.load(Ordering::Relaxed) {
            0 => self.now(),
            looked => Time::from_nanos(looked),
        }
    }

    /// Whether any call that executes was given up. As long as this holds, each outcome is checked for
    /// whether it is still wanted before it leaves.
    #[inline]
    pub(crate) fn any_cancelled(&self) -> bool {
        self.any_cancelled.load(Ordering::Relaxed)
    }

    /// Notes that a call that executes was given up. A worker tells its procedure, because the tasks that are
    /// woken for that are the user's code.
    fn note_cancelled(&self, core: &mut Core, key: CallKey) {
        core.cancelled.insert(key);
        self.any_cancelled.store(true, Ordering::SeqCst);
        core.accessor.woken.append(&mut self.notices.take(key));
    }

    /// A call has ended: that it was given up matters no more.
    #[inline(always)]
    fn forget_cancelled(&self, core: &mut Core, key: CallKey) {
        if !core.cancelled.is_empty() {
            self.forget_one_cancelled(core, key);
        }
    }

    #[cold]
    fn forget_one_cancelled(&self, core: &mut Core, key: CallKey) {
        if core.cancelled.remove(&key) {
            self.any_cancelled.store(!core.cancelled.is_empty(), Ordering::SeqCst);
        }
    }

    pub(crate) fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sends all that is ready; what the system refuses is lost, like any datagram.
    fn flush(&self, out: &mut [u8]) {
        let write = |out: &mut [u8]| {
            let mut core = self.lock();
            if core.protocol.is_quiet() {
                return None;
            }
            let Transmit { to, len, insert } = core.protocol.transmit(self.now(), out)?;
            Some(Departing { to, len, insert, more: !core.protocol.is_quiet() })
        };
        depart(&*self.socket, out, write, |_, _| ());
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Nothing of a user's runs while it is held.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallServer for Server {
    fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    fn is_cancelled(&self, key: CallKey) -> bool {
        let core = self.lock();
        core.protocol.is_given_up(key) || core.cancelled.contains(&key)
    }

    fn notify(&self, key: CallKey, notice: &Arc<Notice>) {
        if self.notices.add(key, notice) {
            // The watchdog is to know of the deadline.
            self.watchdog.set();
        }
    }

    fn forget(&self, key: CallKey, notice: &Arc<Notice>) {
        self.notices.remove(key, notice);
    }
}
