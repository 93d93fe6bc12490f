//! A call of every member that is to be made, and the ways in which it may end.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::Duration;

use super::engine::Engine;
use super::few::Few;
use super::gathering::Gathering;
use super::membership::{Fixed, Living};
use super::outcome::{Gathered, Outcome, Reply, Short};
use super::prepared::{Counts, Hedge, Prepared, Rest, Settings};
use super::tally::{ALL, Tally, not_called};
use crate::stub::Members;
use crate::xdr::Decode;
use crate::{Never, Result};

/// A call of every member of a group, not made yet: `group.multi().get(key)` gives it.
///
/// What ends it makes it, and blocks: [`all`](Multi::all), [`first`](Multi::first), [`quorum`](Multi::quorum),
/// [`majority`](Multi::majority), [`hedged`](Multi::hedged), [`each`](Multi::each). [`start`](Multi::start) makes it
/// and returns, for tasks.
#[must_use = "nobody is called before `all()`, `first()`, `quorum(n)`, `each(..)` or `start()`"]
pub struct Multi<T, E = Never, M = Living> {
    pub(super) members: Members,
    pub(super) prepared: Few<Prepared<T, E>>,
    pub(super) settings: Settings<T, E>,
    kind: PhantomData<fn() -> M>,
}

/// What the handler of a multiple call says after each reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next reply, please.
    Continue,
    /// Enough: the members that have not answered are abandoned.
    Stop,
}

impl<T, E, M> Multi<T, E, M> {
    /// The same call of each member. For stubs.
    #[doc(hidden)]
    #[inline]
    pub fn new(members: Members, prepared: Prepared<T, E>) -> Self {
        Multi { members, prepared: Few::One(prepared), settings: Settings::default(), kind: PhantomData }
    }

    /// A call of each member with the arguments that stand at its place.
    pub(super) fn of_each(members: Members, prepared: Vec<Prepared<T, E>>) -> Self {
        Multi { members, prepared: Few::Many(prepared), settings: Settings::default(), kind: PhantomData }
    }

    /// Waits for replies no longer than that. Who has not answered by then is abandoned. Unlike a deadline of a
    /// binding ([`Binding::within`](crate::stub::Binding::within)) it is not told to the servers.
    pub fn within(mut self, time: Duration) -> Self {
        self.settings.within = Some(time);
        self
    }

    /// What becomes of the rest when this stops early. By default [`quorum`](Multi::quorum) and
    /// [`majority`](Multi::majority) let them finish, so that a write has all its copies; the others cancel them.
    pub fn rest(mut self, rest: Rest) -> Self {
        self.settings.rest = Some(rest);
        self
    }

