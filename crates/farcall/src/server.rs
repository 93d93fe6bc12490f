//! The server's end of calls over UDP: one socket, the interfaces exported at it, and the worker threads that
//! receive from it in turn.
//!
//! ```text
//! work             what a worker does: receives, executes and sends;  call: one call to be executed
//! workers          connects the pool of worker threads (farcall-core) to the server's socket
//! queue            calls that wait for a worker, fairly;  caller: who shares a host's turns
//! exported         one exported interface;  executor: the thread or executor that runs its calls
//! parts            long bytes of a result, which are sent without a copy
//! task             calls executed as futures;  finish: turns a procedure's outcome into the protocol's form
//! watched          interceptors around an executor
//! exchanges        the signals and streams of a call
//! accesses         reads and writes of memory, which the receiving thread executes itself
//! external         calls that did not come by the socket;  reply_to: where their outcomes go
//! counter_segment  the server's counters as a memory segment
//! conversations    tells of single conversations of a server with keys
//! handshakes       the thread that computes the handshakes of clients with keys
//! watchdog         watches over a lone receiver, and acts on the protocol's timers
//! ```
//!
//! **Which worker receives.** `farcall_core::workers` decides. While calls are rare, or not quick, two
//! workers wait in the socket: the kernel wakes one, which executes the call, and the other still receives.
//! While quick calls come fast, one worker receives and executes them itself. No thread receives meanwhile,
//! so the watchdog looks after this worker. Two receivers need no watchdog, but a plain ping-pong then
//! alternates between them, which costs 3 % of its time; the watchdog's looks cost more than rare calls do.
//! So the rate of calls decides. A server whose receiver spins always has one receiver.
//!
//! **Which calls wait.** When the limit of workers is reached, or no thread can be added, calls wait in a
//! queue that is bounded and fair, at most for [`Limits::queue_time`].
//!
//! Quick calls that came together are executed by one worker, one after another, which sends their results in
//! batches. The calls that wait for this are in a batch that every worker sees, so a stuck worker holds up
//! none of them.

mod accesses;
mod call;
mod caller;
#[cfg(feature = "secure")]
mod conversations;
mod counter_segment;
mod drain;
mod exchanges;
mod executor;
mod exported;
mod external;
mod finish;
#[cfg(feature = "secure")]
mod handshakes;
mod oneway_orders;
mod parts;
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

use farcall_proto::server::{CallKey, Transmit};
use farcall_proto::{Failure, Kind, Ran, ServerConfig, Time, server as proto};

use accesses::Backlog;
pub(crate) use call::Work;
pub(crate) use caller::Caller;
pub use executor::Task;
pub(crate) use executor::{Direct, Executor, Spawned};
pub(crate) use exported::Exported;
use exported::Exports;
pub(crate) use reply_to::{Back, Outlet};
pub(crate) use watched::watched;

use crate::context::{self, CallServer};
use crate::depart::{Departing, depart};
use crate::env::{Env, Event, Socket};
use crate::exchange::Exchanges;
use crate::kernel::Kernel;
use crate::notice::{Notice, Notices};
use crate::sys::fork;
use crate::workers::{Pace, Pool, Replacement, Threads, WaitWatch, start};
use crate::{CallFailed, lock, stats};
use counter_segment::CounterSegment;
use drain::DrainTeller;
use exchanges::Exchanging;
use external::Offers;
use farcall_memory::Accessor;
use queue::Queue;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most procedures that execute at the same time, not counting procedures that wait.
    pub(crate) workers: usize,
    /// The most threads, whatever they do.
    pub(crate) threads: usize,
    /// The most calls that wait for a worker.
    pub(crate) queue: usize,
    /// The longest time that a call waits for a worker.
    pub(crate) queue_time: Duration,
    /// The most bytes of arguments that waiting calls hold.
    pub(crate) queue_bytes: usize,
    /// A call that takes longer than this is logged.
    pub(crate) slow: Option<Duration>,
    /// Whether the receiving worker spins before it sleeps.
    pub(crate) spins: bool,
}

