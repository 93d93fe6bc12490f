//! Maps each outstanding call of a conversation, and each outstanding bind (a question which export has a
//! name), to the thread or task that waits for it.

use std::mem;
use std::sync::Arc;

use farcall_proto::client::CallId;

use super::bind_answers::BindAnswers;
use super::result_slot::ResultSlot;
use super::waiter::{Waiter, Watcher};
use crate::stub::Recipient;

/// The thread or task that an outcome goes to.
pub(super) enum Owner {
    /// A thread that blocks in a call.
    Thread(Arc<Waiter>),
    /// A started call, and the watcher that is woken when it has ended.
    Started(Arc<ResultSlot>, Watcher),
    /// A started call whose reply goes to a recipient, and the watcher that is woken when it has ended.
    Recipient(Arc<dyn Recipient>, Watcher),
    /// One of several binds that are under way together, with its index.
    Bind(Arc<BindAnswers>, usize),
}

impl Owner {
    #[inline(always)]
    fn is_started(&self) -> bool {
        match self {
            Owner::Thread(_) => false,
            Owner::Started(..) | Owner::Recipient(..) => true,
            Owner::Bind(binds, _) => binds.tasks() > 0,
        }
    }
}

/// The owners of a conversation's calls and binds, by token. A token consists of the index of a place in
/// `places` and the number of times that the place was used.
#[derive(Default)]
pub(super) struct Owners {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Calls whose threads panicked while they led. The outcomes of these calls are dropped.
    abandoned: Vec<CallId>,
    /// The number of owners that are not blocked threads: started calls, and binds of tasks.
    started: usize,
}

#[derive(Default)]
struct Place {
    uses: u32,
    owner: Option<Owner>,
}

impl Owners {
    /// The token of the receiving thread's own call, which has no owner here.
    pub(super) const NOBODY: u64 = u64::MAX;

    /// Adds an owner, and returns its token. The protocol bounds the number of outstanding calls, and with it
    /// the number of owners.
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

    /// Removes an owner, and returns it.
    pub(super) fn take(&mut self, token: u64) -> Option<Owner> {
        let owner = self.place(token)?.owner.take()?;
        self.free.push(token as u32);
        self.started -= usize::from(owner.is_started());
        Some(owner)
    }

    /// Registers `watcher` to be woken when a started call ends. Returns the former watcher.
    ///
    /// # Errors
    /// `watcher` itself, if the call has ended, or if it is a task's and a thread waits for a recipient's call.
    pub(super) fn watch(&mut self, token: u64, watcher: Watcher) -> Result<Watcher, Watcher> {
        match self.place(token).and_then(|place| place.owner.as_mut()) {
            // The thread must be woken; a recipient wakes its tasks itself.
            Some(Owner::Recipient(_, Watcher::Thread(_))) if watcher.is_task() => Err(watcher),
            Some(Owner::Started(_, former) | Owner::Recipient(_, former)) => {
                Ok(mem::replace(former, watcher))
            }
            _ => Err(watcher),
        }
    }

    /// Returns the started call with this token, and its watcher.
    pub(super) fn started(&mut self, token: u64) -> Option<(&Arc<ResultSlot>, &mut Watcher)> {
        match self.place(token)?.owner.as_mut()? {
            Owner::Started(slot, watcher) => Some((slot, watcher)),
            Owner::Recipient(..) | Owner::Thread(_) | Owner::Bind(..) => None,
        }
    }

    /// Notes that no thread waits any more for a call that has no owner here.
    pub(super) fn abandon(&mut self, id: CallId) {
        self.abandoned.push(id);
    }

    /// Forgets a call that has ended, if it was [abandoned](Owners::abandon). Returns whether it was.
    #[cold]
    pub(super) fn was_abandoned(&mut self, id: CallId) -> bool {
        let before = self.abandoned.len();
        self.abandoned.retain(|abandoned| *abandoned != id);
        self.abandoned.len() < before
    }

    /// Returns whether there are started calls or binds of tasks.
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
