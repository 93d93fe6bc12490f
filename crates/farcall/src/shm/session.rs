//! The server's end of one caller's connection through shared memory: its memory, and the threads that
//! receive from it in turn. The memory has slots. A slot is a small place for one call; long arguments and
//! results pass through rings.
//!
//! One thread at a time receives. It executes calls of quick procedures itself, and hands all others to the
//! server's workers. If the receiving thread gets stuck, or waits in a call of its own, another thread
//! receives. If all threads of the server are taken, that is a spare one, which executes accesses only, and
//! hands quick calls to the server's workers too.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farcall_proto::server::{CallKey, Finish, Incoming};
use farcall_proto::{Ended, Failure, Kind, Ran, ServerConfig, Time, Trace};
use farcall_shm::{
    Call, CallMemory, Request, RequestCursor, SLOT_BODY_BYTES, SLOT_COUNT, SeenWork, Status, UnixChannel,
};

use super::brisk;
use super::budget::{Held, Share};
use super::bulk::Bulk;
use super::drains::{Drains, Told};
use super::host_signal::HostSignal;
use super::large::{Large, MAX_KEPT_BYTES};
use super::outflow::Outflow;
use crate::context::{self, CallServer as _};
use crate::env::Env;
use crate::server::{Back, Caller, Server, Work};
use crate::serving::WorkerPool;
use crate::workers::{Carrier, Habit, Pace, Plan, Pool, Rested, Worker, replace};
use crate::{Principal, lock};

/// How the host, as the watchdog of a receiver that executes calls, looks after it. Each look costs a
/// wake-up, and to wake the watchdog costs the receiver a system call. So the watchdog sleeps after 64 looks
/// in a row without a call.
pub(super) const HABIT: Habit =
    Habit { nap: Duration::from_micros(100), calls: 1, looks: 64, finds_long: false };

/// One caller's connection.
pub(super) struct Session {
    server: Arc<Server>,
    /// The number of this connection in the server's tables. A client that calls by UDP has the number of its
    /// conversation there.
    id: u64,
    from: SocketAddr,
    /// Who calls, and whether the conversation has ended at whose meeting this connection was made, if this
    /// server has keys.
    known: Option<(Arc<Principal>, Ended)>,
    /// The identifier of the caller's process.
    process: i32,
    bulk: Bulk,
    channel: Arc<UnixChannel>,
    spin: Duration,
    state: Mutex<State>,
    /// Whether no more requests are taken, because the caller is gone or the server has stopped.
    ///
    /// SeqCst: a worker announces that it will sleep and then reads this. `close` writes this and then wakes
    /// the workers that have announced this. At least one of the two threads sees what the other wrote.
    closed: AtomicBool,
    /// For each slot, the number of the call that is being executed or queued; 0 if there is none.
    open: Box<[AtomicU64; SLOT_COUNT]>,
    /// Wakes the host, which watches over a receiver that executes.
    signal: Arc<HostSignal>,
}

/// What the host gives a new session.
pub(super) struct Means {
    pub(super) server: Arc<Server>,
    pub(super) channel: Arc<UnixChannel>,
    pub(super) signal: Arc<HostSignal>,
    /// Tells the caller of drains.
    pub(super) drains: Arc<Drains>,
    pub(super) spin: Duration,
    /// The bytes that the caller can make the server hold.
    pub(super) bytes: Share,
    /// The threads that the caller can make the server start.
    pub(super) threads: Share,
}

struct State {
    cursor: RequestCursor,
    pool: Pool,
}

/// What a receiver does next.
enum Next {
    /// Execute the current call. It came in this slot and has this number.
    Execute(usize, u64),
    /// Look for a request again.
    Again,
    /// Wait for a request that is not in `Receiver::seen`.
    Wait,
    Rest,
    Leave,
}

impl Told for Session {
    fn tell_drained(&self, export: Option<u64>) {
        self.bulk.memory.tell_drained(export);
    }
}

