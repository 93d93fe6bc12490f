//! Bounds the attempts of a call, each of which goes to another member.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::health::{Health, Verdict};
use super::{Choice, Shared};
use crate::broken::Rule;
use crate::env::Time;
use crate::env::breaks;
use crate::retry::either_ran;
use crate::stub::Procedure;
use crate::{CallFailed, Kind, Ran};

/// The most members that a call meets, besides those that are leaving.
const MAX_MEMBERS_PER_CALL: usize = 3;

/// The most attempts of a call at members that are leaving, for example because they are restarted one after
/// the other.
const MAX_LEAVING_PER_CALL: usize = 8;

/// Bounds the calls that are made again at another member. Without it, members that are all overloaded would
/// each get several times as many calls.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicI64);

impl RetryBudget {
    /// What each call adds to the budget, and what each further attempt takes from it.
    const PER_CALL: i64 = 1;
    const PER_RETRY: i64 = 10;
    /// The budget at first, and at most.
    const FIRST: i64 = 100;
    const MAX: i64 = 1000;

    #[inline]
    pub fn add_call(&self) {
        if self.0.load(Relaxed) < RetryBudget::MAX {
            self.0.fetch_add(RetryBudget::PER_CALL, Relaxed);
        }
    }

    fn take_retry(&self) -> bool {
        let take = |left: i64| (left >= RetryBudget::PER_RETRY).then_some(left - RetryBudget::PER_RETRY);
        self.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> RetryBudget {
        RetryBudget(AtomicI64::new(RetryBudget::FIRST))
    }
}

/// Returns whether a call that has failed may run again: it did not run, or may run twice and no handler of
/// its caller has run.
fn may_run_again(shared: &Shared, why: &CallFailed, procedure: &Procedure) -> bool {
    let has_handled = why.is_after_handler() && !breaks(Rule::HandledIsNotRepeated, || shared.env.clone());
    match why.ran() {
        Ran::No => true,
        Ran::Maybe => procedure.idempotent && !has_handled,
        Ran::Yes => false,
    }
}

/// Returns whether a member has not begun a call, or says nothing of one that may run again.
fn is_late(shared: &Shared, why: &CallFailed, procedure: &Procedure) -> bool {
    may_run_again(shared, why, procedure)
        && matches!(why.kind(), Kind::Registry | Kind::Deadline | Kind::Unreachable)
}

/// Returns whether a call that has failed at the only member may go on: the member was given half of the time
/// because there were former members, or there are former members now.
pub(super) fn is_for_former(
    (shared, hurried): (&Shared, bool),
    why: &CallFailed,
    procedure: &Procedure,
) -> bool {
    is_late(shared, why, procedure) && (hurried || shared.roster.has_former())
}

/// The attempts that a call has made.
pub(super) struct Attempts {
    /// The states of the members that it has met.
    pub met: Vec<Arc<Health>>,
    /// How many of its attempts met members that are leaving, and how many met others.
    leaving: usize,
    failed: usize,
    /// Whether it may meet the members once more that were leaving or late, because by now they may be back.
    may_return: bool,
    /// Whether it does so.
    is_second_round: bool,
    /// Whether former members were asked for.
    has_tried_former: bool,
    /// Whether the latest member was given half of the time, so that the call could go on elsewhere.
    hurried: bool,
    /// Whether one of the attempts ran.
    pub ran: Ran,
    /// Whether the group was asked for its members after the latest failure.
    pub has_asked: bool,
    /// Until when the call may take, if it has a deadline, and has failed once or has waited for the members.
    until: Option<Time>,
}

impl Attempts {
    /// Returns the attempts of a call whose first one was given half of the time, or all of it.
    pub fn new(hurried: bool) -> Attempts {
        Attempts {
            met: Vec::new(),
            leaving: 0,
            failed: 0,
            may_return: false,
            is_second_round: false,
            has_tried_former: false,
            hurried,
            ran: Ran::No,
            has_asked: false,
            until: None,
        }
    }

