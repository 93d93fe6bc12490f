//! The channel of an imported interface: makes calls, binds again when a binding breaks, and repeats calls
//! that may be repeated.

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use farcall_core::broken::Rule;
use farcall_names::{Entry, Name};
use farcall_proto::client::Outcome;
use farcall_proto::{Failure, Spares, Time};

use super::bind::{Candidate, Target, parse};
use super::exchanging::{ExchangingCall, OpenImported};
use super::lookup::{Found, Wanted};
use super::restarts::Restarts;
use super::silence::Silence;
use super::tasks::{TaskLoad, Tasks};
use super::watched::watched;
use super::{Inner, Runtime, bind, bound, started};
use crate::client::{self, CallRequest};
use crate::context;
use crate::env::{Env, breaks};
use crate::question::{Answering, Question};
use crate::retry::{Retry, Step};
use crate::stub::{
    Arrivals, Binding, Call, CallKey, Channel, EncodedArguments, Interface, NO_HANDLERS, PendingCall,
    Procedure, Recipient, Reply, RestartHook, Sink, no_reply,
};
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Ran, builtin, idl, lock, self_wait};

/// How long a call waits for the registry if it can do without: it is overloaded, and asks whether there is
/// another server; or it knows where its server was. A call with a deadline waits no longer than a quarter of
/// its time: a registry that is silent must cost calls little.
const REGISTRY_PATIENCE: Duration = Duration::from_millis(50);

/// An attempt to bind, for those that wait for it.
type Attempt = Arc<Question<Arc<Target>>>;

/// An attempt to bind that is under way.
struct UnderWay {
    /// The servers that it asks.
    candidates: Vec<Candidate>,
    /// Whether they are asked briefly, because they have been silent for long.
    is_brief: bool,
    question: Attempt,
}

/// An imported interface.
pub(super) struct Importer {
    pub(super) inner: Arc<Inner>,
    /// The importer itself.
    pub(super) me: Weak<Importer>,
    pub(super) name: Name,
    interface: Cow<'static, idl::Interface>,
    pub(super) bound: bound::Binding,
    restarts: Restarts,
    /// The calls that tasks make, if they have made any.
    pub(super) load: OnceLock<Arc<TaskLoad>>,
    /// The attempt to bind that started calls wait for.
    attempt: Mutex<Option<UnderWay>>,
    /// One more than the number of messages that the server had sent when a call's deadline last passed; 0 if
    /// none has passed.
    silent_at: AtomicU64,
    pub(super) silence: OnceLock<Box<Silence>>,
}

pub(super) fn import<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
    within: Option<Duration>,
) -> Result<T::Client, CallFailed> {
    let deadline = within.map(|within| runtime.0.env.now() + within);
    Ok(binding(runtime, parse(name)?, Cow::Borrowed(T::interface()), deadline)?.into())
}

/// Binds to a server that exports the interface under a name. Waits until the deadline at most.
pub(super) fn binding(
    runtime: &Runtime,
    name: Name,
    interface: Cow<'static, idl::Interface>,
    deadline: Option<Time>,
) -> Result<Binding, CallFailed> {
    let deadline = [deadline, context::inherited().0].into_iter().flatten().min();
    let target = runtime.0.bind(&name, &interface, deadline)?;
    Ok(binding_to(&runtime.0, name, interface, Some(target)))
}

/// Returns a binding to a name. If `target` is `None`, the first call binds.
pub(super) fn binding_to(
    inner: &Arc<Inner>,
    name: Name,
    interface: Cow<'static, idl::Interface>,
    target: Option<Target>,
) -> Binding {
    let importer = importer_to(inner, name, interface);
    if let Some(target) = target {
        importer.bound.set(Arc::new(target));
    }
    channel_of(&importer)
}

