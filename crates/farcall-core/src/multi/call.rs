//! A group call that is not made yet: its settings, and the methods that make it. Each of these methods has
//! its own rule for when the call ends.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::Duration;

use super::engine::Engine;
use super::inline_vec::InlineVec;
use super::membership::{Fixed, Living};
use super::outcomes::{Gathered, Outcome, Reply, Short};
use super::prepared::{Counts, Hedge, Prepared, Rest, Settings};
use super::progress::{ALL, Progress, not_called};
use super::started::Gathering;
use crate::stub::Members;
use crate::xdr::Decode;
use crate::{Never, Result};

/// A call of every member of a group, not made yet: `group.multi().get(key)` returns it.
///
/// These methods make the call and block until it ends: [`all`](Multi::all), [`first`](Multi::first),
/// [`quorum`](Multi::quorum), [`majority`](Multi::majority), [`hedged`](Multi::hedged),
/// [`collate`](Multi::collate) and [`each`](Multi::each). [`start`](Multi::start) starts the call and returns
/// at once; an async task can await the result.
#[must_use = "no member is called before `all()`, `first()`, `quorum(n)`, `each(..)` or `start()`"]
pub struct Multi<T, E = Never, M = Living> {
    pub(super) members: Members,
    pub(super) prepared: InlineVec<Prepared<T, E>>,
    pub(super) settings: Settings<T, E>,
    kind: PhantomData<fn() -> M>,
}

/// What the handler of [`Multi::each`] asks for after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for the next reply.
    Continue,
    /// Stop: do not wait for the members that have not replied.
    Stop,
}

impl<T, E, M> Multi<T, E, M> {
    /// Returns a call of each member with the same arguments. Called by generated stubs.
    #[doc(hidden)]
    #[inline]
    pub fn new(members: Members, prepared: Prepared<T, E>) -> Self {
        Multi::of(members, InlineVec::One(prepared))
    }

    /// Returns a call of each member with the arguments at the member's index. If there is only one set of
    /// arguments, every member gets it.
    #[inline]
    pub(super) fn of(members: Members, prepared: InlineVec<Prepared<T, E>>) -> Self {
        Multi { members, prepared, settings: Settings::default(), kind: PhantomData }
    }

    /// Bounds how long the caller waits for replies. After that the caller no longer waits for members that
    /// have not replied. The servers do not learn of this bound, unlike the deadline of a binding
    /// ([`Binding::within`](crate::stub::Binding::within)).
    pub fn within(mut self, time: Duration) -> Self {
        self.settings.within = Some(time);
        self
    }

    /// Sets what happens to the calls that have not ended when the caller stops early. By default
    /// [`quorum`](Multi::quorum) and [`majority`](Multi::majority) let them finish, so that a write reaches
    /// every replica. The other methods cancel them by default.
    pub fn rest(mut self, rest: Rest) -> Self {
        self.settings.rest = Some(rest);
        self
    }

