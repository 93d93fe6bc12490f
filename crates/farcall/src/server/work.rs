//! A worker's life: it receives calls, executes them, sends their outcomes, and rests while other workers
//! receive.
//!
//! Accesses are calls that read or write memory which this process exports. The receiving worker executes
//! them itself.

mod arrivals;
mod deferred;
mod send;

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::secure::{self, Cipher, Opened};
use farcall_proto::server::{CallKey, Finish, Reading, Request, Transmit};
use farcall_proto::{Failure, Kind, Ran, Route, Time, route};

use arrivals::{Arrivals, Buffers, Seal};
use deferred::{ALARM, Deferred, HANDSHAKES, USER_CODE};
use send::Outgoing;

use super::call::{Origin, Work};
use super::{Caller, Core, Server, counter_segment, queue};
use crate::env::{Received, Wait, train};
use crate::workers::{Pace, Plan, Replacement, Rested, Worker, replace};
use farcall_proto::ACCESSES;

/// What a worker does next.
enum Next {
    /// Executes the call in `current`.
    Execute,
    /// Executes a waiting call, or receives if there is none.
    Look,
    Receive,
    Rest,
}

/// A worker, and the state that it keeps from one step to the next.
struct Receiver<'s> {
    server: &'s Arc<Server>,
    worker: Arc<Worker>,
    buffers: Buffers,
    arrivals: Arrivals,
    outgoing: Outgoing,
    deferred: Deferred,
    /// Calls to refuse, empty between two receives.
    refused: Vec<(Work, Failure)>,
    /// The worker that is to execute those calls of a batch that are not quick.
    helper: Option<Replacement>,
    /// Whether this worker drains the backlog of accesses. Until the backlog is empty it executes no calls,
    /// and executes some accesses between two datagrams.
    draining_backlog: bool,
    /// Whether no other worker executes calls. If so, this worker may poll, because it takes no processor
    /// from another.
    alone: bool,
    /// The approximate time of the last event other than a reading. A reading is a call that only reads
    /// memory of this process; it is answered at once.
    now: Time,
    /// The number of readings.
    readings: u32,
}

/// How long to wait after a socket error of an unknown kind before receiving again.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a worker's life.
pub(super) fn live(server: &Arc<Server>, worker: Arc<Worker>) {
    Receiver::new(server, worker).live();
}

