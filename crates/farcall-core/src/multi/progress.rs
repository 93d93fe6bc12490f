//! The replies that a group call has so far, and whether enough of them count.

use super::inline_vec::InlineVec;
use super::outcomes::{Gathered, Outcome, Short};
use super::prepared::Counts;
use crate::stub::Members;
use crate::{Ran, Result};

/// Returns the outcomes of this many members, none of which was called yet.
pub(super) fn not_called<T, E>(members: usize) -> InlineVec<Outcome<T, E>> {
    match members {
        1 => InlineVec::One(Outcome::Abandoned(Ran::No)),
        _ => InlineVec::Many((0..members).map(|_| Outcome::Abandoned(Ran::No)).collect()),
    }
}

/// The value of `needed` for a call that ends with the last reply.
pub(super) const ALL: usize = usize::MAX;

/// The replies of a group call so far, and whether enough of them count.
pub(super) struct Progress<T, E> {
    members: Members,
    pub(super) outcomes: InlineVec<Outcome<T, E>>,
    /// How many replies must count, or [`ALL`].
    needed: usize,
    counted: usize,
    /// How many replies did not count.
    missed: usize,
    /// The member whose reply was the last that counted.
    decisive: Option<usize>,
    counts: Option<Counts<T, E>>,
}

impl<T, E> Progress<T, E> {
    pub(super) fn new(members: Members, needed: usize, counts: Option<Counts<T, E>>) -> Self {
        let outcomes = not_called(members.len());
        Progress { members, outcomes, needed, counted: 0, missed: 0, decisive: None, counts }
    }

    /// Returns whether enough replies count.
    pub(super) fn is_met(&self) -> bool {
        self.counted >= self.needed
    }

    /// Returns whether further replies can change the outcome: so far too few replies count, and enough
    /// replies can still come.
    pub(super) fn is_open(&self) -> bool {
        let can_be_met = self.needed == ALL || self.members.len() - self.missed >= self.needed;
        !self.is_met() && can_be_met
    }

    /// Returns how many more replies must come before enough count, or enough are impossible.
    pub(super) fn awaits(&self) -> usize {
        let lacks = self.needed - self.counted;
        match self.needed {
            ALL => lacks,
            needed => lacks.min(self.members.len() - self.missed - needed + 1),
        }
    }

    /// Returns whether the user's code decides which replies count.
    pub(super) fn asks_the_user(&self) -> bool {
        self.counts.is_some()
    }

    /// Records the reply of the member at `index`.
    pub(super) fn take(&mut self, index: usize, result: Result<T, E>) {
        let counts = match &self.counts {
            Some(counts) => counts(&result),
            None => result.is_ok(),
        };
        if counts {
            self.counted += 1;
            self.decisive = Some(index);
        } else {
            self.missed += 1;
        }
        self.outcomes[index] = result.into();
    }

    /// Returns the outcomes of all members.
    pub(super) fn all(self) -> Gathered<T, E> {
        Gathered::new(self.members, self.outcomes)
    }

    /// Returns the outcomes of all members if enough replies count.
    pub(super) fn quorum(self) -> std::result::Result<Gathered<T, E>, Short> {
        if self.is_met() { Ok(self.all()) } else { Err(self.short()) }
    }

    /// Returns the name and the result of the member whose reply counted last.
    pub(super) fn first(mut self) -> std::result::Result<(String, T), Short> {
        let Some(index) = self.decisive else { return Err(self.short()) };
        match std::mem::replace(&mut self.outcomes[index], Outcome::Abandoned(Ran::Yes)) {
            Outcome::Result(value) => Ok((self.members[index].name().to_owned(), value)),
            other => {
                self.outcomes[index] = other;
                Err(self.short())
            }
        }
    }

    fn short(self) -> Short {
        let (needed, counted) = (self.needed, self.counted);
        Short::new(needed, counted, &self.all())
    }
}
