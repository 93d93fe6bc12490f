//! The calling end of a connection: a call that its thread waits for.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use farcall_proto::client::Outcome;
use farcall_proto::{ClientConfig, Failure, Kind, Ran};
use farcall_shm::{Call, Caller, HALF, Half, Heard, INLINE, Lane, Page, Status, Ticket, Wire};

use super::service::Service;
use super::watch::{Broken, Watch};
use super::{brisk, spin};
use crate::client::Outgoing;
use crate::env::{Env, Time};
use crate::stub::bad_arguments;
use crate::sys::fork;
use crate::xdr::Encoder;
use crate::{CallFailed, stats};

/// A connection with a server on this machine.
pub(crate) struct Link {
    pub(super) env: Arc<dyn Env>,
    pub(super) caller: Arc<Caller>,
    pub(super) watch: Watch,
    pub(super) service: OnceLock<Arc<Service>>,
    address: SocketAddr,
    calls: AtomicU64,
    /// The process it was made in.
    generation: u64,
    spin: Duration,
    brisk: Duration,
    max_result: u64,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Late,
    Broken(Broken),
}

/// Room that is made for a long result before it comes, in bytes.
const AT_ONCE: u64 = 8 << 20;
/// How long to sleep at first before looking whether the server is still there, and at last.
pub(super) const FIRST_NAP: Duration = Duration::from_millis(5);
pub(super) const LONGEST_NAP: Duration = Duration::from_millis(250);

impl Link {
    /// A connection with the server at `address`, if it is on this machine, has that export and likes it.
    pub(crate) fn connect(
        env: &Arc<dyn Env>,
        address: SocketAddr,
        export: u64,
        from: SocketAddr,
        config: &ClientConfig,
        spin: Duration,
    ) -> Option<Arc<Link>> {
        /// The server has just answered by UDP.
        const MOST: Duration = Duration::from_secs(1);
        let wire = Wire::connect(address).ok()?;
        let mut hello = export.to_be_bytes().to_vec();
        hello.extend_from_slice(from.to_string().as_bytes());
        if !wire.send(&hello, None) {
            return None;
        }
        let _waiting = crate::server::waiting();
        wire.wait(MOST);
        let Heard::Message(_, Some(file)) = wire.receive(&mut [0; 8]) else { return None };
        let page = Arc::new(Page::open(&file).ok()?);
        Some(Arc::new(Link {
            env: env.clone(),
            caller: Arc::new(Caller::new(page)),
            watch: Watch::new(wire, config.patience),
            service: OnceLock::new(),
            address,
            calls: AtomicU64::new(0),
            generation: fork::generation(),
            spin,
            brisk: brisk(spin),
            max_result: config.max_result.into(),
        }))
    }

    /// Whether it is of use. Looks whether the server is gone.
    pub(crate) fn is_sound(&self) -> bool {
        self.watch.look(self.env.now());
        self.watch.broken().is_none()
    }

    /// How often the server was heard.
    pub(crate) fn heard(&self) -> u64 {
        self.watch.heard()
    }

    /// What was counted.
    pub(crate) fn stats(&self) -> stats::Link {
        let (calls, outstanding) = (self.calls.load(Ordering::Relaxed), self.caller.outstanding());
        stats::Link { address: self.address, calls, outstanding }
    }

