//! A multiple call under way: replies one by one, blocking or awaited.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::Poll;

use super::engine::Engine;
use super::few::Few;
use super::membership::{Fixed, Living};
use super::outcome::{Gathered, Reply, Short};
use super::prepared::{Prepared, Rest, Settings};
use super::tally::{ALL, Tally};
use crate::stub::Members;
use crate::xdr::Decode;
use crate::{Never, Result};

/// Calls of the members of a group, under way: `group.multi().get(key).start()` gives it.
///
/// Dropping it cancels those that have not ended, unless [`Rest::Finish`] was said: then those that were made go on, and
/// members that were not called yet, for want of room for their replies, are not. Where a time was set with
/// [`within`](super::Multi::within), it is also the deadline of each call.
#[must_use = "dropping it cancels the calls"]
pub struct Gathering<T, E = Never, M = Living> {
    members: Members,
    engine: Engine<T, E>,
    settings: Settings<T, E>,
    kind: PhantomData<fn() -> M>,
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>, M> Gathering<T, E, M> {
    pub(super) fn new(members: Members, prepared: Few<Prepared<T, E>>, settings: Settings<T, E>) -> Self {
        let mut engine = Engine::new(members.clone(), prepared, &settings);
        engine.await_within(settings.within);
        engine.call_some();
        Gathering { members, engine, settings, kind: PhantomData }
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
        self.tally(ALL).await.finish().0
    }

    /// As [`Multi::first`](super::Multi::first).
    ///
    /// # Errors
    /// As [`Multi::first`](super::Multi::first).
    pub async fn first(self) -> std::result::Result<(String, T), Short> {
        self.tally(1).await.first()
    }

    /// As [`Multi::quorum`](super::Multi::quorum), of members that have been called already.
    ///
    /// # Errors
    /// Fewer gave a result.
    pub async fn quorum(mut self, n: usize) -> std::result::Result<Gathered<T, E>, Short> {
        self.engine.rest(self.settings.rest.unwrap_or(Rest::Finish));
        self.tally(n).await.quorum()
    }

    /// Calls that have not ended yet, by members called so far.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    /// Until the first result; another member is called after each pause, and each reply that does not count.
    pub(super) async fn hedged_by<P: Future>(
        self,
        pause: &mut impl FnMut() -> P,
    ) -> std::result::Result<(String, T), Short> {
        let Gathering { members, mut engine, settings, .. } = self;
        let mut tally = Tally::new(members, 1, settings.counts);
        let mut pausing = pin!(pause());
        let mut more = true;
        while !tally.is_met() {
            let next = poll_fn(|context| match engine.poll_next(context) {
                Poll::Ready(reply) => Poll::Ready(Some(reply)),
                Poll::Pending if more => pausing.as_mut().poll(context).map(|_| None),
                Poll::Pending => Poll::Pending,
            });
            match next.await {
                Some(Some((index, result))) => tally.take(index, result),
                Some(None) => break,
                None => more = engine.hurry(),
            }
            if more {
                pausing.set(pause());
            }
        }
        engine.stop(&mut tally.outcomes);
        tally.first()
    }

    async fn tally(self, needed: usize) -> Tally<T, E> {
        let Gathering { members, mut engine, settings, .. } = self;
        let mut tally = Tally::new(members, needed, settings.counts);
        while !tally.is_met() && !tally.is_hopeless() {
            let Some((index, result)) = poll_fn(|context| engine.poll_next(context)).await else { break };
            tally.take(index, result);
        }
        engine.stop(&mut tally.outcomes);
        tally
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Gathering<T, E, Fixed> {
    /// As [`Multi::majority`](super::Multi::majority).
    ///
    /// # Errors
    /// As [`Multi::majority`](super::Multi::majority).
    pub async fn majority(self) -> std::result::Result<Gathered<T, E>, Short> {
        let majority = self.members.majority();
        self.quorum(majority).await
    }
}

fn reply<T, E>(members: &Members, index: usize, result: Result<T, E>) -> Reply<'_, T, E> {
    Reply { index, member: members[index].name(), result }
}

impl<T, E, M> fmt::Debug for Gathering<T, E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").field("members", &self.members).finish_non_exhaustive()
    }
}
