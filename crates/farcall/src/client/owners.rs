//! Who waits for which outcome of a conversation.

use std::sync::Arc;

use super::binds::Binds;
use super::started::Started;
use super::waiter::Waiter;

/// One who waits for an outcome.
pub(super) enum Owner {
    /// A thread that blocks in a call.
    Thread(Arc<Waiter>),
    /// A call that was started.
    Started(Arc<Started>),
    /// A bind, the numbered one of several.
    Bind(Arc<Binds>, usize),
}

/// The owners of a conversation's calls, by token: a place, and how often the place was used.
#[derive(Default)]
pub(super) struct Owners {
    places: Vec<Place>,
    free: Vec<u32>,
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
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.uses = place.uses.wrapping_add(1);
        place.owner = Some(owner);
        u64::from(place.uses) << 32 | u64::from(index)
    }

    /// Forgets an owner, and says who it was.
    pub(super) fn take(&mut self, token: u64) -> Option<Owner> {
        let index = token as u32;
        let place = self.places.get_mut(index as usize)?;
        if u64::from(place.uses) != token >> 32 {
            return None;
        }
        let owner = place.owner.take()?;
        self.free.push(index);
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::System;

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
