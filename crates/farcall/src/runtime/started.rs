//! Started calls of an imported interface. A call with exchanges is one in which signals or streams may pass
//! while it runs.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use farcall_proto::client::Outcome;
use farcall_proto::{Failure, SharedArguments};

use super::bind::Target;
use super::exchanging::OpenImported;
use super::import::{Importer, describe, give};
use super::retry_task::{EncodedCall, Rare, RetryTask};
use super::sent::{Reached, SentCall};
use crate::client::{self, CallRequest};
use crate::context::Set;
use crate::env::Time;
use crate::retry::Retry;
use crate::stub::{EncodedArguments, InterfaceId, PendingCall, Procedure, Reply, Sink};
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::{CallFailed, Kind, Ran, builtin, self_wait};

/// A started call. There may be many, so this is kept small: rare parts are boxed.
struct ImportedCall {
    importer: Arc<Importer>,
    procedure: Called,
    deadline: Option<Time>,
    rare: Option<Box<Rare>>,
    stage: Stage,
}

/// What is needed after a call has been sent: the facts about its procedure, and what has become of the call.
#[derive(Clone, Copy)]
struct Called {
    name: &'static str,
    number: u32,
    idempotent: bool,
    exchanges: bool,
    /// Whether the caller has cancelled the call. Then it is not made again.
    cancelled: bool,
}

impl Called {
    fn new(procedure: &Procedure) -> Called {
        let Procedure { number, name, idempotent, exchanges, .. } = *procedure;
        Called { name, number, idempotent, exchanges, cancelled: false }
    }

    /// Returns the procedure for another attempt. Leaves out the facts that only servers use, and the
    /// deadline, because the call now has its own. The interface is among the rare facts of the call.
    fn procedure(self) -> Procedure {
        let (Called { name, number, idempotent, exchanges, .. }, interface) = (self, InterfaceId::NONE);
        let (blocking, uncancelled, deadline) = Default::default();
        Procedure { number, name, interface, idempotent, blocking, uncancelled, exchanges, deadline }
    }
}

enum Stage {
    /// The call was sent to a server.
    Sent(SentCall, Arc<Target>),
    /// A task binds and calls.
    Retried(Arc<RetryTask>),
    /// The reply was given to the caller, or the call was detached.
    Over,
}

/// Starts a call for a thread that waits for several calls at `wait_point`. Marks call number `member` in
/// `ready` when the call has ended, or at once if the thread itself must poll the call.
pub(super) fn start_at(
    importer: &Arc<Importer>,
    request: &CallRequest<'_>,
    wait_point: &Arc<dyn WaitPoint>,
    ready: &ReadyList,
    member: u32,
) -> Box<dyn PendingCall> {
    let target = importer
        .bound
        .first()
        .filter(|target| is_at(target, wait_point) && target.has(request.call.procedure.number))
        // A call with exchanges must be polled by the waiting thread, because that thread answers the call's
        // signals.
        .filter(|_| !request.call.procedure.exchanges);
    let Some(target) = target else {
        ready.token(member).mark_ready();
        return start(importer, request);
    };
    let may_call = builtin::may_call(target.export, request.call.procedure.number);
    let (call, token) = ((target.export, request), Some(ready.token(member)));
    let start = || client::Started::start(&target.endpoint, &target.peer, call, token);
    match may_call.and_then(|()| start()) {
        Ok(started) => {
            // A call whose binding is broken has ended before it was sent, so nobody else marks it.
            if started.is_over() {
                ready.token(member).mark_ready();
            }
            let stage = Stage::Sent(SentCall::Datagrams(started), target.clone());
            Box::new(ImportedCall::new(importer, request, stage))
        }
        Err(why) => {
            ready.token(member).mark_ready();
            Box::new(why)
        }
    }
}

/// Returns whether `wait_point` is the socket through which a target is called. Calls through shared memory
/// cannot be waited for at a socket.
fn is_at(target: &Target, wait_point: &Arc<dyn WaitPoint>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(&target.endpoint), Arc::as_ptr(wait_point))
}

/// Starts a call, without waiting. To bind, or to repeat the call, means to wait for answers, so a task does
/// these.
pub(super) fn start(importer: &Arc<Importer>, request: &CallRequest<'_>) -> Box<dyn PendingCall> {
    let stage = match importer.bound.first().cloned().or_else(|| importer.bound.get()) {
        Some(target) => SentCall::start(&target, request).map(|started| Stage::Sent(started, target)),
        None => EncodedCall::new(importer, request)
            .and_then(|call| RetryTask::begin(call, None))
            .map(Stage::Retried),
    };
    match stage {
        Ok(stage) => Box::new(ImportedCall::new(importer, request, stage)),
        Err(why) => Box::new(why),
    }
}

