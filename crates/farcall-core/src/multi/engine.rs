//! Calls the members, as many at once as their replies have room, and takes the replies in as they come.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::few::Few;
use super::outcome::Outcome;
use super::prepared::{Hedge, Prepared, Rest, Settings};
use crate::env::Time;
use crate::stub::{Members, PendingCall, Reply, bad_arguments, decode_reply, no_reply};
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::Decode;
use crate::{CallFailed, Ran, Result, System, self_wait};

/// While calls are sent, what has arrived is taken in after so many (the paper's section V-A: replies that nobody
/// took in while it still sent were lost).
const BURST: usize = 8;

/// Replies that are taken in before they are looked at, if the caller needs as many. More than that take longer to come
/// than a short rest is.
const TOGETHER: usize = 32;

/// What the smallest reply takes of a socket's buffer, in bytes: the kernel counts its own book-keeping too.
const SMALLEST: usize = 1024;

/// A multiple call under way.
pub(super) struct Engine<T, E> {
    members: Members,
    prepared: Few<Prepared<T, E>>,
    /// The calls that have not ended, at their members' places.
    calls: Vec<Option<Box<dyn PendingCall>>>,
    ready: ReadyList,
    wait_point: Arc<dyn WaitPoint>,
    /// How many members were called, in their order, and how many of those calls have not ended.
    called: usize,
    out: usize,
    /// Calls before that place have ended.
    given_up: usize,
    /// What the largest reply so far takes of a socket's buffer, and how much there is of that; bytes.
    largest: usize,
    room: usize,
    until: Option<Time>,
    rest: Rest,
    /// When the next member is called.
    hedge: Option<(Hedge, Time)>,
    /// A task awaits the replies, no longer than that: this thread serves nothing.
    awaited: Option<Awaited>,
}

#[derive(Clone, Copy)]
struct Awaited {
    within: Option<Duration>,
}

impl<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Engine<T, E> {
    pub(super) fn new(members: Members, prepared: Few<Prepared<T, E>>, settings: &Settings<T, E>) -> Self {
        let wait_point = match members.first() {
            Some(member) => member.binding().channel().wait_point(),
            None => Arc::new(Parking::new(Arc::new(System))),
        };
        let now = (settings.within.is_some() || settings.hedge.is_some()).then(|| wait_point.now());
        Engine {
            calls: (0..members.len()).map(|_| None).collect(),
            ready: ReadyList::default(),
            called: 0,
            out: 0,
            given_up: 0,
            largest: SMALLEST,
            room: wait_point.room(),
            until: now.zip(settings.within).map(|(now, within)| now + within),
            rest: settings.rest.unwrap_or(Rest::Cancel),
            hedge: settings.hedge.zip(now),
            awaited: None,
            wait_point,
            members,
            prepared,
        }
    }

    /// The next reply, whoever gives it; none when all have, or the time is up. The caller has no use for fewer than
    /// `needed` of them: several are taken in before it is woken for the first.
    pub(super) fn next(&mut self, needed: usize) -> Option<(usize, Result<T, E>)> {
        let (mut burst, mut rested) = (0, false);
        loop {
            if let Some(reply) = self.take() {
                return Some(reply);
            }
            if self.is_late() {
                return None;
            }
            if self.may_call() {
                self.call_next();
                burst += 1;
                if burst % BURST == 0 {
                    // Where this thread must not wait, that is found out when it has to.
                    let _ = self.wait_point.look();
                }
                continue;
            }
            if self.out == 0 {
                return None;
            }
            if needed.min(self.out) > TOGETHER && !rested {
                self.wait_point.rest();
                let _ = self.wait_point.look();
                rested = true;
                continue;
            }
            let enough =
                if self.called == self.members.len() { needed.min(self.out).min(TOGETHER) } else { 1 };
            let stuck = || self.calls.iter().flatten().all(|call| call.waits_for_itself());
            if let Err(why) = self_wait::wait(&*self.wait_point, (&self.ready, enough), self.wake_at(), stuck)
            {
                return self.give_up(&why);
            }
        }
    }