    /// Sets which replies count for [`first`](Multi::first), [`quorum`](Multi::quorum),
    /// [`majority`](Multi::majority) and [`hedged`](Multi::hedged). By default results count; exceptions and
    /// failures do not. [`first`](Multi::first) and [`hedged`](Multi::hedged) must return a result. So they
    /// fail if the first reply that counts is an exception or a failure.
    pub fn counting(mut self, counts: impl Fn(&Result<T, E>) -> bool + Send + 'static) -> Self {
        self.settings.counts = Some(Box::new(counts));
        self
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>, M> Multi<T, E, M> {
    /// Calls all members, and waits for all replies.
    #[inline(always)]
    pub fn all(self) -> Gathered<T, E> {
        match self.call_only_member() {
            ControlFlow::Break(ended) => Gathered::new(ended.members, InlineVec::One(ended.result.into())),
            ControlFlow::Continue(multi) => multi.until(ALL).all(),
        }
    }

    /// Calls all members, and waits for the first result. Returns the member's name and its result.
    ///
    /// # Errors
    /// No member returned a result.
    pub fn first(self) -> std::result::Result<(String, T), Short> {
        self.until(1).first()
    }

    /// Calls all members, and waits for `n` results. The other calls go on.
    ///
    /// # Errors
    /// Returned as soon as `n` results are impossible. A group of fewer than `n` members is not called at
    /// all.
    pub fn quorum(mut self, n: usize) -> std::result::Result<Gathered<T, E>, Short> {
        self.settings.rest.get_or_insert(Rest::Finish);
        self.until(n).quorum()
    }

    /// Calls the first member, and waits for a result. Calls the next member each time that `after` has
    /// passed without a result, or that a call has failed, but calls at most `at_most` members. The first
    /// result cancels the other calls.
    ///
    /// # Errors
    /// No member returned a result.
    pub fn hedged(mut self, after: Duration, at_most: usize) -> std::result::Result<(String, T), Short> {
        self.settings.hedge = Some(Hedge { after, at_most });
        self.until(1).first()
    }

    /// Makes a hedged call, as [`Multi::hedged`] does, in a task. Farcall has no timers for tasks, so the
    /// task awaits the future that `pause` returns before it calls another member. Let `pause` return the
    /// sleep of the task's executor.
    ///
    /// ```
    /// # #[farcall::interface]
    /// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
    /// # async fn greet(group: &farcall::Group<EchoClient>) -> Result<(), farcall::multi::Short> {
    /// let pause = || tokio::time::sleep(std::time::Duration::from_millis(10));
    /// let (who, echo) = group.multi().echo("hello").hedged_by(pause, 2).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No member returned a result.
    pub async fn hedged_by<P: Future>(
        mut self,
        mut pause: impl FnMut() -> P,
        at_most: usize,
    ) -> std::result::Result<(String, T), Short> {
        self.settings.hedge = Some(Hedge { after: Duration::MAX, at_most });
        self.start().hedged_by(&mut pause).await
    }

    /// Calls all members, and passes each reply to `handler` in the calling thread, until `handler` returns
    /// [`Next::Stop`]. The handler runs without a lock, and may take as long as it likes: a thread of the
    /// runtime looks after the other members' calls meanwhile.
    /// Returns the outcome of each member without its value, which went to the handler.
    pub fn each(self, mut handler: impl FnMut(Reply<'_, T, E>) -> Next) -> Gathered<(), ()> {
        let mut outcomes: InlineVec<Outcome<(), ()>> = not_called(self.members.len());
        let mut take =
            |members: &Members, outcomes: &mut [Outcome<(), ()>], index: usize, result: Result<T, E>| {
                outcomes[index] = match &result {
                    Ok(_) => Outcome::Result(()),
                    Err(crate::Error::Declared(_)) => Outcome::Exception(()),
                    Err(crate::Error::CallFailed(why)) => Outcome::Failed(why.clone()),
                };
                handler(Reply { index, member: members[index].name(), result })
            };
        let Multi { members, prepared, settings, .. } = match self.call_only_member() {
            ControlFlow::Break(OnlyMember { members, result, .. }) => {
                take(&members, &mut outcomes, 0, result);
                return Gathered::new(members, outcomes);
            }
            ControlFlow::Continue(multi) => multi,
        };
        let mut engine = Engine::new(members.clone(), prepared, &settings);
        while let Some((index, result)) = engine.next(1) {
            let _away = engine.step_away();
            if take(&members, &mut outcomes, index, result) == Next::Stop {
                break;
            }
        }
        engine.stop(&mut outcomes);
        Gathered::new(members, outcomes)
    }

    /// Calls all members, and folds the replies in the order of their arrival into one value, which begins as
    /// `start`, until `fold` returns [`Next::Stop`].
    pub fn collate<A>(self, start: A, mut fold: impl FnMut(&mut A, Reply<'_, T, E>) -> Next) -> A {
        let mut folded = start;
        self.each(|reply| fold(&mut folded, reply));
        folded
    }

    /// Starts the calls of all members, and returns without waiting for replies.
    pub fn start(self) -> Gathering<T, E, M> {
        let Multi { members, prepared, settings, .. } = self;
        Gathering::new(members, prepared, settings)
    }

    /// Makes the call as a single call if the group has one member and the caller set neither a time nor a
    /// hedge. Otherwise returns the group call as it was.
    // This takes `self` by value and is inlined, so that the compiler knows the settings that the calling
    // program chose.
    #[inline(always)]
    fn call_only_member(self) -> ControlFlow<OnlyMember<T, E>, Self> {
        match self {
            Multi {
                members,
                prepared: InlineVec::One(Prepared { procedure, arguments: Ok(arguments), .. }),
                settings: Settings { within: None, hedge: None, counts, .. },
                ..
            } if members.len() == 1 => {
                let result = members[0].binding().call_encoded(&procedure, arguments.get().bytes);
                ControlFlow::Break(OnlyMember { members, result, counts })
            }
            multi => ControlFlow::Continue(multi),
        }
    }

    /// Makes the calls, and takes replies until `needed` of them count, or until that has become impossible.
    #[inline(never)]
    fn until(self, needed: usize) -> Progress<T, E> {
        let single = if needed == 1 { self.call_only_member() } else { ControlFlow::Continue(self) };
        let Multi { members, prepared, mut settings, .. } = match single {
            ControlFlow::Break(OnlyMember { members, result, counts }) => {
                let mut progress = Progress::new(members, needed, counts);
                progress.take(0, result);
                return progress;
            }
            ControlFlow::Continue(multi) => multi,
        };
        let mut progress = Progress::new(members.clone(), needed, settings.counts.take());
        if needed > members.len() && needed != ALL {
            return progress;
        }
        let mut engine = Engine::new(members, prepared, &settings);
        while progress.is_open() {
            let Some((index, result)) = engine.next(progress.awaits()) else { break };
            let _away = progress.asks_the_user().then(|| engine.step_away());
            progress.take(index, result);
        }
        engine.stop(&mut progress.outcomes);
        progress
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Multi<T, E, Fixed> {
    /// Calls all members, and waits for results of more than half of them. The other calls go on.
    ///
    /// # Errors
    /// Returned as soon as results of more than half of the members are impossible.
    pub fn majority(self) -> std::result::Result<Gathered<T, E>, Short> {
        let majority = self.members.majority();
        self.quorum(majority)
    }
}

/// The call of a group's only member, which has ended.
struct OnlyMember<T, E> {
    members: Members,
    result: Result<T, E>,
    counts: Option<Counts<T, E>>,
}