/// Returns what keeps the binding of a name. There is none yet.
pub(super) fn importer_to(
    inner: &Arc<Inner>,
    name: Name,
    interface: Cow<'static, idl::Interface>,
) -> Arc<Importer> {
    let (bound, restarts, attempt) = (bound::Binding::default(), Restarts::default(), Mutex::default());
    let (inner, load, silent_at) = (inner.clone(), OnceLock::new(), AtomicU64::new(0));
    let silence = OnceLock::new();
    Arc::new_cyclic(|me| Importer {
        inner,
        me: me.clone(),
        name,
        interface,
        bound,
        restarts,
        load,
        attempt,
        silent_at,
        silence,
    })
}

/// Returns the binding that stubs call by.
pub(super) fn channel_of(importer: &Arc<Importer>) -> Binding {
    let channel = watched(&importer.inner, &importer.interface.name, Arc::new(Shared(importer.clone())));
    Binding::new(channel)
}

/// Returns the earlier of two deadlines, the call's own and the one inherited from the call that this thread
/// serves; and when the call must have begun, if it is to at half of its time.
fn sooner(inner: &Inner, call: &Call<'_>, inherited: Option<Time>) -> (Option<Time>, Option<Time>) {
    let Some(within) = call.within else { return (inherited, None) };
    let now = inner.env.now();
    let deadline = inherited.map_or(now + within, |inherited| inherited.min(now + within));
    (Some(deadline), call.hurries.then(|| now + deadline.since(now) / 2))
}

/// The channel that all clones of a user-stub share. Started calls keep the importer alive too.
struct Shared(Arc<Importer>);

impl Channel for Shared {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        self.0.call(&self.0.request(&call), sink);
    }

    fn pass_on(&self, call: &Call<'_>, sink: Sink<'_>) -> bool {
        self.0.call(&self.0.request(call), sink)
    }

    fn call_briefly(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        short: &mut dyn FnMut(&[u8]) -> bool,
        sink: Sink<'_>,
    ) -> bool {
        let Some(target) = self.0.bound.first() else { return false };
        if context::may_inherit() || target.link.is_some() || !target.has(procedure.number) {
            return false;
        }
        if builtin::waits_for_itself(target.export, procedure.number) {
            return false;
        }
        let callee = (target.export, procedure.number);
        match target.endpoint.call_briefly(&target.peer, callee, arguments, short, sink) {
            Some(Ok(())) => true,
            Some(Err(failure)) => {
                self.0.repeat_encoded(target.clone(), failure, procedure, arguments, sink);
                true
            }
            None => false,
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        started::start(&self.0, &self.0.request(&call))
    }

    fn start_for(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        recipient: Arc<dyn Recipient>,
    ) -> Option<(Arc<dyn Arrivals>, CallKey)> {
        let target = self.0.bound.first()?;
        // A call that is made while this thread serves another one inherits its deadline.
        if context::may_inherit() || target.link.is_some() || !target.has(procedure.number) {
            return None;
        }
        if self_wait::is_possible() || builtin::waits_for_itself(target.export, procedure.number) {
            return None;
        }
        let callee = (target.export, procedure);
        let call = target.endpoint.start_for(&target.peer, callee, arguments, recipient)?;
        Some((target.clone(), call))
    }

    fn on_restart(&self, hook: RestartHook) -> Result<(), CallFailed> {
        self.0.restarts.set(hook, self.0.bound.get())
    }

    fn silence(&self) -> Option<CallFailed> {
        self.0.known_silence()
    }

    fn is_asked(&self) -> bool {
        self.0.is_asked()
    }

    fn suspect(&self) {
        self.0.suspect(Kind::Deadline);
    }

    fn wake_at(&self, time: Time, waker: &Waker) -> bool {
        Tasks::wake_at(&self.0.inner, time, waker.clone()).is_ok()
    }

    fn lacks(&self, procedure: u32) -> bool {
        self.0.bound.get().is_some_and(|target| !target.has(procedure))
    }

    fn env(&self) -> Arc<dyn Env> {
        self.0.inner.env.clone()
    }

    fn may_wait(&self) -> Result<(), CallFailed> {
        client::may_wait(&self.0.inner.env)
    }

    fn post(&self, bytes: &[u8]) -> bool {
        let Some(target) = self.0.bound.get().filter(|target| target.link.is_none()) else { return false };
        target.endpoint.post(&target.peer, target.export, bytes)
    }

    fn start_at(
        &self,
        call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        started::start_at(&self.0, &self.0.request(&call), wait_point, ready, member)
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        match self.0.bound.get() {
            Some(target) => target.endpoint.clone(),
            None => Arc::new(Parking::new(self.0.inner.env.clone())),
        }
    }
}

