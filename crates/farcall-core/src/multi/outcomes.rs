//! The outcomes of a group call: the outcome of each member, all outcomes together, and the error when too
//! few members succeeded.

use std::fmt;

use super::inline_vec::InlineVec;
use crate::stub::{Member, Members};
use crate::{CallFailed, Error, Never, Ran, Result};

/// The outcome of one member's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T, E = Never> {
    /// The procedure returned.
    Result(T),
    /// The procedure raised its declared exception.
    Exception(E),
    /// The call failed.
    Failed(CallFailed),
    /// The caller stopped before the call had ended. With [`Ran::No`] the member was never called. Otherwise
    /// the call may have run, or may still run.
    Abandoned(Ran),
}

impl<T, E> Outcome<T, E> {
    /// Returns the result, if the procedure returned one.
    pub fn result(&self) -> Option<&T> {
        match self {
            Outcome::Result(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the outcome without its value.
    fn without_value(&self) -> Outcome<(), ()> {
        match self {
            Outcome::Result(_) => Outcome::Result(()),
            Outcome::Exception(_) => Outcome::Exception(()),
            Outcome::Failed(why) => Outcome::Failed(why.clone()),
            Outcome::Abandoned(ran) => Outcome::Abandoned(*ran),
        }
    }
}

impl<T, E> From<Result<T, E>> for Outcome<T, E> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Outcome::Result(value),
            Err(Error::Declared(exception)) => Outcome::Exception(exception),
            Err(Error::CallFailed(why)) => Outcome::Failed(why),
        }
    }
}

/// One member's reply.
#[derive(Debug)]
pub struct Reply<'a, T, E = Never> {
    /// The member's index in the group.
    pub index: usize,
    /// The member's name.
    pub member: &'a str,
    /// The value that a single call of the member would have returned.
    pub result: Result<T, E>,
}

/// The outcomes of all members, in the order of the group.
///
/// It can be iterated over: each item is a member's `(name, outcome)`.
#[derive(Clone)]
pub struct Gathered<T, E = Never> {
    members: Members,
    outcomes: InlineVec<Outcome<T, E>>,
}

impl<T, E> Gathered<T, E> {
    pub(super) fn new(members: Members, outcomes: InlineVec<Outcome<T, E>>) -> Self {
        Gathered { members, outcomes }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Returns whether the group had no member.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Returns the name and the outcome of each member.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Outcome<T, E>)> {
        self.members.iter().map(Member::name).zip(&*self.outcomes)
    }

    /// Returns the name and the result of each member that returned a result.
    pub fn results(&self) -> impl Iterator<Item = (&str, &T)> {
        self.iter().filter_map(|(name, outcome)| Some((name, outcome.result()?)))
    }

    /// Returns the name and the failure of each member whose call failed.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &CallFailed)> {
        self.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(why) => Some((name, why)),
            _ => None,
        })
    }

    /// Returns the outcome of the member with this name.
    pub fn get(&self, member: &str) -> Option<&Outcome<T, E>> {
        self.iter().find_map(|(name, outcome)| (name == member).then_some(outcome))
    }

    /// Returns the members, in the order of the outcomes.
    pub fn members(&self) -> &Members {
        &self.members
    }
}

/// An iterator over the name and the outcome of each member.
pub struct IntoIter<T, E> {
    members: Members,
    outcomes: std::iter::Enumerate<std::vec::IntoIter<Outcome<T, E>>>,
}

impl<T, E> Iterator for IntoIter<T, E> {
    type Item = (String, Outcome<T, E>);

    fn next(&mut self) -> Option<Self::Item> {
        let (index, outcome) = self.outcomes.next()?;
        Some((self.members[index].name().to_owned(), outcome))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.outcomes.size_hint()
    }
}

impl<T, E> IntoIterator for Gathered<T, E> {
    type Item = (String, Outcome<T, E>);
    type IntoIter = IntoIter<T, E>;

    fn into_iter(self) -> IntoIter<T, E> {
        IntoIter { members: self.members, outcomes: self.outcomes.into_vec().into_iter().enumerate() }
    }
}

impl<T: fmt::Debug, E: fmt::Debug> fmt::Debug for Gathered<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The error of a group call of which too few members succeeded. It has the outcome of each member.
#[derive(Clone, Debug)]
pub struct Short {
    needed: usize,
    counted: usize,
    outcomes: Gathered<(), ()>,
}

impl Short {
    pub(super) fn new<T, E>(needed: usize, counted: usize, gathered: &Gathered<T, E>) -> Short {
        let outcomes = gathered.outcomes.iter().map(Outcome::without_value).collect();
        Short {
            needed,
            counted,
            outcomes: Gathered::new(gathered.members.clone(), InlineVec::Many(outcomes)),
        }
    }

    /// Returns how many members had to succeed.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Returns how many members succeeded.
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// Returns the outcome of each member, without the values.
    pub fn outcomes(&self) -> &Gathered<(), ()> {
        &self.outcomes
    }
}

/// The greatest number of members that the error message names.
const MAX_MEMBERS_NAMED: usize = 8;

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Short { needed, counted, outcomes } = self;
        write!(f, "{counted} of {} members succeeded; {needed} needed", outcomes.len())?;
        let others = || outcomes.iter().filter(|(_, outcome)| outcome.result().is_none());
        for (name, outcome) in others().take(MAX_MEMBERS_NAMED) {
            match outcome {
                Outcome::Exception(()) => write!(f, "; {name}: raised its exception")?,
                Outcome::Failed(why) => write!(f, "; {name}: {why}")?,
                Outcome::Abandoned(Ran::No) => write!(f, "; {name}: was not called")?,
                Outcome::Abandoned(_) => write!(f, "; {name}: has not answered")?,
                Outcome::Result(()) => {}
            }
        }
        match others().count().saturating_sub(MAX_MEMBERS_NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Short {}