impl ImportedCall {
    /// If the reply has come by datagrams, gives it to `sink`, and the call is then over. Returns whether it
    /// is. In this usual case the caller needs no waker.
    fn take(&mut self, sink: Sink<'_>) -> bool {
        let Stage::Sent(SentCall::Datagrams(started), target) = &self.stage else { return false };
        if !started.is_over() {
            return false;
        }
        let mut failed = None;
        started.give(&mut |outcome: Outcome<'_>, arguments: EncodedArguments<'_>| {
            failed = give_or_keep(target, outcome, arguments, sink)
        });
        self.end(failed, &mut Context::from_waker(Waker::noop()), sink).is_ready()
    }

    /// Ends the call. If it has failed so that it may be repeated, repeats it.
    #[inline]
    fn end(
        &mut self,
        failed: Option<(Failure, Arc<SharedArguments>)>,
        context: &mut Context<'_>,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let former = std::mem::replace(&mut self.stage, Stage::Over);
        match (failed, former) {
            (Some(failed), Stage::Sent(started, target)) => {
                self.repeat(failed, &started, target, context, sink)
            }
            _ => Poll::Ready(()),
        }
    }

    /// Repeats a call that has failed, if it may be repeated. Otherwise gives its failure to `sink`.
    #[cold]
    fn repeat(
        &mut self,
        (failure, arguments): (Failure, Arc<SharedArguments>),
        started: &SentCall,
        target: Arc<Target>,
        context: &mut Context<'_>,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let procedure = self.procedure.procedure();
        if let Some(why) = self.final_failure(&failure, started, &target) {
            sink(Reply::Failed(why));
            return Poll::Ready(());
        }
        // After an overload the task asks the registry for other servers, because that may block.
        if failure.kind != Kind::Overloaded
            && let Err(why) = self.importer.try_again(
                &mut Retry::default(),
                &target,
                failure.clone(),
                (&procedure, self.deadline),
            )
        {
            sink(Reply::Failed(why));
            return Poll::Ready(());
        }
        let why = describe(failure.clone(), &procedure, target.address);
        // If no task can be started, the failure of the first attempt stands.
        let Ok(task) = RetryTask::begin(self.encoded(arguments), Some((target, failure))) else {
            sink(Reply::Failed(why));
            return Poll::Ready(());
        };
        self.stage = Stage::Retried(task);
        self.poll(context, sink)
    }

    /// Returns how a call ends that is not to be made again although its failure might allow it: a handler of
    /// its caller has run, or the caller has cancelled it.
    #[cold]
    fn final_failure(
        &self,
        failure: &Failure,
        started: &SentCall,
        target: &Arc<Target>,
    ) -> Option<CallFailed> {
        let procedure = self.procedure.procedure();
        let why = || describe(failure.clone(), &procedure, target.address);
        if started.is_touched() {
            return Some(why().after_handler());
        }
        if !self.procedure.cancelled {
            return None;
        }
        let cancelled = || CallFailed::new(Kind::Cancelled, failure.ran).because(why().detail().to_owned());
        // An overload is not looked into, because that may block.
        if failure.kind == Kind::Overloaded {
            return Some(cancelled());
        }
        let facts = (&procedure, self.deadline);
        let again = self.importer.try_again(&mut Retry::default(), target, failure.clone(), facts);
        Some(again.err().unwrap_or_else(cancelled))
    }

    #[inline(always)]
    fn new(importer: &Arc<Importer>, request: &CallRequest<'_>, stage: Stage) -> ImportedCall {
        let CallRequest { call, deadline, begin_by, trace } = *request;
        let is_rare =
            trace.is_some() || begin_by.is_some() || call.procedure.exchanges || !call.carries.is_empty();
        let rare = if is_rare { Some(Box::new(Rare::new(request))) } else { None };
        let procedure = Called::new(call.procedure);
        ImportedCall { importer: importer.clone(), procedure, deadline, rare, stage }
    }

    /// Returns the call for another attempt, with the arguments that its first attempt gave back.
    fn encoded(&self, arguments: Arc<SharedArguments>) -> EncodedCall {
        let rare = self.rare.as_deref().cloned().unwrap_or_default();
        let procedure = Procedure { interface: rare.interface, ..self.procedure.procedure() };
        let importer = self.importer.clone();
        EncodedCall { importer, procedure, arguments, deadline: self.deadline, rare }
    }
}

