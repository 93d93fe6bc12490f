//! The server's queue of calls that wait for a worker, or until their clients have fetched other results. It
//! is bounded, and fair between hosts and between callers of a host.

use std::time::Duration;

use farcall_proto::server::CallKey;
use farcall_proto::{Failure, Kind, Ran, Time};

use super::call::Work;
use super::payer::{Caller, Payer};
use crate::fair::{FairQueue, Waits};
use crate::workers::Pace;

/// The waiting calls. A call is *held* while its conversation's earlier results take up the room for its own.
pub(super) struct Queue(FairQueue<Work>);

impl Waits for Work {
    type Payer = Payer;
    type Caller = Caller;
    type Key = CallKey;

    fn key(&self) -> CallKey {
        self.call.key
    }

    fn payer(&self) -> Payer {
        match self.back {
            Some(_) => Payer::User,
            None => Payer::at(&self.call.from),
        }
    }

    fn caller(&self) -> Caller {
        match &self.back {
            Some(back) => back.caller(),
            None => Caller::Conversation(self.call.key.conversation),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Queue {
    pub(super) fn new(most: usize, most_bytes: usize) -> Queue {
        Queue(FairQueue::new(most, most_bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether any call is held.
    pub(super) fn holds_any(&self) -> bool {
        self.0.holds_any()
    }

    pub(super) fn holds(&self, conversation: u64) -> bool {
        self.0.holds(Caller::Conversation(conversation))
    }

    /// Adds a call, which may be held. Returns the calls for which there is no room.
    #[must_use]
    pub(super) fn push(&mut self, work: Work, held: bool) -> Vec<Work> {
        self.0.push(work, held)
    }

    /// Adds a call that does not wait, because a worker for it is on its way.
    pub(super) fn pass(&mut self, work: Work) {
        self.0.add(work);
    }

    /// Returns the pace of the next call, in turn, that `may` lets begin.
    pub(super) fn next_pace(&mut self, may: impl FnMut(&Work) -> bool) -> Option<Pace> {
        if self.0.turn_to(usize::MAX, may) { Some(self.0.front()?.pace()) } else { None }
    }

    /// Takes out a call that has waited for a worker for `time`, if there is one. Held calls do not count:
    /// they wait for their own clients.
    pub(super) fn pop_late(&mut self, now: Time, time: Duration) -> Option<Work> {
        let oldest = self.0.firsts().min_by_key(|work| work.arrived())?;
        let late = Some(oldest).filter(|work| now.since(work.arrived()) >= time)?;
        let (caller, key) = (late.caller(), late.call.key);
        self.0.remove(caller, key)
    }

    /// Returns the failure of a call for which the queue has no room.
    pub(super) fn full(&self) -> Failure {
        let why = match self.0.is_full() {
            false => format!("{} bytes of arguments wait for a worker (FARCALL_QUEUE_BYTES)", self.0.bytes()),
            true => format!("{} calls wait for a worker (FARCALL_QUEUE)", self.0.len()),
        };
        Failure::new(Kind::Overloaded, Ran::No).with_detail(why)
    }

    /// Lets the held calls of a conversation that `may` accepts wait for a worker. Returns whether there are
    /// any.
    pub(super) fn admit(&mut self, conversation: u64, may: impl FnMut(&Work) -> bool) -> bool {
        self.0.admit(Caller::Conversation(conversation), may)
    }

    /// Takes out the next call, in turn, that `may` lets begin.
    pub(super) fn pop(&mut self, may: impl FnMut(&Work) -> bool) -> Option<Work> {
        if self.0.turn_to(usize::MAX, may) { self.0.pop() } else { None }
    }

    /// Gives a call back its place at the head.
    pub(super) fn unpop(&mut self, work: Work) {
        self.0.put_back(work);
    }

    /// Takes out a call that its caller has given up.
    pub(super) fn remove(&mut self, caller: Caller, key: CallKey) -> Option<Work> {
        self.0.remove(caller, key)
    }
}
