//! The context of the call that a procedure serves: its caller, its deadline, its trace, and whether it is
//! cancelled.
//!
//! Procedures read the context by [`context`]. The servers set it by the guards at the end of this file.
//! Calls that a procedure makes inherit the deadline and the trace.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use crate::env::{Env, Event};
use crate::exchange::Exchanges;
use crate::given_up::GivenUp;
use crate::notice::Notice;
use crate::serving::{self, Serves, WorkerPool};
use crate::{CallKey, Principal, System, Time, Trace};

/// Returns the context of the call that this thread or task serves. Outside a procedure there is no caller,
/// no deadline and no cancellation.
///
/// ```
/// assert!(!farcall::context().is_cancelled());
/// assert_eq!(farcall::context().caller(), None);
/// ```
pub fn context() -> Context {
    Context(current())
}

/// The context of a call that is served. A program may keep it and use it in other threads.
#[derive(Clone)]
pub struct Context(Option<Served>);

/// The parts of a server that the contexts of its procedures use.
pub trait CallServer: Send + Sync {
    /// Returns the time.
    fn now(&self) -> Time {
        self.env().now()
    }
    /// Returns the server's environment.
    fn env(&self) -> &Arc<dyn Env>;
    /// Returns whether the caller has given the call up.
    fn is_cancelled(&self, key: CallKey) -> bool;
    /// Registers a notice that is told when the call is given up. After this returns, the code that called it
    /// must check whether the call was given up before.
    fn notify(&self, key: CallKey, notice: &Arc<Notice>);
    /// Removes a notice that `notify` registered.
    fn forget(&self, key: CallKey, notice: &Arc<Notice>);
    /// Returns the exchanges (signals and streams) of a call that is executed, if the call came by a
    /// transport that has exchanges.
    fn exchanges(self: Arc<Self>, _call: &Incoming) -> Option<Arc<dyn Exchanges>> {
        None
    }
}

/// A call that is served, and its server.
#[derive(Clone)]
enum Served {
    /// A call to a farcall server.
    Here { server: Arc<dyn CallServer>, call: Incoming, principal: Option<Arc<Principal>> },
    /// A call of another protocol, such as ONC RPC. Only the caller's address is known.
    Elsewhere(SocketAddr),
    /// A call that was started within this process. Only its deadline and its cancellation are known.
    Near(Arc<GivenUp>),
}

/// A call that a farcall server executes.
#[derive(Clone, Copy)]
pub struct Incoming {
    pub key: CallKey,
    /// The identifier of the export that is called.
    pub export: u64,
    pub from: SocketAddr,
    pub deadline: Option<Time>,
    pub trace: Option<Trace>,
    /// Whether the operating system says that the caller is the same user. It can say so only of calls
    /// through shared memory.
    pub same_user: bool,
    /// The fence under which an exclusive export has admitted the call; 0 for other exports.
    pub fence: u64,
}

impl Incoming {
    /// Returns whether the caller's deadline has passed.
    pub fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

thread_local! {
    /// The caller's address, if this thread serves a call by another protocol.
    static ELSEWHERE: Cell<Option<SocketAddr>> = const { Cell::new(None) };
    /// The cancellation of the call, if this thread serves a call that was started within this process.
    static NEAR: RefCell<Option<Arc<GivenUp>>> = const { RefCell::new(None) };
    /// The deadline that calls of this thread inherit while it serves no call for a farcall server: that of
    /// the call that was started within this process, or one that the program has set.
    static NEAR_DEADLINE: Cell<Option<Time>> = const { Cell::new(None) };
    /// The call that this thread serves for a farcall server, if it serves one.
    static CALL: Cell<Option<Incoming>> = const { Cell::new(None) };
    /// Who calls, if this thread serves a call for a farcall server in a scheme with secrets.
    static PRINCIPAL: RefCell<Option<Arc<Principal>>> = const { RefCell::new(None) };
    /// The farcall server for which this thread works. It is not part of `CALL`, because it changes less
    /// often than the call.
    static SERVER: RefCell<Option<Arc<dyn CallServer>>> = const { RefCell::new(None) };
}

fn current() -> Option<Served> {
    if !serving::is_serving() {
        // A thread that is ending may have dropped `NEAR` already.
        let near = || NEAR.try_with(|near| near.borrow().clone()).ok().flatten().map(Served::Near);
        return ELSEWHERE.get().map(Served::Elsewhere).or_else(near);
    }
    Some(Served::Here {
        call: CALL.get()?,
        principal: PRINCIPAL.try_with(|principal| principal.borrow().clone()).ok()?,
        server: SERVER.try_with(|server| server.borrow().clone()).ok()??,
    })
}

impl Context {
    /// Returns the address of the caller.
    pub fn caller(&self) -> Option<SocketAddr> {
        match self.0.as_ref()? {
            Served::Here { call, .. } => Some(call.from),
            Served::Elsewhere(from) => Some(*from),
            Served::Near(_) => None,
        }
    }

