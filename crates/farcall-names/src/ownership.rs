//! How long a process surely owns a name, and the number that tells its ownership from those before.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use farcall_base::lock;

/// The ownership of a name by the process that has published it.
///
/// A registry that machines share gives an entry a lease. The owner knows that it has the name as long as the
/// lease lasts, counted from when it sent the last request to prolong it that was answered. After that,
/// another process may own the name, although this one has not noticed anything: it was stopped, or cut off.
///
/// Clones are the same ownership.
#[derive(Clone)]
pub struct Ownership {
    held: Arc<Mutex<Option<Held>>>,
    clock: Clock,
}

struct Held {
    fence: u64,
    /// When the ownership surely lasts no longer; `None` if it lasts until it is ended.
    until: Option<Duration>,
}

impl Ownership {
    /// Returns an ownership that lasts until it is [ended](Ownership::end). For registries in which an entry
    /// lasts as long as its process.
    pub fn lasting(fence: u64) -> Ownership {
        let ownership = Ownership::none(Clock::default());
        *lock(&ownership.held) = Some(Held { fence, until: None });
        ownership
    }

    /// Returns an ownership that lasts for `time` from `since`, as [`Ownership::now`] returned it. For
    /// registries with leases. `since` must be the time before the request was sent that the registry has
    /// answered, because nobody knows when the registry got it.
    pub fn leased(fence: u64, since: Duration, time: Duration) -> Ownership {
        let ownership = Ownership::none(Clock::default());
        ownership.begin(fence, since.saturating_add(time));
        ownership
    }

    /// Returns an ownership that has not begun.
    pub(crate) fn none(clock: Clock) -> Ownership {
        Ownership { held: Arc::default(), clock }
    }

    /// Returns the time by which leases are counted. It goes on while the machine sleeps.
    pub fn now() -> Duration {
        Clock::default().now()
    }

    /// Returns the fence, if this process surely owns the name now. A fence is a number that is greater than
    /// those of all earlier owners of the name. A resource that remembers the greatest fence that it has
    /// seen, and refuses what comes with a lesser one, is safe from former owners. 0 is no fence: a registry
    /// that says 0 has not said that this process owns the name.
    pub fn fence(&self) -> Option<u64> {
        let held = lock(&self.held);
        let held = held.as_ref()?;
        let lasts = held.until.is_none_or(|until| self.clock.now() < until);
        lasts.then_some(held.fence).filter(|fence| *fence != 0)
    }

    /// Notes that the registry has prolonged the lease: it lasts for `time` from `since`, which is the time
    /// before the request was sent.
    pub fn prolong(&self, since: Duration, time: Duration) {
        if let Some(until) = lock(&self.held).as_mut().and_then(|held| held.until.as_mut()) {
            *until = (*until).max(since.saturating_add(time));
        }
    }

    /// Ends the ownership. A registry ends it before it withdraws the entry.
    pub fn end(&self) {
        *lock(&self.held) = None;
    }

    /// Returns whether the two are clones of one ownership.
    pub(crate) fn is(&self, other: &Ownership) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }

    /// Begins the ownership, or begins it anew with another fence.
    pub(crate) fn begin(&self, fence: u64, until: Duration) {
        *lock(&self.held) = Some(Held { fence, until: Some(until) });
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ownership").field("fence", &self.fence()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ownership_lasts_as_long_as_its_lease() {
        let time = Arc::new(Mutex::new(Duration::ZERO));
        let at = |seconds| *lock(&time) = Duration::from_secs(seconds);
        let ownership = Ownership::none(Clock::moved(time.clone()));
        assert_eq!(ownership.fence(), None);
        ownership.begin(7, Duration::from_secs(10));
        at(9);
        assert_eq!(ownership.fence(), Some(7));
        ownership.prolong(Duration::from_secs(5), Duration::from_secs(10));
        at(14);
        assert_eq!(ownership.fence(), Some(7));
        at(15);
        assert_eq!(ownership.fence(), None);
        // An answer that comes late still says that nobody else had the name.
        ownership.prolong(Duration::from_secs(6), Duration::from_secs(10));
        assert_eq!(ownership.fence(), Some(7));
        ownership.end();
        assert_eq!(ownership.fence(), None);
        ownership.prolong(Duration::from_secs(15), Duration::from_secs(10));
        assert_eq!(ownership.fence(), None);
    }

    #[test]
    fn an_ownership_without_a_lease_lasts_until_it_ends() {
        let ownership = Ownership::lasting(3);
        let copy = ownership.clone();
        assert_eq!(copy.fence(), Some(3));
        ownership.end();
        assert_eq!(copy.fence(), None);
        assert_eq!(Ownership::lasting(0).fence(), None);
        assert_eq!(Ownership::leased(3, Ownership::now(), Duration::MAX).fence(), Some(3));
    }
}