    #[inline]
    pub(super) fn check_process(&self) -> Result<(), CallFailed> {
        if self.is_ours() { Ok(()) } else { Err(crate::client::forked()) }
    }

    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Calls and waits. False: too many calls are outstanding here. Else `sink` gets the outcome, unless this fails
    /// before anything was sent.
    pub(crate) fn call(&self, outgoing: &Outgoing<'_>, sink: &mut dyn FnMut(Outcome<'_>)) -> Result<bool, CallFailed> {
        self.check_process()?;
        let Some(claim) = Claim::new(&self.caller) else { return Ok(false) };
        let mut scratch = Scratch::take();
        (outgoing.encode)(&mut Encoder::new(&mut scratch.bytes)).map_err(bad_arguments)?;
        let waiting = crate::server::waiting();
        let ended = match self.send(claim, outgoing, &scratch.bytes) {
            Ok(ticket) => match self.wait(ticket, outgoing.deadline) {
                Ok(()) => self.receive(ticket, outgoing.deadline, &mut scratch.bytes),
                Err(stop) => Err(self.lose(ticket, stop)),
            },
            Err(failure) => Err(failure),
        };
        drop(waiting);
        give(ended, &scratch.bytes, sink);
        scratch.keep();
        Ok(true)
    }

    /// Sends a call. If it fails it did not run.
    #[inline]
    pub(super) fn send(
        &self,
        mut claim: Claim<'_>,
        outgoing: &Outgoing<'_>,
        arguments: &[u8],
    ) -> Result<Ticket, Failure> {
        if let Some(broken) = self.watch.broken() {
            return Err(unreachable(broken, Ran::No));
        }
        let last = match arguments.len() > INLINE {
            true => self.push(&mut claim, arguments, outgoing.deadline)?,
            false => arguments,
        };
        let within = match outgoing.deadline {
            None => None,
            Some(deadline) => match deadline.since(self.env.now()) {
                Duration::ZERO => return Err(Failure::new(Kind::Deadline, Ran::No)),
                left => Some(left),
            },
        };
        let trace = outgoing.trace.map(|trace| {
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&trace.trace);
            bytes[16..].copy_from_slice(&trace.span);
            bytes
        });
        self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call { export: outgoing.export, procedure: outgoing.procedure, within, trace };
        Ok(self.caller.call(claim.keep(), &call, last, last.len() < arguments.len()))
    }

    /// Hands over arguments that a slot does not hold. Returns the last of them, which it does hold.
    #[cold]
    fn push<'a>(
        &self,
        claim: &mut Claim<'_>,
        arguments: &'a [u8],
        deadline: Option<Time>,
    ) -> Result<&'a [u8], Failure> {
        let lane = self.lane(deadline).map_err(not_sent)?;
        let (mut rest, mut half) = (arguments, Half(0));
        while rest.len() > INLINE {
            let (part, others) = rest.split_at(rest.len().min(HALF));
            lane.fill(half, part);
            // While the server empties one half we fill the other.
            self.settle(claim, deadline)?;
            let offset = (arguments.len() - rest.len()) as u64;
            claim.asked = Some(self.caller.add(claim.slot, &lane, half, part.len(), offset));
            (rest, half) = (others, Half(1 - half.0));
        }
        self.settle(claim, deadline)?;
        Ok(rest)
    }

    /// Waits until the last part was taken, or refused.
    fn settle(&self, claim: &mut Claim<'_>, deadline: Option<Time>) -> Result<(), Failure> {
        let Some(ticket) = claim.asked else { return Ok(()) };
        self.wait_for_part(ticket, deadline).map_err(not_sent)?;
        claim.asked = None;
        let mut detail = Vec::new();
        match self.caller.answer(ticket, &mut detail).0 {
            Status::Failed { kind, .. } => Err(failure(kind, Ran::No, &detail)),
            _ => Ok(()),
        }
    }

    fn lane(&self, deadline: Option<Time>) -> Result<Lane<'_>, Stop> {
        loop {
            if let Some(lane) = self.caller.lane(FIRST_NAP) {
                return Ok(lane);
            }
            let now = self.env.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Stop::Late);
            }
            self.watch.look(now);
            if let Some(broken) = self.watch.broken() {
                return Err(Stop::Broken(broken));
            }
        }
    }

    /// Waits until the answer is there.
    #[inline]
    pub(super) fn wait(&self, ticket: Ticket, deadline: Option<Time>) -> Result<(), Stop> {
        match spin(&*self.env, self.spin, || self.caller.is_answered(ticket)) {
            true => Ok(()),
            false => self.sleep(ticket, deadline),
        }
    }

    /// The same for a part.
    fn wait_for_part(&self, ticket: Ticket, deadline: Option<Time>) -> Result<(), Stop> {
        match spin(&*self.env, self.brisk, || self.caller.is_answered(ticket)) {
            true => Ok(()),
            false => self.sleep(ticket, deadline),
        }
    }

    fn sleep(&self, ticket: Ticket, deadline: Option<Time>) -> Result<(), Stop> {
        let mut nap = FIRST_NAP;
        let mut looked = None;
        loop {
            let most = deadline.map_or(nap, |deadline| deadline.since(self.env.now()).min(nap));
            self.caller.sleep(ticket, Some(most));
            if self.caller.is_answered(ticket) {
                return Ok(());
            }
            let now = self.env.now();
            if now.since(*looked.get_or_insert(now)) >= nap / 2 || nap == FIRST_NAP {
                self.watch.look(now);
                (looked, nap) = (Some(now), (nap * 2).min(LONGEST_NAP));
            }
            if let Some(broken) = self.watch.broken() {
                // It may have answered before it died.
                return if self.caller.is_answered(ticket) { Ok(()) } else { Err(Stop::Broken(broken)) };
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Stop::Late);
            }
        }
    }

    /// What is known of a call that was not answered. Its slot is used again when it is.
    #[cold]
    pub(super) fn lose(&self, ticket: Ticket, stop: Stop) -> Failure {
        let failure = match stop {
            Stop::Late => {
                self.caller.give_up(ticket);
                Failure::new(Kind::Deadline, Ran::Maybe)
            }
            Stop::Broken(Broken::Gone) if !self.caller.is_taken(ticket) => unreachable(Broken::Gone, Ran::No),
            Stop::Broken(broken) => unreachable(broken, Ran::Maybe),
        };
        self.caller.abandon(ticket);
        // The memory stays as it is: a server that was only stopped may read it yet.
        failure
    }

    /// Takes an answer that is there, all of it, and gives its slot back.
    #[inline]
    pub(super) fn receive(&self, ticket: Ticket, deadline: Option<Time>, body: &mut Vec<u8>) -> Result<bool, Failure> {
        let (status, len) = self.caller.answer(ticket, body);
        if len > INLINE as u64 {
            self.pull(ticket, len, deadline, body)?;
        } else {
            self.caller.release(ticket.slot());
        }
        match status {
            Status::Result => Ok(true),
            Status::Exception => Ok(false),
            Status::Failed { kind, ran } => Err(failure(kind, ran_of(ran), body)),
            Status::Part => Err(Failure::new(Kind::BadResult, Ran::Maybe)),
        }
    }

    /// Fetches what a slot does not hold of an answer.
    #[cold]
    fn pull(&self, ticket: Ticket, len: u64, deadline: Option<Time>, body: &mut Vec<u8>) -> Result<(), Failure> {
        let lost = |kind| Failure::new(kind, Ran::Yes);
        let slot = ticket.slot();
        if len > self.max_result {
            self.caller.abandon(self.caller.forget(slot));
            return Err(lost(Kind::TooLarge));
        }
        let stopped = |ticket, stop| {
            self.caller.abandon(ticket);
            lost(if stop == Stop::Late { Kind::Deadline } else { Kind::Unreachable })
        };
        let lane = self.lane(deadline).map_err(|stop| stopped(self.caller.forget(slot), stop))?;
        // What is longer grows as it comes: the server may say more than it has.
        body.reserve(len.min(AT_ONCE) as usize);
        let mut half = Half(0);
        let mut offset = body.len() as u64;
        let mut asked = self.caller.fetch(slot, &lane, half, offset);
        while offset < len {
            self.wait_for_part(asked, deadline).map_err(|stop| stopped(asked, stop))?;
            // (An answer that is no part was forgotten by the server: it broke our rules, or we its patience.)
            if !self.caller.is_part(asked) {
                self.caller.release(slot);
                return Err(lost(Kind::ResultLost));
            }
            let (filled, part) = (half, (len - offset).min(HALF as u64));
            offset += part;
            half = Half(1 - half.0);
            if offset < len {
                // While we empty one half the server fills the other.
                asked = self.caller.fetch(slot, &lane, half, offset);
            }
            lane.drain(filled, part as usize, body);
        }
        self.caller.release(slot);
        Ok(())
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

/// A slot that has no call yet: given back if it never gets one.
pub(super) struct Claim<'a> {
    caller: &'a Caller,
    slot: usize,
    /// A part of its arguments that is not answered yet.
    asked: Option<Ticket>,
}