    /// Returns who calls, if the caller has proven that it has a key which this server accepts. `None` if the
    /// server has no keys, and outside a procedure.
    ///
    /// ```
    /// # let procedure = || {
    /// let caller = farcall::context().principal();
    /// let name = caller.as_ref().map_or("nobody known", |principal| &principal.name);
    /// # name.to_owned() };
    /// # assert_eq!(procedure(), "nobody known");
    /// ```
    pub fn principal(&self) -> Option<Arc<Principal>> {
        match self.0.as_ref()? {
            Served::Here { principal, .. } => principal.clone(),
            Served::Elsewhere(_) | Served::Near(_) => None,
        }
    }

    /// Returns how much longer the caller will wait, or `None` if it has no deadline. Calls that the
    /// procedure makes inherit the deadline.
    pub fn remaining(&self) -> Option<Duration> {
        if let Some(Served::Near(given_up)) = &self.0 {
            return Some(given_up.deadline()?.since(System.now()));
        }
        let (server, call) = self.here()?;
        Some(call.deadline?.since(server.now()))
    }

    /// Returns whether the caller has cancelled the call, or its deadline has passed. The procedure's result
    /// is then discarded. A long procedure checks this now and then, or waits for [`Context::cancelled`].
    pub fn is_cancelled(&self) -> bool {
        if let Some(Served::Near(given_up)) = &self.0 {
            return given_up.is_given_up();
        }
        let Some((server, call)) = self.here() else { return false };
        call.deadline.is_some() && call.is_late(server.now()) || server.is_cancelled(call.key)
    }

    /// Returns a future that ends when [`is_cancelled`](Context::is_cancelled) becomes true. It can be
    /// awaited beside others, or [waited for](Cancelled::wait) by a thread. Outside a procedure, and in a
    /// procedure that was called by another protocol, it never ends.
    ///
    /// A server's `async fn` needs this only if it is `#[uncancelled]`. The future of any other `async fn` is
    /// dropped when its call is given up.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// // A procedure that does something every ten seconds, as long as its caller waits.
    /// # fn step() -> bool { false }
    /// while step() && !farcall::context().cancelled().wait(Duration::from_secs(10)) {}
    /// ```
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { context: self.clone(), notice: None }
    }

    /// Returns the trace that the call is part of. Calls that the procedure makes inherit it.
    pub fn trace(&self) -> Option<Trace> {
        self.here()?.1.trace
    }

    /// Returns the fence under which an exclusive export has admitted the call. It is greater than those of
    /// all earlier owners of the name. A resource that the procedure writes to can remember the greatest
    /// fence that it has seen, and refuse writes with a lesser one, which come from a former owner. `None` if
    /// the export is not exclusive.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    ///
    /// static NEWEST: AtomicU64 = AtomicU64::new(0);
    ///
    /// /// Writes, unless a later owner has written already.
    /// fn write(fence: u64) -> Result<(), &'static str> {
    ///     if NEWEST.fetch_max(fence, SeqCst) > fence { Err("another process owns the name now") } else { Ok(()) }
    /// }
    ///
    /// # let procedure = || {
    /// write(farcall::context().fence().unwrap_or(0))
    /// # };
    /// # procedure().unwrap();
    /// ```
    pub fn fence(&self) -> Option<u64> {
        Some(self.here()?.1.fence).filter(|fence| *fence != 0)
    }

    /// Makes this thread serve the call, as a task, until the guard is dropped.
    #[doc(hidden)]
    pub fn enter(&self) -> Option<EnteredTask> {
        let (server, call) = self.here()?;
        Some(enter_task(server.clone(), *call, self.principal()))
    }

    /// Returns this context with a deadline that is at `deadline` or earlier.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Context {
        if let Some(Served::Here { call, .. }) = &mut self.0 {
            call.deadline = call.deadline.into_iter().chain(deadline).min();
        }
        self
    }

    /// Makes this thread serve the call, of whatever protocol, until the guard is dropped. The thread belongs
    /// to no pool.
    pub(crate) fn carry(&self) -> Carried {
        let mut carried = Carried { _task: self.enter(), _near: None, _elsewhere: None };
        match &self.0 {
            Some(Served::Elsewhere(caller)) => carried._elsewhere = Some(enter_elsewhere(*caller)),
            Some(Served::Near(given_up)) => carried._near = Some(enter_near(given_up.clone())),
            Some(Served::Here { .. }) | None => {}
        }
        carried
    }

    fn here(&self) -> Option<(&Arc<dyn CallServer>, &Incoming)> {
        match self.0.as_ref()? {
            Served::Here { server, call, .. } => Some((server, call)),
            Served::Elsewhere(_) | Served::Near(_) => None,
        }
    }
}

