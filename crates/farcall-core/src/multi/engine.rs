//! Makes the calls of a group call and receives the replies. It makes no more calls at a time than their
//! replies have room for.
//!
//! [`Multi`](super::Multi) drives it for a blocking thread, [`Gathering`](super::Gathering) also for a task.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::inline_vec::InlineVec;
use super::outcomes::Outcome;
use super::prepared::{Hedge, Prepared, Rest, Settings};
use super::window::Window;
use crate::broken::{Mutant, Rule};
use crate::env::Time;
use crate::env::{breaks, mutant};
use crate::stub::{Members, PendingCall, Reply, bad_arguments, decode_reply, no_reply, parking};
use crate::wait::{ReadyList, SteppedAway, WaitPoint};
use crate::xdr::Decode;
use crate::{CallFailed, Ran, Result, self_wait};

/// How many calls the engine sends before it receives the replies that have arrived. A caller that only sends
/// loses replies when the socket's buffer is full (Satyanarayanan & Siegel 1990, section V-A).
const CALLS_PER_LOOK: usize = 8;

/// How many replies a wait collects at most before it ends.
const MAX_REPLIES_PER_WAIT: usize = 32;

/// A group call under way.
pub(super) struct Engine<T, E> {
    members: Members,
    prepared: InlineVec<Prepared<T, E>>,
    /// The calls that have not ended, each at its member's index.
    calls: Vec<Option<Box<dyn PendingCall>>>,
    ready: ReadyList,
    wait_point: Arc<dyn WaitPoint>,
    caller: Caller,
    /// How many members were called. They are called in their order.
    called: usize,
    /// How many of the calls have not ended.
    outstanding: usize,
    /// All calls before this index have ended.
    ended_before: usize,
    window: Window,
    until: Option<Time>,
    rest: Rest,
    /// Whether arguments are streams, which the thread sends that waits for the replies.
    sends: bool,
    /// For a hedged call, which calls one member after another while none replies: when the next member is
    /// called.
    hedge: Option<(Hedge, Time)>,
    /// When the task is woken to look whether there is room for further calls.
    alarm: Option<Time>,
}

/// The thread or the task that waits for the replies.
#[derive(Clone, Copy)]
enum Caller {
    /// A thread, which receives at the wait point.
    Thread,
    /// A task. It does not receive and has no timer, so `within` is the deadline of each call.
    Task { within: Option<Duration> },
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Engine<T, E> {
    /// Returns the engine of a call that a thread waits for. No member is called yet.
    pub(super) fn new(
        members: Members,
        prepared: InlineVec<Prepared<T, E>>,
        settings: &Settings<T, E>,
    ) -> Self {
        // The time that it takes to bind members counts, too.
        let begun = settings.within.and_then(|_| Some(members.first()?.binding().channel().env().now()));
        let until = begun.zip(settings.within).map(|(begun, within)| begun + within);
        members.join(settings.within.map_or(Members::JOIN_TIME, |within| Members::JOIN_TIME.min(within / 4)));
        let wait_point =
            members.first().map_or_else(parking, |member| member.binding().channel().wait_point());
        let now = settings.hedge.map(|_| wait_point.now());
        let broken =
            members.first().map_or(Mutant::NONE, |member| mutant(|| member.binding().channel().env()));
        Engine {
            calls: (0..members.len()).map(|_| None).collect(),
            ready: ReadyList::default(),
            caller: Caller::Thread,
            called: 0,
            outstanding: 0,
            ended_before: 0,
            window: Window::new(wait_point.room(), wait_point.shared_path(), broken),
            until,
            rest: settings.rest.unwrap_or(Rest::Cancel),
            sends: prepared.iter().any(|prepared| prepared.sending.is_some()),
            hedge: settings.hedge.zip(now),
            alarm: None,
            wait_point,
            members,
            prepared,
        }
    }

    /// Makes this the group call of a task, and calls as many members as replies have room for.
    pub(super) fn start_for_task(&mut self, within: Option<Duration>) {
        self.caller = Caller::Task { within };
        while self.may_call() {
            self.call_next();
        }
    }

    /// Blocks until a member has replied, and returns its index and its reply. Returns `None` when all
    /// members have replied or the time is up. The caller needs `needed` more replies before it can stop, so
    /// the engine may collect several of them before it returns the first.
    pub(super) fn next(&mut self, needed: usize) -> Option<(usize, Result<T, E>)> {
        let mut calls = 0;
        // What gives the items of a stream is the user's code, which may take long.
        let _away = self.sends.then(|| SteppedAway::from_point(&self.wait_point));
        loop {
            if let Some(reply) = self.take() {
                return Some(reply);
            }
            if self.is_late() {
                return None;
            }
            if self.may_call() {
                self.call_next();
                calls += 1;
                if calls % CALLS_PER_LOOK == 0 {
                    // The error is ignored here. A thread that must not receive at this wait point gets the
                    // error when it has to wait.
                    let _ = self.wait_point.look();
                }
                continue;
            }
            if self.outstanding == 0 {
                return None;
            }
            let needed = needed.min(self.outstanding).min(MAX_REPLIES_PER_WAIT);
            // While members wait to be called, room that becomes free is used soon.
            let soon = (self.window.size() / 4).clamp(1, CALLS_PER_LOOK);
            let enough = if self.called == self.members.len() { needed } else { needed.min(soon) };
            let stuck = || self.calls.iter().flatten().all(|call| call.waits_for_itself());
            if let Err(why) = self_wait::wait(&*self.wait_point, (&self.ready, enough), self.wake_at(), stuck)
            {
                return self.give_up(&why);
            }
        }
    }

    /// Returns the next reply to a task, or arranges that the task is woken when there may be one. Returns
    /// `None` when all members have replied or the time is up.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T, E>)>> {
        loop {
            if let Some(reply) = self.take() {
                return Poll::Ready(Some(reply));
            }
            if self.is_late() {
                return Poll::Ready(None);
            }
            if self.may_call() {
                self.call_next();
                continue;
            }
            if self.outstanding == 0 {
                return Poll::Ready(None);
            }
            self.ready.wake_by(context.waker());
            if self.ready.any() {
                continue;
            }
            if self.will_look() {
                return Poll::Pending;
            }
            // Nothing can wake the task when there is room, so it does not wait for room.
            self.window.release(self.called, |index| self.calls[index].is_some());
        }
    }

