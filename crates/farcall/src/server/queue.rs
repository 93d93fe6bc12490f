//! The server's queue of calls. A call in the queue waits for a worker, or until its client has fetched the
//! results of other calls. The queue is bounded, and fair between networks, hosts and callers.

use std::time::Duration;

use farcall_proto::server::CallKey;
use farcall_proto::{Failure, Kind, Ran, Time};

use super::call::Work;
use super::caller::Caller;
use crate::fair::{FairQueue, Waits};
use crate::host::Host;

/// The waiting and the held calls. A call is *held* while the results of its conversation's earlier calls
/// take up the space for its own result.
pub(super) type Queue = FairQueue<Work>;

impl Waits for Work {
    type Caller = Caller;
    type Key = CallKey;

    fn key(&self) -> CallKey {
        self.call.key
    }

    fn payer(&self) -> Host {
        match self.back {
            // Only calls through shared memory have `back`, and only processes of this user may make them.
            Some(_) => Host::User(None),
            None => Host::at(self.call.from.ip()),
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

/// Removes and returns the call that has waited longest for a worker, if it has waited for at least `time`.
/// Ignores held calls, because they wait for their own clients. Of calls that came at one moment, the
/// smallest key decides, not the order of a map.
pub(super) fn pop_late(queue: &mut Queue, now: Time, time: Duration) -> Option<Work> {
    let oldest = queue.firsts().min_by_key(|work| (work.arrived, work.call.key))?;
    let late = Some(oldest).filter(|work| now.since(work.arrived) >= time)?;
    let (caller, key) = (late.caller(), late.call.key);
    queue.remove(caller, key)
}

/// Returns the failure of a call for which the queue has no room.
pub(super) fn full(queue: &Queue) -> Failure {
    let why = match queue.is_full() {
        false => format!("{} bytes of arguments wait for a worker (FARCALL_QUEUE_BYTES)", queue.bytes()),
        true => format!("{} calls wait for a worker (FARCALL_QUEUE)", queue.len()),
    };
    Failure::new(Kind::Overloaded, Ran::No).with_detail(why)
}
