//! Who waits for which outcome of a conversation.

use std::mem;
use std::sync::Arc;

use farcall_proto::client::CallId;

use super::bind_answers::BindAnswers;
use super::result_slot::ResultSlot;
use super::waiter::{Waiter, Watcher};

/// One who waits for an outcome.
pub(super) enum Owner {
    /// A thread that blocks in a call.
    Thread(Arc<Waiter>),
    /// A call that was started, and who is told when it has ended.
    Started(Arc<ResultSlot>, Watcher),
    /// A bind, the numbered one of several.
    Bind(Arc<BindAnswers>, usize),
}

impl Owner {
    #[inline(always)]
    fn is_started(&self) -> bool {
        match self {
            Owner::Thread(_) => false,
            Owner::Started(..) => true,
            Owner::Bind(binds, _) => binds.tasks() > 0,
        }
    }
}

/// The owners of a conversation's calls, by token: a place, and how often the place was used.
#[derive(Default)]
pub(super) struct Owners {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Calls of threads that panicked while they led: nobody waits for their ends.
    abandoned: Vec<CallId>,
    /// How many of them no thread waits for: calls that were started, and binds of tasks.
    started: usize,
}

#[derive(Default)]
struct Place {
    uses: u32,
    owner: Option<Owner>,
}

impl Owners {
    /// The token of a call whose outcome is nobody's.
    pub(super) const NOBODY: u64 = u64::MAX;

    /// Remembers an owner. There are as many as calls are outstanding, which the protocol bounds.
    pub(super) fn add(&mut self, owner: Owner) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            // Most peers have one call at a time.
            if self.places.is_empty() {
                self.places.reserve_exact(1);
            }
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        self.started += usize::from(owner.is_started());
        let place = &mut self.places[index as usize];
        place.uses = place.uses.wrapping_add(1);
        place.owner = Some(owner);
        u64::from(place.uses) << 32 | u64::from(index)
    }

    /// Forgets an owner, and says who it was.
    pub(super) fn take(&mut self, token: u64) -> Option<Owner> {
        let owner = self.place(token)?.owner.take()?;
        self.free.push(token as u32);
        self.started -= usize::from(owner.is_started());
        Some(owner)
    }

    /// Has `watcher` told of the end of a call that was started, instead of whom this gives back.
    ///
    /// # Errors
    /// The call has ended.
    pub(super) fn watch(&mut self, token: u64, watcher: Watcher) -> Result<Watcher, Watcher> {
        match self.place(token).and_then(|place| place.owner.as_mut()) {
            Some(Owner::Started(_, former)) => Ok(mem::replace(former, watcher)),
            _ => Err(watcher),
        }
    }

    /// Nobody waits for the end of this call any more, which has no owner here.
    pub(super) fn abandon(&mut self, id: CallId) {
        self.abandoned.push(id);
    }

    /// Whether that was [said](Owners::abandon) of a call that has ended now.
    #[cold]
    pub(super) fn was_abandoned(&mut self, id: CallId) -> bool {
        let before = self.abandoned.len();
        self.abandoned.retain(|abandoned| *abandoned != id);
        self.abandoned.len() < before
    }

    /// Whether there is any that no thread waits for.
    pub(super) fn any_started(&self) -> bool {
        self.started > 0
    }

    fn place(&mut self, token: u64) -> Option<&mut Place> {
        self.places.get_mut(token as u32 as usize).filter(|place| u64::from(place.uses) == token >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;

    #[test]
    fn a_token_is_good_for_one_owner() {
        let waiter = || Owner::Thread(Waiter::new(&System));
        let mut owners = Owners::default();
        let (a, b) = (owners.add(waiter()), owners.add(waiter()));
        assert_ne!(a, b);
        assert!(owners.take(a).is_some());
        assert!(owners.take(a).is_none());
        let c = owners.add(waiter());
        assert_eq!(a as u32, c as u32, "the place is used again");
        assert!(owners.take(a).is_none());
        assert!(owners.take(c).is_some() && owners.take(b).is_some());
        assert!(owners.take(u64::MAX).is_none());
    }
}
