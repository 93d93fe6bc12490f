//! A worker's life: it receives, executes, gives back, and rests when another receives.

mod deferred;
mod send;

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use farcall_proto::server::{CallKey, Finish, Incoming, Reading, Request, Transmit};
use farcall_proto::{Failure, Kind, Ran, Time};

use deferred::{ALARM, USER_CODE};

use super::call::{Train, Work};
use super::parts::LongParts;
use super::{Caller, Core, Outlet, Server, counter_segment};
use crate::Bytes;
use crate::depart;
use crate::env::{Received, Wait, train};
use crate::workers::{Pace, Plan, Replacement, Rested, Worker, replace};
use farcall_proto::ACCESSES;

/// What a worker does next.
enum Next {
    /// The call that stands in `current`.
    Execute,
    /// Whatever waits to be done, or to receive.
    Look,
    Receive,
    Rest,
}

/// A worker.
struct Receiver<'s> {
    server: &'s Arc<Server>,
    worker: Arc<Worker>,
    buffer: Box<[u8]>,
    /// Those that calls share which came in them.
    lent: Vec<Train>,
    /// Room for one datagram that leaves, and one that was written there and is to be sent when nothing is
    /// locked.
    out: Box<[u8]>,
    written: Option<Transmit>,
    /// Room for a result, and what of it was not copied.
    reply: Vec<u8>,
    parts: LongParts,
    /// It will be long.
    long: bool,
    /// What else there is to do before the next call.
    deferred_work: u8,
    /// What was not copied of results that were sent. It may be the user's, and is dropped when nothing is
    /// locked.
    to_drop: Vec<Bytes>,
    /// It minds accesses that wait for their turn: until they are done it executes no calls, and does some
    /// between two datagrams.
    draining_backlog: bool,
    /// Whom accesses are to wake, when nothing is locked.
    woken: Vec<Waker>,
    /// Nobody executes, so that spinning takes the processor from none of ours.
    alone: bool,
    /// About the time of the last thing that happened, readings aside, of which so many came.
    now: Time,
    readings: u32,
    /// The call that is to be executed here.
    current: Option<Work>,
    /// Memory was accessed, and this leaves at once.
    answer: Option<Transmit>,
    /// Accesses to memory that came in one datagram, empty between two.
    accesses: Vec<Incoming<'static>>,
    /// Calls that came, calls that were given up, and calls to refuse: empty between two receives.
    arrived: Vec<Work>,
    cancelled: Vec<CallKey>,
    refused: Vec<(Work, Failure)>,
    /// Results of the train that is being executed which were not sent by themselves.
    deferred: usize,
    /// Who is to help with a train's calls that are not quick.
    helper: Option<Replacement>,
}

/// Has a procedure executed whose results are long: they are not all copied.
#[cold]
fn run_long(
    work: &mut Work,
    server: &Arc<Server>,
    buffer: &[u8],
    reply: &mut Vec<u8>,
    now: &mut Time,
    parts: &mut LongParts,
) -> Option<Finish> {
    parts.0 = None;
    let outlet = work.back.is_none().then_some(parts as &mut dyn Outlet);
    work.run(server, buffer, reply, now, outlet)
}

/// A train of so many bytes is worth a buffer of its own, and a worker has so many of these at most.
const MUCH: usize = 8 << 10;
const MOST_LENT: usize = 4;

/// Room for all that is received at once.
fn buffer() -> Box<[u8]> {
    vec![0; 64 << 10].into_boxed_slice()
}

/// How long to keep off a socket that fails in a way that we do not know.
const PAUSE: Duration = Duration::from_millis(10);

/// Lives a worker's life.
pub(super) fn live(server: &Arc<Server>, worker: Arc<Worker>) {
    Receiver::new(server, worker).live();
}