impl<'a> Claim<'a> {
    #[inline]
    pub(super) fn new(caller: &'a Caller) -> Option<Claim<'a>> {
        caller.claim().map(|slot| Claim { caller, slot, asked: None })
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
        match self.asked {
            Some(ticket) => self.caller.abandon(ticket),
            None => self.caller.release(self.slot),
        }
    }
}

/// Bytes that a thread keeps from one call to the next.
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
        const MOST: usize = 4 << 20;
        if self.bytes.capacity() <= MOST {
            let _ = SCRATCH.try_with(|place| place.set(Some(self)));
        }
    }
}

/// Gives what [`Link::receive`] found to a sink.
#[inline]
pub(super) fn give(ended: Result<bool, Failure>, body: &[u8], sink: &mut dyn FnMut(Outcome<'_>)) {
    sink(match ended {
        Ok(true) => Outcome::Result(body.into()),
        Ok(false) => Outcome::Exception(body.into()),
        Err(failure) => Outcome::Failed(failure),
    });
}

/// A call whose arguments could not be handed over.
fn not_sent(stop: Stop) -> Failure {
    match stop {
        Stop::Late => Failure::new(Kind::Deadline, Ran::No),
        Stop::Broken(broken) => unreachable(broken, Ran::No),
    }
}

#[cold]
fn unreachable(broken: Broken, ran: Ran) -> Failure {
    let why = match broken {
        Broken::Gone => "its process ended, or closed the shared memory",
        Broken::Silent => "it is there, but answers no probe",
    };
    Failure::new(Kind::Unreachable, ran).with_detail(why)
}

#[cold]
fn failure(kind: u16, ran: Ran, detail: &[u8]) -> Failure {
    Failure::new(Kind::from_code(kind), ran).with_detail(String::from_utf8_lossy(detail))
}

/// An unknown number says least.
fn ran_of(code: u8) -> Ran {
    match code {
        0 => Ran::No,
        2 => Ran::Yes,
        _ => Ran::Maybe,
    }
}