impl Session {
    /// Makes a session with this number, for a caller at this address that has proven to be this principal.
    pub(super) fn new(
        means: &Means,
        (id, from, known): (u64, SocketAddr, Option<(Arc<Principal>, Ended)>),
        page: CallMemory,
    ) -> Arc<Session> {
        let pool = Pool::new(usize::MAX, means.server.threads().clone());
        let mut pool = pool.within(Arc::new(means.threads.clone())).with_spare();
        pool.add_first();
        let memory = farcall_shm::Server::new(Arc::new(page));
        let most = ServerConfig::default().max_arguments as usize;
        let large = Large::new(&memory, most, Held::new(means.bytes.clone()));
        Arc::new(Session {
            bulk: Bulk::new(means.server.env().clone(), memory, large, brisk(means.spin)),
            server: means.server.clone(),
            id,
            from,
            known,
            process: means.threads.process(),
            channel: means.channel.clone(),
            spin: means.spin,
            state: Mutex::new(State { cursor: RequestCursor::new(), pool }),
            closed: AtomicBool::new(false),
            open: Box::new([const { AtomicU64::new(0) }; SLOT_COUNT]),
            signal: means.signal.clone(),
        })
    }

    /// Closes the session. A request that no receiver has taken never runs.
    pub(super) fn close(&self) {
        let resting = {
            let state = lock(&self.state);
            self.closed.store(true, Ordering::SeqCst);
            state.pool.resting()
        };
        resting.iter().for_each(|worker| worker.wake());
        self.bulk.memory.wake();
    }

    /// Gives up the calls of a caller whose process has ended, except the calls that go on because the caller
    /// has detached them. If the caller's conversation has ended, none goes on.
    pub(super) fn give_up_calls(&self) {
        for (slot, open) in self.open.iter().enumerate() {
            let number = open.load(Ordering::Acquire);
            if number == 0 || !self.has_ended() && self.bulk.memory.is_detached(slot, number) {
                continue;
            }
            self.server
                .give_up(self.caller(), self.key(slot, number), &|| open.load(Ordering::Acquire) == number);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || self.has_ended()
    }

    /// Returns whether the caller's conversation has ended, and this connection with it.
    pub(super) fn has_ended(&self) -> bool {
        self.known.as_ref().is_some_and(|(_, ended)| ended.has_ended())
    }

    pub(super) fn channel(&self) -> &UnixChannel {
        &self.channel
    }

    /// Answers the call in a slot.
    fn answer(
        &self,
        slot: usize,
        number: u64,
        finish: &Finish,
        reply: &mut Vec<u8>,
        mut outflow: Outflow<'_>,
    ) {
        let (cancelled, detail);
        let finish = match self.server.any_cancelled() {
            true => {
                cancelled = self.unless_cancelled(slot, number, finish);
                &cancelled
            }
            false => finish,
        };
        let (status, body) = match finish {
            Finish::Result => (Status::Result, &reply[..]),
            Finish::Exception => (Status::Exception, &reply[..]),
            Finish::Failed(why) => {
                detail = why.sent_detail();
                (failed(why), detail.as_bytes())
            }
        };
        // The store comes before the answer, because after the answer the caller can use the slot for another
        // call.
        self.open[slot].store(0, Ordering::Release);
        if self.has_ended() {
            // The caller may be one that is no longer accepted, so it is told nothing.
            return;
        }
        let gone = if body.len() > SLOT_BODY_BYTES { outflow.put(body, 0) } else { 0 };
        let rest = &body[gone..];
        self.bulk.memory.prepare(slot, status, rest);
        if rest.len() > SLOT_BODY_BYTES && !self.bulk.keep_reply(slot, number, std::mem::take(reply), gone) {
            let why =
                Failure::new(Kind::TooLarge, Ran::Yes).with_detail("the server holds too many large results");
            self.bulk.memory.prepare(slot, failed(&why), why.detail.as_bytes());
        }
        outflow.end();
        self.bulk.memory.publish(slot, number);
    }

    /// Replaces the outcome of a call that its caller has given up, because the procedure may have returned
    /// only because it was told of that.
    #[cold]
    fn unless_cancelled(&self, slot: usize, number: u64, finish: &Finish) -> Finish {
        if !self.server.is_cancelled(self.key(slot, number)) {
            return finish.clone();
        }
        match finish {
            Finish::Failed(why) if why.ran == Ran::No => finish.clone(),
            Finish::Failed(why) => Failure::new(Kind::Cancelled, why.ran).into(),
            Finish::Result | Finish::Exception => Failure::new(Kind::Cancelled, Ran::Yes).into(),
        }
    }

    fn key(&self, slot: usize, number: u64) -> CallKey {
        CallKey { conversation: self.id, activity: slot as u32, sequence: number }
    }
}

impl Back for Session {
    fn give_back(&self, key: CallKey, finish: Finish, mut reply: Vec<u8>) {
        let (slot, number) = (key.activity as usize % SLOT_COUNT, key.sequence);
        self.answer(slot, number, &finish, &mut reply, Outflow::new(&self.bulk, slot, number));
    }

