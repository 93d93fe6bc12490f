//! Of the call that is being served: who calls, until when, and whether they still want it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use crate::env::{Env, Event};
use crate::given_up::GivenUp;
use crate::notice::Notice;
use crate::serving::{self, Pool, Serves};
use crate::{CallKey, System, Time, Trace};

/// The call that this thread, or task, is serving. Outside a procedure there is none, and
/// everything is as if somebody with all the time in the world had called.
///
/// ```
/// assert!(!farcall::context().is_cancelled());
/// assert_eq!(farcall::context().caller(), None);
/// ```
pub fn context() -> Context {
    Context(current())
}

/// What is known of the call that is being served. It may be kept, and asked from other threads.
#[derive(Clone)]
pub struct Context(Option<Served>);

/// A server of calls, as far as a procedure that it executes asks something of it.
pub trait CallServer: Send + Sync {
    /// The time.
    fn now(&self) -> Time {
        self.env().now()
    }
    /// The outside, as the server sees it.
    fn env(&self) -> &Arc<dyn Env>;
    /// Whether the caller has given the call up.
    fn is_cancelled(&self, key: CallKey) -> bool;
    /// Registers a notice that is told when the call is given up. The caller checks afterwards whether the call
    /// was given up before.
    fn notify(&self, key: CallKey, notice: &Arc<Notice>);
    /// Removes a notice that `notify` registered.
    fn forget(&self, key: CallKey, notice: &Arc<Notice>);
}

/// A call that is being served, and by whom.
#[derive(Clone)]
enum Served {
    /// The call is served by a server of this crate.
    Here { server: Arc<dyn CallServer>, call: Incoming },
    /// The call is served by a server that speaks another protocol, and says only who calls.
    Elsewhere(SocketAddr),
    /// The call was started within this process; all that is known of it is whether it was given up.
    Near(Arc<GivenUp>),
}

/// A call that is being served.
#[derive(Clone, Copy)]
pub struct Incoming {
    pub key: CallKey,
    pub from: SocketAddr,
    pub deadline: Option<Time>,
    pub trace: Option<Trace>,
    /// It came through shared memory: the system says that its caller is the same user.
    pub same_user: bool,
}

impl Incoming {
    /// Whether the caller's deadline has passed.
    pub fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

thread_local! {
    /// Who calls, if the call came by another protocol.
    static ELSEWHERE: Cell<Option<SocketAddr>> = const { Cell::new(None) };
    /// Whether the call is given up that was started in this process.
    static NEAR: RefCell<Option<Arc<GivenUp>>> = const { RefCell::new(None) };
    static CALL: Cell<Option<Incoming>> = const { Cell::new(None) };
    /// Who serves in this thread. It changes less often than the call.
    static SERVER: RefCell<Option<Arc<dyn CallServer>>> = const { RefCell::new(None) };
}

fn current() -> Option<Served> {
    if !serving::is_serving() {
        let near = || NEAR.with_borrow(Clone::clone).map(Served::Near);
        return ELSEWHERE.get().map(Served::Elsewhere).or_else(near);
    }
    Some(Served::Here { call: CALL.get()?, server: SERVER.with_borrow(Clone::clone)? })
}

impl Context {
    /// Who calls: the address that the call came from.
    pub fn caller(&self) -> Option<SocketAddr> {
        match self.0.as_ref()? {
            Served::Here { call, .. } => Some(call.from),
            Served::Elsewhere(from) => Some(*from),
            Served::Near(_) => None,
        }
    }

    /// How long the caller will wait from now on; `None` if for ever. Calls made while serving
    /// this one inherit it.
    pub fn remaining(&self) -> Option<Duration> {
        let (server, call) = self.here()?;
        Some(call.deadline?.since(server.now()))
    }

    /// Whether the caller has given the call up, or its deadline has passed. Whatever the procedure returns
    /// then is thrown away, so a long procedure asks this now and then, or waits for [`Context::cancelled`].
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
    /// A server's `async fn` needs this only if it is `#[uncancelled]`: the future of any other is dropped
    /// when its call is given up.
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

