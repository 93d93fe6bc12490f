//! A group call that was started: its caller takes the replies one by one, blocking or in a task.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::Poll;

use super::engine::Engine;
use super::inline_vec::InlineVec;
use super::membership::{Fixed, Living};
use super::outcomes::{Gathered, Reply, Short};
use super::prepared::{Prepared, Rest, Settings};
use super::progress::{ALL, Progress};
use crate::stub::Members;
use crate::xdr::Decode;
use crate::{Never, Result};

/// A started call of the members of a group: `group.multi().get(key).start()` returns it.
///
/// Dropping this cancels the calls that have not ended. With [`Rest::Finish`] they go on instead. A member
/// may not be called yet, because there was no room for its reply; such a member is then never called. A time
/// set by [`within`](super::Multi::within) is also the deadline of each call.
#[must_use = "dropping it cancels the calls"]
pub struct Gathering<T, E = Never, M = Living> {
    members: Members,
    engine: Engine<T, E>,
    settings: Settings<T, E>,
    kind: PhantomData<fn() -> M>,
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>, M> Gathering<T, E, M> {
    pub(super) fn new(
        members: Members,
        prepared: InlineVec<Prepared<T, E>>,
        settings: Settings<T, E>,
    ) -> Self {
        let mut engine = Engine::new(members.clone(), prepared, &settings);
        engine.start_for_task(settings.within);
        Gathering { members, engine, settings, kind: PhantomData }
    }

    /// Blocks until the next member replies. Returns `None` when all members have replied, or the time is up.
    pub fn wait_next(&mut self) -> Option<Reply<'_, T, E>> {
        let (index, result) = self.engine.next(1)?;
        Some(reply(&self.members, index, result))
    }

    /// Returns the next reply, or `None` when all members have replied or the time is up. Dropping the future
    /// before it is ready loses no reply.
    pub async fn next(&mut self) -> Option<Reply<'_, T, E>> {
        let (index, result) = poll_fn(|context| self.engine.poll_next(context)).await?;
        Some(reply(&self.members, index, result))
    }

    /// Waits for the replies of all members, as [`Multi::all`](super::Multi::all) does.
    pub async fn all(self) -> Gathered<T, E> {
        self.until(ALL).await.all()
    }

    /// Waits for the first result, as [`Multi::first`](super::Multi::first) does.
    ///
    /// # Errors
    /// No member returned a result.
    pub async fn first(self) -> std::result::Result<(String, T), Short> {
        self.until(1).await.first()
    }

    /// Waits for `n` results, as [`Multi::quorum`](super::Multi::quorum) does. The members have been called
    /// already.
    ///
    /// # Errors
    /// Fewer than `n` members returned a result.
    pub async fn quorum(mut self, n: usize) -> std::result::Result<Gathered<T, E>, Short> {
        self.engine.set_rest(self.settings.rest.unwrap_or(Rest::Finish));
        self.until(n).await.quorum()
    }

    /// Returns how many of the calls made so far have not ended.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    /// Waits for the first result. Calls another member after each pause, and after each reply that does not
    /// count.
    pub(super) async fn hedged_by<P: Future>(
        self,
        pause: &mut impl FnMut() -> P,
    ) -> std::result::Result<(String, T), Short> {
        let Gathering { members, mut engine, settings, .. } = self;
        let mut progress = Progress::new(members, 1, settings.counts);
        let mut pausing = pin!(pause());
        let mut has_more = true;
        while !progress.is_met() {
            let next = poll_fn(|context| match engine.poll_next(context) {
                Poll::Ready(reply) => Poll::Ready(Some(reply)),
                Poll::Pending if has_more => pausing.as_mut().poll(context).map(|_| None),
                Poll::Pending => Poll::Pending,
            });
            match next.await {
                Some(Some((index, result))) => progress.take(index, result),
                Some(None) => break,
                None => has_more = engine.end_pause(),
            }
            if has_more {
                pausing.set(pause());
            }
        }
        engine.stop(&mut progress.outcomes);
        progress.first()
    }

    /// Takes replies until `needed` of them count, or that has become impossible.
    async fn until(self, needed: usize) -> Progress<T, E> {
        let Gathering { members, mut engine, settings, .. } = self;
        let mut progress = Progress::new(members, needed, settings.counts);
        while progress.is_open() {
            let Some((index, result)) = poll_fn(|context| engine.poll_next(context)).await else { break };
            progress.take(index, result);
        }
        engine.stop(&mut progress.outcomes);
        progress
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Gathering<T, E, Fixed> {
    /// Waits for results of more than half of the members, as [`Multi::majority`](super::Multi::majority)
    /// does.
    ///
    /// # Errors
    /// Half of the members or fewer returned a result.
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