impl<'s> Receiver<'s> {
    fn new(server: &'s Arc<Server>, worker: Arc<Worker>) -> Receiver<'s> {
        Receiver {
            worker,
            buffer: buffer(),
            lent: Vec::new(),
            out: vec![0; depart::ROOM].into_boxed_slice(),
            written: None,
            reply: Vec::new(),
            parts: LongParts::default(),
            long: false,
            deferred_work: 0,
            to_drop: Vec::new(),
            draining_backlog: false,
            woken: Vec::new(),
            alone: true,
            now: server.env.now(),
            readings: 0,
            current: None,
            answer: None,
            accesses: Vec::new(),
            arrived: Vec::new(),
            cancelled: Vec::new(),
            refused: Vec::new(),
            deferred: 0,
            helper: None,
            server,
        }
    }

    fn live(mut self) {
        let server = self.server;
        let mut next = self.next();
        while !server.is_stopped() {
            next = match next {
                Next::Execute => self.execute(),
                Next::Look => self.next(),
                Next::Receive => self.receive(),
                Next::Rest => match self.worker.rest(&|| server.is_stopped()) {
                    Rested::Called => self.next(),
                    Rested::Idle if !server.lock().pool.retire(&self.worker) => Next::Rest,
                    Rested::Idle | Rested::Over => return,
                },
            };
        }
        // A call that came too late is dropped: its caller hears nothing, as when a process ends.
    }

    /// Waits for a datagram and takes it in.
    fn receive(&mut self) -> Next {
        let socket = &self.server.socket;
        // The protocol's timers are the watchdog's: to wait without a time-out is cheaper.
        let received = match self.alone {
            _ if self.draining_backlog => socket.receive(&mut self.buffer, Wait::No),
            true => socket.receive(&mut self.buffer, Wait::Forever),
            false => socket.receive_at_rest(&mut self.buffer, Wait::Forever),
        };
        let Ok(Received::Datagrams { ref from, len, each }) = received else { return self.idle(&received) };
        if each >= len
            && let Some(next) = self.read(from, len)
        {
            return next;
        }
        self.now = self.server.about_now();
        self.take_in(from, len, each)
    }

    /// Nothing came.
    #[cold]
    fn idle(&mut self, received: &io::Result<Received>) -> Next {
        self.now = self.server.about_now();
        match received {
            Ok(Received::TimedOut) if self.draining_backlog => self.next(),
            Ok(Received::Woken) => self.woken(),
            // That a client is gone shows in that it asks no more.
            Ok(_) => Next::Receive,
            Err(_) => {
                self.server.env.event().wait(Some(PAUSE));
                Next::Receive
            }
        }
    }

    /// There may be room for an access or a call that waits for it.
    #[cold]
    fn woken(&mut self) -> Next {
        let waits = {
            let core = self.server.lock();
            let users = core.protocol.has_loose() || !core.accessor.woken.is_empty();
            !core.backlog.is_empty() || !core.is_free() || users
        };
        if waits { self.next() } else { Next::Receive }
    }

    /// Whether it may rest, if others receive: it has nothing to do.
    #[inline]
    fn may_rest(&self, planned: &Option<Plan>) -> bool {
        planned.is_none() && self.deferred_work & USER_CODE == 0
    }

    /// Notes what the next wait depends on, and whether the watchdog is to be woken.
    fn look(&mut self, core: &mut Core) {
        self.deferred_work |= if core.alarm() { ALARM } else { 0 };
        if !core.accessor.woken.is_empty() || core.protocol.has_loose() {
            self.note_user_code(core);
        }
        self.alone = core.pool.nobody_executes();
    }

    /// Takes in what was received: one call is executed here, others are queued.
    fn take_in(&mut self, from: &SocketAddr, len: usize, each: usize) -> Next {
        let (server, draining_backlog) = (self.server, self.draining_backlog);
        let (mut planned, mut sent) = (None, false);
        let crowded = {
            let mut core = server.lock();
            let core = &mut *core;
            core.backlog.begin();
            train(len, each).for_each(|place| self.handle(core, from, place, each >= len));
            if self.answer.is_none() {
                let draining_backlog = self.catch_up(core);
                planned = if draining_backlog { self.leave_calls(core, len) } else { self.choose(core, len) };
                // A refusal must be there before the word that its call is with us, or the caller who
                // cancelled it never learns that it did not run.
                sent = self.refused.is_empty() && self.transmit(core);
            }
            self.look(core);
            core.pool.receiving() > 1
        };
        if let Some(answer) = self.answer.take() {
            self.send(Some(answer));
            if !crowded && self.deferred_work == 0 {
                return Next::Receive;
            }
        }
        if !self.refused.is_empty() {
            self.refuse();
        }
        if sent {
            self.flush();
        }
        match self.begin(planned) {
            Next::Receive if self.draining_backlog => Next::Receive,
            // Calls that were left to somebody else may wait still: perhaps nobody came.
            Next::Receive if draining_backlog => self.next(),
            Next::Receive => self.make_way(),
            next => next,
        }
    }

    /// Does some of the accesses that wait, if any do, and minds the others if nobody does. Says whether it
    /// does.
    #[inline]
    fn catch_up(&mut self, core: &mut Core) -> bool {
        (self.draining_backlog || !core.backlog.is_empty()) && self.do_some(core)
    }

    #[cold]
    fn do_some(&mut self, core: &mut Core) -> bool {
        core.catch_up(self.now, &mut self.reply);
        self.draining_backlog = core.backlog.is_to_be_minded(self.draining_backlog);
        self.draining_backlog
    }

    /// The calls that came are left to somebody else.
    #[cold]
    fn leave_calls(&mut self, core: &mut Core, len: usize) -> Option<Plan> {
        if self.current.is_some() || !self.arrived.is_empty() {
            self.line_up(core, len);
            if self.helper.is_none() && !core.queue.is_empty() {
                self.helper = core.replacement_for_queue();
            }
        }
        None
    }

    /// Answers the reading that came in a datagram, if it is one. What may have to be done besides is so only
    /// after something else. The time tells who was idle longest, and nothing else: it is looked at now and
    /// then.
    #[inline(always)]
    fn read(&mut self, from: &SocketAddr, len: usize) -> Option<Next> {
        const ONE_IN: u32 = 64;
        let reading = Reading::peek(&self.buffer[..len])?;
        let server = self.server;
        self.readings = self.readings.wrapping_add(1);
        if self.readings.is_multiple_of(ONE_IN) {
            self.now = server.now();
        }
        let (answer, rest) = {
            let mut core = server.lock();
            let answer = core.read(self.now, from, reading, &mut self.out)?;
            self.alone = core.pool.nobody_executes();
            // As in `make_way`.
            (answer, !self.draining_backlog && core.pool.make_way(&self.worker))
        };
        // What the system refuses is lost, like any datagram.
        let _ = server.socket.send(*from, &self.out[..answer]);
        Some(if rest { Next::Rest } else { Next::Receive })
    }

    /// Where two receive, who took in no call rests: both would act on what comes, a long message's, and send
    /// in disorder.
    #[cold]
    fn make_way(&self) -> Next {
        if self.server.lock().pool.make_way(&self.worker) { Next::Rest } else { Next::Receive }
    }

    /// Gives a datagram to the protocol. Of the calls that it brings the first stands in `current`, the quick
    /// ones among the others in the batch, and the rest in `arrived`; accesses to memory are executed.
    #[inline(never)]
    fn handle(&mut self, core: &mut Core, from: &SocketAddr, place: Range<usize>, only: bool) {
        let Core { protocol, exports, counter_segment, batch, accessor, .. } = core;
        let datagram = &self.buffer[place.clone()];
        let (server, now) = (self.server, Cell::new(self.now));
        let (current, arrived, cancelled) = (&mut self.current, &mut self.arrived, &mut self.cancelled);
        let accesses = &mut self.accesses;
        let mut take = |incoming: Incoming<'_>| {
            if incoming.procedure >= ACCESSES {
                return accesses.push(incoming.into_owned());
            }
            let exported = exports
                .find(incoming.export)
                .or_else(|| counter_segment::find(counter_segment, incoming.export));
            // Answered below, as an access of nothing is.
            let Some(exported) = exported else { return accesses.push(incoming.into_owned()) };
            let work = || Work::new(now.get(), from, incoming, exported, datagram, place.start);
            // Made where it stays: it is some 200 bytes.
            if current.is_none() {
                *current = Some(work());
                return;
            }
            let work = work();
            if work.is_light() { batch.push_back(work) } else { arrived.push(work) }
        };
        let clock = || {
            now.set(server.now());
            now.get()
        };
        let lone = protocol.receive_call(now.get(), clock, from, datagram, &mut |request| match request {
            Request::Call(incoming) => take(incoming),
            Request::Post(export, bytes) => {
                if let Some(exported) = exports.find(export)
                    && let Some(memory) = exported.memory()
                {
                    exported.count_access();
                    accessor.from = Some(*from);
                    memory.post(accessor, bytes);
                }
            }
            Request::Cancel(key) => cancelled.push(key),
        });
        self.now = now.get();
        match lone {
            Some(incoming) if incoming.procedure < ACCESSES => take(incoming),
            Some(incoming) => {
                // The one datagram that is made here must leave before the next.
                let out = if only { &mut self.out[..] } else { &mut [] };
                self.answer = core.access_in_turn(self.now, *from, incoming, out, &mut self.reply);
            }
            None => {}
        }
        if !self.accesses.is_empty() || !self.cancelled.is_empty() {
            self.settle_requests(core, from);
        }
    }