impl<'s> Receiver<'s> {
    fn new(server: &'s Arc<Server>, worker: Arc<Worker>) -> Receiver<'s> {
        Receiver {
            worker,
            buffers: Buffers::new(),
            arrivals: Arrivals::default(),
            outgoing: Outgoing::new(),
            deferred: Deferred::default(),
            refused: Vec::new(),
            helper: None,
            draining_backlog: false,
            alone: true,
            now: server.env.now(),
            readings: 0,
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
        // If a call is left now, it is dropped. Its caller gets no answer, as when a process ends.
    }

    /// Waits for a datagram and acts on it.
    fn receive(&mut self) -> Next {
        let socket = &self.server.socket;
        // The watchdog acts on the protocol's timers, because waiting without a time-out is cheaper.
        let received = match self.alone {
            _ if self.draining_backlog => socket.receive(&mut self.buffers.received, Wait::No),
            true => socket.receive(&mut self.buffers.received, Wait::Forever),
            false => socket.receive_at_rest(&mut self.buffers.received, Wait::Forever),
        };
        let Ok(Received::Datagrams { ref from, len, each }) = received else { return self.idle(&received) };
        if self.server.has_keys {
            self.unseal(from, len, each);
        }
        if each >= len
            && let Some(next) = self.read(from, len)
        {
            return next;
        }
        self.now = self.server.about_now();
        self.take_in(from, len, each)
    }

    /// Opens the sealed datagrams that have arrived, in place. The lock is not held while they are opened.
    #[inline(never)]
    fn unseal(&mut self, from: &SocketAddr, len: usize, each: usize) {
        self.buffers.opened.clear();
        let mut cipher: Option<(u64, Arc<Cipher>)> = None;
        for place in train(len, each) {
            let datagram = &mut self.buffers.received[place];
            if !secure::is_sealed(datagram) {
                self.buffers.opened.push(Seal::None);
                continue;
            }
            let conversation = match route(datagram) {
                Some(Route::Conversation(conversation)) => conversation,
                _ => 0,
            };
            if cipher.as_ref().is_none_or(|(of, _)| *of != conversation) {
                let found = self.server.lock().protocol.cipher(self.now, from, datagram);
                cipher = found.map(|found| (conversation, found));
            }
            let Some((_, found)) = &cipher else {
                self.buffers.opened.push(Seal::Unopened);
                continue;
            };
            match secure::open(found, datagram) {
                Some(opened) => self.buffers.opened.push(Seal::Opened(opened)),
                None => {
                    // Perhaps a phase has ended in between. Then the next datagram needs another cipher.
                    cipher = None;
                    self.server.lock().protocol.note_unopened(self.now, datagram);
                    self.buffers.opened.push(Seal::Unopened);
                }
            }
        }
    }

    /// Acts when a receive has ended without a datagram.
    #[cold]
    fn idle(&mut self, received: &io::Result<Received>) -> Next {
        self.now = self.server.about_now();
        match received {
            Ok(Received::TimedOut) if self.draining_backlog => self.next(),
            // A client that is gone shows this by sending nothing. But while reports of the network fill the
            // receive buffer, a wake may be lost, so a report counts as one.
            Ok(Received::Woken | Received::Unreachable(..) | Received::Refused(..)) => self.woken(),
            Ok(Received::Datagrams { .. } | Received::TimedOut) => Next::Receive,
            Err(_) => {
                self.server.env.event().wait(Some(PAUSE));
                Next::Receive
            }
        }
    }

    /// Acts after another thread has woken the socket, because an access, a call, user code, or bytes to send
    /// again may be waiting.
    #[cold]
    fn woken(&mut self) -> Next {
        let waits = {
            let core = self.server.lock();
            let users = core.protocol.has_loose() || !core.accessor.woken.is_empty();
            !core.backlog.is_empty() || !core.is_free() || users || !core.protocol.is_quiet()
        };
        if waits { self.next() } else { Next::Receive }
    }

    /// Returns whether this worker has nothing to do, and may rest if others receive.
    #[inline]
    fn may_rest(&self, planned: &Option<Plan>) -> bool {
        planned.is_none() && self.deferred.flags & USER_CODE == 0
    }

    /// Notes the conditions of the next wait, the user code to run, and whether to wake the watchdog.
    fn look(&mut self, core: &mut Core) {
        self.deferred.flags |= if core.alarm() { ALARM } else { 0 };
        if !core.accessor.woken.is_empty() || core.protocol.has_loose() {
            self.note_user_code(core);
        }
        self.alone = core.pool.nobody_executes();
    }

    /// Acts on received datagrams: one call is executed here, others are queued.
    fn take_in(&mut self, from: &SocketAddr, len: usize, each: usize) -> Next {
        let (server, draining_backlog) = (self.server, self.draining_backlog);
        let (mut planned, mut sent) = (None, false);
        let crowded = {
            let mut core = server.lock();
            let core = &mut *core;
            core.backlog.begin();
            for (which, place) in train(len, each).enumerate() {
                let seal = self.buffers.opened.get(which).copied().unwrap_or_default();
                if !matches!(seal, Seal::Unopened) {
                    self.handle(core, from, place, (each >= len, seal.opened()));
                }
            }
            if core.protocol.has_news() {
                core.pass_news();
            }
            if server.has_keys && core.protocol.take_handshake_news() {
                self.deferred.flags |= HANDSHAKES;
            }
            if self.outgoing.answer.is_none() {
                let draining_backlog = self.catch_up(core);
                planned = if draining_backlog { self.leave_calls(core, len) } else { self.choose(core, len) };
                // A refusal must be in the protocol before the message that its call has arrived is written.
                // Otherwise a caller who cancelled the call never learns that it did not run.
                sent = self.refused.is_empty() && self.transmit(core);
            }
            self.look(core);
            core.pool.receiving() > 1
        };
        if let Some(answer) = self.outgoing.answer.take() {
            self.send(Some(answer));
            if !crowded && self.deferred.flags == 0 {
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
            // Perhaps no other worker has taken the queued calls.
            Next::Receive if draining_backlog => self.next(),
            Next::Receive => self.make_way(),
            next => next,
        }
    }

    /// Executes some of the waiting accesses, and decides whether this worker drains the backlog. Returns
    /// whether it does.
    #[inline]
    fn catch_up(&mut self, core: &mut Core) -> bool {
        (self.draining_backlog || !core.backlog.is_empty()) && self.do_some(core)
    }

    #[cold]
    fn do_some(&mut self, core: &mut Core) -> bool {
        core.catch_up(self.now, &mut self.outgoing.reply);
        self.draining_backlog = core.backlog.may_drain(self.draining_backlog);
        self.draining_backlog
    }

    /// Queues the calls that came, for another worker.
    #[cold]
    fn leave_calls(&mut self, core: &mut Core, len: usize) -> Option<Plan> {
        if self.arrivals.current.is_some() || !self.arrivals.arrived.is_empty() {
            self.line_up(core, len);
            if self.helper.is_none() && !core.queue.is_empty() {
                self.helper = core.replacement_for_queue();
            }
        }
        None
    }

    /// If the datagram is a reading, answers it. Nothing else needs to be done then, because only other
    /// events make further work. The time serves only to know which conversation has been idle longest, so
    /// the clock is read for one reading in 64.
    #[inline(always)]
    fn read(&mut self, from: &SocketAddr, len: usize) -> Option<Next> {
        const ONE_IN: u32 = 64;
        let seal = self.buffers.opened.first().copied().unwrap_or_default();
        let reading = Reading::peek(&self.buffers.received[..len], seal.opened())?;
        let server = self.server;
        self.readings = self.readings.wrapping_add(1);
        if self.readings.is_multiple_of(ONE_IN) {
            self.now = server.now();
        }
        let (answer, rest) = {
            let mut core = server.lock();
            let answer = core.read(self.now, from, reading, &mut self.outgoing.datagram)?;
            self.alone = core.pool.nobody_executes();
            // `Receiver::make_way` applies the same rule.
            (answer, !self.draining_backlog && core.pool.make_way(&self.worker))
        };
        // A datagram that the system refuses is lost, as it may be in a network.
        let datagram = &mut self.outgoing.datagram[..answer.len];
        secure::seal_by(&answer.cipher, datagram);
        if let Some(kernel) = server.kernel() {
            // Before the answer is sent, so that the kernel can answer the client's next read.
            kernel.answered(from, &self.buffers.received[..len], datagram);
        }
        let _ = server.socket.send(*from, datagram);
        Some(if rest { Next::Rest } else { Next::Receive })
    }

    /// Lets this worker rest if it got no call while two workers receive. Both would otherwise act on the
    /// datagrams of a long message, and send out of order.
    #[cold]
    fn make_way(&self) -> Next {
        if self.server.lock().pool.make_way(&self.worker) { Next::Rest } else { Next::Receive }
    }

    /// Gives a datagram to the protocol, and takes in what it brings. An access that comes alone is executed.
    #[inline(never)]
    fn handle(
        &mut self,
        core: &mut Core,
        from: &SocketAddr,
        place: Range<usize>,
        (only, opened): (bool, Option<Opened>),
    ) {
        let Core { protocol, exports, counter_segment, batch, accessor, .. } = core;
        let datagram = &self.buffers.received[place.clone()];
        let (server, now, arrivals) = (self.server, Cell::new(self.now), &mut self.arrivals);
        let find = |export| exports.find(export).or_else(|| counter_segment::find(counter_segment, export));
        let origin = |now| Origin { now, from, datagram, start: place.start };
        let clock = || {
            now.set(server.now());
            now.get()
        };
        let received = (datagram, opened);
        let lone = protocol.receive_call(now.get(), clock, from, received, &mut |request| match request {
            Request::Call(incoming) => {
                let exported = find(incoming.export);
                arrivals.take(incoming, exported, origin(now.get()), batch);
            }
            Request::Post(export, bytes, principal) => {
                if let Some(exported) = exports.find(export)
                    && exported.check_access(principal.as_deref(), None, ACCESSES).is_ok()
                    && let Some(memory) = exported.memory()
                {
                    exported.count_access();
                    (accessor.from, accessor.principal) = (Some(*from), principal);
                    memory.post(accessor, bytes);
                }
            }
            Request::Cancel(key) => arrivals.cancelled.push(key),
        });
        self.now = now.get();
        match lone {
            Some(incoming) if incoming.procedure < ACCESSES => {
                let exported = find(incoming.export);
                arrivals.take(incoming, exported, origin(self.now), batch);
            }
            Some(incoming) => {
                // Only one datagram can wait in the buffer, so it must leave before the next is written.
                let out = if only { &mut self.outgoing.datagram[..] } else { &mut [] };
                let reply = &mut self.outgoing.reply;
                self.outgoing.answer = core.access_in_turn(self.now, *from, incoming, out, reply);
            }
            None => {}
        }
        if !self.arrivals.accesses.is_empty() || !self.arrivals.cancelled.is_empty() {
            self.settle_requests(core, from);
        }
    }

    /// Executes the accesses to memory in a datagram that holds several frames, and acts on its cancels.
    #[inline(never)]
    fn settle_requests(&mut self, core: &mut Core, from: &SocketAddr) {
        if !self.arrivals.cancelled.is_empty() {
            self.give_up_accesses(core);
        }
        for incoming in self.arrivals.accesses.drain(..) {
            core.access_in_turn(self.now, *from, incoming, &mut [], &mut self.outgoing.reply);
        }
        if !self.arrivals.cancelled.is_empty() {
            self.cancel(core);
        }
    }

    /// Ends the accesses that were given up, in this datagram or the backlog, before any other access is
    /// executed or queued. A cancel for an access that has ended already would stay in [`Core::cancelled`]
    /// for ever.
    #[cold]
    fn give_up_accesses(&mut self, core: &mut Core) {
        let given_up: HashSet<CallKey> = self.arrivals.cancelled.iter().copied().collect();
        let mut ended = HashSet::new();
        for incoming in self.arrivals.accesses.extract_if(.., |incoming| given_up.contains(&incoming.key)) {
            ended.insert(incoming.key);
            core.end_access(self.now, incoming, Failure::new(Kind::Cancelled, Ran::No));
        }
        self.arrivals.cancelled.retain(|key| !ended.contains(key) && !core.give_up_access(self.now, *key));
    }

    /// Refuses the cancelled calls that have not begun. Notes the others, so that their procedures are told.
    #[cold]
    fn cancel(&mut self, core: &mut Core) {
        for key in self.arrivals.cancelled.drain(..) {
            let caller = Caller::Conversation(key.conversation);
            let unbegun = match self.arrivals.arrived.iter().position(|work| work.call.key == key) {
                Some(at) => Some(self.arrivals.arrived.remove(at)),
                None => self
                    .arrivals
                    .current
                    .take_if(|work| work.call.key == key)
                    .or_else(|| core.remove(caller, key)),
            };
            match unbegun {
                Some(work) => self.refused.push((work, Failure::new(Kind::Cancelled, Ran::No))),
                None => self.server.note_cancelled(core, key),
            }
        }
    }

    /// Chooses the call to execute here. A call that came alone goes first if it is quick, or if no call
    /// waits.
    fn choose(&mut self, core: &mut Core, len: usize) -> Option<Plan> {
        if !self.arrivals.arrived.is_empty() || core.batch.back().is_some_and(|work| !work.is_shared()) {
            self.line_up(core, len);
            return self.next_in_line(core);
        }
        let Some(work) = &self.arrivals.current else { return self.next_held(core) };
        let (pace, usual) = work.outlook();
        let begins =
            (core.is_free() || pace == Pace::Quick) && (usual == 0 || core.may_begin(work.call.key, usual));
        let plan =
            if begins { core.pool.plan(&self.worker, work.host(), pace, || self.now) } else { Plan::Queue };
        match plan {
            Plan::Queue => {
                let work = self.arrivals.current.take()?;
                self.now = self.server.now();
                self.queue(core, work);
            }
            Plan::Refuse => {
                let work = self.arrivals.current.take()?;
                self.refuse_stuck(core, work);
            }
            plan => {
                self.make_room(core, usual);
                return Some(plan);
            }
        }
        self.next_in_line(core)
    }

    /// Chooses a waiting call when no call came. A call that was held because of its long result may have
    /// room for it now.
    #[inline(never)]
    fn next_held(&mut self, core: &mut Core) -> Option<Plan> {
        if core.queue.holds_any() { self.next_in_line(core) } else { None }
    }

    /// Queues calls that came together. This worker executes the quick ones in turn, unless another worker
    /// comes to help.
    #[inline(never)]
    fn line_up(&mut self, core: &mut Core, len: usize) {
        self.now = self.server.now();
        if let Some(first) = self.arrivals.current.take_if(|work| work.is_light()) {
            match core.batch.front() {
                Some(next) if !next.is_received() => core.batch.push_back(first),
                _ => core.batch.push_front(first),
            }
        }
        let mut arrived = std::mem::take(&mut self.arrivals.arrived);
        for work in self.arrivals.current.take().into_iter().chain(arrived.drain(..)) {
            self.queue(core, work);
        }
        self.arrivals.arrived = arrived;
        let train = self.buffers.share(len);
        // The calls that came now are at the end of the batch, and are to share the buffer that was received
        // now. The calls before them share an older buffer already. A call whose last fragment came now has a
        // buffer of its own.
        core.batch
            .iter_mut()
            .rev()
            .take_while(|work| !work.is_shared())
            .for_each(|work| work.share_arguments(&train));
        if !core.batch.is_empty() && !core.queue.is_empty() {
            self.helper = core.replacement_for_queue();
        }
    }

    /// Takes the next call, from the batch or else from the queue, if it may be executed now. A call is moved
    /// only once, when it is taken, because it has about 200 bytes.
    fn next_in_line(&mut self, core: &mut Core) -> Option<Plan> {
        core.admit();
        loop {
            let Some(work) = core.batch.front() else { return self.next_waiting(core) };
            match core.pool.plan(&self.worker, work.host(), Pace::Quick, || self.now) {
                Plan::Queue => {
                    self.queue_batch(core);
                    return None;
                }
                Plan::Refuse => {
                    let work = core.batch.pop_front()?;
                    self.refuse_stuck(core, work);
                }
                plan => {
                    let usual = work.usual_result();
                    self.make_room(core, usual);
                    self.arrivals.current = core.batch.pop_front();
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
            match core.pool.plan(&self.worker, work.queued_host(), work.pace(), || self.now) {
                Plan::Queue => {
                    core.queue.put_back(work);
                    return None;
                }
                Plan::Refuse => self.refuse_stuck(core, work),
                plan => {
                    self.now = self.server.now();
                    work.waited(self.now);
                    self.make_room(core, work.usual_result());
                    self.arrivals.current = Some(work);
                    return Some(plan);
                }
            }
        }
    }

    /// Makes sure that `reply` has room for a result, of `usual` bytes if it will be long.
    #[inline]
    fn make_room(&mut self, core: &mut Core, usual: usize) {
        self.outgoing.long = usual > 0;
        if self.outgoing.reply.capacity() < usual.max(1) {
            self.outgoing.reply = core.protocol.buffer(self.now, usual);
        }
    }

    fn queue(&mut self, core: &mut Core, mut work: Work) {
        work.keep_arguments(&self.buffers.received);
        work.arrived = self.now;
        let lacking = core.line_up(work);
        self.refused.extend(lacking.into_iter().map(|work| (work, queue::full(&core.queue))));
    }

    /// Queues the calls of the batch, because this worker may execute none of them. The queue is bounded, and
    /// the batch is not.
    #[cold]
    fn queue_batch(&mut self, core: &mut Core) {
        self.now = self.server.now();
        while let Some(work) = core.batch.pop_front() {
            self.queue(core, work);
        }
    }

    /// Refuses a call for which there is no thread.
    #[cold]
    fn refuse_stuck(&mut self, core: &Core, work: Work) {
        self.refused.push((work, core.stuck()));
    }

    /// Wakes the threads that a plan asks for, and returns what this worker does next.
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
        if self.deferred.flags == 0 { next } else { self.run_deferred(next) }
    }

    /// Has another worker receive, or the watchdog watch this one, as planned.
    #[inline(always)]
    fn leave_to_others(&self, plan: Plan) {
        match plan {
            Plan::Execute(Some(helper)) => replace(self.server, helper),
            Plan::Guarded(true) => self.server.watchdog.set(),
            _ => {}
        }
    }

    /// Refuses the calls in `refused`.
    #[cold]
    fn refuse(&mut self) {
        for (work, failure) in std::mem::take(&mut self.refused) {
            let mut reply = Vec::new();
            let finish = work.give_back(Some(failure.into()), &mut reply);
            let (sent, admitted) = {
                let mut core = self.server.lock();
                let (now, key, out) = (self.now, work.call.key, &mut self.outgoing.datagram);
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

    /// Executes the current call, sends its outcome, and returns what to do next.
    #[inline(never)]
    fn execute(&mut self) -> Next {
        let Some(work) = &mut self.arrivals.current else { return Next::Receive };
        let finish = match self.outgoing.long {
            false => {
                work.run(self.server, &self.buffers.received, &mut self.outgoing.reply, &mut self.now, None)
            }
            true => self.outgoing.run_long(work, self.server, &self.buffers.received, &mut self.now),
        };
        let (server, key) = (self.server, work.call.key);
        let elsewhere = finish.is_none();
        let finish = work.give_back(finish, &mut self.outgoing.reply);
        // The executed call stays where it is unless another takes its place, because it has about 200 bytes.
        let replaced;
        let (planned, alone, sent, rest, exchanging) = {
            let mut core = server.lock();
            let core = &mut *core;
            let exchanging = !elsewhere && !core.exchanging.is_empty() && work.has_exchanges();
            let alone = self.outgoing.unsent == 0 && core.batch.is_empty();
            let sent = match self.outgoing.long {
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
            if let Some(work) = &mut self.arrivals.current {
                work.give_room_back(&mut core.protocol);
            }
            let planned = match core.is_free() {
                true => {
                    replaced = None;
                    None
                }
                false => {
                    replaced = self.arrivals.current.take();
                    self.next_in_line(core)
                }
            };
            self.look(core);
            let rest = self.may_rest(&planned) && core.pool.rest(&self.worker);
            (planned, alone, sent, rest, exchanging)
        };
        if exchanging {
            server.end_exchanges(key);
        }
        if alone {
            self.send(sent);
        } else {
            self.flush();
        }
        let executed = replaced.as_ref().or(self.arrivals.current.as_ref());
        if let Some(work) = executed.filter(|_| !elsewhere) {
            work.exported.end();
        }
        if planned.is_none() {
            self.arrivals.current = None;
        }
        if !self.refused.is_empty() {
            self.refuse();
        }
        let next = self.begin(planned);
        if rest { Next::Rest } else { next }
    }

    /// Gives an outcome to the protocol, and returns the datagram to send. The outcomes of a batch leave
    /// together, at its end or 64 at a time, so that their callers need not wait for the last.
    #[inline(always)]
    fn finish(&mut self, core: &mut Core, key: CallKey, finish: Option<Finish>) -> Option<Transmit> {
        const MAX_RESULTS_TOGETHER: usize = 64;
        let (now, reply, lone) =
            (self.now, &mut self.outgoing.reply, self.outgoing.unsent == 0 && core.batch.is_empty());
        let out = if lone { &mut self.outgoing.datagram[..] } else { &mut [] };
        let sent = finish.and_then(|finish| core.protocol.finish(now, key, finish, reply, out));
        if lone {
            return sent;
        }
        self.outgoing.unsent += 1;
        if core.batch.is_empty() {
            self.outgoing.unsent = 0;
        } else if !self.outgoing.unsent.is_multiple_of(MAX_RESULTS_TOGETHER) {
            return None;
        }
        self.transmit(core);
        None
    }

    /// Finishes a call whose result is long, without copying long `Bytes` in it.
    #[cold]
    fn finish_long(&mut self, core: &mut Core, key: CallKey, finish: Option<Finish>) {
        self.outgoing.long = false;
        let alone = self.outgoing.unsent == 0 && core.batch.is_empty();
        let Some(finish) = finish else { return };
        match (finish, self.outgoing.parts.0.take()) {
            (finish, Some(insert)) => {
                core.protocol.finish_around(self.now, key, finish, &mut self.outgoing.reply, insert)
            }
            (finish, None) => {
                core.protocol.finish(self.now, key, finish, &mut self.outgoing.reply, &mut []);
            }
        }
        if !alone {
            self.outgoing.unsent = 0;
            self.transmit(core);
        }
    }

    /// Looks for a waiting call, and for room for the result of a held call. Lets this worker rest if it is
    /// one too many.
    fn next(&mut self) -> Next {
        let server = self.server;
        let (planned, rest) = {
            let mut core = server.lock();
            core.backlog.begin();
            let draining_backlog = self.catch_up(&mut core);
            self.look(&mut core);
            let planned = if draining_backlog { None } else { self.next_in_line(&mut core) };
            // A worker that was woken for a call is one too many if another worker has taken the call since.
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
