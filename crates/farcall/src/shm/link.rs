//! The caller's end of a connection through shared memory: makes the connection, and passes calls through its
//! slots. A slot is a small place in the memory for one call. Long arguments and results pass through rings.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use farcall_proto::client::Outcome;
use farcall_proto::{ArgumentBudget, ClientConfig, Failure, Kind, Ran, Spares};
use farcall_shm::{
    ArgumentRing, Call, CallMemory, Caller, RequestId, SLOT_BODY_BYTES, Status, UnixChannel, Wants,
};

use super::elsewhere::elsewhere;
use super::proof::{Inquirer, Question};
use super::service::{Connection, Service};
use super::watch::{Broken, FIRST_NAP, LONGEST_NAP, Watch};
use super::{brisk, spin};
use crate::client::{self, CallRequest, Hurry, Peer, Standing};
use crate::env::{Env, Time};
use crate::sys::fork;
use crate::{CallFailed, lock, stats};

/// A connection with a server on this machine.
pub(crate) struct Link {
    pub(super) env: Arc<dyn Env>,
    pub(super) caller: Arc<Caller>,
    pub(super) watch: Watch,
    service: OnceLock<Arc<Service>>,
    address: SocketAddr,
    /// Who the server is, and what it has shown for the exports that are called, if this end has keys.
    server: Option<Standing>,
    /// The conversation with the server, and the exports that are called. The connection is used until the
    /// server is no longer accepted for one of them.
    peer: Arc<Peer>,
    exports: Mutex<BTreeSet<u64>>,
    calls: AtomicU64,
    /// The fork generation of the process that made the connection.
    generation: u64,
    spin: Duration,
    /// How long to poll for the next part of a long message before sleeping.
    pub(super) brisk: Duration,
    /// Whether the last call had long arguments or a long result.
    long: AtomicBool,
    pub(super) max_result: u64,
    /// Long buffers that can be used again.
    pub(super) spares: Arc<Spares>,
    /// The budget of the arguments that unfinished calls keep, and how much of it calls by this connection
    /// keep.
    pub(super) budget: Arc<ArgumentBudget>,
    pub(super) kept_bytes: AtomicUsize,
}

/// The reason why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLink {
    /// The server offers no connection through shared memory.
    NotOffered,
    /// The process that listens at the server's socket for such connections cannot prove that it is the
    /// server.
    Unproven,
}

/// The reason why a caller stops waiting for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Late,
    /// The caller has withdrawn the call, which the server has not taken.
    Withdrawn,
    /// The caller cancelled the call, and the server has not answered the cancel in time.
    Cancelled,
    Broken(Broken),
}

/// The longest body, in bytes, that stays in the thread's own buffer. A longer one gets a separate buffer,
/// which decoded values may share.
const MAX_BORROWED_BODY_BYTES: usize = 64 << 10;
impl Link {
    /// Makes a connection with the server that has just answered over UDP, if it is on this machine and has
    /// the export.
    ///
    /// # Errors
    /// When no server could be met, or when the process that was met is another server.
    pub(crate) fn connect(
        env: &Arc<dyn Env>,
        peer: &Arc<Peer>,
        export: u64,
        config: &ClientConfig,
        spin: Duration,
        within: Duration,
    ) -> Result<Arc<Link>, NoLink> {
        let address = peer.address();
        let (wants, env_of_thread) = (Wants::Calls, env.clone());
        let inquirer = Inquirer { env: env_of_thread, peer: peer.clone(), export, wants };
        let ask = move |channel: &UnixChannel| inquirer.question(channel, || channel.wait(within));
        let met = elsewhere(env, within, move || meet(address, ask, within));
        let (channel, page, server) = met.unwrap_or(Err(NoLink::NotOffered))?;
        Ok(Arc::new(Link {
            env: env.clone(),
            caller: Arc::new(Caller::new(Arc::new(page))),
            watch: Watch::new(channel, config.patience),
            service: OnceLock::new(),
            address,
            server,
            peer: peer.clone(),
            exports: Mutex::default(),
            calls: AtomicU64::new(0),
            generation: fork::generation(),
            spin,
            brisk: brisk(spin),
            long: AtomicBool::new(false),
            spares: config.spares.clone(),
            budget: config.arguments.clone(),
            kept_bytes: AtomicUsize::new(0),
            max_result: config.max_result.into(),
        }))
    }

    /// Checks whether the server is there. Returns whether the connection can be used.
    pub(crate) fn is_sound(&self) -> bool {
        self.watch.look(self.env.now());
        self.watch.broken().is_none()
    }