    /// The trace that the call is part of. Calls made while serving this one inherit it.
    pub fn trace(&self) -> Option<Trace> {
        self.here()?.1.trace
    }

    fn here(&self) -> Option<(&Arc<dyn CallServer>, &Incoming)> {
        match self.0.as_ref()? {
            Served::Here { server, call } => Some((server, call)),
            Served::Elsewhere(_) | Served::Near(_) => None,
        }
    }
}

/// Ends when a call is given up: what [`Context::cancelled`] gives.
#[must_use = "it says when the call is given up to whoever awaits it, or waits for it"]
#[derive(Debug)]
pub struct Cancelled {
    context: Context,
    /// Once somebody has asked.
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

    /// Has somebody woken when the call is given up. False: nobody can give it up.
    fn watch(&mut self, waker: &Waker) -> bool {
        if let Some(notice) = &self.notice {
            notice.watch(waker);
            return true;
        }
        let deadline = self.context.here().and_then(|(_, call)| call.deadline);
        let notice = Notice::new(deadline);
        notice.watch(waker);
        match &self.context.0 {
            Some(Served::Here { server, call }) => server.notify(call.key, &notice),
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
            Some(Served::Here { server, call }) => server.forget(call.key, notice),
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

/// What a call made now inherits: the deadline and the trace of the one that is being served.
#[inline]
pub fn inherited() -> (Option<Time>, Option<Trace>) {
    if !serving::is_serving() {
        return (None, None);
    }
    CALL.get().map_or((None, None), |call| (call.deadline, call.trace))
}

/// Whether the call that is being served is of the same user, by the word of the system.
#[inline]
pub fn is_same_user() -> bool {
    serving::is_serving() && CALL.get().is_some_and(|call| call.same_user)
}

/// From now on this thread serves calls of `server`, as one of `pool`.
pub fn serve_in_thread(server: Arc<dyn CallServer>, pool: Arc<dyn Pool>) {
    SERVER.with_borrow_mut(|place| *place = Some(server));
    serving::join(pool);
}

/// Says that this thread serves `call`, until the guard is dropped.
#[inline]
pub fn enter(call: Incoming) -> Entered {
    CALL.set(Some(call));
    serving::set(Serves::AsWorker);
    Entered
}

/// A call is being served.
pub struct Entered;

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        serving::set(Serves::Nothing);
    }
}

/// Says that this thread serves a call that came from `caller` by a protocol that knows no more of it, until the guard is
/// dropped.
#[inline]
pub fn enter_elsewhere(caller: SocketAddr) -> EnteredElsewhere {
    EnteredElsewhere(ELSEWHERE.replace(Some(caller)))
}

/// A call of another protocol is being served.
#[derive(Debug)]
pub struct EnteredElsewhere(Option<SocketAddr>);

impl Drop for EnteredElsewhere {
    #[inline]
    fn drop(&mut self) {
        ELSEWHERE.set(self.0);
    }
}

/// Says that this thread serves a call that was started in this process, until the guard is dropped.
pub(crate) fn enter_near(given_up: Arc<GivenUp>) -> EnteredNear {
    EnteredNear(NEAR.replace(Some(given_up)))
}

/// A call that was started in this process is being served.
pub(crate) struct EnteredNear(Option<Arc<GivenUp>>);

impl Drop for EnteredNear {
    fn drop(&mut self) {
        NEAR.replace(self.0.take());
    }
}

/// As [`enter`], in a thread that may serve something else, or nothing, otherwise.
pub fn enter_task(server: Arc<dyn CallServer>, call: Incoming) -> EnteredTask {
    let former = SERVER.with_borrow_mut(|place| place.replace(server));
    EnteredTask { serves: serving::set(Serves::AsTask), call: CALL.replace(Some(call)), server: former }
}

/// A call is being served by a task.
pub struct EnteredTask {
    serves: Serves,
    call: Option<Incoming>,
    server: Option<Arc<dyn CallServer>>,
}

impl Drop for EnteredTask {
    fn drop(&mut self) {
        serving::set(self.serves);
        CALL.set(self.call);
        SERVER.with_borrow_mut(|place| std::mem::swap(place, &mut self.server));
    }
}