    /// Gives the next reply to a task, or has it woken when there may be one.
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
            if self.out == 0 {
                return Poll::Ready(None);
            }
            self.ready.wake_by(context.waker());
            if !self.ready.any() {
                return Poll::Pending;
            }
        }
    }

    /// The replies are awaited by a task. It has no timer, so the time is each call's deadline.
    pub(super) fn await_within(&mut self, within: Option<Duration>) {
        self.awaited = Some(Awaited { within });
    }

    pub(super) fn rest(&mut self, rest: Rest) {
        self.rest = rest;
    }

    /// Has the next member called now, if it may be. Says whether there is one after that.
    pub(super) fn hurry(&mut self) -> bool {
        let Some((hedge, next)) = &mut self.hedge else { return false };
        *next = self.wait_point.now();
        self.called + 1 < hedge.at_most.min(self.members.len())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.out
    }

    /// Calls as many members as may be called now.
    pub(super) fn call_some(&mut self) {
        while self.may_call() {
            self.call_next();
        }
    }

    /// Abandons what has not ended, and says so. If the rest is to finish, those are called too that were not yet.
    pub(super) fn stop<V, X>(&mut self, outcomes: &mut [Outcome<V, X>]) {
        while self.rest == Rest::Finish && self.hedge.is_none() && self.called < self.members.len() {
            self.call_next();
        }
        if self.out == 0 {
            return;
        }
        for (call, outcome) in self.calls.iter_mut().zip(outcomes) {
            if let Some(call) = call.take() {
                *outcome = Outcome::Abandoned(Ran::Maybe);
                abandon(call, self.rest);
            }
        }
        self.out = 0;
    }

    /// The reply of a call that has ended.
    fn take(&mut self) -> Option<(usize, Result<T, E>)> {
        while let Some(member) = self.ready.take() {
            let index = member as usize;
            let Some(call) = &mut self.calls[index] else { continue };
            let (mut result, mut size) = (None, 0);
            let sink = &mut |reply: Reply<'_>| {
                size = reply.len();
                result = Some(decode_reply(reply));
            };
            let polled = match self.awaited {
                None => call.poll_at(&self.wait_point, &self.ready, member, sink),
                // Nobody serves a wait_point for a task.
                Some(_) => {
                    let waker = Waker::from(Arc::new(self.ready.token(member)));
                    call.poll(&mut Context::from_waker(&waker), sink)
                }
            };
            if polled.is_pending() {
                continue;
            }
            self.calls[index] = None;
            self.out -= 1;
            self.largest = self.largest.max(size + SMALLEST);
            if let Some((_, next)) = &mut self.hedge {
                // Who asks for more was not content with this one.
                *next = self.wait_point.now();
            }
            return Some((index, result.unwrap_or_else(|| Err(no_reply().into()))));
        }
        None
    }

    fn may_call(&self) -> bool {
        if self.called == self.members.len() {
            return false;
        }
        match self.hedge {
            Some((hedge, next)) => self.called < hedge.at_most && next <= self.wait_point.now(),
            None => self.out == 0 || self.out.saturating_mul(self.largest) < self.room,
        }
    }

    fn call_next(&mut self) {
        let index = self.called;
        self.called += 1;
        self.out += 1;
        if let Some((hedge, next)) = &mut self.hedge {
            *next = self.wait_point.now() + hedge.after;
        }
        let Some(prepared) = self.prepared.get(index).or(self.prepared.last()) else { return };
        let (binding, member) = (self.members[index].binding(), index as u32);
        self.calls[index] = Some(match &prepared.arguments {
            Ok(arguments) => match self.awaited {
                None => binding.gather(&prepared.procedure, arguments, &self.wait_point, &self.ready, member),
                Some(Awaited { within }) => {
                    self.ready.token(member).mark_ready();
                    binding.start_encoded(&prepared.procedure, arguments, within)
                }
            },
            Err(why) => {
                self.ready.token(member).mark_ready();
                Box::new(bad_arguments(why.clone()))
            }
        });
    }

    /// When to look again though nothing has come.
    fn wake_at(&self) -> Option<Time> {
        let next = self.hedge.filter(|(hedge, _)| self.called < hedge.at_most.min(self.members.len()));
        [self.until, next.map(|(_, next)| next)].into_iter().flatten().min()
    }

    /// Whether the time is up, and nothing has arrived before.
    fn is_late(&self) -> bool {
        if self.until.is_none_or(|until| self.wait_point.now() < until) {
            return false;
        }
        let _ = self.wait_point.look();
        !self.ready.any()
    }

    /// Ends a call that this thread must not wait for.
    fn give_up(&mut self, why: &CallFailed) -> Option<(usize, Result<T, E>)> {
        let index = (self.given_up..self.called).find(|&index| self.calls[index].is_some())?;
        self.given_up = index;
        if let Some(call) = self.calls[index].take() {
            abandon(call, self.rest);
        }
        self.out -= 1;
        Some((index, Err(why.clone().but_ran(Ran::Maybe).into())))
    }
}

fn abandon(call: Box<dyn PendingCall>, rest: Rest) {
    match rest {
        // Whose drop cancels it.
        Rest::Cancel => drop(call),
        Rest::Finish => call.detach_later(),
    }
}

/// Calls that nobody asks for any more are abandoned, as was said.
impl<T, E> Drop for Engine<T, E> {
    fn drop(&mut self) {
        self.calls.iter_mut().filter_map(Option::take).for_each(|call| abandon(call, self.rest));
    }
}