    /// Makes sure that the task is woken when calls that are out hold no more room, if members wait to be
    /// called. Returns false if nothing can wake it.
    fn will_look(&mut self) -> bool {
        let Some(at) = self.window.look_at().filter(|_| self.called < self.members.len()) else {
            return true;
        };
        // One alarm is enough. If it is early, because replies have come meanwhile, it is set again.
        let now = self.wait_point.now();
        if self.alarm.is_some_and(|alarm| alarm > now) {
            return true;
        }
        // The list of ready calls knows which task waits now. No call has this index yet.
        let waker = Waker::from(Arc::new(self.ready.token(self.called as u32)));
        let is_set = self.members[self.called].binding().channel().wake_at(at, &waker);
        self.alarm = is_set.then_some(at);
        is_set
    }

    /// Sets what is to happen, when the caller stops, to calls that have not ended.
    pub(super) fn set_rest(&mut self, rest: Rest) {
        self.rest = rest;
    }

    /// Ends the pause of a hedged call: the next member is called at the next poll. Returns whether a further
    /// member can be called after that one.
    pub(super) fn end_pause(&mut self) -> bool {
        let Some((hedge, next)) = &mut self.hedge else { return false };
        *next = self.wait_point.now();
        self.called + 1 < hedge.at_most.min(self.members.len())
    }

    /// Returns a guard that exists while the user's code runs, which may take long. Meanwhile the runtime
    /// looks after the calls that have not ended, as it does for started calls. A task has only such calls.
    pub(super) fn step_away(&self) -> Option<SteppedAway> {
        let env = || self.members[0].binding().channel().env();
        let goes_on = self.outstanding > 0 && !breaks(Rule::ProbingGoesOn, env);
        goes_on.then(|| SteppedAway::from_point(&self.wait_point))
    }

    /// Returns how many of the calls have not ended.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Stops waiting for the calls that have not ended, and records that in `outcomes`. With
    /// [`Rest::Finish`], members that were not called yet are called first.
    pub(super) fn stop<V, X>(&mut self, outcomes: &mut [Outcome<V, X>]) {
        while self.rest == Rest::Finish && self.hedge.is_none() && self.called < self.members.len() {
            self.call_next();
        }
        if self.outstanding == 0 {
            return;
        }
        let is_late = self.until.is_some_and(|until| self.wait_point.now() >= until);
        for ((call, outcome), member) in self.calls.iter_mut().zip(outcomes).zip(self.members.iter()) {
            if let Some(call) = call.take() {
                *outcome = Outcome::Abandoned(Ran::Maybe);
                if is_late {
                    member.binding().channel().suspect();
                }
                leave(call, self.rest);
            }
        }
        self.outstanding = 0;
    }