impl Arrivals for Target {
    fn wait_for(&self, call: CallKey, done: &dyn Fn() -> bool) -> Result<(), CallFailed> {
        self.endpoint.wait_for(&self.peer, call, done)
    }

    fn watch(&self, call: CallKey, waker: Waker) {
        self.endpoint.watch_for(&self.peer, call, waker);
    }
}

impl Importer {
    /// Returns the request of a call that is made now. The deadline and the trace of the call that this
    /// thread serves apply to it too.
    #[inline(always)]
    fn request<'a>(&self, call: &'a Call<'a>) -> CallRequest<'a> {
        let (inherited, trace) = context::inherited();
        let (deadline, begin_by) = sooner(&self.inner, call, inherited);
        CallRequest { call, deadline, begin_by, trace }
    }

    /// Makes a call. If it fails and may be repeated, repeats it, perhaps at another server. Returns whether
    /// the first attempt was good.
    // Inlined into both ways in, because each call takes one of them.
    #[inline(always)]
    pub(super) fn call(&self, request: &CallRequest<'_>, sink: Sink<'_>) -> bool {
        let Some(target) = self.bound.first() else {
            self.call_bound(request, sink);
            return false;
        };
        match self.call_once(target, request, sink) {
            Ok(None) => return true,
            Ok(Some(failure)) => self.repeat(target.clone(), failure, request, sink),
            Err(why) => sink(Reply::Failed(why)),
        }
        false
    }