    /// Notes that an attempt that began at `begun` has failed at a member. Returns whether the call may go to
    /// another one: it did not run or may run again, the reason lies with the member, and there are time and
    /// budget left. A member that is leaving takes nothing from the budget, and the group is asked for its
    /// members again.
    #[cold]
    pub fn may_go_on(
        &mut self,
        shared: &Shared,
        (choices, which): (&[Choice], usize),
        why: &CallFailed,
        (begun, within, procedure): (Time, Option<Duration>, &Procedure),
    ) -> bool {
        self.until = self.until.or(within.map(|within| begun + within));
        self.met.push(choices[which].health.clone());
        self.has_asked = false;
        self.ran = either_ran(self.ran, why.ran());
        let hurried = std::mem::take(&mut self.hurried) && !self.is_second_round;
        if !may_run_again(shared, why, procedure) || self.until.is_some_and(|until| shared.env.now() >= until)
        {
            return false;
        }
        // There can be more by now, for example former ones that another call has asked for.
        let members = choices.len().max(shared.list.get().len());
        match Verdict::of(why) {
            Verdict::Leaves if breaks(Rule::RefusedIsTriedElsewhere, || shared.env.clone()) => false,
            Verdict::Leaves => {
                self.leaving += 1;
                self.may_return = true;
                self.ask(shared);
                self.leaving <= MAX_LEAVING_PER_CALL
            }
            // Former members may still take the call. If they do not, the members have the rest of the time.
            Verdict::Fails if self.has_met_all(shared) && self.is_for_former(shared, why, procedure) => {
                self.failed += 1;
                !(self.has_tried_former && self.is_second_round)
            }
            // The member has not begun the call, and half of the time is left. That adds no load to speak of.
            // If it was the last one, the former ones for which the rest was kept take no calls any more.
            Verdict::Fails if why.kind() == Kind::Deadline => {
                self.failed += 1;
                self.may_return |= hurried;
                self.until.is_some() && (self.failed < members || hurried)
            }
            Verdict::Fails => {
                self.failed += 1;
                self.failed < MAX_MEMBERS_PER_CALL.min(members) && shared.retries.take_retry()
            }
            Verdict::Works | Verdict::Nothing => false,
        }
    }

    /// Returns whether a call that has met all members may go to former ones, or from those back to the
    /// members.
    fn is_for_former(&self, shared: &Shared, why: &CallFailed, procedure: &Procedure) -> bool {
        let may_return = self.has_tried_former && !self.is_second_round;
        is_for_former((shared, may_return), why, procedure)
    }

    /// Returns the failure of a call that goes on no more. It says whether any of the attempts ran.
    pub fn of_all(&self, why: CallFailed) -> CallFailed {
        let ran = either_ran(self.ran, why.ran());
        why.but_ran(ran)
    }

    /// Returns whether there are others for a call besides the member of `choices` that it goes to now. After
    /// it has tried former ones, these are the members that it has met, once more.
    fn has_others(&self, shared: &Shared, choices: &[Choice]) -> bool {
        // Members that it has met may have left the list, and others have come.
        let not_met = choices.iter().filter(|choice| !self.has_met(choice)).count();
        match (self.has_tried_former, self.is_second_round) {
            (false, _) => not_met > 1 || shared.roster.has_former(),
            (true, false) => !breaks(Rule::FormerGiveBack, || shared.env.clone()),
            (true, true) => not_met > 1 && choices.len() > 1 + self.failed,
        }
    }

    /// Returns whether the member of `choices` that the call goes to now is given half of the time that it
    /// has `within`, as for the [first](Shared::may_hurry) one.
    pub fn may_hurry(&mut self, shared: &Shared, choices: &[Choice], within: Option<Duration>) -> bool {
        self.hurried = within.is_some() && self.has_others(shared, choices);
        self.hurried
    }

    /// Returns whether the call has met all members that there are now.
    fn has_met_all(&self, shared: &Shared) -> bool {
        shared.list.get().iter().all(|choice| self.has_met(choice))
    }

    fn has_met(&self, choice: &Choice) -> bool {
        self.met.iter().any(|met| Arc::ptr_eq(met, &choice.health))
    }

    /// Asks the group for its members now.
    fn ask(&mut self, shared: &Shared) {
        let left = self.until.map(|until| until.since(shared.env.now()));
        shared.ask_now(left);
        self.has_asked = true;
    }

    /// Returns whether former members may take the call, which has failed at all others. Returns true once at
    /// most. Then it has asked the group for its members, to which the former ones belong now.
    #[cold]
    pub fn may_try_former(&mut self, shared: &Shared, why: &CallFailed, procedure: &Procedure) -> bool {
        let may = !self.has_tried_former && is_for_former((shared, false), why, procedure);
        if may {
            (self.has_tried_former, self.may_return) = (true, true);
            shared.roster.note_late();
            self.ask(shared);
        }
        may
    }

    /// Returns whether the call may meet the members again that it has met, once: some of them were leaving.
    pub fn may_begin_again(&mut self) -> bool {
        let may = self.may_return && !std::mem::replace(&mut self.is_second_round, true);
        if may {
            self.met.clear();
        }
        may
    }

    /// Returns how long an attempt may take that begins at `begun`. It had `within` at `asked`, when its member
    /// was asked for.
    #[inline]
    pub fn began(&mut self, within: Option<Duration>, asked: Time, begun: Time) -> Option<Duration> {
        if asked != begun {
            self.until = self.until.or(within.map(|within| asked + within));
        }
        self.within(within, begun)
    }

    /// Returns how long an attempt that begins now may take, of a call that may take `within`.
    #[inline]
    pub fn within(&self, within: Option<Duration>, now: Time) -> Option<Duration> {
        self.until.map_or(within, |until| Some(until.since(now)))
    }
}
