//! The tasks that wait for a change at one end of a call's exchanges.

use std::task::Waker;

use crate::guard;

/// The waker of each exchange in which a task waits. Wakers are the user's code: they are cloned, dropped and
/// woken while no lock is held.
#[derive(Debug, Default)]
pub struct Watchers(Vec<(u32, Waker)>);

impl Watchers {
    /// Sets the waker of an exchange. Returns the former one, which the caller drops without a lock.
    #[must_use]
    pub fn set(&mut self, exchange: u32, waker: Waker) -> Option<Waker> {
        if let Some((_, place)) = self.0.iter_mut().find(|(number, _)| *number == exchange) {
            return Some(std::mem::replace(place, waker));
        }
        // Most calls have one task, which waits in one exchange.
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.push((exchange, waker));
        None
    }

    /// Takes all wakers.
    #[must_use]
    pub fn take(&mut self) -> Watchers {
        std::mem::take(self)
    }

    /// Returns the wakers.
    pub fn into_wakers(self) -> impl Iterator<Item = Waker> {
        self.0.into_iter().map(|(_, waker)| waker)
    }

    /// Wakes the tasks. The caller holds no lock.
    pub(crate) fn wake(self) {
        self.into_wakers().for_each(|waker| guard::run_alone("a waker", || waker.wake()));
    }
}