    /// Returns whether the server at the other end is the one that answers for an export of `peer`, by what
    /// it has shown. Exports of one server that stand on different grants have different connections, because
    /// a connection ends with what it stands on. Conversations in which this end has shown different grants
    /// have different connections, too.
    pub(crate) fn is_for(&self, peer: &Peer, export: u64) -> bool {
        std::ptr::eq(&*self.peer, peer) && peer.standing(export) == self.server
    }

    /// Lets calls of an export use the connection. Ends it if the server may not answer for the export: that
    /// may have changed while nobody knew of the connection.
    pub(crate) fn admit(&self, export: u64) {
        lock(&self.exports).insert(export);
        self.distrust_if_rejected();
    }

    /// Ends the connection if the server is no longer accepted for an export that is called by it. Later
    /// calls go by UDP.
    pub(crate) fn distrust_if_rejected(&self) {
        if !lock(&self.exports).iter().all(|export| self.peer.is_served_by(self.server, *export)) {
            self.watch.distrust();
            self.caller.wake();
        }
    }

    /// Returns whether the server is no longer accepted.
    #[inline]
    pub(super) fn is_distrusted(&self) -> bool {
        self.watch.broken() == Some(Broken::Distrusted)
    }

    /// Returns whether the server has said that it takes no more calls of an export.
    pub(crate) fn is_drained(&self, export: u64) -> bool {
        self.caller.is_drained(export)
    }

    /// Returns the number of messages received from the server.
    pub(crate) fn answers(&self) -> u64 {
        self.watch.answers()
    }

    /// Returns the connection's statistics.
    pub(crate) fn stats(&self) -> stats::Link {
        let (calls, outstanding) = (self.calls.load(Ordering::Relaxed), self.caller.outstanding());
        stats::Link { address: self.address, calls, outstanding }
    }

    #[inline]
    pub(super) fn check_process(&self) -> Result<(), CallFailed> {
        if self.is_ours() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Sends a call. Its slot holds the arguments, except the part in the ring. If this fails, the call did
    /// not run.
    #[inline]
    pub(super) fn send(
        &self,
        claim: Claim<'_>,
        (export, request): (u64, &CallRequest<'_>),
        arguments: &[u8],
        ring: Option<&mut ArgumentRing>,
    ) -> Result<RequestId, Failure> {
        if let Some(broken) = self.watch.broken() {
            return Err(if self.is_drained(export) { drained() } else { unreachable(broken, Ran::No) });
        }
        if self.is_drained(export) {
            return Err(drained());
        }
        let within = match request.deadline {
            None => None,
            Some(deadline) => match deadline.since(self.env.now()) {
                Duration::ZERO => return Err(Failure::new(Kind::Deadline, Ran::No)),
                left => Some(left),
            },
        };
        let trace = request.trace.map(|trace| {
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&trace.trace);
            bytes[16..].copy_from_slice(&trace.span);
            bytes
        });
        self.calls.fetch_add(1, Ordering::Relaxed);
        if ring.is_some() {
            self.long.store(true, Ordering::Relaxed);
        }
        let call = Call { export, procedure: request.call.procedure.number, within, trace };
        let slot = claim.keep();
        if !request.call.carries.is_empty() {
            // One-way calls run on if this process ends.
            self.caller.detach_next(slot);
        }
        Ok(self.caller.call(slot, &call, arguments, ring))
    }

    /// Waits until the answer is in the slot, or begins to arrive by a ring. A call that hurries ends early
    /// if it has not begun in time; `withdraw` then withdraws it, if it can be.
    #[inline]
    pub(super) fn wait(
        &self,
        id: RequestId,
        deadline: Option<Time>,
        hurry: Option<Hurry>,
        withdraw: impl Fn() -> bool,
    ) -> Result<(), Stop> {
        let is_there = || self.caller.is_answered(id) || self.caller.has_result_ring(id);
        let most = if self.long.load(Ordering::Relaxed) { self.brisk } else { self.spin };
        if self.poll(most, is_there) {
            return Ok(());
        }
        let wait_until = |until| self.wait_until(until, |most| self.caller.sleep(id, false, most), is_there);
        if let Some(hurry) = hurry {
            let mut until = hurry.by;
            while deadline.is_none_or(|deadline| until < deadline) {
                match wait_until(Some(until)) {
                    Err(Stop::Late) => {}
                    ended => return ended,
                }
                let now = self.env.now();
                if let Some(stop) = self.goes_elsewhere(now, hurry, &withdraw) {
                    return Err(stop);
                }
                until = now + LONGEST_NAP;
            }
        }
        wait_until(deadline)
    }

    /// Returns why a call that hurries ends now, so that it can be tried at another server: the server has
    /// not taken it, or it may run twice and the server is silent.
    #[cold]
    pub(super) fn goes_elsewhere(
        &self,
        now: Time,
        hurry: Hurry,
        withdraw: impl FnOnce() -> bool,
    ) -> Option<Stop> {
        if withdraw() {
            return Some(Stop::Withdrawn);
        }
        if !hurry.may_run_twice {
            return None;
        }
        self.watch.look(now);
        self.watch.is_unanswered(now, hurry.silence.min(LONGEST_NAP)).then_some(Stop::Late)
    }

    /// Polls `is_there` for about `most`, unless the server needs this processor. Returns whether it became
    /// true.
    #[inline]
    pub(super) fn poll(&self, most: Duration, is_there: impl FnMut() -> bool) -> bool {
        spin(&*self.env, most, || self.caller.shares_processor(), is_there)
    }

    /// Sleeps until `is_there` returns true. Returns an error if the server dies.
    pub(super) fn wait_until(
        &self,
        deadline: Option<Time>,
        sleep: impl Fn(Duration),
        is_there: impl Fn() -> bool,
    ) -> Result<(), Stop> {
        let mut nap = FIRST_NAP;
        let mut looked = None;
        loop {
            sleep(deadline.map_or(nap, |deadline| deadline.since(self.env.now()).min(nap)));
            if is_there() {
                return Ok(());
            }
            let now = self.env.now();
            if now.since(*looked.get_or_insert(now)) >= nap / 2 || nap == FIRST_NAP {
                self.watch.look(now);
                (looked, nap) = (Some(now), (nap * 2).min(LONGEST_NAP));
            }
            if let Some(broken) = self.watch.broken() {
                // The server may have answered before it died.
                return if is_there() { Ok(()) } else { Err(Stop::Broken(broken)) };
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Stop::Late);
            }
        }
    }

