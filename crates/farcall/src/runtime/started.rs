//! Started calls of an imported interface.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::Inner;
use super::bind::Target;
use super::import::{self, Importer, describe, lacking};
use crate::client::{self, Outgoing, Taker, Trip};
use crate::context::Trace;
use crate::env::{Event, Time};
use crate::multi::{Bells, Parking, Station};
use crate::shm;
use crate::stub::{PendingCall, Procedure, Reply, Sink, bad_arguments};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Ran};

/// A call under way. There may be many: what few have stands elsewhere.
struct Flight {
    importer: Arc<Importer>,
    procedure: Called,
    deadline: Option<Time>,
    trace: Option<Box<Trace>>,
    stage: Stage,
}

/// What must still be known of the procedure when its call has begun.
#[derive(Clone, Copy)]
struct Called {
    name: &'static str,
    number: u32,
    idempotent: bool,
    blocking: bool,
}

impl Called {
    fn new(procedure: &Procedure) -> Called {
        let Procedure { number, name, idempotent, blocking, .. } = *procedure;
        Called { name, number, idempotent, blocking }
    }

    /// The procedure, without its deadline, which is the call's by now.
    fn procedure(self) -> Procedure {
        let Called { name, number, idempotent, blocking } = self;
        Procedure { number, name, idempotent, blocking, deadline: None }
    }
}

/// A call that was sent, by what carries it.
#[derive(Clone)]
enum Started {
    Datagrams(client::Started),
    Memory(Arc<shm::Started>),
}

enum Stage {
    /// Sent to a server.
    First(Started, Arc<Target>),
    /// A thread binds and calls.
    Again(Arc<Rescue>),
    /// Its reply was given.
    Over,
}

/// As [`start`], for a thread that gathers the ends of several calls at `station`.
pub(super) fn start_gathered(
    importer: &Arc<Importer>,
    trip: &Trip<'_>,
    station: &Arc<dyn Station>,
    bells: &Bells,
    member: u32,
) -> Box<dyn PendingCall> {
    let target = importer.bound.first().filter(|target| is_at(target, station) && target.has(trip.procedure.number));
    let Some(target) = target else {
        bells.of(member).ring();
        return start(importer, trip);
    };
    let outgoing = Outgoing { export: target.export, trip };
    match client::Started::start_gathered(&target.endpoint, &target.peer, &outgoing, (bells, member)) {
        Ok(started) => {
            let stage = Stage::First(Started::Datagrams(started), target.clone());
            Box::new(Flight::new(importer, trip, stage))
        }
        Err(why) => {
            bells.of(member).ring();
            Box::new(why)
        }
    }
}

/// Whether calls of a target are waited for at a station. Memory shared with it is not: one thread can wait for many
/// only at a socket.
fn is_at(target: &Target, station: &Arc<dyn Station>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(&target.endpoint), Arc::as_ptr(station))
}

/// Starts a call. Where there is no binding, or a call that did not run is to be made again, a
/// thread does that: both wait for answers, which nobody who starts a call does.
pub(super) fn start(importer: &Arc<Importer>, trip: &Trip<'_>) -> Box<dyn PendingCall> {
    let stage = match importer.bound.first().cloned().or_else(|| importer.bound.get()) {
        Some(target) => send(&target, trip).map(|started| Stage::First(started, target)),
        None => Again::encode(importer, trip).and_then(|again| again.spawn(None)),
    };
    match stage {
        Ok(stage) => Box::new(Flight::new(importer, trip, stage)),
        Err(why) => Box::new(why),
    }
}

fn send(target: &Target, trip: &Trip<'_>) -> Result<Started, CallFailed> {
    if !target.has(trip.procedure.number) {
        return Err(lacking(trip.procedure, target.address));
    }
    Started::start(target, &Outgoing { export: target.export, trip })
}

impl Started {
    fn start(target: &Target, outgoing: &Outgoing<'_>) -> Result<Started, CallFailed> {
        if let Some(link) = &target.link
            && let Some(started) = shm::Started::start(link, outgoing)?
        {
            return Ok(Started::Memory(started));
        }
        client::Started::start(&target.endpoint, &target.peer, outgoing).map(Started::Datagrams)
    }

    fn wait(&self, target: &Target, taker: Taker<'_>) -> Result<(), CallFailed> {
        match self {
            Started::Datagrams(started) => started.wait(&target.endpoint, &target.peer, taker),
            Started::Memory(started) => started.wait(taker),
        }
    }