    fn caller(&self) -> Caller {
        Caller::Process(self.process)
    }
}

impl Carrier for Session {
    const THREAD: &'static str = "farcall-shm";

    fn env(&self) -> &Arc<dyn Env> {
        self.server.env()
    }

    fn with_pool<R>(&self, act: impl FnOnce(&mut Pool) -> R) -> R {
        act(&mut lock(&self.state).pool)
    }

    fn enter(self: &Arc<Self>, pool: Arc<dyn WorkerPool>) {
        context::serve_in_thread(self.server.clone(), pool);
    }

    fn live(self: &Arc<Self>, worker: &Arc<Worker>) {
        self.server.inside(&mut || Receiver::new(self, worker.clone()).live());
    }

    fn wake_watchdog(&self) {
        self.signal.wake();
    }
}

/// A thread that receives and executes calls, with its buffers.
struct Receiver<'p> {
    session: &'p Arc<Session>,
    worker: Arc<Worker>,
    /// The slots as this thread saw them when it last found no request.
    seen: SeenWork,
    /// The arguments of the current call.
    buffer: Vec<u8>,
    reply: Vec<u8>,
    now: Time,
    /// The current call.
    work: Option<Work>,
    /// Whether the last event was a part of a long message, so that the next part comes soon.
    long: bool,
    /// Whether this thread has executed a call since it last looked for a request.
    executed: bool,
}