impl PendingCall for ImportedCall {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        if self_wait::is_possible() {
            return self.wait_driving(sink);
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sent(started, target) => {
                let mut failed = None;
                let mut taker = |outcome: Outcome<'_>, arguments: EncodedArguments<'_>| {
                    failed = give_or_keep(&target, outcome, arguments, sink)
                };
                match started.wait(&target, &mut taker) {
                    Ok(Reached::End) => {}
                    Ok(Reached::Stream(call)) => {
                        return OpenImported::give(call, &target, &self.procedure.procedure(), sink);
                    }
                    Err(why) => {
                        started.cancel(&target);
                        return sink(Reply::Failed(why));
                    }
                }
                let Some((failure, arguments)) = failed else { return };
                if let Some(why) = self.final_failure(&failure, &started, &target) {
                    return sink(Reply::Failed(why));
                }
                // This thread waits anyway, so it makes the call again itself, without a task.
                self.encoded(arguments)
                    .with_request(|request| self.importer.repeat(target, failure, request, sink));
            }
            Stage::Retried(task) => task.wait(sink),
            Stage::Over => {}
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let (mut failed, procedure) = (None, self.procedure);
        let polled = match &self.stage {
            Stage::Sent(started, target) => {
                let taker = &mut |outcome: Outcome<'_>, arguments: EncodedArguments<'_>| {
                    failed = give_or_keep(target, outcome, arguments, sink)
                };
                let polled = started.poll(target, context, taker);
                polled.map(|reached| match reached {
                    Ok(Reached::End) => {}
                    Ok(Reached::Stream(call)) => {
                        OpenImported::give(call, target, &procedure.procedure(), sink)
                    }
                    Err(why) => sink(Reply::Failed(why)),
                })
            }
            Stage::Retried(task) => task.poll(context, sink),
            Stage::Over => Poll::Ready(()),
        };
        if polled.is_pending() {
            return Poll::Pending;
        }
        self.end(failed, context, sink)
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        match &self.stage {
            Stage::Sent(SentCall::Datagrams(_), target) => Some(target.endpoint.clone()),
            // The wait must use the environment's time, which need not be the system's.
            _ => Some(Arc::new(Parking::new(self.importer.inner.env.clone()))),
        }
    }

    fn poll_at(
        &mut self,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        if self.take(sink) {
            return Poll::Ready(());
        }
        if let Stage::Sent(SentCall::Datagrams(started), target) = &self.stage
            && is_at(target, wait_point)
            && started.poll_at(&target.endpoint, &target.peer, ready.token(member))
        {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::new(ready.token(member)));
        self.poll(&mut Context::from_waker(&waker), sink)
    }

    fn waits_for_itself(&self) -> bool {
        let export = match &self.stage {
            Stage::Sent(_, target) => Some(target.export),
            Stage::Retried(task) => task.export(),
            Stage::Over => None,
        };
        export.is_some_and(|export| builtin::waits_for_itself(export, self.procedure.number))
    }

    fn cancel(&mut self) {
        self.procedure.cancelled = true;
        match &self.stage {
            Stage::Sent(started, target) => started.cancel(target),
            Stage::Retried(task) => task.cancel(),
            Stage::Over => {}
        }
    }

    fn detach(mut self: Box<Self>) {
        self.let_go(false);
    }

    fn detach_later(mut self: Box<Self>) {
        self.let_go(true);
    }
}

impl ImportedCall {
    /// Waits for the reply, on a thread that itself drives an executor of this process.
    #[cold]
    fn wait_driving(&mut self, sink: Sink<'_>) {
        let env = &self.importer.inner.env;
        if let Err(why) = client::may_wait(env) {
            return sink(Reply::Failed(why.but_ran(Ran::Maybe)));
        }
        let _waiting = crate::serving::wait_guard();
        let event = env.event();
        let waker = Waker::from(Arc::new(Set(event.clone())));
        let mut quiet = false;
        while self.poll(&mut Context::from_waker(&waker), sink).is_pending() {
            if quiet && self.waits_for_itself() {
                // The drop of this call cancels it.
                return sink(Reply::Failed(self_wait::refusal(Ran::Maybe)));
            }
            quiet = !event.wait(Some(self_wait::GRACE));
        }
    }

    fn let_go(&mut self, later: bool) {
        // The stage becomes `Over` so that the drop of this call cancels nothing.
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sent(started, target) => started.detach(&target, later),
            Stage::Retried(task) => task.detach(),
            Stage::Over => {}
        }
    }
}

impl Drop for ImportedCall {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Gives a result or an exception to the sink. Returns a failure, with the arguments.
fn give_or_keep(
    target: &Target,
    outcome: Outcome<'_>,
    arguments: EncodedArguments<'_>,
    sink: Sink<'_>,
) -> Option<(Failure, Arc<SharedArguments>)> {
    give(target, outcome, sink).map(|failure| (failure, arguments.to_shared()))
}