    /// Takes the reply of a call that has ended, if there is one.
    fn take(&mut self) -> Option<(usize, Result<T, E>)> {
        while let Some(member) = self.ready.take() {
            let index = member as usize;
            let Some(call) = &mut self.calls[index] else { continue };
            let (mut result, mut size) = (None, None);
            let sink = &mut |reply: Reply<'_>| {
                size = reply.len();
                result = Some(decode_reply(reply));
            };
            let polled = match self.caller {
                Caller::Thread => call.poll_at(&self.wait_point, &self.ready, member, sink),
                // A task does not receive at the wait point, so the call is polled with a waker.
                Caller::Task { .. } => {
                    let waker = Waker::from(Arc::new(self.ready.token(member)));
                    call.poll(&mut Context::from_waker(&waker), sink)
                }
            };
            if polled.is_pending() {
                continue;
            }
            self.calls[index] = None;
            self.outstanding -= 1;
            let is_out = |index: usize| self.calls[index].is_some();
            self.window.remove((index, size), self.called, is_out, || self.wait_point.now());
            if let Some((_, next)) = &mut self.hedge {
                // The caller asks for another reply only if this one does not count, so the next member is
                // called at once.
                *next = self.wait_point.now();
            }
            return Some((index, result.unwrap_or_else(|| Err(no_reply().into()))));
        }
        None
    }

    #[inline]
    fn may_call(&mut self) -> bool {
        if self.called == self.members.len() {
            return false;
        }
        match self.hedge {
            Some((hedge, next)) => self.called < hedge.at_most && next <= self.wait_point.now(),
            None => {
                let is_out = |index: usize| self.calls[index].is_some();
                self.window.has_room(self.called, is_out, || self.wait_point.now())
            }
        }
    }

    /// Calls the next member.
    fn call_next(&mut self) {
        let index = self.called;
        self.called += 1;
        if self.prepared.get(index).is_some_and(|prepared| prepared.omitted) {
            return;
        }
        self.outstanding += 1;
        self.window.add(index, || self.wait_point.now());
        if let Some((hedge, next)) = &mut self.hedge {
            *next = self.wait_point.now() + hedge.after;
        }
        let Some(prepared) = self.prepared.get(index).or(self.prepared.last()) else { return };
        let (binding, member) = (self.members[index].binding(), index as u32);
        if let Some(why) = binding.channel().silence() {
            self.ready.token(member).mark_ready();
            self.calls[index] = Some(Box::new(why));
            return;
        }
        let sending = prepared.sending.as_ref();
        let call = match (&prepared.arguments, self.caller) {
            (Ok(arguments), Caller::Thread) => {
                let arguments = (arguments.get(), sending);
                binding.gather(&prepared.procedure, arguments, &self.wait_point, &self.ready, member)
            }
            (Ok(arguments), Caller::Task { within }) => {
                self.ready.token(member).mark_ready();
                binding.start_encoded(&prepared.procedure, (arguments.get(), sending), within)
            }
            (Err(why), _) => {
                self.ready.token(member).mark_ready();
                Box::new(bad_arguments(why.clone()))
            }
        };
        self.calls[index] = Some(call);
    }

    /// Returns when the thread must wake even though no reply has come.
    fn wake_at(&self) -> Option<Time> {
        let next = self.hedge.filter(|(hedge, _)| self.called < hedge.at_most.min(self.members.len()));
        let room = self.window.look_at().filter(|_| self.called < self.members.len());
        [self.until, next.map(|(_, next)| next), room].into_iter().flatten().min()
    }

    /// Returns whether the time is up. Replies that have arrived by then still count.
    fn is_late(&self) -> bool {
        if self.until.is_none_or(|until| self.wait_point.now() < until) {
            return false;
        }
        let _ = self.wait_point.look();
        !self.ready.any()
    }

    /// Ends one call, because this thread must not wait for it, and returns the failure as its reply.
    fn give_up(&mut self, why: &CallFailed) -> Option<(usize, Result<T, E>)> {
        let index = (self.ended_before..self.called).find(|&index| self.calls[index].is_some())?;
        self.ended_before = index;
        if let Some(call) = self.calls[index].take() {
            leave(call, self.rest);
        }
        self.outstanding -= 1;
        let is_out = |index: usize| self.calls[index].is_some();
        self.window.remove((index, None), self.called, is_out, || self.wait_point.now());
        Some((index, Err(why.clone().but_ran(Ran::Maybe).into())))
    }
}

/// Stops waiting for a call: cancels it, or lets it run.
fn leave(call: Box<dyn PendingCall>, rest: Rest) {
    match rest {
        // Dropping the call cancels it.
        Rest::Cancel => drop(call),
        Rest::Finish => call.detach_later(),
    }
}

impl<T, E> Drop for Engine<T, E> {
    fn drop(&mut self) {
        self.calls.iter_mut().filter_map(Option::take).for_each(|call| leave(call, self.rest));
    }
}