impl<'p> Receiver<'p> {
    fn new(session: &'p Arc<Session>, worker: Arc<Worker>) -> Receiver<'p> {
        let now = session.server.now();
        Receiver {
            worker,
            seen: SeenWork::default(),
            buffer: Vec::new(),
            reply: Vec::new(),
            now,
            work: None,
            long: false,
            executed: false,
            session,
        }
    }

    fn live(mut self) {
        loop {
            match self.next() {
                Next::Execute(slot, number) => self.execute(slot, number),
                Next::Again => {}
                Next::Wait => self.wait(),
                Next::Rest => match self.worker.rest(&|| self.session.is_closed()) {
                    Rested::Idle | Rested::Over if lock(&self.session.state).pool.retire(&self.worker) => {
                        return;
                    }
                    // If the pool no longer lists this thread as resting, another thread has just called it.
                    Rested::Called | Rested::Idle | Rested::Over => {}
                },
                Next::Leave => return,
            }
        }
    }

    /// Takes a request, if there is one.
    #[inline]
    fn next(&mut self) -> Next {
        let session = self.session;
        let mut state = lock(&session.state);
        if std::mem::take(&mut self.executed) {
            state.pool.done(&self.worker);
            if state.pool.rest(&self.worker) {
                return Next::Rest;
            }
        }
        if session.is_closed() {
            state.pool.leave(&self.worker);
            return Next::Leave;
        }
        let Some((slot, number)) = session.bulk.memory.take(&mut state.cursor) else {
            return self.nothing(state);
        };
        if let Err(failure) = self.read(slot, number) {
            drop(state);
            let outflow = Outflow::new(&session.bulk, slot, number);
            session.answer(slot, number, &failure.into(), &mut self.reply, outflow);
            // Only now: if this process ends in between, as one does that has drained, the call did not run.
            session.bulk.memory.tell_taken(&lock(&session.state).cursor, slot);
            return Next::Again;
        }
        session.bulk.memory.tell_taken(&state.cursor, slot);
        let Some(work) = &self.work else { return Next::Again };
        // (Callers withdraw calls with a deadline only.)
        if work.call.deadline.is_some() && session.bulk.memory.is_withdrawn(slot) {
            drop(state);
            self.refuse_withdrawn();
            return Next::Again;
        }
        if !work.is_quick() {
            drop(state);
            self.hand_in();
            return Next::Again;
        }
        let plan = match work.is_access() {
            false => state.pool.plan(&self.worker, 0, Pace::Quick, || self.now),
            // The spare thread executes accesses too.
            true => state.pool.plan_deferred(&self.worker),
        };
        drop(state);
        match plan {
            Plan::Guarded(true) => session.signal.wake(),
            Plan::Execute(Some(replacement)) => replace(session, replacement),
            Plan::Guarded(false) | Plan::Execute(None) => {}
            Plan::Queue | Plan::Refuse => {
                self.hand_in();
                return Next::Again;
            }
        }
        Next::Execute(slot, number)
    }

    /// Hands the current call to the server's workers.
    fn hand_in(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        work.keep_all(&mut self.buffer);
        work.back = Some(self.session.clone());
        self.session.server.hand_in(work);
    }

    /// Refuses the current call, because its caller has withdrawn it and may have made it elsewhere.
    #[cold]
    fn refuse_withdrawn(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        work.back = Some(self.session.clone());
        self.session.server.refuse_one(work, Failure::new(Kind::Cancelled, Ran::No));
    }

    /// Reads a request that was taken. If the request is a call, it becomes the current call. If this fails,
    /// the failure is the answer to the request.
    #[inline]
    fn read(&mut self, slot: usize, number: u64) -> Result<(), Failure> {
        let session = self.session;
        let request = session.bulk.memory.request(slot);
        if session.open[slot].load(Ordering::Acquire) != 0 {
            return self.close_misused();
        }
        let Request::Call { call, len, bulk } = request else {
            self.long = true;
            return self.part(slot, number, request);
        };
        if session.bulk.keeps_replies() {
            // A caller that uses the slot again does not want the rest of its former result.
            session.bulk.forget_reply(slot, None);
        }
        self.long = false;
        self.buffer.clear();
        if let Some(bulk) = bulk {
            self.long = true;
            let taken = session.bulk.large().take_arguments(bulk, std::mem::take(&mut self.buffer))?;
            let Some(arguments) = taken else { return self.close_misused() };
            self.buffer = arguments;
        }
        session.bulk.memory.arguments(slot, len, &mut self.buffer);
        self.admit(slot, number, &call)
    }

    #[inline]
    fn admit(&mut self, slot: usize, number: u64, call: &Call) -> Result<(), Failure> {
        let session = self.session;
        if call.within.is_some() {
            self.now = session.server.now();
        }
        let trace = call.trace.map(|bytes| {
            let mut trace = Trace { trace: [0; 16], span: [0; 8] };
            trace.trace.copy_from_slice(&bytes[..16]);
            trace.span.copy_from_slice(&bytes[16..]);
            trace
        });
        let incoming = Incoming {
            key: session.key(slot, number),
            export: call.export,
            procedure: call.procedure,
            deadline: call.within.map(|within| self.now + within),
            trace,
            principal: session.known.as_ref().map(|(principal, _)| principal.clone()),
            again: false,
            args: (&self.buffer[..]).into(),
        };
        let work = self.work.insert(session.server.admit(self.now, &session.from, incoming, &self.buffer)?);
        if work.exported.elsewhere().is_some() {
            work.back = Some(session.clone());
        }
        session.open[slot].store(number, Ordering::Release);
        Ok(())
    }

    /// Answers a request that is not a call.
    #[cold]
    fn part(&self, slot: usize, number: u64, request: Request) -> Result<(), Failure> {
        let session = self.session;
        match request {
            Request::Fetch { ring, part, offset } => {
                let found = session
                    .bulk
                    .large()
                    .fetch(slot, offset, |rest| session.bulk.memory.fill(ring, part, rest));
                if !found {
                    return Err(Failure::new(Kind::ResultLost, Ran::Yes));
                }
            }
            Request::Forget => session.bulk.forget_reply(slot, None),
            Request::Call { .. } | Request::Nonsense => return self.close_misused(),
        }
        session.bulk.memory.answer(slot, number, Status::Part, &[]);
        Ok(())
    }

    /// Closes the connection, because the caller breaks the rules.
    #[cold]
    fn close_misused(&self) -> Result<(), Failure> {
        self.session.closed.store(true, Ordering::SeqCst);
        // Both ends notice the closed socket, and so does the host.
        self.session.channel.close();
        Ok(())
    }

    fn execute(&mut self, slot: usize, number: u64) {
        let session = self.session;
        let Some(work) = &mut self.work else { return };
        let mut outflow = Outflow::new(&session.bulk, slot, number);
        let finish =
            work.run(&session.server, &self.buffer, &mut self.reply, &mut self.now, Some(&mut outflow));
        if let Some(finish) = finish {
            self.long |= outflow.is_used();
            session.answer(slot, number, &finish, &mut self.reply, outflow);
            session.server.forget(session.key(slot, number));
            work.exported.end();
        }
        self.work = None;
        for large in [&mut self.buffer, &mut self.reply] {
            if large.capacity() > MAX_KEPT_BYTES {
                *large = Vec::new();
            }
        }
        self.executed = true;
    }

    /// Acts when there is no request: looks for parts of arguments, and for calls that were given up.
    #[inline]
    fn nothing(&mut self, mut state: MutexGuard<'_, State>) -> Next {
        let session = self.session;
        if session.bulk.memory.has_parts(&mut state.cursor) {
            drop(state);
            self.long = true;
            session.bulk.large().look();
            return Next::Again;
        }
        let Some(slot) = session.bulk.memory.given_up(&mut state.cursor) else {
            self.seen = state.cursor.seen();
            return Next::Wait;
        };
        let number = state.cursor.number(slot);
        drop(state);
        let executes = || session.open[slot].load(Ordering::Acquire) == number;
        if executes() {
            session.server.give_up(session.caller(), session.key(slot, number), &executes);
        }
        if session.bulk.keeps_replies() {
            // The call was answered already. Its caller does not want the rest of the result.
            session.bulk.forget_reply(slot, Some(number));
        }
        Next::Again
    }

    /// Waits until the slots have changed since [`Self::seen`]. Polls before it sleeps.
    fn wait(&self) {
        let (session, seen) = (self.session, &self.seen);
        let most = if self.long { session.bulk.brisk } else { session.spin };
        if session.bulk.poll(most, || session.bulk.memory.has_work(seen)) {
            return;
        }
        let intent = session.bulk.memory.announce_sleep();
        if !session.bulk.memory.has_work(seen) && !session.is_closed() {
            session.bulk.memory.sleep(intent);
        }
        session.bulk.memory.announce_awake();
    }
}

fn failed(why: &Failure) -> Status {
    let ran = match why.ran {
        Ran::No => 0,
        Ran::Maybe => 1,
        Ran::Yes => 2,
    };
    Status::Failed { kind: why.kind.code(), ran }
}
