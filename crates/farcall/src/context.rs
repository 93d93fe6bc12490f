//! Of the call that is being served: who calls, until when, and whether they still want it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::Time;
use farcall_proto::server::CallKey;

pub use farcall_proto::Trace;

use crate::server::{Aside, Server};

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
pub struct Context(Option<Serving>);

/// A call that is being served, and by whom.
#[derive(Clone)]
enum Serving {
    /// By a server of this crate.
    Here { server: Arc<Server>, call: Incoming },
    /// By one that speaks another protocol, and says only who calls.
    Elsewhere(SocketAddr),
}

/// A call that is being served.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) key: CallKey,
    pub(crate) from: SocketAddr,
    pub(crate) deadline: Option<Time>,
    pub(crate) trace: Option<Trace>,
    /// It came through shared memory: the system says that its caller is the same user.
    pub(crate) same_user: bool,
}

thread_local! {
    /// Whether there is a call, apart, because it is asked by each call that is made.
    static ANY: Cell<bool> = const { Cell::new(false) };
    /// Whether the call is served by a task, not by a worker.
    static TASK: Cell<bool> = const { Cell::new(false) };
    /// Who calls, if the call came by another protocol.
    static ELSEWHERE: Cell<Option<SocketAddr>> = const { Cell::new(None) };
    static CALL: Cell<Option<Incoming>> = const { Cell::new(None) };
    /// Who serves in this thread. It changes less often than the call.
    static SERVER: RefCell<Option<Arc<Server>>> = const { RefCell::new(None) };
    /// Whom this thread takes turns with.
    static CREW: RefCell<Option<Arc<dyn Aside>>> = const { RefCell::new(None) };
}

fn current() -> Option<Serving> {
    if !ANY.get() {
        return ELSEWHERE.get().map(Serving::Elsewhere);
    }
    Some(Serving::Here { call: CALL.get()?, server: SERVER.with_borrow(Clone::clone)? })
}

impl Context {
    /// Who calls: the address that the call came from.
    pub fn caller(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(|serving| match serving {
            Serving::Here { call, .. } => call.from,
            Serving::Elsewhere(from) => *from,
        })
    }

    /// How long the caller will wait from now on; `None` if for ever. Calls made while serving
    /// this one inherit it.
    pub fn remaining(&self) -> Option<Duration> {
        let (server, call) = self.here()?;
        Some(call.deadline?.since(server.now()))
    }

    /// Whether the caller has given the call up, or its deadline has passed. Whatever the procedure
    /// returns then is thrown away, so a long one looks here now and then.
    pub fn is_cancelled(&self) -> bool {
        let Some((server, call)) = self.here() else { return false };
        let late = call.deadline.is_some_and(|deadline| deadline <= server.now());
        late || server.is_cancelled(call.key)
    }

    /// The trace that the call is part of. Calls made while serving this one inherit it.
    pub fn trace(&self) -> Option<Trace> {
        self.here()?.1.trace
    }

    fn here(&self) -> Option<(&Server, &Incoming)> {
        match self.0.as_ref()? {
            Serving::Here { server, call } => Some((server, call)),
            Serving::Elsewhere(_) => None,
        }
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
pub(crate) fn inherited() -> (Option<Time>, Option<Trace>) {
    if !ANY.get() {
        return (None, None);
    }
    CALL.get().map_or((None, None), |call| (call.deadline, call.trace))
}

/// Whether a call is being served, so that one made now may inherit something.
#[inline]
pub(crate) fn is_serving() -> bool {
    ANY.get()
}

/// Whether the call that is being served is of the same user, by the word of the system.
#[inline]
pub(crate) fn is_same_user() -> bool {
    ANY.get() && CALL.get().is_some_and(|call| call.same_user)
}

/// Whether this thread is one of those that serve calls.
pub(crate) fn is_serving_thread() -> bool {
    // A thread that is ending serves none.
    CREW.try_with(|crew| crew.try_borrow().is_ok_and(|crew| crew.is_some())).unwrap_or(false)
}

/// Whom this thread takes turns with, if it is serving a call as one of them.
#[inline]
pub(crate) fn crew() -> Option<Arc<dyn Aside>> {
    if ANY.get() && !TASK.get() { CREW.with_borrow(Clone::clone) } else { None }
}

/// From now on this thread serves calls of `server`, as one of `crew`.
pub(crate) fn serve_in_thread(server: Arc<Server>, crew: Arc<dyn Aside>) {
    SERVER.with_borrow_mut(|place| *place = Some(server));
    CREW.with_borrow_mut(|place| *place = Some(crew));
}

/// Says that this thread serves `call`, until the guard is dropped.
#[inline]
pub(crate) fn enter(call: Incoming) -> Entered {
    CALL.set(Some(call));
    ANY.set(true);
    Entered
}

/// A call is being served.
pub(crate) struct Entered;

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        ANY.set(false);
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

/// As [`enter`], in a thread that may serve something else, or nothing, otherwise.
pub(crate) fn enter_task(server: Arc<Server>, call: Incoming) -> EnteredTask {
    let former = SERVER.with_borrow_mut(|place| place.replace(server));
    EnteredTask { any: ANY.replace(true), call: CALL.replace(Some(call)), task: TASK.replace(true), server: former }
}

/// A call is being served by a task.
pub(crate) struct EnteredTask {
    any: bool,
    call: Option<Incoming>,
    task: bool,
    server: Option<Arc<Server>>,
}

impl Drop for EnteredTask {
    fn drop(&mut self) {
        ANY.set(self.any);
        CALL.set(self.call);
        TASK.set(self.task);
        SERVER.with_borrow_mut(|place| std::mem::swap(place, &mut self.server));
    }
}