    /// Which replies count for [`first`](Multi::first), [`quorum`](Multi::quorum), [`majority`](Multi::majority) and
    /// [`hedged`](Multi::hedged). By default the results do, not exceptions, and never failures. What ends `first` and
    /// `hedged` must be a result, which they return.
    pub fn counting(mut self, counts: impl Fn(&Result<T, E>) -> bool + Send + 'static) -> Self {
        self.settings.counts = Some(Box::new(counts));
        self
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>, M> Multi<T, E, M> {
    /// Calls everybody and waits for everybody.
    #[inline(always)]
    pub fn all(self) -> Gathered<T, E> {
        match self.call_alone() {
            ControlFlow::Break(alone) => Gathered::new(alone.members, Few::One(alone.result.into())),
            ControlFlow::Continue(multi) => multi.tally(ALL).finish().0,
        }
    }

    /// Calls everybody; the first result ends it. Returns it with its member's name.
    ///
    /// # Errors
    /// Nobody gave a result.
    pub fn first(self) -> std::result::Result<(String, T), Short> {
        self.tally(1).first()
    }

    /// Calls everybody; `n` results end it. The others' calls go on.
    ///
    /// # Errors
    /// Fewer gave a result. This is said as soon as it is sure; of a group of fewer members nobody is called.
    pub fn quorum(mut self, n: usize) -> std::result::Result<Gathered<T, E>, Short> {
        self.settings.rest.get_or_insert(Rest::Finish);
        self.tally(n).quorum()
    }

    /// Calls one member, and another one each time that `after` has passed without a result, or that one has
    /// failed, up to `at_most` members, in the order of the group. The first result ends it, and cancels the others' calls.
    ///
    /// # Errors
    /// Nobody gave a result.
    pub fn hedged(mut self, after: Duration, at_most: usize) -> std::result::Result<(String, T), Short> {
        self.settings.hedge = Some(Hedge { after, at_most });
        self.tally(1).first()
    }

    /// As [`Multi::hedged`], for tasks. They have no clock of farcall's: `pause` gives what to await before another
    /// member is called, a sleep of the task's executor.
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
    /// Nobody gave a result.
    pub async fn hedged_by<P: Future>(
        mut self,
        mut pause: impl FnMut() -> P,
        at_most: usize,
    ) -> std::result::Result<(String, T), Short> {
        self.settings.hedge = Some(Hedge { after: Duration::MAX, at_most });
        self.start().hedged_by(&mut pause).await
    }

    /// Calls everybody and gives each reply to `handler` as it comes, in the calling thread, until that says stop.
    /// No lock is held meanwhile, and other threads' replies are taken in. Returns what became of each member,
    /// without the values, which were the handler's.
    pub fn each(self, mut handler: impl FnMut(Reply<'_, T, E>) -> Next) -> Gathered<(), ()> {
        let mut outcomes: Few<Outcome<(), ()>> = not_called(self.members.len());
        let mut take =
            |members: &Members, outcomes: &mut [Outcome<(), ()>], index: usize, result: Result<T, E>| {
                outcomes[index] = match &result {
                    Ok(_) => Outcome::Result(()),
                    Err(crate::Error::Declared(_)) => Outcome::Exception(()),
                    Err(crate::Error::CallFailed(why)) => Outcome::Failed(why.clone()),
                };
                handler(Reply { index, member: members[index].name(), result })
            };
        let Multi { members, prepared, settings, .. } = match self.call_alone() {
            ControlFlow::Break(Alone { members, result, .. }) => {
                take(&members, &mut outcomes, 0, result);
                return Gathered::new(members, outcomes);
            }
            ControlFlow::Continue(multi) => multi,
        };
        let mut engine = Engine::new(members.clone(), prepared, &settings);
        while let Some((index, result)) = engine.next(1) {
            if take(&members, &mut outcomes, index, result) == Next::Stop {
                break;
            }
        }
        engine.stop(&mut outcomes);
        Gathered::new(members, outcomes)
    }

    /// Folds the replies as they come: `fold` takes what there is so far and a reply, until it says stop.
    pub fn collate<A>(self, start: A, mut fold: impl FnMut(&mut A, Reply<'_, T, E>) -> Next) -> A {
        let mut folded = start;
        self.each(|reply| fold(&mut folded, reply));
        folded
    }

    /// Calls everybody now, and returns. Blocks only as long as sending takes.
    pub fn start(self) -> Gathering<T, E, M> {
        let Multi { members, prepared, settings, .. } = self;
        Gathering::new(members, prepared, settings)
    }

    /// Makes the call if nothing sets it apart from a single one: that of one member, without a time of its own.
    /// Otherwise gives it back.
    ///
    /// By value and in line, so that what is known of the call where it is written is known here.
    #[inline(always)]
    fn call_alone(self) -> ControlFlow<Alone<T, E>, Self> {
        match self {
            Multi {
                members,
                prepared: Few::One(Prepared { procedure, arguments: Ok(arguments), .. }),
                settings: Settings { within: None, hedge: None, counts, .. },
                ..
            } if members.len() == 1 => {
                let result = members[0].binding().call_encoded(&procedure, &arguments);
                ControlFlow::Break(Alone { members, result, counts })
            }
            multi => ControlFlow::Continue(multi),
        }
    }

    #[inline(never)]
    fn tally(self, needed: usize) -> Tally<T, E> {
        let alone = if needed == 1 { self.call_alone() } else { ControlFlow::Continue(self) };
        let Multi { members, prepared, mut settings, .. } = match alone {
            ControlFlow::Break(Alone { members, result, counts }) => {
                let mut tally = Tally::new(members, needed, counts);
                tally.take(0, result);
                return tally;
            }
            ControlFlow::Continue(multi) => multi,
        };
        let mut tally = Tally::new(members.clone(), needed, settings.counts.take());
        if tally.is_hopeless() {
            return tally;
        }
        let mut engine = Engine::new(members, prepared, &settings);
        while !tally.is_met() && !tally.is_hopeless() {
            let Some((index, result)) = engine.next(tally.awaits()) else { break };
            tally.take(index, result);
        }
        engine.stop(&mut tally.outcomes);
        tally
    }
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Multi<T, E, Fixed> {
    /// Calls everybody; results of more than half of the members end it. The others' calls go on.
    ///
    /// # Errors
    /// As [`Multi::quorum`].
    pub fn majority(self) -> std::result::Result<Gathered<T, E>, Short> {
        let majority = self.members.majority();
        self.quorum(majority)
    }
}

/// A call of one member that has ended.
struct Alone<T, E> {
    members: Members,
    result: Result<T, E>,
    counts: Option<Counts<T, E>>,
}
