//! The channel of a balanced stub: each call goes to a member that is chosen when it is made, and what
//! becomes of it is noted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::task::{Context, Poll};

use super::health::Verdict;
use super::{Choice, Policy, Shared};
use crate::env::{Env, Time};
use crate::stub::{Call, CarriedBy, Channel, PendingCall, Reply, Sink};
use crate::wait::{ReadyList, WaitPoint};
use crate::{CallFailed, Kind, Ran, System};

/// The most members that a call meets.
const MAX_MEMBERS_PER_CALL: usize = 3;

pub(super) struct Balanced {
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Policy,
}

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

    fn add_call(&self) {
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

/// A call that was given to a member, and has not ended.
struct Attempt {
    shared: Arc<Shared>,
    choices: Arc<[Choice]>,
    which: usize,
    begun: Time,
    ended: bool,
}

impl Balanced {
    /// Gives a call to one of these members, or of those that the group has by now. `met` has the members
    /// that the call has met already.
    fn begin(&self, mut choices: Arc<[Choice]>, met: &[usize]) -> Result<Attempt, CallFailed> {
        let shared = &self.shared;
        let begun = shared.env.now();
        if shared.is_due_at(begun) {
            choices = shared.choices(begun);
        }
        shared.ejections.look(&choices, begun);
        let Some(which) = shared.picker.pick(&choices, self.policy, begun, met) else {
            let why = "the group has no members";
            return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why));
        };
        choices[which].health.begin(begun);
        Ok(Attempt { shared: shared.clone(), choices, which, begun, ended: false })
    }

    /// Makes a call. If it did not run for a reason that lies with the member, it goes to another one.
    fn call_one_of(&self, mut choices: Arc<[Choice]>, call: &Call<'_>, sink: Sink<'_>) {
        self.shared.retries.add_call();
        let (mut met, mut failure) = (Vec::new(), None);
        loop {
            let mut attempt = match self.begin(choices, &met) {
                Ok(attempt) => attempt,
                Err(why) => return sink(Reply::Failed(failure.unwrap_or(why))),
            };
            let mut failed = None;
            let channel = attempt.channel().clone();
            channel.call(Call { ..*call }, &mut |reply| {
                attempt.end(failure_in(&reply));
                match reply {
                    Reply::Failed(why) => failed = Some(why),
                    reply => sink(reply),
                }
            });
            let Some(why) = failed else { return };
            met.push(attempt.which);
            choices = attempt.choices.clone();
            // The items of a stream are sent once.
            let may_go_on = met.len() < MAX_MEMBERS_PER_CALL.min(choices.len())
                && why.ran() == Ran::No
                && Verdict::of(&why) == Verdict::Fails
                && call.sending.is_none();
            if !may_go_on || !self.shared.retries.take_retry() {
                return sink(Reply::Failed(why));
            }
            failure = Some(why);
        }
    }

    /// Returns the channel of a member, for what does not depend on the member.
    fn any(&self) -> Option<Arc<dyn Channel>> {
        self.shared.known().first().map(|choice| choice.member.binding().channel().clone())
    }
}

impl Attempt {
    fn channel(&self) -> &Arc<dyn Channel> {
        self.choices[self.which].member.binding().channel()
    }

    /// Notes how the call ended.
    fn end(&mut self, failure: Option<&CallFailed>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let now = self.shared.env.now();
        self.choices[self.which].health.end(self.begun, now, failure);
        if failure.is_some() {
            self.shared.ejections.note_failure(&self.choices, self.which, now);
        }
    }
}

/// Notes a call that was given up.
impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            self.choices[self.which].health.leave();
        }
    }
}

fn failure_in<'a>(reply: &'a Reply<'_>) -> Option<&'a CallFailed> {
    match reply {
        Reply::Failed(why) => Some(why),
        _ => None,
    }
}

impl Channel for Balanced {
    /// Makes the call. If it did not run for a reason that lies with the member, it goes to another one.
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let choices = self.shared.known();
        // There is nothing to choose from one member.
        match &choices[..] {
            [only] if !self.shared.is_due() => {
                only.member.binding().channel().call(call, &mut |reply| {
                    if let Reply::Failed(_) = &reply {
                        // Another member may have taken its place.
                        self.shared.look_at_next_call();
                    }
                    sink(reply);
                });
            }
            _ => self.call_one_of(choices, &call, sink),
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        self.shared.retries.add_call();
        match self.begin(self.shared.known(), &[]) {
            Ok(attempt) => Box::new(Started { pending: Some(attempt.channel().start(call)), attempt }),
            Err(why) => Box::new(why),
        }
    }

    fn start_at(
        &self,
        call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        self.shared.retries.add_call();
        match self.begin(self.shared.known(), &[]) {
            Ok(attempt) => {
                let pending = attempt.channel().start_at(call, wait_point, ready, member);
                Box::new(Started { pending: Some(pending), attempt })
            }
            Err(why) => {
                ready.token(member).mark_ready();
                Box::new(why)
            }
        }
    }

    fn env(&self) -> Arc<dyn Env> {
        self.shared.env.clone()
    }

    fn may_wait(&self) -> Result<(), CallFailed> {
        self.any().map_or_else(crate::serving::may_wait, |channel| channel.may_wait())
    }

    fn carried_by(&self) -> CarriedBy {
        // Starting a batch may ask the group for its members, which may block. Only members that all execute
        // the calls in the caller's thread need no batches: a server must be told which calls come first.
        let choices = self.shared.known();
        let is_local = |choice: &Choice| choice.member.binding().channel().carried_by() == CarriedBy::Caller;
        match !choices.is_empty() && choices.iter().all(is_local) {
            true => CarriedBy::Caller,
            false => CarriedBy::Blocking,
        }
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        match self.any() {
            Some(channel) => channel.wait_point(),
            None => Arc::new(crate::wait::Parking::new(Arc::new(System))),
        }
    }
}

/// A started call of a balanced stub.
struct Started {
    /// `None` once the call was waited for or let go.
    pending: Option<Box<dyn PendingCall>>,
    attempt: Attempt,
}

/// Notes how a call ended, and passes its reply on.
fn noting<'a>(attempt: &'a mut Attempt, sink: Sink<'a>) -> impl FnMut(Reply<'_>) + 'a {
    move |reply| {
        attempt.end(failure_in(&reply));
        sink(reply);
    }
}

impl PendingCall for Started {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        if let Some(pending) = self.pending.take() {
            pending.wait(&mut noting(&mut self.attempt, sink));
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        pending.poll(context, &mut noting(&mut self.attempt, sink))
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        self.pending.as_ref()?.wait_point()
    }

    fn poll_at(
        &mut self,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        pending.poll_at(wait_point, ready, member, &mut noting(&mut self.attempt, sink))
    }

    fn waits_for_itself(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.waits_for_itself())
    }

    fn cancel(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.cancel();
        }
    }

    fn detach(mut self: Box<Self>) {
        if let Some(pending) = self.pending.take() {
            pending.detach();
        }
    }

    fn detach_later(mut self: Box<Self>) {
        if let Some(pending) = self.pending.take() {
            pending.detach_later();
        }
    }
}
