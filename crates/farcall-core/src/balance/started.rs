//! Started calls of a balanced stub. One that did not run is started again at another member.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::attempts::Attempts;
use super::{Choice, Policy, Shared};
use crate::env::Time;
use crate::retry::either_ran;
use crate::stub::{Call, Channel, KeptCall, PendingCall, Reply, Sink};
use crate::wait::{ReadyList, WaitPoint};
use crate::{CallFailed, Kind, Ran};

/// A started call.
pub(super) struct Started {
    /// `None` once the call was waited for or let go.
    pending: Option<Box<dyn PendingCall>>,
    attempt: Attempt,
    /// What another attempt takes, if there may be one.
    kept: Option<Kept>,
    /// Whether one of the attempts before it was cancelled ran.
    ran: Ran,
}

/// An attempt that has not ended.
struct Attempt {
    shared: Arc<Shared>,
    choices: Arc<[Choice]>,
    which: usize,
    /// When it began; `None` if the clock was not read.
    begun: Option<Time>,
    ended: bool,
}

/// What is kept of a call so that it can be started again.
struct Kept {
    policy: Policy,
    call: KeptCall,
    attempts: Attempts,
}

type Pending = Box<dyn PendingCall>;

impl Attempt {
    /// Begins the first attempt of a call, at a member that is chosen now. Returns it, and how long it may
    /// take.
    fn begin(
        (shared, policy): (&Arc<Shared>, Policy),
        call: &Call<'_>,
        attempts: &mut Attempts,
    ) -> Result<(Attempt, Option<Duration>), CallFailed> {
        let mut choices = shared.list.get();
        let untimed = match choices.len() {
            1 if !shared.is_due() => Some(0),
            _ => shared.pick_untimed(policy, &choices),
        };
        if let Some(which) = untimed {
            choices[which].health.begin_untimed();
            let begun = call.within.map(|_| shared.env.now());
            let attempt = Attempt { shared: shared.clone(), choices, which, begun, ended: false };
            return Ok((attempt, call.within));
        }
        let asked = shared.env.now();
        let (which, begun) = shared.choose(&mut choices, policy, (asked, call.within), &[])?;
        let within = attempts.began(call.within, asked, begun);
        Ok((Attempt::at(shared, &choices, which, begun), within))
    }

    /// Begins an attempt of a call at the member `which`.
    fn at(shared: &Arc<Shared>, choices: &Arc<[Choice]>, which: usize, now: Time) -> Attempt {
        choices[which].health.begin(now);
        let (shared, choices) = (shared.clone(), choices.clone());
        Attempt { shared, choices, which, begun: Some(now), ended: false }
    }

    fn channel(&self) -> &Arc<dyn Channel> {
        self.choices[self.which].channel()
    }

    /// Notes how the attempt ended.
    fn end(&mut self, failure: Option<&CallFailed>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if failure.is_some_and(|why| why.kind() == Kind::Cancelled) {
            return self.give_up();
        }
        let Attempt { shared, choices, which, begun, .. } = self;
        let health = &choices[*which].health;
        health.leave();
        if begun.is_none() && failure.is_none() {
            return health.end_untimed();
        }
        if failure.is_some() && choices.len() == 1 {
            // Another member may have taken its place.
            shared.look_at_next_call();
        }
        shared.note(choices, *which, begun.unwrap_or_else(|| shared.env.now()), failure);
    }

    /// Notes that the caller has given the call up.
    fn give_up(&self) {
        let Choice { health, .. } = &self.choices[self.which];
        let is_silent = health.give_up(self.begun, self.shared.env.now());
        health.leave();
        if is_silent {
            self.channel().suspect();
        }
    }

    /// Notes that nobody waits for the call any more, although it goes on.
    fn let_go(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.choices[self.which].health.leave();
        }
    }
}

/// Notes a call that was given up. Its member may be silent.
impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up();
        }
    }
}