    /// Makes a call as [`Importer::call`] does, but binds first if there is no binding.
    #[cold]
    fn call_bound(&self, request: &CallRequest<'_>, sink: Sink<'_>) {
        let target = match self.target(None, request.bind_by()) {
            Ok(target) => target,
            Err(why) => return sink(Reply::Failed(why)),
        };
        match self.call_once(&target, request, sink) {
            Ok(None) => {}
            Ok(Some(failure)) => self.repeat(target, failure, request, sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    /// Repeats a call whose arguments are encoded, as [`Importer::repeat`] does.
    #[cold]
    fn repeat_encoded(
        &self,
        target: Arc<Target>,
        failure: Failure,
        procedure: &Procedure,
        arguments: &[u8],
        sink: Sink<'_>,
    ) {
        // The length of encoded arguments is a multiple of four, so `opaque` adds no padding to them.
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let call = Call {
            procedure,
            within: None,
            encode: &encode,
            shared: None,
            handlers: &NO_HANDLERS,
            sending: None,
            carries: &[],
            hurries: false,
        };
        let request = CallRequest { call: &call, deadline: None, begin_by: None, trace: None };
        self.repeat(target, failure, &request, sink);
    }

    /// Makes a failed call again as long as that may help. If no attempt succeeds, the caller gets the last
    /// failure, which also says whether any of the attempts ran.
    #[cold]
    pub(super) fn repeat(
        &self,
        mut target: Arc<Target>,
        mut failure: Failure,
        request: &CallRequest<'_>,
        sink: Sink<'_>,
    ) {
        let mut retry = Retry::default();
        let why = loop {
            if let Err(why) =
                self.try_again(&mut retry, &target, failure, (request.call.procedure, request.deadline))
            {
                break why;
            }
            target = match self.target(Some(&retry), request.bind_by()) {
                Ok(target) => target,
                Err(why) => break retry.no_server_found(why),
            };
            failure = match self.call_once(&target, request, sink) {
                Ok(None) => return,
                Ok(Some(failure)) => failure,
                Err(why) => break why,
            };
        };
        sink(Reply::Failed(retry.of_all(why)));
    }

    /// Makes one attempt of a call. Returns a failure if the server or the protocol reports one. Such a
    /// failure may allow another attempt.
    ///
    /// # Errors
    /// When the call cannot be made at all.
    #[inline(always)]
    fn call_once(
        &self,
        target: &Arc<Target>,
        request: &CallRequest<'_>,
        sink: Sink<'_>,
    ) -> Result<Option<Failure>, CallFailed> {
        if !target.has(request.call.procedure.number) {
            return Err(target.refusal(request.call.procedure));
        }
        builtin::may_call(target.export, request.call.procedure.number)?;
        if request.call.procedure.exchanges {
            return self.call_exchanging(target, request, sink);
        }
        let mut failed = None;
        let take = &mut |outcome: Outcome<'_>| failed = give(target, outcome, sink);
        let carried = match &target.link {
            Some(link) => link.call((target.export, request), take)?,
            None => false,
        };
        if !carried {
            target.endpoint.call(&target.peer, target.export, request, take)?;
        }
        Ok(failed)
    }

    /// Makes one attempt of a call with exchanges, which carry signals and streams while the call runs. The
    /// call is not attempted again once one of the caller's handlers has run.
    #[inline(never)]
    fn call_exchanging(
        &self,
        target: &Arc<Target>,
        request: &CallRequest<'_>,
        sink: Sink<'_>,
    ) -> Result<Option<Failure>, CallFailed> {
        let mut failed = None;
        let take = &mut |outcome: Outcome<'_>, _: EncodedArguments<'_>| failed = give(target, outcome, sink);
        let call = Arc::new(ExchangingCall::start_to_wait(target, request)?);
        if call.wait(target, take)? {
            OpenImported::give(call, target, request.call.procedure, sink);
            return Ok(None);
        }
        match failed {
            Some(failure) if call.is_touched() => {
                Err(describe(failure, request.call.procedure, target.address).after_handler())
            }
            failed => Ok(failed),
        }
    }

    /// Returns the server to call. Binds if there is no binding. `again` has the failed attempts of the call.
    pub(super) fn target(
        &self,
        again: Option<&Retry>,
        deadline: Option<Time>,
    ) -> Result<Arc<Target>, CallFailed> {
        if let Some(target) = self.bound.get() {
            return Ok(target);
        }
        self.restarts.check()?;
        let target = self.bind(again, deadline).inspect_err(|why| self.suspect(why.kind()))?;
        self.restarts.admit(&target)?;
        // Several threads may bind at the same time. All of them use the first binding.
        Ok(self.bound.set(Arc::new(target)))
    }

    /// Binds to a server as the registry lists it, or if it fails or is late, as it listed it last.
    fn bind(&self, again: Option<&Retry>, deadline: Option<Time>) -> Result<Target, CallFailed> {
        let avoid = again.map_or(&[][..], Retry::avoid);
        let ask = |by| self.inner.candidates_but(&self.name, (avoid, false), by);
        let candidates = match ask(self.asks_registry_until(deadline)) {
            Ok(candidates) => candidates,
            Err(why) => {
                let is_late = self.is_registry_late(&why, deadline);
                match self.bind_unlisted(why, deadline) {
                    // The server is no longer where it was.
                    Err(_) if is_late => ask(deadline)?,
                    ended => return ended,
                }
            }
        };
        self.inner.bind_among(&self.name, &self.interface, candidates, again, deadline)
    }

    /// Returns the server to call, for a task: waits without blocking a thread, and binds if there is no
    /// binding. `again` has the failed attempts of the call. Returns the error of `over` as soon as it
    /// returns one.
    pub(super) async fn target_later(
        self: &Arc<Self>,
        again: &Retry,
        deadline: Option<Time>,
        over: impl Fn() -> Result<(), CallFailed>,
    ) -> Result<Arc<Target>, CallFailed> {
        over()?;
        if let Some(target) = self.bound.get() {
            return Ok(target);
        }
        self.restarts.check()?;
        let avoid = again.avoid();
        let mut candidates = match self.candidates_soon(avoid, deadline, &over).await {
            Ok(candidates) => candidates,
            Err(why) => {
                let is_late = self.is_registry_late(&why, deadline);
                match self.bind_unlisted_later(why, deadline, &over).await {
                    // The server is no longer where it was.
                    Err(_) if is_late => {
                        self.inner.candidates_later(&self.name, (avoid, false), deadline, &over).await?
                    }
                    ended => return ended,
                }
            }
        };
        let mut is_brief = bind::asks_silent_ones(again, &candidates);
        let mut moves = 0;
        loop {
            let failed = match self.ask(candidates.clone(), is_brief)?.wait(&over).await {
                Err(why) if bind::may_have_moved(&why) && moves < bind::MAX_MOVES => why,
                ended => {
                    return ended.map_err(|why| {
                        self.suspect(why.kind());
                        bind::with_obstacle(why, self.inner.obstacle(&candidates))
                    });
                }
            };
            (moves, is_brief) = (moves + 1, false);
            // The name may have moved while its former servers were asked.
            let former = candidates;
            candidates = match self.inner.candidates_later(&self.name, (avoid, true), deadline, &over).await {
                Ok(now) if bind::has_moved(&former, &now) => now,
                _ => {
                    self.suspect(failed.kind());
                    return Err(failed);
                }
            };
        }
    }

    /// Returns the servers to ask, for a task, as the registry lists them. If the registry is late, and a
    /// server is known that can be asked meanwhile, returns the failure that it is late.
    async fn candidates_soon(
        self: &Arc<Self>,
        avoid: &[SocketAddr],
        deadline: Option<Time>,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Result<Vec<Candidate>, CallFailed> {
        let asked_by = self.asks_registry_until(deadline);
        let Some(until) = asked_by.filter(|_| asked_by != deadline) else {
            return self.inner.candidates_later(&self.name, (avoid, false), deadline, over).await;
        };
        let env = &self.inner.env;
        poll_fn(|context| {
            // Without an alarm the registry has all of the time.
            let _ = Tasks::wake_at(&self.inner, until, context.waker().clone());
            Poll::Ready(())
        })
        .await;
        let over = || over().and_then(|()| if until <= env.now() { Err(self.too_late()) } else { Ok(()) });
        self.inner.candidates_later(&self.name, (avoid, false), asked_by, &over).await
    }

    /// Returns until when to wait for the registry before the server is asked that it listed last. The
    /// registry has all of the time if none is known.
    fn asks_registry_until(&self, deadline: Option<Time>) -> Option<Time> {
        let is_known = self.bound.listed().is_some();
        if !is_known || breaks(Rule::LateRegistryIsPassedBy, || self.inner.env.clone()) {
            return deadline;
        }
        let now = self.inner.env.now();
        let left = deadline.map_or(REGISTRY_PATIENCE, |deadline| deadline.since(now) / 4);
        Some(now + left.min(REGISTRY_PATIENCE))
    }

    /// Returns whether `why` says that the registry is late, although the call still has time.
    fn is_registry_late(&self, why: &CallFailed, deadline: Option<Time>) -> bool {
        why.kind() == Kind::Deadline && deadline.is_none_or(|deadline| self.inner.env.now() < deadline)
    }

    /// Starts an attempt to bind to one of the candidates, or returns the attempt that is under way if it
    /// asks the same candidates for as long. An attempt ends when a server answers, or when none has answered
    /// within the time for which a blocking call would wait. Only a step of a task may call this.
    ///
    /// # Errors
    /// When no thread can be started.
    fn ask(self: &Arc<Self>, candidates: Vec<Candidate>, is_brief: bool) -> Result<Attempt, CallFailed> {
        let question = {
            let mut attempt = lock(&self.attempt);
            let is_same = |under_way: &&UnderWay| {
                (&under_way.candidates, under_way.is_brief) == (&candidates, is_brief)
            };
            if let Some(UnderWay { question, .. }) = attempt.as_ref().filter(is_same) {
                return Ok(question.clone());
            }
            let question = Attempt::default();
            *attempt =
                Some(UnderWay { candidates: candidates.clone(), is_brief, question: question.clone() });
            question
        };
        let (importer, asked) = (self.clone(), question.clone());
        let forget =
            move || drop(lock(&importer.attempt).take_if(|current| Arc::ptr_eq(&current.question, &asked)));
        let mut answering = Answering::new(&question, no_reply().but_ran(Ran::No), forget);
        let by = is_brief.then(|| self.inner.env.now() + bind::SILENT_SERVER_TIME);
        let importer = self.clone();
        let bind = async move {
            let target = importer.inner.bind_later(&importer.name, &importer.interface, candidates, by).await;
            let admitted = target.and_then(|target| {
                Tasks::run_blocking(&importer.inner, || importer.restarts.admit(&target)).map(|()| target)
            });
            answering.find(admitted.map(|target| importer.bound.set(Arc::new(target))));
        };
        let spawned = Tasks::spawn(&self.inner, by, Box::pin(bind));
        spawned.map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(question)
    }

    /// Returns the failure of a call whose deadline passed before there was a binding.
    pub(super) fn too_late(&self) -> CallFailed {
        bind::too_late(&self.name)
    }

    /// Breaks the binding when the deadlines of two calls have passed since the server last sent a message.
    /// Without this, a caller whose deadlines are shorter than the patience would stay bound to a dead server
    /// for ever.
    fn unbind_if_silent(&self, target: &Arc<Target>) {
        let silent_at = target.heard() + 1;
        if self.silent_at.swap(silent_at, Ordering::Relaxed) == silent_at {
            self.bound.break_off(target);
        }
    }

    /// Returns whether there is a binding, and the server has not said that it takes no more calls; or the
    /// registry has listed a server to which nobody has tried to bind so far.
    pub(super) fn is_usable(&self) -> bool {
        self.bound.get().is_some_and(|target| !target.is_drained()) || self.bound.has_unmet()
    }

    /// Binds to a server that the registry listed until it failed, was late, or lost all its entries. `why`
    /// is why the name was not bound.
    #[cold]
    fn bind_unlisted(&self, why: CallFailed, deadline: Option<Time>) -> Result<Target, CallFailed> {
        let Some(entry) = self.formerly_listed(&why, deadline) else { return Err(why) };
        if why.kind() == Kind::NoSuchName {
            let all = Name::Type(entry.type_name.clone());
            if self.inner.entries(&all, false, deadline).is_ok_and(|entries| !entries.is_empty()) {
                return Err(why);
            }
        }
        let (export, briefly) = (entry.export, self.inner.env.now() + bind::SILENT_SERVER_TIME);
        let by = deadline.map_or(briefly, |deadline| deadline.min(briefly));
        let candidates = Candidate::of_entries(&[entry]);
        self.inner.bind_to(&self.name, &self.interface, candidates, Some(by)).map_err(|_| {
            if by != briefly {
                return self.too_late();
            }
            self.bound.note_met(export);
            why
        })
    }

    /// Returns the server as the registry listed it last, if it may be there although the name was not bound
    /// for this reason.
    fn formerly_listed(&self, why: &CallFailed, deadline: Option<Time>) -> Option<Entry> {
        match why.kind() {
            Kind::Registry => self.bound.listed(),
            Kind::Deadline if self.is_registry_late(why, deadline) => self.bound.listed(),
            Kind::NoSuchName => self.bound.unmet(),
            _ => None,
        }
    }

    /// Binds as [`Importer::bind_unlisted`] does, for a task.
    #[cold]
    async fn bind_unlisted_later(
        self: &Arc<Self>,
        why: CallFailed,
        deadline: Option<Time>,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Result<Arc<Target>, CallFailed> {
        over()?;
        let Some(entry) = self.formerly_listed(&why, deadline) else { return Err(why) };
        if why.kind() == Kind::NoSuchName {
            let all = Name::Type(entry.type_name.clone());
            let listed = self.inner.entries_later(&all, false, deadline, over).await;
            if listed.is_ok_and(|entries| !entries.is_empty()) {
                return Err(why);
            }
        }
        let export = entry.export;
        let bound = self.ask(Candidate::of_entries(&[entry]), true)?.wait(over).await;
        if bound.is_err() {
            over()?;
            self.bound.note_met(export);
        }
        bound.map_err(|_| why)
    }

    /// Decides after a failed attempt whether to attempt the call again. Drops the binding if the failure
    /// shows that it is broken.
    ///
    /// # Errors
    /// The failure of the last attempt, if the call is not to be attempted again.
    pub(super) fn try_again(
        &self,
        retry: &mut Retry,
        target: &Arc<Target>,
        failure: Failure,
        (procedure, deadline): (&Procedure, Option<Time>),
    ) -> Result<(), CallFailed> {
        if failure.kind == Kind::Deadline {
            self.unbind_if_silent(target);
        }
        self.suspect(failure.kind);
        let has_other = || self.has_other(target.address, deadline);
        let step = retry.next((failure.kind, failure.ran), procedure.idempotent, target.address, has_other);
        if step != Step::Fail {
            self.bound.break_off(target);
        }
        let why = || describe(failure, procedure, target.address);
        if step != Step::Repeat {
            return Err(why());
        }
        retry.note_first(why);
        Ok(())
    }

    /// Returns whether the registry knows an instance of the type at another address, and says so soon.
    fn has_other(&self, address: SocketAddr, deadline: Option<Time>) -> bool {
        let Name::Type(type_name) = &self.name else { return false };
        let now = self.inner.env.now();
        let left = deadline.map_or(REGISTRY_PATIENCE, |deadline| deadline.since(now) / 4);
        let by = now + left.min(REGISTRY_PATIENCE);
        let found = self.inner.lookups.ask_briefly(&Wanted::Instances(type_name.clone()), by);
        let entries = found.map(Found::into_entries).unwrap_or_default();
        entries.iter().any(|entry| entry.sockets().all(|other| other != address))
    }
}

/// Passes a result or an exception to the sink. Returns a failure instead of passing it on, because the call
/// may be attempted again.
#[inline(always)]
pub(super) fn give(target: &Target, outcome: Outcome<'_>, sink: Sink<'_>) -> Option<Failure> {
    match outcome {
        Outcome::Result(body) => decode_body(target, body, |decoder| sink(Reply::Result(decoder))),
        Outcome::Exception(body) => decode_body(target, body, |decoder| sink(Reply::Exception(decoder))),
        Outcome::Failed(failure) => return Some(failure),
    }
    None
}

/// Calls `decode` with a decoder of a body. If the body is owned, decoded values may share it, and its buffer
/// goes back to the pool when the last of these values is dropped.
#[inline(always)]
fn decode_body(target: &Target, body: Cow<'_, [u8]>, decode: impl FnOnce(Decoder<'_>)) {
    match body {
        Cow::Borrowed(body) => decode(Decoder::new(body)),
        Cow::Owned(body) => share(PooledBody { body, spares: target.endpoint.spares().clone() }, decode),
    }
}

#[inline(never)]
fn share(body: PooledBody, decode: impl FnOnce(Decoder<'_>)) {
    decode(Decoder::with_packet(&Bytes::from_owner(body)));
}

/// A body whose buffer goes back to the pool when it is dropped.
struct PooledBody {
    body: Vec<u8>,
    spares: Arc<Spares>,
}

impl AsRef<[u8]> for PooledBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for PooledBody {
    fn drop(&mut self) {
        self.spares.give(std::mem::take(&mut self.body));
    }
}

/// Returns the failure as the caller gets it: its detail names the procedure and the server.
#[cold]
pub(super) fn describe(failure: Failure, procedure: &Procedure, address: SocketAddr) -> CallFailed {
    let what = format!("{} at {address}", procedure.name);
    let detail = if failure.detail.is_empty() { what } else { format!("{what}: {}", failure.detail) };
    CallFailed::new(failure.kind, failure.ran).because(detail)
}