/// Runs the body of a worker's thread inside the async runtime that the user chose.
pub(crate) type Inside = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// A socket with the interfaces that are exported at it, and the threads that serve them.
pub(crate) struct Server {
    /// Whether clients must have keys, and datagrams are sealed.
    has_keys: bool,
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    generation: u64,
    limits: Limits,
    /// The budget of threads, which the carriers of this server share.
    threads: Arc<Threads>,
    core: Mutex<Core>,
    /// A second list of the exports, under its own lock, for calls that did not come by the socket.
    offers: RwLock<Offers>,
    /// Wakes the watchdog.
    watchdog: Arc<dyn Event>,
    /// Wakes the thread that computes handshakes, if there is one.
    handshakes: Arc<dyn Event>,
    /// The time of the watchdog's last look, in nanoseconds; 0 while the watchdog does not watch.
    looked: AtomicU64,
    stopped: AtomicBool,
    /// Whether [`Core::cancelled`] has any calls.
    any_cancelled: AtomicBool,
    /// Tells running procedures when their callers have given their calls up.
    notices: Notices,
    /// The XDP program that answers readers, if there is one.
    kernel: OnceLock<Arc<Kernel>>,
    /// A function that tells callers by another carrier what takes no more calls: an export, or all.
    drain_teller: OnceLock<DrainTeller>,
    /// A function that makes the user's async runtime the current one while a worker runs.
    enter: Inside,
}

/// The server's state that changes with each call, under one lock.
struct Core {
    protocol: proto::Server,
    exports: Exports,
    /// Accesses to memory beyond the amount that is executed while no other call is served.
    backlog: Backlog,
    /// The host that accesses memory now, and the tasks that the accesses so far are to wake.
    accessor: Accessor,
    /// Quick calls that came in one datagram batch, while the first of them are being executed.
    batch: VecDeque<Work>,
    queue: Queue,
    pool: Pool,
    /// `None` if the counters are not exported.
    counter_segment: Option<CounterSegment>,
    /// The calls whose procedures use exchanges (signals or streams).
    exchanging: Exchanging,
    /// Calls that still execute although their callers have given them up.
    cancelled: HashSet<CallKey>,
    /// When the watchdog is to look at the queue; `None` while the queue is empty.
    queue_look: Option<Time>,
    /// What the watchdog knows about workers that wait while calls queue.
    waits: WaitWatch,
    /// Until when the watchdog sleeps; `None` if it sleeps until it is woken.
    sleeping: Option<Time>,
}

/// The most hosts that one search looks at for a waiting call that may begin.
const MAX_HOSTS_LOOKED_AT: usize = 128;

/// The thread that is to execute waiting calls.
enum Assignee {
    /// A worker to be woken or started for these calls.
    Worker(Replacement),
    /// The worker that receives, because no other thread may run.
    Receiver,
}

impl Core {
    /// Returns whether no call waits to be executed.
    #[inline]
    fn is_free(&self) -> bool {
        self.batch.is_empty() && self.queue.is_empty()
    }

    /// Queues a call until a worker is free. A call with a long result also waits until its client has
    /// fetched other results. Returns the calls for which the queue has no room.
    #[must_use]
    fn line_up(&mut self, work: Work) -> Vec<Work> {
        let usual = work.usual_result();
        let held = usual > 0 && !self.may_begin(work.call.key, usual);
        self.watch_queue(work.arrived);
        self.queue.push(work, held)
    }

    /// Makes the watchdog look at the queue soon.
    fn watch_queue(&mut self, now: Time) {
        self.queue_look.get_or_insert_with(|| self.waits.next_look(now));
    }

    /// Chooses the thread that is to execute the next waiting call, besides `assigned` threads that were
    /// chosen before and have not begun. Returns `None` if no call waits or none may begin.
    fn assign_queue(&mut self, assigned: usize) -> Option<Assignee> {
        let pace = if self.batch.is_empty() { self.next_pace()? } else { Pace::Quick };
        if !self.pool.has_room(pace, assigned + 1) {
            return None;
        }
        let helper = self.pool.one_more_for_queue(pace);
        Some(helper.map_or(Assignee::Receiver, Assignee::Worker))
    }

    /// Returns a further worker for the queued calls, if one may run.
    fn replacement_for_queue(&mut self) -> Option<Replacement> {
        let pace = self.next_pace()?;
        self.pool.one_more_for_queue(pace)
    }

    /// Returns the pace of the waiting call that may begin next.
    fn next_pace(&mut self) -> Option<Pace> {
        if self.turn() { Some(self.queue.front()?.pace()) } else { None }
    }

    /// Takes the waiting call that may begin next out of the queue.
    fn next_waiting(&mut self) -> Option<Work> {
        if self.turn() { self.queue.pop() } else { None }
    }

    /// Gives the turn to the waiting call that may begin next. Returns whether there is one.
    fn turn(&mut self) -> bool {
        let pool = &self.pool;
        self.queue.turn_to(MAX_HOSTS_LOOKED_AT, |work| pool.may_begin(work.queued_host(), work.pace()))
    }

    /// Returns the failure of a call that finds every thread of the server waiting.
    #[cold]
    fn stuck(&self) -> Failure {
        let max = self.pool.max_threads();
        let why = format!("all {max} threads wait in calls of their own (FARCALL_THREADS)");
        Failure::new(Kind::Overloaded, Ran::No).with_detail(why)
    }

