//! One caller's memory at the serving end, and the threads that take turns at receiving from it.
//!
//! One thread at a time receives. It executes what is known to be quick itself; everything else it hands to the
//! server's workers. If it gets stuck nevertheless, or waits in a call of its own, another one receives.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall_proto::server::{CallKey, Finish, Incoming};
use farcall_proto::{Failure, Kind, Ran, ServerConfig, Time, Trace};
use farcall_shm::{Call, DETAIL, Filler, INLINE, Page, Request, SLOTS, Seen, Status, Taker, Wire};

use super::budget::Held;
use super::host::Watch;
use super::large::Large;
use super::meet::Meeting;
use super::outflow::Outflow;
use super::{brisk, spin};
use crate::context::CallServer as _;
use crate::env::Env;
use crate::server::{Back, Caller, Crew, Pace, Plan, Relief, Rested, Seat, Server, Work, last_thread};
use crate::serving::Pool;
use crate::{CallFailed, context};

/// One caller.
pub(super) struct Post {
    server: Arc<Server>,
    /// What stands for its conversation.
    id: u64,
    from: SocketAddr,
    /// The identifier of the caller's process.
    process: i32,
    memory: farcall_shm::Server,
    wire: Arc<Wire>,
    spin: Duration,
    /// How long to look for more without sleeping while something large is on its way.
    brisk: Duration,
    state: Mutex<State>,
    /// The caller is gone, or we are: nothing more is taken.
    closed: AtomicBool,
    /// Of each slot the number of the call that executes, or is queued; 0 if none is.
    open: Box<[AtomicU64; SLOTS]>,
    /// Arguments that come by lanes, results that go in parts.
    large: Mutex<Large>,
    /// How many results are kept there.
    kept: AtomicUsize,
    /// Looks after a receiver that executes.
    watch: Arc<Watch>,
}

struct State {
    taker: Taker,
    crew: Crew,
}

/// Bytes of a buffer that a receiver keeps from one call to the next.
pub(super) const MOST_KEPT: usize = 4 << 20;

/// What a receiver does next.
enum Next {
    /// Executes the call at hand, which came in this slot and has this number.
    Execute(usize, u64),
    /// Looks once more.
    Again,
    /// Waits for a request beyond those seen.
    Wait,
    Rest,
    Leave,
}

impl Post {
    pub(super) fn new(meeting: &Meeting, id: u64, from: SocketAddr, page: Page) -> Arc<Post> {
        let crew = Crew::new(usize::MAX, meeting.server.threads().clone());
        let mut crew = crew.within(Arc::new(meeting.threads.clone()));
        crew.born();
        let brisk = brisk(meeting.spin);
        let memory = farcall_shm::Server::new(Arc::new(page));
        let limits = ServerConfig::default();
        Arc::new(Post {
            large: Mutex::new(Large::new(
                &memory,
                limits.max_arguments as usize,
                Held::new(meeting.bytes.clone()),
            )),
            kept: AtomicUsize::new(0),
            server: meeting.server.clone(),
            id,
            from,
            process: meeting.threads.process(),
            memory,
            wire: meeting.wire.clone(),
            brisk,
            spin: meeting.spin,
            state: Mutex::new(State { taker: Taker::new(), crew }),
            closed: AtomicBool::new(false),
            open: Box::new([const { AtomicU64::new(0) }; SLOTS]),
            watch: meeting.watch.clone(),
        })
    }