    /// Executes the accesses that came with something else, and acts on what was given up.
    #[inline(never)]
    fn settle_requests(&mut self, core: &mut Core, from: &SocketAddr) {
        if !self.cancelled.is_empty() {
            self.give_up_accesses(core);
        }
        for incoming in self.accesses.drain(..) {
            core.access_in_turn(self.now, *from, incoming, &mut [], &mut self.reply);
        }
        if !self.cancelled.is_empty() {
            self.cancel(core);
        }
    }

    /// Ends the accesses that were given up, those of this datagram and those that wait, before any other is
    /// executed or waits. An access that has ended would leave its cancel with us: nobody would forget it.
    #[cold]
    fn give_up_accesses(&mut self, core: &mut Core) {
        let given_up: HashSet<CallKey> = self.cancelled.iter().copied().collect();
        let mut ended = HashSet::new();
        for incoming in self.accesses.extract_if(.., |incoming| given_up.contains(&incoming.key)) {
            ended.insert(incoming.key);
            core.end_access(self.now, incoming, Failure::new(Kind::Cancelled, Ran::No));
        }
        self.cancelled.retain(|key| !ended.contains(key) && !core.give_up_access(self.now, *key));
    }

    /// Refuses the calls that were given up and have not begun. Those that execute are to be told.
    #[cold]
    fn cancel(&mut self, core: &mut Core) {
        for key in self.cancelled.drain(..) {
            let caller = Caller::Conversation(key.conversation);
            let unbegun = match self.arrived.iter().position(|work| work.call.key == key) {
                Some(at) => Some(self.arrived.remove(at)),
                None => {
                    self.current.take_if(|work| work.call.key == key).or_else(|| core.remove(caller, key))
                }
            };
            match unbegun {
                Some(work) => self.refused.push((work, Failure::new(Kind::Cancelled, Ran::No))),
                None => self.server.note_cancelled(core, key),
            }
        }
    }