    /// Returns whether a call whose result will be long may be executed now.
    #[cold]
    fn may_begin(&mut self, key: CallKey, usual: usize) -> bool {
        !self.queue.holds(Caller::Conversation(key.conversation)) && self.protocol.may_execute(key, usual)
    }

    /// Moves calls that were held because of their long results to the queue for a worker, if their clients
    /// have fetched enough results. Returns whether there were any.
    fn admit(&mut self) -> bool {
        let mut any = false;
        while let Some(conversation) = self.protocol.next_with_room() {
            let may = |work: &Work| self.protocol.may_execute(work.call.key, work.usual_result());
            any |= self.queue.admit(Caller::Conversation(conversation), may);
        }
        any
    }

    /// Removes and returns a waiting call that its caller has given up.
    fn remove(&mut self, caller: Caller, key: CallKey) -> Option<Work> {
        match self.batch.iter().position(|work| work.call.key == key) {
            Some(at) => self.batch.remove(at),
            None => self.queue.remove(caller, key),
        }
    }

    /// Returns whether the watchdog is to be woken, because a timer is due before the watchdog wakes by
    /// itself.
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
    /// Makes a server at `socket` and starts its threads. Its workers run inside `enter`.
    ///
    /// # Errors
    /// When no thread can be started.
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
        let has_keys = config.has_keys();
        let threads = Threads::new(limits.threads.max(limits.workers + 1));
        let pool = Pool::new(limits.workers, threads.clone()).with_spare();
        let core = Core {
            protocol: proto::Server::new(config, env.now(), secret),
            exports: Exports::default(),
            backlog: Backlog::default(),
            accessor: Accessor::default(),
            batch: VecDeque::new(),
            queue: Queue::new(limits.queue, limits.queue_bytes),
            pool: if limits.spins { pool } else { pool.in_pairs() },
            counter_segment: None,
            exchanging: Exchanging::default(),
            cancelled: HashSet::new(),
            queue_look: None,
            waits: WaitWatch::default(),
            sleeping: None,
        };
        let server = Arc::new(Server {
            has_keys,
            watchdog: env.event(),
            handshakes: env.event(),
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
            kernel: OnceLock::new(),
            drain_teller: OnceLock::new(),
            enter,
        });
        server.lock().pool.add_first();
        start(&server)?;
        server.clone().spawn_watchdog().inspect_err(|_| server.stop())?;
        #[cfg(feature = "secure")]
        if has_keys {
            server.clone().spawn_handshakes().inspect_err(|_| server.stop())?;
        }
        Ok(server)
    }

    /// Lets the kernel answer readers.
    pub(crate) fn set_kernel(&self, kernel: Arc<Kernel>) {
        let _ = self.kernel.set(kernel);
    }

    /// Returns the XDP program that answers readers, if there is one.
    pub(crate) fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.kernel.get()
    }

    /// Returns the budget of threads.
    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// Returns the answer to `question` with which this server proves to the holder of one of its tickets
    /// that it is this incarnation of the server.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn prove(&self, holder: &farcall_proto::Holder, question: &[u8]) -> [u8; 16] {
        self.lock().protocol.prove(holder, question)
    }

    /// Meets a client outside UDP that proves that it has the secrets of a conversation.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn meet(&self, shown: &farcall_proto::Shown<'_>) -> Option<farcall_proto::Met> {
        let now = self.now();
        self.lock().protocol.meet(now, shown)
    }

    /// Returns whether clients must have keys.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Returns the address of the server's socket.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Exports an interface.
    pub(crate) fn export(&self, offer: proto::Export, exported: Arc<Exported>) {
        self.write_offers().exports.add(exported.clone());
        let mut core = self.lock();
        core.protocol.export(offer);
        core.exports.add(exported);
    }

    /// Withdraws an export. Calls of it that have begun are finished.
    pub(crate) fn withdraw(&self, id: u64) {
        if self.generation != fork::generation() {
            return;
        }
        self.write_offers().exports.remove(id);
        let mut core = self.lock();
        core.protocol.withdraw(id);
        core.exports.remove(id);
    }

    /// Tells the server's threads to end once they have finished the calls that they execute.
    pub(crate) fn stop(&self) {
        if self.generation != fork::generation() || self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        self.kernel().into_iter().for_each(|kernel| kernel.stop());
        self.watchdog.set();
        self.handshakes.set();
        let (receiving, resting) = {
            let core = self.lock();
            (core.pool.receiving(), core.pool.resting())
        };
        resting.iter().for_each(|worker| worker.wake());
        self.tell_all();
        (0..receiving.max(1)).for_each(|_| self.socket.wake());
    }

    /// Returns the counters of the protocol and of each export.
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

    /// Returns the time, at most a few milliseconds old. Reading the clock costs as much as a quick
    /// procedure, so while the watchdog watches this is the time of the watchdog's last look.
    #[inline]
    fn about_now(&self) -> Time {
        match self.looked.load(Ordering::Relaxed) {
            0 => self.now(),
            looked => Time::from_nanos(looked),
        }
    }

    /// Returns whether any executing call was given up. While this is so, each call is looked up in
    /// [`Core::cancelled`] before its outcome is sent.
    #[inline]
    pub(crate) fn any_cancelled(&self) -> bool {
        self.any_cancelled.load(Ordering::Relaxed)
    }

    /// Notes that an executing call was given up. A worker wakes the procedure's tasks later, because wakers
    /// are the user's code.
    fn note_cancelled(&self, core: &mut Core, key: CallKey) {
        core.cancelled.insert(key);
        self.any_cancelled.store(true, Ordering::Release);
        core.accessor.woken.append(&mut self.notices.take(key));
        core.tell_given_up(key);
    }

    /// Forgets that a call was given up, because the call has ended.
    #[inline(always)]
    fn forget_cancelled(&self, core: &mut Core, key: CallKey) {
        if !core.cancelled.is_empty() {
            self.forget_one_cancelled(core, key);
        }
    }

    #[cold]
    fn forget_one_cancelled(&self, core: &mut Core, key: CallKey) {
        if core.cancelled.remove(&key) {
            self.any_cancelled.store(!core.cancelled.is_empty(), Ordering::Release);
        }
    }

    pub(crate) fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    /// Forgets the conversations of clients that are no longer accepted, and cancels their calls. Tells the
    /// clients so, once: otherwise they would find out when they ask for their calls, if the server is still
    /// there.
    #[cfg(feature = "secure")]
    pub(crate) fn forget_revoked(&self, accepted: impl Fn(&crate::Principal) -> bool) {
        // Whether a key is accepted may take long to find out, so the lock is not held meanwhile.
        let principals = self.lock().protocol.principals();
        let rejected = principals.iter().filter(|principal| !accepted(principal));
        // By its evidence, because the key's other conversations may have shown other grants. `principals`
        // keeps the evidence until the end.
        let rejected: HashSet<_> = rejected.map(|principal| principal.key_and_evidence()).collect();
        if rejected.is_empty() {
            return;
        }
        let accepted = |principal: &crate::Principal| !rejected.contains(&principal.key_and_evidence());
        self.end_revoked(accepted);
        self.flush(&mut vec![0; farcall_proto::MAX_DATAGRAM]);
        let now = self.now();
        let core = &mut *self.lock();
        core.protocol.forget_revoked(now, accepted);
        self.give_up_forsaken(core, now);
        self.socket.wake();
    }

    /// Ends the running calls of clients that are no longer accepted.
    #[cfg(feature = "secure")]
    fn end_revoked(&self, accepted: impl Fn(&crate::Principal) -> bool) {
        let now = self.now();
        let core = &mut *self.lock();
        for key in core.protocol.revoked_calls(accepted) {
            let why = "the server no longer accepts this client";
            let failure = Failure::new(Kind::NotPermitted, Ran::Maybe).with_detail(why);
            if core.protocol.finish_early(now, key, failure.into()) {
                self.note_cancelled(core, key);
            }
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sends every datagram that is ready. A datagram that the system refuses is lost, as it may be in a
    /// network.
    fn flush(&self, out: &mut [u8]) {
        let mut alarm = false;
        let write = |out: &mut [u8]| {
            let mut core = self.lock();
            let written = match core.protocol.is_quiet() {
                true => None,
                false => core.protocol.transmit(self.now(), out),
            };
            // What passes inside a call is sent again after a time, which is known once it is written.
            alarm |= core.alarm();
            let Transmit { to, len, insert, cipher } = written?;
            Some(Departing { to, len, insert, cipher, more: !core.protocol.is_quiet() })
        };
        depart(&*self.socket, out, write, |_, _| ());
        if alarm {
            self.watchdog.set();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // No code of the user's runs while this lock is held.
        lock(&self.core)
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
            // The watchdog must wake at the call's deadline.
            self.watchdog.set();
        }
    }

    fn forget(&self, key: CallKey, notice: &Arc<Notice>) {
        self.notices.remove(key, notice);
    }

    fn exchanges(self: Arc<Self>, call: &context::Incoming) -> Option<Arc<dyn Exchanges>> {
        Some(self.exchanges_of(call))
    }
}
