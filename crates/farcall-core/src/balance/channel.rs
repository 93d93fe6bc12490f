//! The channel of a balanced stub: each call goes to a member that is chosen when it is made, and what
//! becomes of it is noted.

use std::sync::Arc;

use super::attempts::{Attempts, is_for_former};
use super::health::Verdict;
use super::started::Started;
use super::{Choice, Policy, Shared};
use crate::CallFailed;
use crate::env::{Env, Time};
use crate::stub::{Call, CarriedBy, Channel, PendingCall, Reply, Sink};
use crate::wait::{Parking, ReadyList, WaitPoint};

pub(super) struct Balanced {
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Policy,
}

impl Balanced {
    /// Calls one of several members.
    #[inline(never)]
    fn call_one_of(&self, choices: &Arc<[Choice]>, call: &Call<'_>, sink: Sink<'_>) {
        match self.shared.pick_untimed(self.policy, choices) {
            Some(which) => self.call_untimed(choices, which, call, sink),
            None => self.call_timed(choices.clone(), call, sink),
        }
    }

    /// Makes a call, perhaps after a look whether there still is one member. Also while the members have
    /// changed so often that their list is under a lock.
    #[inline(never)]
    fn call_present(&self, looks: bool, call: &Call<'_>, sink: Sink<'_>) {
        let (shared, mut within) = (&self.shared, call.within);
        let choices = match looks {
            true => {
                let asked = shared.env.now();
                let choices = shared.choices(asked, within);
                within = within.map(|within| within.saturating_sub(shared.env.now().since(asked)));
                choices
            }
            false => shared.list.get(),
        };
        let call = &Call { within, ..*call };
        match &choices[..] {
            [_] => self.call_only(&choices, call, sink),
            _ => self.call_one_of(&choices, call, sink),
        }
    }

    /// Makes a call at the only member, of which nothing is noted. If it is leaving, another may have come.
    #[inline(always)]
    fn call_only(&self, choices: &Arc<[Choice]>, call: &Call<'_>, sink: Sink<'_>) {
        let mut left = None;
        let shared = &self.shared;
        let hurries = shared.may_hurry(choices, call);
        let may_go_elsewhere = |why: &CallFailed| {
            Verdict::of(why) == Verdict::Leaves || is_for_former((shared, hurries), why, call.procedure)
        };
        // A deadline holds for all attempts together.
        let begun = call.within.map(|_| shared.env.now());
        let well = choices[0].channel().pass_on(&Call { hurries, ..*call }, &mut |reply| match reply {
            Reply::Failed(why) if may_go_elsewhere(&why) => left = Some(why),
            reply => sink(reply),
        });
        if let Some(why) = left {
            self.go_on((choices.clone(), 0, begun), hurries, why, call, sink);
        } else if !well {
            // Another member may have taken its place.
            self.shared.look_at_next_call();
        }
    }

