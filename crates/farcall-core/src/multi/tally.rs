//! The replies so far of a call to many, and whether those that count are enough.

use super::few::Few;
use super::outcome::{Gathered, Outcome, Short};
use super::prepared::Counts;
use crate::stub::Members;
use crate::{Ran, Result};

/// Outcomes before anybody was called.
pub(super) fn not_called<T, E>(members: usize) -> Few<Outcome<T, E>> {
    match members {
        1 => Few::One(Outcome::Abandoned(Ran::No)),
        _ => Few::Many((0..members).map(|_| Outcome::Abandoned(Ran::No)).collect()),
    }
}

/// Needed of a tally that ends with the last reply.
pub(super) const ALL: usize = usize::MAX;

/// The replies so far, and whether those that count are enough.
pub(super) struct Tally<T, E> {
    members: Members,
    pub(super) outcomes: Few<Outcome<T, E>>,
    needed: usize,
    counted: usize,
    /// How many did not count.
    missed: usize,
    /// The last one that counted.
    decisive: Option<usize>,
    counts: Option<Counts<T, E>>,
}

impl<T, E> Tally<T, E> {
    pub(super) fn new(members: Members, needed: usize, counts: Option<Counts<T, E>>) -> Self {
        let outcomes = not_called(members.len());
        Tally { members, outcomes, needed, counted: 0, missed: 0, decisive: None, counts }
    }

    pub(super) fn is_met(&self) -> bool {
        self.counted >= self.needed
    }

    /// Whether it cannot be met any more, whatever those say who have not replied.
    pub(super) fn is_hopeless(&self) -> bool {
        self.needed != ALL && self.members.len() - self.missed < self.needed
    }

    /// How many replies must come before it can be met, or hopeless.
    pub(super) fn awaits(&self) -> usize {
        let lacks = self.needed - self.counted;
        match self.needed {
            ALL => lacks,
            needed => lacks.min(self.members.len() - self.missed - needed + 1),
        }
    }

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

    /// The outcomes, and how many count.
    pub(super) fn finish(self) -> (Gathered<T, E>, usize) {
        (Gathered::new(self.members, self.outcomes), self.counted)
    }

    pub(super) fn quorum(self) -> std::result::Result<Gathered<T, E>, Short> {
        if self.is_met() { Ok(self.finish().0) } else { Err(self.short()) }
    }

    /// The value of the reply that counted.
    pub(super) fn first(mut self) -> std::result::Result<(String, T), Short> {
        let decisive = self
            .decisive
            .map(|index| (index, std::mem::replace(&mut self.outcomes[index], Outcome::Abandoned(Ran::Yes))));
        match decisive {
            Some((index, Outcome::Result(value))) => Ok((self.members[index].name().to_owned(), value)),
            Some((index, other)) => {
                self.outcomes[index] = other;
                Err(self.short())
            }
            None => Err(self.short()),
        }
    }

    fn short(self) -> Short {
        let needed = self.needed;
        let (gathered, counted) = self.finish();
        Short::new(needed, counted, &gathered)
    }
}
