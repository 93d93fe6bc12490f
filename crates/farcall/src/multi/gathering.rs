//! A multiple call under way: replies one by one, blocking or awaited.

use std::fmt;
use std::future::poll_fn;

use super::Members;
use super::call::{Prepared, Reply, Rest, Settings, Tally};
use super::engine::Engine;
use super::few::Few;
use super::outcome::{Gathered, Short};
use crate::xdr::Decode;
use crate::{Never, Result};

/// Calls of the members of a group, under way: `group.multi().get(key).start()` gives it.
///
/// Dropping it cancels those that have not ended, unless [`Rest::Finish`] was said. Where a time was set with
/// [`within`](super::Multi::within), it is also the deadline of each call.
#[must_use = "dropping it cancels the calls"]
pub struct Gathering<T, E = Never> {
    members: Members,
    engine: Engine<T, E>,
    settings: Settings<T, E>,
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Gathering<T, E> {
    pub(super) fn new(members: Members, prepared: Few<Prepared<T, E>>, settings: Settings<T, E>) -> Self {
        let mut engine = Engine::new(members.clone(), prepared, &settings);
        engine.await_within(settings.within);
        engine.call_some();
        Gathering { members, engine, settings }
    }

    /// Blocks for the next reply; none when all members have replied, or the time is up.
    pub fn wait_next(&mut self) -> Option<Reply<'_, T, E>> {
        let (index, result) = self.engine.next(1)?;
        Some(reply(&self.members, index, result))
    }

    /// The next reply; none when all members have replied, or the time is up. Nothing is lost if this is dropped
    /// before it is ready.
    pub async fn next(&mut self) -> Option<Reply<'_, T, E>> {
        let (index, result) = poll_fn(|context| self.engine.poll_next(context)).await?;
        Some(reply(&self.members, index, result))
    }

    /// As [`Multi::all`](super::Multi::all).
    pub async fn all(self) -> Gathered<T, E> {
        self.tally(usize::MAX).await.finish().0
    }

    /// As [`Multi::first`](super::Multi::first).
    ///
    /// # Errors
    /// As there.
    pub async fn first(self) -> std::result::Result<(String, T), Short> {
        self.tally(1).await.first()
    }

    /// As [`Multi::quorum`](super::Multi::quorum).
    ///
    /// # Errors
    /// As there.
    pub async fn quorum(mut self, n: usize) -> std::result::Result<Gathered<T, E>, Short> {
        self.engine.rest(self.settings.rest.unwrap_or(Rest::Finish));
        self.tally(n).await.quorum()
    }

    /// Calls that have not ended yet, by members called so far.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    async fn tally(self, needed: usize) -> Tally<T, E> {
        let Gathering { members, mut engine, settings } = self;
        let mut tally = Tally::new(members, needed, settings.counts);
        while !tally.is_met() {
            let Some((index, result)) = poll_fn(|context| engine.poll_next(context)).await else { break };
            tally.take(index, result);
        }
        engine.stop(&mut tally.outcomes);
        tally
    }
}

fn reply<T, E>(members: &Members, index: usize, result: Result<T, E>) -> Reply<'_, T, E> {
    Reply { index, member: members[index].name(), result }
}

impl<T, E> fmt::Debug for Gathering<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").field("members", &self.members).finish_non_exhaustive()
    }
}