    fn poll(&self, target: &Target, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<Result<(), CallFailed>> {
        match self {
            Started::Datagrams(started) => started.poll(&target.endpoint, &target.peer, context, taker).map(Ok),
            Started::Memory(started) => started.poll(context, taker),
        }
    }

    fn cancel(&self, target: &Target) {
        match self {
            Started::Datagrams(started) => started.cancel(&target.endpoint, &target.peer),
            Started::Memory(started) => started.cancel(),
        }
    }
}

impl Flight {
    /// Gives the reply if there is one that ends the call: the usual case, for which nobody need be woken.
    fn take(&mut self, sink: Sink<'_>) -> bool {
        match &self.stage {
            Stage::First(Started::Datagrams(started), _) if started.is_over() => {
                self.poll(&mut Context::from_waker(Waker::noop()), sink).is_ready()
            }
            _ => false,
        }
    }

    fn new(importer: &Arc<Importer>, trip: &Trip<'_>, stage: Stage) -> Flight {
        let Trip { procedure, deadline, trace, .. } = *trip;
        let (procedure, trace) = (Called::new(procedure), trace.map(Box::new));
        Flight { importer: importer.clone(), procedure, deadline, trace, stage }
    }

    /// What it takes to make the call again, with the arguments that its first attempt gave back.
    fn again(&self, arguments: Vec<u8>) -> Again {
        let Flight { importer, procedure, deadline, trace, .. } = self;
        let (importer, procedure, trace) = (importer.clone(), procedure.procedure(), trace.as_deref().copied());
        Again { importer, procedure, arguments, deadline: *deadline, trace }
    }
}

/// What it takes to make the call again.
struct Again {
    importer: Arc<Importer>,
    procedure: Procedure,
    /// Encoded.
    arguments: Vec<u8>,
    deadline: Option<Time>,
    trace: Option<Trace>,
}

impl Again {
    fn encode(importer: &Arc<Importer>, trip: &Trip<'_>) -> Result<Again, CallFailed> {
        let mut arguments = Vec::new();
        (trip.encode)(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
        let Trip { procedure, deadline, trace, .. } = *trip;
        Ok(Again { importer: importer.clone(), procedure: *procedure, arguments, deadline, trace })
    }

    fn with_trip<R>(&self, f: impl FnOnce(&Trip<'_>) -> R) -> R {
        // Encoded arguments are a multiple of four bytes: opaque data of that length is just them.
        let encode = |e: &mut Encoder<'_>| e.opaque(&self.arguments);
        f(&Trip { procedure: &self.procedure, deadline: self.deadline, trace: self.trace, encode: &encode })
    }

    /// Has a thread bind and call; again, if it was attempted before.
    fn spawn(self, failed: Option<(Arc<Target>, Failure)>) -> Result<Stage, CallFailed> {
        let inner = self.importer.inner.clone();
        let rescue = Arc::new(Rescue { state: Mutex::default(), ended: inner.env.event() });
        let ours = End(rescue.clone());
        Rescues::add(&inner, Box::new(move || ours.0.run(&self, failed)))?;
        Ok(Stage::Again(rescue))
    }
}

impl PendingCall for Flight {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::First(started, target) => {
                let mut failed = None;
                let mut taker =
                    |outcome: Outcome<'_>, arguments: &[u8]| failed = give(&target, outcome, arguments, sink);
                if let Err(why) = started.wait(&target, &mut taker) {
                    return sink(Reply::Failed(why));
                }
                let Some((failure, arguments)) = failed else { return };
                // This thread waits anyway.
                self.again(arguments).with_trip(|trip| self.importer.repeat(target, failure, trip, sink));
            }
            Stage::Again(rescue) => rescue.wait(sink),
            Stage::Over => {}
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let mut failed = None;
        let polled = match &self.stage {
            Stage::First(started, target) => {
                let taker =
                    &mut |outcome: Outcome<'_>, arguments: &[u8]| failed = give(target, outcome, arguments, sink);
                let polled = started.poll(target, context, taker);
                polled.map(|waited| waited.unwrap_or_else(|why| sink(Reply::Failed(why))))
            }
            Stage::Again(rescue) => rescue.poll(context, sink),
            Stage::Over => Poll::Ready(()),
        };
        if polled.is_pending() {
            return Poll::Pending;
        }
        let former = std::mem::replace(&mut self.stage, Stage::Over);
        let (Some((failure, arguments)), Stage::First(_, target)) = (failed, former) else {
            return Poll::Ready(());
        };
        let procedure = self.procedure.procedure();
        let why = describe(failure.clone(), &procedure, target.address);
        if !self.importer.worth_repeating(&target, &failure, &procedure) {
            sink(Reply::Failed(why));
            return Poll::Ready(());
        }
        // Where there can be no thread the first attempt was the only one.
        let Ok(stage) = self.again(arguments).spawn(Some((target, failure))) else {
            sink(Reply::Failed(why));
            return Poll::Ready(());
        };
        self.stage = stage;
        self.poll(context, sink)
    }

    fn station(&self) -> Option<Arc<dyn Station>> {
        match &self.stage {
            Stage::First(Started::Datagrams(_), target) => Some(target.endpoint.clone()),
            // In the environment's time, which need not be the system's.
            _ => Some(Arc::new(Parking::new(self.importer.inner.env.clone()))),
        }
    }

    fn attend(&mut self, station: &Arc<dyn Station>, bells: &Bells, member: u32, sink: Sink<'_>) -> Poll<()> {
        if self.take(sink) {
            return Poll::Ready(());
        }
        if let Stage::First(Started::Datagrams(started), target) = &self.stage
            && is_at(target, station)
            && started.attend(&target.endpoint, &target.peer, bells.of(member))
        {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::new(bells.of(member)));
        self.poll(&mut Context::from_waker(&waker), sink)
    }

    fn cancel(&mut self) {
        match &self.stage {
            Stage::First(started, target) => started.cancel(target),
            Stage::Again(rescue) => rescue.cancel(),
            Stage::Over => {}
        }
    }

    fn detach(mut self: Box<Self>) {
        // So that its drop cancels nothing.
        if let Stage::First(Started::Datagrams(started), target) = std::mem::replace(&mut self.stage, Stage::Over) {
            started.leave(&target.endpoint);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Gives a result or an exception to the sink; a failure is returned, with the arguments.
fn give(target: &Target, outcome: Outcome<'_>, arguments: &[u8], sink: Sink<'_>) -> Option<(Failure, Vec<u8>)> {
    import::give(target, outcome, sink).map(|failure| (failure, arguments.to_vec()))
}

/// Threads of a runtime that make started calls, at most: each waits for a server that is gone, or new.
const MOST_RESCUERS: usize = 256;

/// Calls that wait for one of them, at most.
const MOST_WAITING: usize = 16_384;

/// Started calls that threads make.
#[derive(Default)]
pub(super) struct Rescues(Mutex<Rescuers>);

#[derive(Default)]
struct Rescuers {
    threads: usize,
    /// For each of these a thread will have time, while there are threads.
    waiting: VecDeque<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Rescues {
    /// Has a thread do it: a new one, or the first that has time.
    fn add(inner: &Arc<Inner>, job: Job) -> Result<(), CallFailed> {
        {
            let mut rescuers = inner.rescues.lock();
            if rescuers.waiting.len() == MOST_WAITING {
                let why = format!("{MOST_WAITING} started calls wait to be bound");
                return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
            }
            if rescuers.threads == MOST_RESCUERS {
                rescuers.waiting.push_back(job);
                return Ok(());
            }
            rescuers.threads += 1;
        }
        let ours = inner.clone();
        let spawned = inner.env.spawn("farcall-rebind", Box::new(move || ours.rescues.work(job)));
        spawned.map_err(|why| {
            inner.rescues.lock().threads -= 1;
            super::local("starting a thread", why)
        })
    }

    /// Does this and what waits.
    fn work(&self, mut job: Job) {
        loop {
            // A registry of the user's may panic. The caller hears that the call ended.
            let _ = catch_unwind(AssertUnwindSafe(job));
            let mut rescuers = self.lock();
            let Some(next) = rescuers.waiting.pop_front() else {
                rescuers.threads -= 1;
                return;
            };
            job = next;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rescuers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a rescue whose thread ended without a word: a registry of the user's may panic.
struct End(Arc<Rescue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Reply::Failed(crate::stub::no_reply()));
    }
}

/// A call that a thread of its own makes.
struct Rescue {
    state: Mutex<RescueState>,
    ended: Arc<dyn Event>,
}

#[derive(Default)]
struct RescueState {
    /// There is an ending, or it was taken.
    over: bool,
    ending: Option<Ending>,
    cancelled: bool,
    /// The call, once there was a binding.
    started: Option<(Started, Arc<Target>)>,
    waker: Option<Waker>,
}

enum Ending {
    Result(Vec<u8>),
    Exception(Vec<u8>),
    Failed(CallFailed),
}

impl Rescue {
    /// Binds if need be, and calls. A call that is being repeated cannot be stopped, but is not
    /// repeated once it was cancelled.
    fn run(&self, call: &Again, failed: Option<(Arc<Target>, Failure)>) {
        let attempted = failed.map_or_else(|| self.attempt(call), |failed| Ok(Some(failed)));
        let (target, failure) = match attempted {
            Ok(Some(failed)) => failed,
            Ok(None) => return,
            Err(why) => return self.end(Reply::Failed(why)),
        };
        if self.lock().cancelled {
            return self.end(Reply::Failed(describe(failure, &call.procedure, target.address)));
        }
        call.with_trip(|trip| call.importer.repeat(target, failure, trip, &mut |reply| self.end(reply)));
    }

    /// The first attempt: its failure, if it is one that may be repeated.
    fn attempt(&self, call: &Again) -> Result<Option<(Arc<Target>, Failure)>, CallFailed> {
        let unless_cancelled = || match self.lock().cancelled {
            true => Err(CallFailed::new(Kind::Cancelled, Ran::No)),
            false => Ok(()),
        };
        unless_cancelled()?;
        let target = call.importer.target(&[], call.deadline)?;
        unless_cancelled()?;
        let started = call.with_trip(|trip| send(&target, trip))?;
        // Either this sees that it was cancelled meanwhile, or whoever cancels sees what to cancel.
        let cancelled = {
            let mut state = self.lock();
            state.started = Some((started.clone(), target.clone()));
            state.cancelled
        };
        if cancelled {
            started.cancel(&target);
        }
        let mut failed = None;
        let taker =
            &mut |outcome: Outcome<'_>, _: &[u8]| failed = give(&target, outcome, &[], &mut |reply| self.end(reply));
        started.wait(&target, taker)?;
        Ok(failed.map(|(failure, _)| (target, failure)))
    }

    fn cancel(&self) {
        let started = {
            let mut state = self.lock();
            state.cancelled = true;
            state.started.clone()
        };
        if let Some((started, target)) = started {
            started.cancel(&target);
        }
    }

    fn end(&self, reply: Reply<'_>) {
        let rest =
            |mut decoder: Decoder<'_>| decoder.opaque(decoder.remaining()).map(<[u8]>::to_vec).unwrap_or_default();
        let ending = match reply {
            Reply::Result(decoder) | Reply::ResultOf(decoder, _) => Ending::Result(rest(decoder)),
            Reply::Exception(decoder) => Ending::Exception(rest(decoder)),
            Reply::Failed(why) => Ending::Failed(why),
        };
        let waker = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.over, true) {
                return;
            }
            state.ending = Some(ending);
            state.waker.take()
        };
        self.ended.set();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait(&self, sink: Sink<'_>) {
        let _waiting = crate::server::waiting();
        loop {
            if let Some(ending) = self.take() {
                return ending.give(sink);
            }
            self.ended.wait(None);
        }
    }

    fn poll(&self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let ending = {
            let mut state = self.lock();
            match state.ending.take() {
                Some(ending) => ending,
                None => {
                    let former = state.waker.replace(context.waker().clone());
                    drop(state);
                    // To drop a waker may drop a task, and what that had started.
                    drop(former);
                    return Poll::Pending;
                }
            }
        };
        ending.give(sink);
        Poll::Ready(())
    }

    fn take(&self) -> Option<Ending> {
        self.lock().ending.take()
    }

    fn lock(&self) -> MutexGuard<'_, RescueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ending {
    fn give(self, sink: Sink<'_>) {
        match self {
            Ending::Result(body) => sink(Reply::Result(Decoder::new(&body))),
            Ending::Exception(body) => sink(Reply::Exception(Decoder::new(&body))),
            Ending::Failed(why) => sink(Reply::Failed(why)),
        }
    }
}