/// A future that ends when a call is given up: [`Context::cancelled`] returns it.
#[must_use = "nothing waits for the cancellation unless this is awaited or waited for"]
#[derive(Debug)]
pub struct Cancelled {
    context: Context,
    /// The registered notice, from the first poll on.
    notice: Option<Arc<Notice>>,
}

impl Cancelled {
    /// Blocks until the call is given up, but no longer than `most`, and returns whether it is given up. A
    /// thread that waits here does not count as a worker meanwhile.
    pub fn wait(self, most: Duration) -> bool {
        let env: Arc<dyn Env> = match &self.context.0 {
            Some(Served::Here { server, .. }) => server.env().clone(),
            _ => Arc::new(System),
        };
        let end = env.now() + most;
        let event = env.event();
        let waker = Waker::from(Arc::new(Set(event.clone())));
        let mut cancelled = pin!(self);
        let _waiting = serving::wait_guard();
        while cancelled.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending() {
            let left = end.since(env.now());
            if left.is_zero() {
                return false;
            }
            event.wait(Some(left));
        }
        true
    }

    /// Registers the waker to wake when the call is given up. Returns false if the call cannot be given up.
    fn watch(&mut self, waker: &Waker) -> bool {
        if let Some(notice) = &self.notice {
            notice.watch(waker);
            return true;
        }
        let deadline = self.context.here().and_then(|(_, call)| call.deadline);
        let notice = Notice::new(deadline);
        notice.watch(waker);
        match &self.context.0 {
            Some(Served::Here { server, call, .. }) => server.notify(call.key, &notice),
            Some(Served::Near(given_up)) => given_up.notify(&notice),
            Some(Served::Elsewhere(_)) | None => return false,
        }
        self.notice = Some(notice);
        true
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<()> {
        let is_new = self.notice.is_none();
        if !self.watch(context.waker()) {
            return Poll::Pending;
        }
        let told = self.notice.as_ref().is_some_and(|notice| notice.is_told());
        if told || is_new && self.context.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        let Some(notice) = &self.notice else { return };
        match &self.context.0 {
            Some(Served::Here { server, call, .. }) => server.forget(call.key, notice),
            Some(Served::Near(given_up)) => given_up.forget(notice),
            Some(Served::Elsewhere(_)) | None => {}
        }
    }
}

/// Sets an event when it is woken.
pub struct Set(pub Arc<dyn Event>);

impl Wake for Set {
    fn wake(self: Arc<Self>) {
        self.0.set();
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Context");
        all.field("caller", &self.caller()).field("remaining", &self.remaining());
        all.field("trace", &self.trace()).finish_non_exhaustive()
    }
}

/// Returns the deadline and the trace that a call made by this thread inherits from the call that the thread
/// serves.
#[inline]
pub fn inherited() -> (Option<Time>, Option<Trace>) {
    if !serving::is_serving() {
        return (NEAR_DEADLINE.get(), None);
    }
    CALL.get().map_or((None, None), |call| (call.deadline, call.trace))
}

/// Returns whether calls that this thread makes may inherit a deadline or a trace.
#[inline]
pub fn may_inherit() -> bool {
    serving::is_serving() || NEAR_DEADLINE.get().is_some()
}

/// Makes the calls of this thread inherit a deadline, unless they inherit an earlier one, until the guard is
/// dropped.
pub fn limit(deadline: Time) -> Limited {
    let former = Limited { call: CALL.get(), near: NEAR_DEADLINE.get() };
    let earlier = |other: Option<Time>| other.into_iter().chain([deadline]).min();
    match former.call.filter(|_| serving::is_serving()) {
        Some(call) => CALL.set(Some(Incoming { deadline: earlier(call.deadline), ..call })),
        None => NEAR_DEADLINE.set(earlier(former.near)),
    }
    former
}

/// Guard: while it exists, calls of its thread inherit a deadline.
#[must_use = "the deadline is inherited until this is dropped"]
pub struct Limited {
    call: Option<Incoming>,
    near: Option<Time>,
}

impl Drop for Limited {
    fn drop(&mut self) {
        CALL.set(self.call);
        NEAR_DEADLINE.set(self.near);
    }
}

/// Makes the calls of this thread inherit nothing from the call that the thread serves, until the guard is
/// dropped.
pub(crate) fn outside() -> Outside {
    Outside(CALL.take(), NEAR_DEADLINE.take())
}

/// Guard: while it exists, calls of its thread inherit nothing. The thread still belongs to its worker pool.
pub(crate) struct Outside(Option<Incoming>, Option<Time>);

impl Drop for Outside {
    fn drop(&mut self) {
        CALL.set(self.0);
        NEAR_DEADLINE.set(self.1);
    }
}

/// Returns the exchanges (signals and streams) of the call that this thread serves, if the call came by a
/// transport that has exchanges.
pub(crate) fn exchanges() -> Option<Arc<dyn Exchanges>> {
    match current()? {
        Served::Here { server, call, .. } => server.exchanges(&call),
        Served::Elsewhere(_) | Served::Near(_) => None,
    }
}

/// Returns whether the operating system says that the caller, whose call this thread serves, is the same
/// user.
#[inline]
pub fn is_same_user() -> bool {
    serving::is_serving() && CALL.get().is_some_and(|call| call.same_user)
}

/// Makes this thread serve calls of `server` from now on, as a worker of `pool`.
pub fn serve_in_thread(server: Arc<dyn CallServer>, pool: Arc<dyn WorkerPool>) {
    SERVER.with_borrow_mut(|place| *place = Some(server));
    serving::join(pool);
}

/// Records that this thread serves `call`, which `principal` has made if that is known, until the guard is
/// dropped.
#[inline]
pub fn enter(call: Incoming, principal: Option<&Arc<Principal>>) -> Entered {
    CALL.set(Some(call));
    if let Some(principal) = principal {
        PRINCIPAL.set(Some(principal.clone()));
    }
    serving::set(Serves::AsWorker);
    Entered(principal.is_some())
}

/// Guard: while it exists, its thread serves a call.
pub struct Entered(bool);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            PRINCIPAL.set(None);
        }
        serving::set(Serves::Nothing);
    }
}