    /// Stops waiting for an unanswered call, and returns its failure. The call's slot is used again once the
    /// server has answered.
    #[cold]
    pub(super) fn lose(&self, id: RequestId, stop: Stop) -> Failure {
        let failure = match stop {
            Stop::Late => {
                self.caller.give_up(id);
                Failure::new(Kind::Deadline, Ran::Maybe)
            }
            Stop::Withdrawn => Failure::new(Kind::Deadline, Ran::No),
            Stop::Cancelled => Failure::new(Kind::Cancelled, Ran::Maybe),
            Stop::Broken(Broken::Gone) if !self.caller.is_taken(id) => unreachable(Broken::Gone, Ran::No),
            Stop::Broken(broken) => unreachable(broken, Ran::Maybe),
        };
        self.caller.abandon(id);
        // The arguments stay in the slot, because a server that was only stopped may still read them.
        failure
    }

    /// Takes an answer that has arrived completely, and gives its slot back.
    #[inline]
    pub(super) fn receive(
        &self,
        id: RequestId,
        deadline: Option<Time>,
        body: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        body.clear();
        if self.is_distrusted() {
            return Err(self.lose(id, Stop::Broken(Broken::Distrusted)));
        }
        let streamed = match self.caller.result_ring(id) {
            None => 0,
            Some(ring) => self.draw(id, ring, deadline, body)?,
        };
        let (status, len) = self.caller.answer(id, body);
        let long = streamed > 0 || len > SLOT_BODY_BYTES as u64;
        if self.long.load(Ordering::Relaxed) != long {
            self.long.store(long, Ordering::Relaxed);
        }
        if len > SLOT_BODY_BYTES as u64 {
            self.pull(id, len, deadline, body)?;
        } else {
            self.caller.release(id.slot());
        }
        match status {
            Status::Result => Ok(true),
            Status::Exception => Ok(false),
            Status::Failed { kind, ran } => {
                Err(failure(kind, ran_of(ran), body.get(streamed..).unwrap_or_default()))
            }
            Status::Part => Err(Failure::new(Kind::BadResult, Ran::Maybe)),
        }
    }

    /// Returns what the caller is told of a failure. An older server reports what its procedure waited for
    /// until the deadline.
    #[cold]
    pub(super) fn explain(&self, why: Failure, deadline: Option<Time>) -> Failure {
        match deadline {
            Some(deadline) if deadline <= self.env.now() => why.at_deadline(),
            _ => why,
        }
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
        self.watch.look(self.env.now());
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        let run = || {
            client::never_waits();
            run();
        };
        self.env.spawn(name, Box::new(run))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let (true, Some(service)) = (self.is_ours(), self.service.get()) {
            service.stop();
            self.caller.wake();
        }
    }
}

