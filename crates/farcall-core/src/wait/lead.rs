//! Decides which thread receives: of all threads that wait at one source of data, one leads, which means that
//! it receives for all, and the others follow.
//!
//! This module uses no sockets and no calls, so that the tool loom can try the hand-over in every
//! interleaving (tests/waiting includes this file and gives it loom's types through `super::sync`).
//!
//! The rule that must hold: while any thread waits, some thread leads or has been woken to lead.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};

/// A thing at which one thread sleeps. It remembers a wake-up until the thread next sleeps.
pub trait Parker: Send + Sync {
    /// Wakes the thread.
    fn wake(&self);
}

/// The lead of one socket, connection or ring. A thread that waits alone takes the lead by one atomic
/// instruction, and gives it back by another.
pub struct Lead<P: ?Sized> {
    /// [`FREE`], [`UNFOLLOWED`] or [`FOLLOWED`]. Only a thread that holds the mutex writes `FOLLOWED`, or
    /// replaces it.
    state: AtomicUsize,
    followers: Mutex<Followers<P>>,
}

/// No thread leads, and none waits.
const FREE: usize = 0;
/// A thread leads, and no other thread waits.
const UNFOLLOWED: usize = 1;
/// A thread leads, or was woken to lead. [`Followers`] has the other threads that wait.
const FOLLOWED: usize = 2;

struct Followers<P: ?Sized> {
    /// The thread to which the lead was passed, until it accepts: its parker's address, or 0.
    heir: usize,
    /// The threads that follow, in the order in which they came.
    waiting: VecDeque<Arc<P>>,
    /// The thread that leads only when no other thread waits: the service thread.
    standby: Option<Arc<P>>,
}

impl<P: ?Sized + Parker> Default for Lead<P> {
    fn default() -> Lead<P> {
        let followers = Followers { heir: 0, waiting: VecDeque::new(), standby: None };
        Lead { state: AtomicUsize::new(FREE), followers: Mutex::new(followers) }
    }
}

impl<P: ?Sized + Parker> Lead<P> {
    /// Takes the lead, or follows. Returns true if the calling thread now leads, until [`Lead::pass`]. If it
    /// returns false, the thread sleeps at its parker, and each time it wakes tries to
    /// [accept](Lead::accept) the lead.
    #[inline]
    pub fn join(&self, parker: &Arc<P>) -> bool {
        self.try_lead() || self.follow(|followers| followers.waiting.push_back(parker.clone()))
    }

    /// Takes the lead as [`Lead::join`] does. But if it must wait, the thread leads only when no other thread
    /// follows.
    pub fn stand_by(&self, parker: &Arc<P>) -> bool {
        self.try_lead() || self.follow(|followers| followers.standby = Some(parker.clone()))
    }

    /// Takes the lead if no thread leads. Returns whether it did.
    #[inline]
    pub fn try_lead(&self) -> bool {
        self.change(FREE, UNFOLLOWED)
    }

    /// Accepts the lead if it was passed to the thread of this parker. Returns whether it was.
    pub fn accept(&self, parker: &Arc<P>) -> bool {
        let mut followers = self.lock();
        let passed = followers.heir == address(parker);
        if passed {
            followers.heir = 0;
        }
        passed
    }

    /// Returns whether no thread leads.
    pub fn is_free(&self) -> bool {
        // Acquire: a thread that sees that the leader has passed the lead sees what the leader received.
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Returns whether any thread follows the calling thread, which leads.
    pub fn is_followed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FOLLOWED
    }

    /// Gives up the lead. The thread that has followed longest is woken to lead.
    #[inline]
    pub fn pass(&self) {
        if !self.change(UNFOLLOWED, FREE) {
            self.pass_on(self.lock());
        }
    }

    /// Stops following. A thread to which the lead was passed meanwhile passes it on.
    #[inline(never)]
    pub fn leave(&self, parker: &Arc<P>) {
        let mut followers = self.lock();
        if followers.heir == address(parker) {
            return self.pass_on(followers);
        }
        followers.waiting.retain(|follower| !Arc::ptr_eq(follower, parker));
        followers.standby.take_if(|standby| Arc::ptr_eq(standby, parker));
    }

    #[inline]
    fn change(&self, from: usize, to: usize) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the calling thread a follower. Returns true if it leads after all.
    #[cold]
    fn follow(&self, add: impl FnOnce(&mut Followers<P>)) -> bool {
        let mut followers = self.lock();
        if self.state.swap(FOLLOWED, Ordering::AcqRel) == FREE {
            // Release: the next leader sees what the former leader received.
            self.state.store(UNFOLLOWED, Ordering::Release);
            return true;
        }
        add(&mut followers);
        false
    }

    #[cold]
    fn pass_on(&self, mut followers: MutexGuard<'_, Followers<P>>) {
        let next = followers.waiting.pop_front().or_else(|| followers.standby.take());
        followers.heir = next.as_ref().map_or(0, address);
        // Release: the next leader sees what this leader received.
        let Some(next) = next else { return self.state.store(FREE, Ordering::Release) };
        drop(followers);
        next.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Followers<P>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address<P: ?Sized>(parker: &Arc<P>) -> usize {
    Arc::as_ptr(parker).cast::<()>().addr()
}
