//! The call that this thread serves, as far as its exchanges concern it: which signals it may raise, and
//! whether its caller has unwound it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::catching::{self, Hidden};
use super::dispatch::{AsyncDispatched, Dispatched};
use super::signal_id::{Signal, SignalId};
use crate::broken::Rule;
use crate::exchange::Exchanges;
use crate::{CallFailed, Kind, Ran, context};

/// What a thread knows of the call that it serves.
struct Scope {
    /// The signals that the interface declares.
    signals: &'static [Signal],
    /// The call's exchanges, once they were asked for.
    exchanges: Option<Arc<dyn Exchanges>>,
    /// Why the call is to end, once its caller has unwound it.
    unwound: Option<CallFailed>,
    /// Whether the call is executed as a future, which must not block its thread.
    is_task: bool,
}

impl Scope {
    fn new(signals: &'static [Signal], is_task: bool) -> Scope {
        Scope { signals, exchanges: None, unwound: None, is_task }
    }

    /// Returns whether the rule is broken on purpose that tells a signal of another interface from one of
    /// this interface that has the same name and types.
    #[cold]
    fn takes_for_its_own(&mut self, signal: SignalId) -> bool {
        let is_alike = |own: &Signal| (own.id.name, own.id.types) == (signal.name, signal.types);
        let is_broken = |exchanges: Arc<dyn Exchanges>| exchanges.mutant().breaks(Rule::SignalOfItsInterface);
        cfg!(feature = "mutants")
            && self.signals.iter().any(is_alike)
            && self.exchanges().is_some_and(is_broken)
    }

    /// Returns the exchanges of the call, if its carrier has any.
    fn exchanges(&mut self) -> Option<Arc<dyn Exchanges>> {
        if self.exchanges.is_none() {
            self.exchanges = NEAR.with_borrow(Clone::clone).unwrap_or_else(context::exchanges);
        }
        self.exchanges.clone()
    }
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
    /// The exchanges of the call of this process, or of the one-way call, that the thread serves: the inner
    /// option is `None` if such a call has none.
    static NEAR: RefCell<Option<Option<Arc<dyn Exchanges>>>> = const { RefCell::new(None) };
}

/// Executes a call of an interface with signals or streams. A call that was unwound fails as
/// [`Kind::Unwound`], whatever its procedure returned. Called by generated server-stubs.
pub fn serving(signals: &'static [Signal], dispatch: impl FnOnce() -> Dispatched) -> Dispatched {
    let guard = Guard(SCOPE.replace(Some(Scope::new(signals, false))), catching::hide());
    let dispatched = dispatch();
    let unwound = SCOPE.with_borrow_mut(|scope| scope.as_mut().and_then(|scope| scope.unwound.take()));
    drop(guard);
    unwound.map_or(dispatched, Dispatched::Failed)
}

/// Executes a call of an interface with signals or streams as a future, as [`serving`] does. Called by
/// generated server-stubs.
pub fn serving_task(signals: &'static [Signal], future: AsyncDispatched) -> AsyncDispatched {
    Box::pin(ServingTask { scope: Some(Scope::new(signals, true)), future })
}

struct ServingTask {
    /// `None` while the future is polled.
    scope: Option<Scope>,
    future: AsyncDispatched,
}

impl Future for ServingTask {
    type Output = (Dispatched, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let guard = Guard(SCOPE.replace(self.scope.take()), catching::hide());
        let polled = self.future.as_mut().poll(context);
        let scope = SCOPE.take();
        drop(guard);
        let Poll::Ready(ended) = polled else {
            self.scope = scope;
            return Poll::Pending;
        };
        let unwound = scope.and_then(|scope| scope.unwound);
        Poll::Ready(unwound.map_or(ended, |why| (Dispatched::Failed(why), Vec::new())))
    }
}

/// Restores the scope of the call that the thread served before, and the handlers that were set around it.
struct Guard(Option<Scope>, #[expect(dead_code, reason = "its drop is what counts")] Hidden);

impl Drop for Guard {
    fn drop(&mut self) {
        SCOPE.replace(self.0.take());
    }
}

/// Returns the exchanges of the call that this thread serves, in which it may raise a signal of this
/// identity. `blocks` says whether the thread would wait for the answer.
///
/// # Errors
/// When no call is served that may raise it, or the call was unwound already.
pub(super) fn exchanges_for(signal: SignalId, blocks: bool) -> Result<Arc<dyn Exchanges>, CallFailed> {
    let not = |why: &'static str| CallFailed::new(Kind::Unwound, Ran::Yes).because(why);
    SCOPE.with_borrow_mut(|scope| {
        let scope = scope.as_mut().ok_or_else(|| not("this thread serves no call that may raise signals"))?;
        if !scope.signals.iter().any(|declared| declared.id == signal) && !scope.takes_for_its_own(signal) {
            return Err(not("the interface of the call that is served does not declare the signal"));
        }
        if blocks && scope.is_task {
            return Err(not("an async procedure awaits its signals (`…AsyncSignals`)"));
        }
        if let Some(why) = &scope.unwound {
            return Err(why.clone());
        }
        scope.exchanges().ok_or_else(|| not("the call's carrier has no exchanges"))
    })
}

/// Returns the exchanges of the call that this thread serves, if it is one with exchanges.
pub(super) fn exchanges() -> Option<Arc<dyn Exchanges>> {
    SCOPE.with_borrow_mut(|scope| scope.as_mut()?.exchanges())
}

/// Notes that the call that this thread serves is to end, because its caller answered a signal so. Returns
/// the failure of the call.
pub(super) fn unwind(signal: SignalId, why: &str) -> CallFailed {
    SCOPE.with_borrow_mut(|scope| {
        let declared = scope.as_ref().and_then(|scope| scope.signals.iter().find(|known| known.id == signal));
        let name = declared.map_or("", |known| known.name);
        let failure = CallFailed::new(Kind::Unwound, Ran::Yes).because(format!("signal `{name}`: {why}"));
        scope.iter_mut().for_each(|scope| scope.unwound = Some(failure.clone()));
        failure
    })
}

/// Records that this thread serves a call with these exchanges, whatever its carrier offers, until the guard
/// is dropped.
pub(crate) fn enter(exchanges: Option<Arc<dyn Exchanges>>) -> Entered {
    Entered(NEAR.replace(Some(exchanges)))
}

/// Guard: while it exists, its thread serves a call whose exchanges are known.
pub(crate) struct Entered(Option<Option<Arc<dyn Exchanges>>>);

impl Drop for Entered {
    fn drop(&mut self) {
        NEAR.replace(self.0.take());
    }
}