/// Records that this thread serves a call from `caller`, until the guard is dropped. This is for protocols in
/// which a call has no deadline and cannot be cancelled.
#[inline]
pub fn enter_elsewhere(caller: SocketAddr) -> EnteredElsewhere {
    EnteredElsewhere(ELSEWHERE.replace(Some(caller)))
}

/// Guard: while it exists, its thread serves a call of another protocol.
#[derive(Debug)]
pub struct EnteredElsewhere(Option<SocketAddr>);

impl Drop for EnteredElsewhere {
    #[inline]
    fn drop(&mut self) {
        ELSEWHERE.set(self.0);
    }
}

/// Records that this thread serves a call that was started in this process, until the guard is dropped.
pub(crate) fn enter_near(given_up: Arc<GivenUp>) -> EnteredNear {
    let deadline = NEAR_DEADLINE.replace(given_up.deadline());
    EnteredNear(NEAR.replace(Some(given_up)), deadline)
}

/// Guard: while it exists, its thread serves the call of a [`Context`].
pub(crate) struct Carried {
    _task: Option<EnteredTask>,
    _near: Option<EnteredNear>,
    _elsewhere: Option<EnteredElsewhere>,
}

/// Guard: while it exists, its thread serves a call that was started in this process.
pub(crate) struct EnteredNear(Option<Arc<GivenUp>>, Option<Time>);

impl Drop for EnteredNear {
    fn drop(&mut self) {
        NEAR.replace(self.0.take());
        NEAR_DEADLINE.set(self.1);
    }
}

/// Records that this thread serves `call` of `server`, until the guard is dropped. Afterwards the thread
/// serves what it served before, or nothing.
pub fn enter_task(
    server: Arc<dyn CallServer>,
    call: Incoming,
    principal: Option<Arc<Principal>>,
) -> EnteredTask {
    let former = SERVER.with_borrow_mut(|place| place.replace(server));
    EnteredTask {
        serves: serving::set(Serves::AsTask),
        call: CALL.replace(Some(call)),
        principal: PRINCIPAL.replace(principal),
        server: former,
    }
}

/// Guard: while it exists, its thread serves a call as a task.
pub struct EnteredTask {
    serves: Serves,
    call: Option<Incoming>,
    principal: Option<Arc<Principal>>,
    server: Option<Arc<dyn CallServer>>,
}

impl Drop for EnteredTask {
    fn drop(&mut self) {
        serving::set(self.serves);
        CALL.set(self.call);
        PRINCIPAL.set(self.principal.take());
        SERVER.with_borrow_mut(|place| std::mem::swap(place, &mut self.server));
    }
}