    /// Adds a thread that receives. It is counted already.
    pub(super) fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let post = self.clone();
        self.server.env().spawn("farcall-shm", Box::new(move || post.live()))
    }

    /// Receives, in a thread that is counted already, until the post is closed or others receive.
    pub(super) fn live(self: &Arc<Self>) {
        let (server, seat) = (&self.server, Seat::new(self.env().event()));
        self.lock().crew.join(&seat);
        context::serve_in_thread(server.clone(), Arc::new(Placed { post: self.clone(), seat: seat.clone() }));
        server.inside(&mut || Receiver::new(self, seat.clone()).live());
    }

    /// Has somebody receive.
    pub(super) fn relieve(self: &Arc<Self>, relief: Relief) {
        match relief {
            Relief::Rested(seat) => seat.call(),
            Relief::New => {
                if self.spawn().is_err() && self.lock().crew.lost() {
                    self.watch.alarm();
                }
            }
        }
    }

    /// From now on nothing is taken: what is not taken never runs.
    pub(super) fn close(&self) {
        let resting = {
            let state = self.lock();
            self.closed.store(true, Ordering::SeqCst);
            state.crew.resting()
        };
        resting.iter().for_each(|seat| seat.wake());
        self.memory.wake();
    }

    /// The caller's process is gone: nobody waits for its calls, but for those that it detached.
    pub(super) fn forsake(&self) {
        for (slot, open) in self.open.iter().enumerate() {
            let number = open.load(Ordering::SeqCst);
            if number == 0 || self.memory.is_detached(slot, number) {
                continue;
            }
            self.server
                .give_up(self.caller(), self.key(slot, number), &|| open.load(Ordering::SeqCst) == number);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// What the host looks at: how many calls a lone receiver has executed, whether it executes one now, and whether
    /// somebody is to look after it.
    pub(super) fn progress(&self) -> (u64, bool, bool) {
        let state = self.lock();
        (state.crew.progress, state.crew.receiving() == 0, state.crew.guarded)
    }

    /// The receiver is stuck, or has no thread: another one receives. False: there can be none.
    pub(super) fn relieve_if_alone(self: &Arc<Self>) -> bool {
        let relief = match self.is_closed() {
            true => None,
            false => self.lock().crew.relieve_if_alone(),
        };
        let Some(relief) = relief else { return false };
        self.relieve(relief);
        true
    }

    /// Nobody needs to look after the receiver, unless it has executed something meanwhile.
    pub(super) fn unguard(&self, progress: u64) -> bool {
        let mut state = self.lock();
        let quiet = state.crew.progress == progress;
        state.crew.guarded &= !quiet;
        quiet
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        self.server.env()
    }

    pub(super) fn memory(&self) -> &farcall_shm::Server {
        &self.memory
    }

    pub(super) fn brisk(&self) -> Duration {
        self.brisk
    }

    /// A lane for a result, if one is idle.
    pub(super) fn idle_lane(&self) -> Option<Filler> {
        self.large().idle_lane()
    }

    pub(super) fn give_lane_back(&self, filler: Filler) {
        self.large().give_lane_back(filler);
    }

    /// Answers a call.
    fn answer(
        &self,
        slot: usize,
        number: u64,
        finish: &Finish,
        reply: &mut Vec<u8>,
        mut outflow: Outflow<'_>,
    ) {
        let cancelled;
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
                let detail = why.detail.as_bytes();
                (failed(why), detail.get(..DETAIL).unwrap_or(detail))
            }
        };
        // Before the answer: after it the slot may have another call.
        self.open[slot].store(0, Ordering::SeqCst);
        let gone = if body.len() > INLINE { outflow.put(body, 0) } else { 0 };
        let rest = &body[gone..];
        self.memory.prepare(slot, status, rest);
        if rest.len() > INLINE && !self.keep_reply(slot, number, std::mem::take(reply), gone) {
            let why =
                Failure::new(Kind::TooLarge, Ran::Yes).with_detail("the server holds too many large results");
            self.memory.prepare(slot, failed(&why), why.detail.as_bytes());
        }
        outflow.end();
        self.memory.give(slot, number);
    }

    /// Drops what a procedure returned after its caller had given it up: it may have returned it because it
    /// was told so.
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

    /// Keeps what is left of a result until it is fetched. False: there is no room.
    #[cold]
    fn keep_reply(&self, slot: usize, number: u64, reply: Vec<u8>, from: usize) -> bool {
        let mut large = self.large();
        let is_kept = large.keep_reply(slot, number, reply, from);
        self.kept.store(large.kept(), Ordering::Relaxed);
        is_kept
    }

    /// Forgets what is kept of a slot's result: that of this number alone, or any.
    #[cold]
    fn forget_reply(&self, slot: usize, number: Option<u64>) {
        let mut large = self.large();
        large.forget(slot, number);
        self.kept.store(large.kept(), Ordering::Relaxed);
    }

    fn key(&self, slot: usize, number: u64) -> CallKey {
        CallKey { conversation: self.id, activity: slot as u32, sequence: number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of a user's runs while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn large(&self) -> MutexGuard<'_, Large> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Back for Post {
    fn give_back(&self, key: CallKey, finish: Finish, mut reply: Vec<u8>) {
        let (slot, number) = (key.activity as usize % SLOTS, key.sequence);
        self.answer(slot, number, &finish, &mut reply, Outflow::new(self, slot, number));
    }

    fn caller(&self) -> Caller {
        Caller::Process(self.process)
    }
}

/// A thread that receives, as the calls see it that it makes.
struct Placed {
    post: Arc<Post>,
    seat: Arc<Seat>,
}

impl Pool for Placed {
    fn may_wait(&self) -> Result<(), CallFailed> {
        match self.post.lock().crew.is_last() {
            true => Err(last_thread(self.post.server.threads())),
            false => Ok(()),
        }
    }

    fn begin_wait(&self) -> bool {
        let relief = {
            let mut state = self.post.lock();
            if !state.crew.step_aside(&self.seat) {
                return false;
            }
            state.crew.relieve_waiting()
        };
        if let Some(relief) = relief {
            self.post.relieve(relief);
        }
        true
    }

    fn end_wait(&self) {
        self.post.lock().crew.step_back(&self.seat);
    }
}

/// A thread that receives.
struct Receiver<'p> {
    post: &'p Arc<Post>,
    seat: Arc<Seat>,
    /// The requests that were taken.
    seen: Seen,
    /// The arguments of the call at hand, and its reply.
    buffer: Vec<u8>,
    reply: Vec<u8>,
    now: Time,
    /// The call at hand.
    work: Option<Work>,
    /// Something long was on its way: what comes next comes soon.
    long: bool,
    /// It has executed a call since it last looked.
    executed: bool,
}

impl<'p> Receiver<'p> {
    fn new(post: &'p Arc<Post>, seat: Arc<Seat>) -> Receiver<'p> {
        let now = post.server.now();
        Receiver {
            seat,
            seen: Seen::default(),
            buffer: Vec::new(),
            reply: Vec::new(),
            now,
            work: None,
            long: false,
            executed: false,
            post,
        }
    }

    fn live(mut self) {
        loop {
            match self.next() {
                Next::Execute(slot, number) => self.execute(slot, number),
                Next::Again => {}
                Next::Wait => self.wait(),
                Next::Rest => match self.seat.rest(&|| self.post.is_closed()) {
                    Rested::Idle | Rested::Over if self.post.lock().crew.retire(&self.seat) => return,
                    // It was called at the last moment, if nobody knows that it rests.
                    Rested::Called | Rested::Idle | Rested::Over => {}
                },
                Next::Leave => return,
            }
        }
    }

    /// Takes a request, if there is one.
    #[inline]
    fn next(&mut self) -> Next {
        let post = self.post;
        let mut state = post.lock();
        if std::mem::take(&mut self.executed) {
            state.crew.done(&self.seat);
            if state.crew.rest(&self.seat) {
                return Next::Rest;
            }
        }
        if post.is_closed() {
            state.crew.leave(&self.seat);
            return Next::Leave;
        }
        let Some((slot, number)) = post.memory.take(&mut state.taker) else {
            return self.nothing(state);
        };
        if let Err(failure) = self.read(slot, number) {
            drop(state);
            let outflow = Outflow::new(post, slot, number);
            post.answer(slot, number, &failure.into(), &mut self.reply, outflow);
            return Next::Again;
        }
        let Some(work) = &self.work else { return Next::Again };
        if !work.is_quick() {
            drop(state);
            self.hand_in();
            return Next::Again;
        }
        let plan = state.crew.plan(&self.seat, 0, Pace::Quick, self.now);
        drop(state);
        match plan {
            Plan::Guarded(true) => post.watch.alarm(),
            Plan::Execute(Some(relief)) => post.relieve(relief),
            _ => {}
        }
        Next::Execute(slot, number)
    }

    /// Has a worker execute the call at hand.
    fn hand_in(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        work.keep_all(&mut self.buffer);
        work.back = Some(self.post.clone());
        self.post.server.hand_in(work);
    }

    /// Reads the request that was taken: a call is at hand then. What fails is to be answered so.
    #[inline]
    fn read(&mut self, slot: usize, number: u64) -> Result<(), Failure> {
        let post = self.post;
        let request = post.memory.request(slot);
        if post.open[slot].load(Ordering::SeqCst) != 0 {
            return self.misused();
        }
        let Request::Call { call, len, added } = request else {
            self.long = true;
            return self.part(slot, number, request);
        };
        if post.kept.load(Ordering::Relaxed) > 0 {
            // Whoever calls again in this slot wants no more of its former result.
            post.forget_reply(slot, None);
        }
        self.long = false;
        self.buffer.clear();
        if let Some(added) = added {
            self.long = true;
            let taken = post.large().take_arguments(added, std::mem::take(&mut self.buffer))?;
            let Some(arguments) = taken else { return self.misused() };
            self.buffer = arguments;
        }
        post.memory.arguments(slot, len, &mut self.buffer);
        self.admit(slot, number, &call)
    }

    #[inline]
    fn admit(&mut self, slot: usize, number: u64, call: &Call) -> Result<(), Failure> {
        let post = self.post;
        if call.within.is_some() {
            self.now = post.server.now();
        }
        let trace = call.trace.map(|bytes| {
            let mut trace = Trace { trace: [0; 16], span: [0; 8] };
            trace.trace.copy_from_slice(&bytes[..16]);
            trace.span.copy_from_slice(&bytes[16..]);
            trace
        });
        let incoming = Incoming {
            key: post.key(slot, number),
            export: call.export,
            procedure: call.procedure,
            deadline: call.within.map(|within| self.now + within),
            trace,
            again: false,
            args: (&self.buffer[..]).into(),
        };
        let work = self.work.insert(post.server.admit(self.now, &post.from, incoming, &self.buffer)?);
        if work.exported.elsewhere().is_some() {
            work.back = Some(post.clone());
        }
        post.open[slot].store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Deals with what is no call.
    #[cold]
    fn part(&self, slot: usize, number: u64, request: Request) -> Result<(), Failure> {
        let post = self.post;
        match request {
            Request::Fetch { lane, part, offset } => {
                let found = post.large().fetch(slot, offset, |rest| post.memory.fill(lane, part, rest));
                if !found {
                    return Err(Failure::new(Kind::ResultLost, Ran::Yes));
                }
            }
            Request::Forget => post.forget_reply(slot, None),
            Request::Call { .. } | Request::Nonsense => return self.misused(),
        }
        post.memory.answer(slot, number, Status::Part, &[]);
        Ok(())
    }

    /// The caller breaks the rules: nothing more is taken from it.
    #[cold]
    fn misused(&self) -> Result<(), Failure> {
        self.post.closed.store(true, Ordering::SeqCst);
        // Both ends hear that, the host too.
        self.post.wire.close();
        Ok(())
    }

    fn execute(&mut self, slot: usize, number: u64) {
        let post = self.post;
        let Some(work) = &mut self.work else { return };
        let mut outflow = Outflow::new(post, slot, number);
        let finish = work.run(&post.server, &self.buffer, &mut self.reply, &mut self.now, Some(&mut outflow));
        if let Some(finish) = finish {
            self.long |= outflow.is_used();
            post.answer(slot, number, &finish, &mut self.reply, outflow);
            post.server.forget(post.key(slot, number));
            work.exported.end();
        }
        self.work = None;
        for large in [&mut self.buffer, &mut self.reply] {
            if large.capacity() > MOST_KEPT {
                *large = Vec::new();
            }
        }
        self.executed = true;
    }

    /// There is no request; perhaps parts of arguments, or one that was given up.
    #[inline]
    fn nothing(&mut self, mut state: MutexGuard<'_, State>) -> Next {
        let post = self.post;
        if post.memory.has_parts(&mut state.taker) {
            drop(state);
            self.long = true;
            post.large().look();
            return Next::Again;
        }
        let Some(slot) = post.memory.given_up(&mut state.taker) else {
            self.seen = state.taker.seen();
            return Next::Wait;
        };
        let number = state.taker.number(slot);
        drop(state);
        let executes = || post.open[slot].load(Ordering::SeqCst) == number;
        if executes() {
            post.server.give_up(post.caller(), post.key(slot, number), &executes);
        }
        if post.kept.load(Ordering::Relaxed) > 0 {
            // Answered already, and nobody wants it.
            post.forget_reply(slot, Some(number));
        }
        Next::Again
    }

    /// Waits until there is more than was seen, at first with open eyes.
    fn wait(&self) {
        let (post, seen) = (self.post, &self.seen);
        let most = if self.long { post.brisk } else { post.spin };
        if spin(&**post.server.env(), most, || post.memory.is_rung(seen)) {
            return;
        }
        let lying = post.memory.lie_down();
        if !post.memory.is_rung(seen) && !post.is_closed() {
            post.memory.sleep(lying);
        }
        post.memory.get_up();
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