/// Connects to the server at `address`, and receives the files that hold the shared memory. To examine these
/// files may block the thread.
fn meet(
    address: SocketAddr,
    ask: impl FnOnce(&UnixChannel) -> Option<Question>,
    most: Duration,
) -> Option<Result<Connected, NoLink>> {
    let channel = UnixChannel::connect(address).ok()?;
    let question = ask(&channel)?;
    let (rings, file) = CallMemory::create_arguments().ok()?;
    if !channel.send(question.hello(), Some(file.as_fd())) {
        return None;
    }
    channel.wait(most);
    // One byte more than the proof needs, to detect an answer that is too long.
    let mut answer = vec![0; question.answer_len() + 1];
    let (len, file) = channel.receive_file(&mut answer)?;
    if !question.is_answered_by(&answer[..len]) {
        return Some(Err(NoLink::Unproven));
    }
    Some(Ok((channel, CallMemory::open(&file, rings).ok()?, question.server())))
}

/// A connection, its memory, and who the server is if this end has keys.
type Connected = (UnixChannel, CallMemory, Option<Standing>);

/// A slot that was claimed for a call. Unless the call is sent, dropping this gives the slot back.
pub(super) struct Claim<'a> {
    caller: &'a Caller,
    slot: usize,
}

impl<'a> Claim<'a> {
    #[inline]
    pub(super) fn new(caller: &'a Caller) -> Option<Claim<'a>> {
        caller.claim().map(|slot| Claim { caller, slot })
    }

    #[inline]
    fn keep(self) -> usize {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.caller.release(self.slot);
    }
}

/// A buffer that a thread keeps from one call to the next.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    #[inline]
    pub(super) fn take() -> Box<Scratch> {
        let mut scratch = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
        scratch.bytes.clear();
        scratch
    }

    #[inline]
    pub(super) fn keep(self: Box<Self>) {
        const MAX_KEPT_BYTES: usize = 4 << 20;
        if self.bytes.capacity() <= MAX_KEPT_BYTES {
            let _ = SCRATCH.try_with(|place| place.set(Some(self)));
        }
    }
}

/// Gives an outcome, as [`Link::receive`] returns it, to a sink.
#[inline]
pub(super) fn give(ended: Result<bool, Failure>, body: &mut Vec<u8>, sink: &mut dyn FnMut(Outcome<'_>)) {
    let body = match body.len() > MAX_BORROWED_BODY_BYTES {
        true => Cow::Owned(std::mem::take(body)),
        false => Cow::Borrowed(&body[..]),
    };
    sink(match ended {
        Ok(true) => Outcome::Result(body),
        Ok(false) => Outcome::Exception(body),
        Err(failure) => Outcome::Failed(failure),
    });
}

/// Returns the failure of a call whose arguments could not be sent.
pub(super) fn not_sent(stop: Stop) -> Failure {
    match stop {
        Stop::Late | Stop::Withdrawn => Failure::new(Kind::Deadline, Ran::No),
        Stop::Cancelled => Failure::new(Kind::Cancelled, Ran::No),
        Stop::Broken(broken) => unreachable(broken, Ran::No),
    }
}

/// Returns the failure of a call that is not sent, the same as by UDP.
#[cold]
fn drained() -> Failure {
    Failure::new(Kind::Draining, Ran::No).with_detail("the server has said that it takes no more calls")
}

#[cold]
fn unreachable(broken: Broken, ran: Ran) -> Failure {
    let (kind, why) = match broken {
        Broken::Gone => (Kind::Unreachable, "its process ended, or closed the shared memory"),
        Broken::Silent => (Kind::Unreachable, "it is there, but answers no probe"),
        Broken::Distrusted => (Kind::NotPermitted, "the server is no longer accepted"),
    };
    Failure::new(kind, ran).with_detail(why)
}

#[cold]
fn failure(kind: u16, ran: Ran, detail: &[u8]) -> Failure {
    Failure::new(Kind::from_code(kind), ran).with_detail(String::from_utf8_lossy(detail))
}

/// Returns what a code says about whether the call ran. An unknown code means `Ran::Maybe`.
fn ran_of(code: u8) -> Ran {
    match code {
        0 => Ran::No,
        2 => Ran::Yes,
        _ => Ran::Maybe,
    }
}