    /// Chooses what to execute here. What came alone goes first if it is quick, or if nothing waits.
    fn choose(&mut self, core: &mut Core, len: usize) -> Option<Plan> {
        if !self.arrived.is_empty() || core.batch.back().is_some_and(|work| !work.is_shared()) {
            self.line_up(core, len);
            return self.next_in_line(core);
        }
        let Some(work) = &self.current else { return self.next_held(core) };
        let (pace, usual) = work.outlook();
        let begins =
            (core.is_free() || pace == Pace::Quick) && (usual == 0 || core.may_begin(work.call.key, usual));
        let plan =
            if begins { core.pool.plan(&self.worker, work.host(), pace, self.now) } else { Plan::Queue };
        match plan {
            Plan::Queue => {
                let work = self.current.take()?;
                self.now = self.server.now();
                self.queue(core, work);
            }
            Plan::Refuse => {
                let work = self.current.take()?;
                self.refuse_stuck(core, work);
            }
            plan => {
                self.make_room(core, usual);
                return Some(plan);
            }
        }
        self.next_in_line(core)
    }

    /// No call came, but perhaps there is room for the result of one.
    #[inline(never)]
    fn next_held(&mut self, core: &mut Core) -> Option<Plan> {
        if core.queue.holds_any() { self.next_in_line(core) } else { None }
    }