    /// Makes a call without reading the clock, unless the call has a deadline or fails.
    #[inline(always)]
    fn call_untimed(&self, choices: &Arc<[Choice]>, which: usize, call: &Call<'_>, sink: Sink<'_>) {
        self.shared.retries.add_call();
        // A deadline holds for all attempts together.
        let begun = call.within.map(|_| self.shared.env.now());
        let Choice { health, .. } = &choices[which];
        health.begin_untimed();
        let under_way = health.under_way();
        let mut failed = None;
        let sink_but_failures = &mut |reply: Reply<'_>| match reply {
            Reply::Failed(why) => failed = Some(why),
            reply => sink(reply),
        };
        let hurries = self.shared.may_hurry(choices, call);
        match hurries {
            true => choices[which].channel().pass_on(&Call { hurries: true, ..*call }, sink_but_failures),
            false => choices[which].channel().pass_on(call, sink_but_failures),
        };
        let Some(why) = failed else { return health.end_untimed() };
        drop(under_way);
        self.go_on((choices.clone(), which, begun), hurries, why, call, sink);
    }

    /// Makes a call, and notes how long it takes.
    #[inline(never)]
    fn call_timed(&self, choices: Arc<[Choice]>, call: &Call<'_>, sink: Sink<'_>) {
        self.shared.retries.add_call();
        let mut attempts = Attempts::new(false);
        match self.attempt(choices, &mut attempts, call, sink) {
            Ok(None) => {}
            Ok(Some((at, why))) => self.go_on_after(at, why, &mut attempts, call, sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    /// Goes on with a call that has failed at the member `which` and has read no clock.
    #[cold]
    fn go_on(
        &self,
        (choices, which, begun): (Arc<[Choice]>, usize, Option<Time>),
        hurried: bool,
        why: CallFailed,
        call: &Call<'_>,
        sink: Sink<'_>,
    ) {
        let begun = begun.unwrap_or_else(|| self.shared.env.now());
        self.shared.note(&choices, which, begun, Some(&why));
        self.go_on_after((choices, which, begun), why, &mut Attempts::new(hurried), call, sink);
    }

    /// Makes a call again at other members, if it did not run for a reason that lies with the member.
    #[cold]
    fn go_on_after(
        &self,
        (mut choices, mut which, mut begun): (Arc<[Choice]>, usize, Time),
        mut failure: CallFailed,
        attempts: &mut Attempts,
        call: &Call<'_>,
        sink: Sink<'_>,
    ) {
        // The items of a stream are sent once.
        while call.sending.is_none()
            && attempts.may_go_on(
                &self.shared,
                (&choices, which),
                &failure,
                (begun, call.within, call.procedure),
            )
        {
            let mut next = self.attempt(self.shared.list.get(), attempts, call, sink);
            if next.is_err() && attempts.may_try_former(&self.shared, &failure, call.procedure) {
                next = self.attempt(self.shared.list.get(), attempts, call, sink);
            }
            if next.is_err() && attempts.may_begin_again() {
                next = self.attempt(self.shared.list.get(), attempts, call, sink);
            }
            match next {
                Ok(None) => return,
                Ok(Some((at, why))) => ((choices, which, begun), failure) = (at, why),
                Err(_) => break,
            }
        }
        sink(Reply::Failed(attempts.of_all(failure)));
    }

    /// Makes an attempt of a call. Returns how it has failed, and at which member.
    ///
    /// # Errors
    /// When there is no other member.
    fn attempt(
        &self,
        mut choices: Arc<[Choice]>,
        attempts: &mut Attempts,
        call: &Call<'_>,
        sink: Sink<'_>,
    ) -> Result<Option<(At, CallFailed)>, CallFailed> {
        let shared = &self.shared;
        let asked = shared.env.now();
        let within = attempts.within(call.within, asked);
        let (which, begun) = shared.choose(&mut choices, self.policy, (asked, within), &attempts.met)?;
        let within = attempts.began(within, asked, begun);
        let hurries = call.sending.is_none() && attempts.may_hurry(shared, &choices, within);
        let failed = shared.call_at((&choices, which), begun, &Call { within, hurries, ..*call }, sink);
        Ok(failed.map(|why| ((choices, which, begun), why)))
    }

    /// Returns the channel of a member, for what does not depend on the member.
    fn any(&self) -> Option<Arc<dyn Channel>> {
        self.shared.list.get().first().map(|choice| choice.channel().clone())
    }
}

/// The members that a call could go to, the index of the one to which it went, and when.
type At = (Arc<[Choice]>, usize, Time);

impl Channel for Balanced {
    /// Makes the call. If it did not run for a reason that lies with the member, it goes to another one.
    fn call(&self, mut call: Call<'_>, sink: Sink<'_>) {
        // No member is to blame for a call that is made too late.
        call.within = match call.time_left(&*self.shared.env) {
            Ok(within) => within,
            Err(why) => return sink(Reply::Failed(why)),
        };
        match self.shared.list.first() {
            Some(choices) => match &choices[..] {
                // There is nothing to choose from one member.
                [_] if !self.shared.is_due() => self.call_only(choices, &call, sink),
                [_] => self.call_present(true, &call, sink),
                _ => self.call_one_of(choices, &call, sink),
            },
            None => self.call_present(self.shared.is_due(), &call, sink),
        }
    }

    fn start(&self, mut call: Call<'_>) -> Box<dyn PendingCall> {
        call.within = match call.time_left(&*self.shared.env) {
            Ok(within) => within,
            Err(why) => return Box::new(why),
        };
        match Started::start((&self.shared, self.policy), &call, |channel, call| channel.start(call)) {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(why),
        }
    }

    fn start_at(
        &self,
        mut call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        call.within = match call.time_left(&*self.shared.env) {
            Ok(within) => within,
            Err(why) => {
                ready.token(member).mark_ready();
                return Box::new(why);
            }
        };
        match Started::start((&self.shared, self.policy), &call, |channel, call| {
            channel.start_at(call, wait_point, ready, member)
        }) {
            Ok(started) => Box::new(started),
            Err(why) => {
                ready.token(member).mark_ready();
                Box::new(why)
            }
        }
    }

    /// Returns whether all members are known to have another procedure, or none, under this number.
    fn lacks(&self, procedure: u32) -> bool {
        let choices = self.shared.list.get();
        !choices.is_empty() && choices.iter().all(|choice| choice.channel().lacks(procedure))
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
        let choices = self.shared.list.get();
        let is_local = |choice: &Choice| choice.channel().carried_by() == CarriedBy::Caller;
        match !choices.is_empty() && choices.iter().all(is_local) {
            true => CarriedBy::Caller,
            false => CarriedBy::Blocking,
        }
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        match self.any() {
            Some(channel) => channel.wait_point(),
            None => Arc::new(Parking::new(self.shared.env.clone())),
        }
    }
}