impl Started {
    /// Starts a call at a member that is chosen now.
    ///
    /// # Errors
    /// When there are no members.
    pub fn start(
        (shared, policy): (&Arc<Shared>, Policy),
        call: &Call<'_>,
        start: impl FnOnce(&dyn Channel, Call<'_>) -> Pending,
    ) -> Result<Started, CallFailed> {
        shared.retries.add_call();
        let mut attempts = Attempts::new(false);
        let (attempt, within) = Attempt::begin((shared, policy), call, &mut attempts)?;
        let call = &Call { within, ..*call };
        let hurries = call.sending.is_none() && attempts.may_hurry(shared, &attempt.choices, call.within);
        let kept = KeptCall::of(call).map(|call| Kept { policy, call, attempts });
        let channel = &**attempt.channel();
        let pending = match &kept {
            Some(kept) => kept.call.start((call.within, hurries), |call| start(channel, call)),
            None => start(channel, *call),
        };
        Ok(Started { pending: Some(pending), attempt, kept, ran: Ran::No })
    }

    /// Starts a call at this member, which it stays with.
    pub fn start_at_member(
        (shared, choices, which): (&Arc<Shared>, &Arc<[Choice]>, usize),
        start: impl FnOnce(&dyn Channel) -> Pending,
    ) -> Started {
        let attempt = Attempt::at(shared, choices, which, shared.env.now());
        Started { pending: Some(start(&**attempt.channel())), attempt, kept: None, ran: Ran::No }
    }

    /// Notes how an attempt ended. Starts the call again at another member by `start`, if it has failed and
    /// may go on. Otherwise returns how it has failed.
    fn end(
        &mut self,
        failure: Option<CallFailed>,
        start: impl FnOnce(&dyn Channel, Call<'_>) -> Pending,
    ) -> Ended {
        self.attempt.end(failure.as_ref());
        let Some(why) = failure else { return Ended::Well };
        match self.start_again(&why, start) {
            Some(()) => Ended::GoesOn,
            None => {
                let earlier = self.kept.as_ref().map_or(self.ran, |kept| kept.attempts.ran);
                let ran = either_ran(earlier, why.ran());
                Ended::Failed(why.but_ran(ran))
            }
        }
    }

    #[cold]
    fn start_again(
        &mut self,
        why: &CallFailed,
        start: impl FnOnce(&dyn Channel, Call<'_>) -> Pending,
    ) -> Option<()> {
        let kept = self.kept.as_mut()?;
        let Attempt { shared, choices, which, begun, .. } = &self.attempt;
        let begun = begun.unwrap_or_else(|| shared.env.now());
        let (within, procedure) = (kept.call.within, &kept.call.procedure);
        if !kept.attempts.may_go_on(shared, (choices, *which), why, (begun, within, procedure)) {
            return None;
        }
        // Only after a member has left, or for former ones, was the group asked for its members. Otherwise it
        // is not, because that may block.
        let mut choices = if kept.attempts.has_asked { shared.list.get() } else { choices.clone() };
        let now = || shared.env.now();
        let pick = |choices: &[Choice], met: &[_]| shared.picker.pick(choices, kept.policy, now(), met);
        let mut which = pick(&choices, &kept.attempts.met);
        if which.is_none() && kept.attempts.may_try_former(shared, why, procedure) {
            choices = shared.list.get();
            which = pick(&choices, &kept.attempts.met);
        }
        if which.is_none() && kept.attempts.may_begin_again() {
            which = pick(&choices, &[]);
        }
        let which = which?;
        let now = now();
        self.attempt = Attempt::at(shared, &choices, which, now);
        let within = kept.attempts.within(kept.call.within, now);
        let channel = &**self.attempt.channel();
        let Attempt { shared, choices, .. } = &self.attempt;
        let hurries = kept.attempts.may_hurry(shared, choices, within);
        self.pending = Some(kept.call.start_again((within, hurries), |call| start(channel, call)));
        Some(())
    }
}

/// What the end of an attempt means for its call.
enum Ended {
    /// The sink has the reply.
    Well,
    /// The call was started again.
    GoesOn,
    Failed(CallFailed),
}

/// Passes replies on, except failures.
fn but_failures<'a>(failed: &'a mut Option<CallFailed>, sink: Sink<'a>) -> impl FnMut(Reply<'_>) + 'a {
    move |reply| match reply {
        Reply::Failed(why) => *failed = Some(why),
        reply => sink(reply),
    }
}

impl PendingCall for Started {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        while let Some(pending) = self.pending.take() {
            let mut failed = None;
            pending.wait(&mut but_failures(&mut failed, sink));
            if let Ended::Failed(why) = self.end(failed, |channel, call| channel.start(call)) {
                sink(Reply::Failed(why));
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        loop {
            let Some(pending) = &mut self.pending else { return Poll::Pending };
            let mut failed = None;
            if pending.poll(context, &mut but_failures(&mut failed, sink)).is_pending() {
                return Poll::Pending;
            }
            match self.end(failed, |channel, call| channel.start(call)) {
                Ended::Well => return Poll::Ready(()),
                Ended::GoesOn => {}
                Ended::Failed(why) => {
                    sink(Reply::Failed(why));
                    return Poll::Ready(());
                }
            }
        }
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
        let mut failed = None;
        if pending.poll_at(wait_point, ready, member, &mut but_failures(&mut failed, sink)).is_pending() {
            return Poll::Pending;
        }
        match self.end(failed, |channel, call| channel.start_at(call, wait_point, ready, member)) {
            Ended::Well => {}
            // The call is marked as ready when it is to be polled.
            Ended::GoesOn => return Poll::Pending,
            Ended::Failed(why) => sink(Reply::Failed(why)),
        }
        Poll::Ready(())
    }

    fn waits_for_itself(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.waits_for_itself())
    }

    fn cancel(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.ran = kept.attempts.ran;
        }
        if let Some(pending) = &mut self.pending {
            pending.cancel();
        }
    }

    fn detach(mut self: Box<Self>) {
        self.attempt.let_go();
        if let Some(pending) = self.pending.take() {
            pending.detach();
        }
    }

    fn detach_later(mut self: Box<Self>) {
        self.attempt.let_go();
        if let Some(pending) = self.pending.take() {
            pending.detach_later();
        }
    }
}