    /// Calls came together: quick ones are executed here one after the other, unless another worker
    /// comes to help.
    #[inline(never)]
    fn line_up(&mut self, core: &mut Core, len: usize) {
        self.now = self.server.now();
        if let Some(first) = self.current.take_if(|work| work.is_light()) {
            match core.batch.front() {
                Some(next) if !next.is_received() => core.batch.push_back(first),
                _ => core.batch.push_front(first),
            }
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        for work in self.current.take().into_iter().chain(arrived.drain(..)) {
            self.queue(core, work);
        }
        self.arrived = arrived;
        let train = self.train(len);
        // Calls that were in the batch before share an older buffer, so it ends there. Calls whose last
        // fragment came now have a buffer of their own already.
        core.batch
            .iter_mut()
            .rev()
            .take_while(|work| !work.is_shared())
            .for_each(|work| work.share_arguments(&train));
        if !core.batch.is_empty() && !core.queue.is_empty() {
            self.helper = core.replacement_for_queue();
        }
    }

    /// What was received, for those to share who came in it. Much is not copied: another buffer takes the
    /// place of that.
    fn train(&mut self, len: usize) -> Train {
        let copy = |buffer: &[u8]| Arc::new(Box::from(&buffer[..len]));
        if len < MUCH {
            return copy(&self.buffer);
        }
        let returned = self.lent.iter().position(|train| Arc::strong_count(train) == 1);
        let returned = returned.and_then(|place| Arc::try_unwrap(self.lent.swap_remove(place)).ok());
        if returned.is_none() && self.lent.len() == MOST_LENT {
            return copy(&self.buffer);
        }
        let train = Arc::new(std::mem::replace(&mut self.buffer, returned.unwrap_or_else(buffer)));
        self.lent.push(train.clone());
        train
    }

    /// Takes the next call, from the batch or else from the queue, if it may be executed now. A call is moved
    /// only once, when it is taken, because it has about 200 bytes.
    fn next_in_line(&mut self, core: &mut Core) -> Option<Plan> {
        core.admit();
        loop {
            let Some(work) = core.batch.front() else { return self.next_waiting(core) };
            match core.pool.plan(&self.worker, work.host(), Pace::Quick, self.now) {
                Plan::Queue => {
                    core.queue.unpop(core.batch.pop_front()?);
                    return None;
                }
                Plan::Refuse => {
                    let work = core.batch.pop_front()?;
                    self.refuse_stuck(core, work);
                }
                plan => {
                    let usual = work.usual_result();
                    self.make_room(core, usual);
                    self.current = core.batch.pop_front();
                    return Some(plan);
                }
            }
        }
    }

    /// Takes the next waiting call, if it may be executed now. [`Self::next_in_line`] calls this when its
    /// batch of quick calls is empty.
    #[inline(never)]
    fn next_waiting(&mut self, core: &mut Core) -> Option<Plan> {
        loop {
            let work = core.next_waiting()?;
            match core.pool.plan(&self.worker, work.host(), work.pace(), self.now) {
                Plan::Queue => {
                    core.queue.unpop(work);
                    return None;
                }
                Plan::Refuse => self.refuse_stuck(core, work),
                plan => {
                    self.now = self.server.now();
                    work.waited(self.now);
                    self.make_room(core, work.usual_result());
                    self.current = Some(work);
                    return Some(plan);
                }
            }
        }
    }

    /// Sees to it that there is room for a result, of `usual` bytes if it will be long.
    #[inline]
    fn make_room(&mut self, core: &mut Core, usual: usize) {
        if self.reply.capacity() < usual.max(1) {
            self.long = usual > 0;
            self.reply = core.protocol.buffer(self.now, usual);
        }
    }

    fn queue(&mut self, core: &mut Core, mut work: Work) {
        work.keep_arguments(&self.buffer);
        work.waits(self.now);
        let lacking = core.line_up(work);
        self.refused.extend(lacking.into_iter().map(|work| (work, core.queue.full())));
    }

    /// Refuses a call for which there is no thread.
    #[cold]
    fn refuse_stuck(&mut self, core: &Core, work: Work) {
        self.refused.push((work, core.stuck()));
    }

    /// Does what was planned, as far as it concerns others.
    #[inline(always)]
    fn begin(&mut self, planned: Option<Plan>) -> Next {
        if let Some(helper) = self.helper.take() {
            replace(self.server, helper);
        }
        let next = match planned {
            Some(plan) => {
                self.leave_to_others(plan);
                Next::Execute
            }
            None => Next::Receive,
        };
        if self.deferred_work == 0 { next } else { self.run_deferred(next) }
    }

    /// Has others receive, or look after this one, as was planned.
    #[inline(always)]
    fn leave_to_others(&self, plan: Plan) {
        match plan {
            Plan::Execute(Some(helper)) => replace(self.server, helper),
            Plan::Guarded(true) => self.server.watchdog.set(),
            _ => {}
        }
    }

    /// Refuses the calls for which there is no room, and those given up.
    #[cold]
    fn refuse(&mut self) {
        for (work, failure) in std::mem::take(&mut self.refused) {
            let mut reply = Vec::new();
            let finish = work.give_back(Some(failure.into()), &mut reply);
            let (sent, admitted) = {
                let mut core = self.server.lock();
                let (now, key, out) = (self.now, work.call.key, &mut self.out);
                let sent = finish.and_then(|finish| core.protocol.finish(now, key, finish, &mut reply, out));
                self.server.forget_cancelled(&mut core, key);
                (sent, core.admit())
            };
            if admitted {
                self.server.socket.wake();
            }
            work.exported.end();
            self.send(sent);
        }
        self.send(None);
    }

    /// Executes a call, gives its outcome back, and says what is next.
    #[inline(never)]
    fn execute(&mut self) -> Next {
        let Some(work) = &mut self.current else { return Next::Receive };
        let finish = match self.long {
            false => work.run(self.server, &self.buffer, &mut self.reply, &mut self.now, None),
            true => {
                run_long(work, self.server, &self.buffer, &mut self.reply, &mut self.now, &mut self.parts)
            }
        };
        let (server, key) = (self.server, work.call.key);
        let elsewhere = finish.is_none();
        let finish = work.give_back(finish, &mut self.reply);
        // The former call stays where it is unless another takes its place, so that its 200 bytes are not
        // moved.
        let replaced;
        let (planned, alone, sent, rest) = {
            let mut core = server.lock();
            let core = &mut *core;
            let alone = self.deferred == 0 && core.batch.is_empty();
            let sent = match self.long {
                false => self.finish(core, key, finish),
                true => {
                    self.finish_long(core, key, finish);
                    None
                }
            };
            if !elsewhere {
                server.forget_cancelled(core, key);
            }
            core.pool.done(&self.worker);
            if let Some(work) = &mut self.current {
                work.give_room_back(&mut core.protocol);
            }
            let planned = match core.is_free() {
                true => {
                    replaced = None;
                    None
                }
                false => {
                    replaced = self.current.take();
                    self.next_in_line(core)
                }
            };
            self.look(core);
            let rest = self.may_rest(&planned) && core.pool.rest(&self.worker);
            (planned, alone, sent, rest)
        };
        if alone {
            self.send(sent);
        } else {
            self.flush();
        }
        let executed = replaced.as_ref().or(self.current.as_ref());
        if let Some(work) = executed.filter(|_| !elsewhere) {
            work.exported.end();
        }
        if planned.is_none() {
            self.current = None;
        }
        if !self.refused.is_empty() {
            self.refuse();
        }
        let next = self.begin(planned);
        if rest { Next::Rest } else { next }
    }

    /// Gives an outcome to the protocol, and says what to send. Those of a train leave together: at its end,
    /// or some at a time, for the caller to have something to do meanwhile.
    #[inline(always)]
    fn finish(&mut self, core: &mut Core, key: CallKey, finish: Option<Finish>) -> Option<Transmit> {
        const TOGETHER: usize = 64;
        let (now, reply, lone) = (self.now, &mut self.reply, self.deferred == 0 && core.batch.is_empty());
        let out = if lone { &mut self.out[..] } else { &mut [] };
        let sent = finish.and_then(|finish| core.protocol.finish(now, key, finish, reply, out));
        if lone {
            return sent;
        }
        self.deferred += 1;
        if core.batch.is_empty() {
            self.deferred = 0;
        } else if !self.deferred.is_multiple_of(TOGETHER) {
            return None;
        }
        self.transmit(core);
        None
    }

    /// Finishes a call whose result is long, without copying long `Bytes` in it.
    #[cold]
    fn finish_long(&mut self, core: &mut Core, key: CallKey, finish: Option<Finish>) {
        self.long = false;
        let alone = self.deferred == 0 && core.batch.is_empty();
        let Some(finish) = finish else { return };
        match (finish, self.parts.0.take()) {
            (finish, Some(insert)) => {
                core.protocol.finish_around(self.now, key, finish, &mut self.reply, insert)
            }
            (finish, None) => {
                core.protocol.finish(self.now, key, finish, &mut self.reply, &mut []);
            }
        }
        if !alone {
            self.deferred = 0;
            self.transmit(core);
        }
    }

    /// Of one who is at the socket: is there a call that waits, or a result of one who overruns?
    fn next(&mut self) -> Next {
        let server = self.server;
        let (planned, rest) = {
            let mut core = server.lock();
            core.backlog.begin();
            let draining_backlog = self.catch_up(&mut core);
            self.look(&mut core);
            let planned = if draining_backlog { None } else { self.next_in_line(&mut core) };
            // One who was called to a call that somebody else has taken since is one too many.
            let rest = self.may_rest(&planned) && !draining_backlog && core.pool.rest(&self.worker);
            self.transmit(&mut core);
            (planned, rest)
        };
        self.flush();
        if !self.refused.is_empty() {
            self.refuse();
        }
        let next = self.begin(planned);
        if rest { Next::Rest } else { next }
    }
}
