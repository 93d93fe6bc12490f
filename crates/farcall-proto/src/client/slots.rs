//! The pool of activities: which are free, what the call of each is doing, and in what order the calls began.
//!
//! The activity that was used last is used again first. So a client that never has two outstanding calls
//! needs only one activity.
//!
//! An activity is a numbered slot of a conversation; in it, the client makes one call after the other. The
//! server remembers the number of each activity's last call.

use std::sync::Arc;
use std::time::Duration;

use farcall_base::SharedArguments;

use super::inside::Inside;
use super::{Call, CallId, Margin};
use crate::path::Counted;
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{CallHead, Meta, Position, Status};
use crate::{Ran, Time, address};

const NONE: u32 = u32::MAX;

/// The value of `first_sent` if a call was sent at an unknown time.
pub(super) const UNKNOWN: Time = Time::from_nanos(0);

/// The stage of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// No call: the activity is in the pool.
    #[default]
    Free,
    /// The call is being sent or was sent, and the server has not said that it has all of it.
    Sending,
    /// The server has the call.
    Running,
    /// The caller has given the call up. `told` says that the caller has been told how the call ended, and
    /// nothing more is reported.
    Cancelling { told: bool },
}

/// What an activity has to send, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Want(u8);

impl Want {
    pub const NONE: Want = Want(0);
    /// The call, or the next of its fragments.
    pub const CALL: Want = Want(1);
    pub const PROBE: Want = Want(2);
    pub const CANCEL: Want = Want(4);
    /// A SELECT that says which parts of the result have arrived.
    pub const SELECT: Want = Want(8);
    /// A SELECT that says which parts of the result have arrived, and asks for the rest because nothing more
    /// comes.
    pub const PULL: Want = Want(16);
    /// Frames of exchanges.
    pub const DATA: Want = Want(32);
    /// Nothing yet: the call waits for room in the congestion window, or has just got it.
    pub const HELD: Want = Want(64);

    #[inline]
    pub fn add(&mut self, other: Want) {
        self.0 |= other.0;
    }

    #[inline]
    pub fn take(&mut self, other: Want) {
        self.0 &= !other.0;
    }

    pub fn has(self, other: Want) -> bool {
        self.0 & other.0 != 0
    }
}

/// One activity.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub sequence: u64,
    pub call: Call,
    pub stage: Stage,
    pub wants: Want,
    /// Whether no caller waits for the call's end, but the call goes on.
    pub detached: bool,
    /// Whether the activity is in the queue of activities that have something to send.
    queued: bool,
    /// The next activity in that queue.
    next_ready: u32,
    /// Whether the call waits for room in the congestion window.
    pub waiting: bool,
    /// The number of bytes of the arguments, which is asked for more often than the arguments.
    pub argument_bytes: u32,
    /// With how many bytes a call that fits a datagram counts as under way.
    pub counted: Counted,
    /// With how many it counted when it was answered, if it was sent more than once.
    pub doubted: u32,
    /// The arguments, if `shared` has none; otherwise an empty buffer.
    pub args: Vec<u8>,
    /// The arguments, if other calls share them.
    pub shared: Option<Arc<SharedArguments>>,
    /// The fragments of the arguments, if there is more than one.
    pub sending: Option<Box<Outgoing>>,
    /// The fragments of the result, if there is more than one, and the status that the result has.
    pub receiving: Option<Box<(Status, Incoming)>>,
    /// The call's exchanges (signals and streams), if it has any.
    pub inside: Option<Box<Inside>>,
    pub timing: Timing,
    prev: u32,
    next: u32,
}

/// When a call was sent and answered. Only `first_sent` and `margin` have a meaning before the call was first
/// sent, and `heard` if it waits for room in the congestion window: since when.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pub first_sent: Option<Time>,
    /// How long before the deadline the call must have begun.
    pub margin: Margin,
    /// Whether something about this call has come from the server, which then knows the call and may execute
    /// it.
    pub mentioned: bool,
    /// Whether the call was sent only once and in one datagram, so that its answer measures a round trip.
    pub timed: bool,
    /// When to send again, or to probe.
    pub due: Time,
    /// The time to the next try, in nanoseconds.
    pub interval: u64,
    /// The time between probes that are answered, in nanoseconds.
    pub calm: u64,
    /// Retransmissions and probes since something about this call last came from the server, or since the
    /// call began.
    pub unanswered: u32,
    /// When something about this call last came from the server.
    pub heard: Time,
    /// When the client last asked about the call because nothing came. A time before `first_sent` is that of
    /// an earlier call.
    pub reminded: Time,
    /// The number of consecutive answers that reported no new arrival, although something was sent.
    pub stalled: u32,
}

/// Every activity of a conversation.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// The first activity in the pool. Each activity in the pool links to another by `next`.
    free: u32,
    /// The number of activities outside the pool, which is the number of calls that have not ended.
    pub outstanding: usize,
    oldest: u32,
    newest: u32,
    /// The first and the last activity in the queue of activities that have something to send.
    first_ready: u32,
    last_ready: u32,
    /// The number of activities in that queue.
    pub queued: usize,
    /// The number of the next call.
    pub next_sequence: u64,
    /// The newest call that has ended. Newer calls are expected to end soon. An older call that has not ended
    /// is a slow one.
    pub newest_ended: u64,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots {
            all: Vec::new(),
            free: NONE,
            outstanding: 0,
            oldest: NONE,
            newest: NONE,
            first_ready: NONE,
            last_ready: NONE,
            queued: 0,
            next_sequence: 1,
            newest_ended: 0,
        }
    }
}

impl Slots {
    /// Adds an activity. Reserves memory for just one at first, because most conversations need only one.
    #[cold]
    #[inline(never)]
    fn add(&mut self, call: Call) {
        if self.all.is_empty() {
            self.all.reserve_exact(1);
        }
        self.free = self.all.len() as u32;
        self.all.push(Slot { call, next_ready: NONE, prev: NONE, next: NONE, ..Slot::default() });
    }

    /// Assigns an activity to a call, and queues the activity for sending. Takes the arguments, and leaves
    /// the buffer of earlier ones in their place.
    #[inline(always)]
    pub fn open(&mut self, sequence: u64, call: &Call, args: &mut Vec<u8>) -> u32 {
        if self.free == NONE {
            self.add(*call);
        }
        let activity = self.free;
        let slot = &mut self.all[activity as usize];
        self.outstanding += 1;
        let prev = std::mem::replace(&mut self.newest, activity);
        slot.sequence = sequence;
        slot.call = *call;
        slot.stage = Stage::Sending;
        slot.wants = Want::CALL;
        slot.detached = false;
        slot.timing.margin = Margin::default();
        slot.argument_bytes = args.len() as u32;
        std::mem::swap(&mut slot.args, args);
        slot.timing.first_sent = None;
        slot.prev = prev;
        self.free = std::mem::replace(&mut slot.next, NONE);
        let queued = std::mem::replace(&mut slot.queued, true);
        match prev {
            NONE => self.oldest = activity,
            _ => self.all[prev as usize].next = activity,
        }
        if !queued {
            self.push_ready(activity);
        }
        activity
    }

    /// Assigns the only activity that was ever used to a call of the fast path, if the activity is free. The
    /// activity learns only the call's number.
    #[inline(always)]
    pub fn open_only(&mut self, sequence: u64) -> bool {
        let [slot] = &mut self.all[..] else { return false };
        if slot.stage != Stage::Free {
            return false;
        }
        slot.sequence = sequence;
        slot.stage = Stage::Sending;
        slot.detached = false;
        slot.timing.first_sent = None;
        (slot.prev, slot.next) = (NONE, NONE);
        (self.free, self.outstanding, self.oldest, self.newest) = (NONE, 1, 0, 0);
        true
    }

    /// Frees the only activity again after a call of the fast path, if there is still no other activity and
    /// it still has that call.
    #[inline(always)]
    pub fn close_only(&mut self, sequence: u64) -> bool {
        let [slot] = &mut self.all[..] else { return false };
        if slot.sequence != sequence || slot.stage != Stage::Sending || slot.timing.first_sent.is_some() {
            return false;
        }
        slot.stage = Stage::Free;
        (self.free, self.outstanding, self.oldest, self.newest) = (0, 0, NONE, NONE);
        true
    }

    /// Puts an activity back into the pool. Its arguments stay in it, and so do fragments to be sent,
    /// exchanges, and what counts as under way. Returns whether there are any of the last three, or the call
    /// waited for room in the congestion window.
    #[inline(always)]
    pub fn close(&mut self, activity: u32) -> bool {
        let slot = &mut self.all[activity as usize];
        debug_assert_ne!(slot.stage, Stage::Free);
        slot.stage = Stage::Free;
        // Usually there is nothing to drop.
        if slot.receiving.is_some() {
            slot.receiving = None;
        }
        let counts = slot.counted.is_some() | (slot.doubted > 0) | slot.wants.has(Want::HELD);
        slot.wants = Want::NONE;
        let parts = (address(&slot.sending) | address(&slot.inside) != 0) | counts;
        let (prev, next) = (slot.prev, std::mem::replace(&mut slot.next, self.free));
        self.free = activity;
        self.outstanding -= 1;
        match prev {
            NONE => self.oldest = next,
            _ => self.all[prev as usize].next = next,
        }
        match next {
            NONE => self.newest = prev,
            _ => self.all[next as usize].prev = prev,
        }
        parts
    }

    /// Returns the argument buffer of the activity that the next call will get.
    #[inline]
    pub fn room(&mut self) -> Option<&mut Vec<u8>> {
        self.all.get_mut(self.free as usize).map(|slot| &mut slot.args)
    }

    /// Puts an activity at the end of the queue of those that have something to send, if it is not in the
    /// queue.
    #[inline(always)]
    pub fn enqueue(&mut self, activity: u32) {
        let slot = &mut self.all[activity as usize];
        if !std::mem::replace(&mut slot.queued, true) {
            self.push_ready(activity);
        }
    }

    #[inline(always)]
    fn push_ready(&mut self, activity: u32) {
        self.queued += 1;
        match std::mem::replace(&mut self.last_ready, activity) {
            NONE => self.first_ready = activity,
            last => self.all[last as usize].next_ready = activity,
        }
    }

    /// Takes the first activity out of the queue of those that have something to send.
    #[inline(always)]
    pub fn dequeue(&mut self) {
        let Some(slot) = self.all.get_mut(self.first_ready as usize) else {
            return;
        };
        slot.queued = false;
        self.queued -= 1;
        self.first_ready = std::mem::replace(&mut slot.next_ready, NONE);
        if self.first_ready == NONE {
            self.last_ready = NONE;
        }
    }

    /// Returns the first activity in the queue of those that have something to send.
    #[inline]
    pub fn ready(&self) -> Option<u32> {
        (self.first_ready != NONE).then_some(self.first_ready)
    }

    /// Returns the slot of a call that has not ended.
    pub fn find(&mut self, id: CallId) -> Option<&mut Slot> {
        let slot = self.all.get_mut(id.activity as usize)?;
        (slot.sequence == id.sequence && slot.stage != Stage::Free).then_some(slot)
    }

    #[inline]
    pub fn get(&self, activity: u32) -> Option<&Slot> {
        self.all.get(activity as usize)
    }

    /// Returns an activity that is known to exist.
    #[inline]
    pub fn at(&self, activity: u32) -> &Slot {
        &self.all[activity as usize]
    }

    #[inline]
    pub fn at_mut(&mut self, activity: u32) -> &mut Slot {
        &mut self.all[activity as usize]
    }

    /// Returns the number of activities that were ever used.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of the oldest call that has not ended. All earlier calls have ended.
    pub fn low(&self) -> Option<u64> {
        self.all.get(self.oldest as usize).map(|slot| slot.sequence)
    }

    /// Returns the activity of the oldest call that has not ended.
    pub fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns the activity of the call that began next after the call of `activity`. Call this before that
    /// call is ended.
    pub fn after(&self, activity: u32) -> Option<u32> {
        let next = self.all[activity as usize].next;
        (next != NONE).then_some(next)
    }
}

impl Slot {
    /// Returns the call's arguments.
    #[inline(always)]
    pub fn arguments(&self) -> &[u8] {
        match &self.shared {
            None => &self.args,
            Some(shared) => shared.bytes(),
        }
    }

    /// Returns what is known of whether the call ran, if the server is never heard again.
    pub fn ran_if_unheard(&self) -> Ran {
        if self.timing.first_sent.is_none() { Ran::No } else { Ran::Maybe }
    }

    /// Returns whether the activity has nothing to send but a whole call without metadata.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.wants == Want::CALL
            && matches!(self.stage, Stage::Sending | Stage::Running)
            && self.sending.is_none()
            && !self.detached
            && self.call.deadline.is_none()
            && self.call.trace.is_none()
    }

    /// Notes that the call, or a fragment of it, was sent. The first transmission starts the call's timer.
    #[inline]
    pub fn sent(&mut self, now: Time, patience: u64) {
        if self.timing.first_sent.is_some() {
            self.timing.timed = false;
        } else {
            self.timing.first_sent = Some(now);
            self.timing.mentioned = false;
            self.timing.timed = self.sending.is_none();
            self.timing.stalled = 0;
            self.restart_timer(now, patience);
        }
    }

    /// Notes that the call was sent at an unknown time. It is to be sent again now.
    pub fn sent_before(&mut self, now: Time, patience: u64) {
        self.sent(now, patience);
        (self.timing.first_sent, self.timing.timed, self.timing.due) = (Some(UNKNOWN), false, now);
    }

    /// Returns the head of the CALL frame, which comes before the arguments.
    #[inline(always)]
    pub fn head(&self, activity: u32, meta: Meta) -> CallHead {
        let Call { export, procedure, .. } = self.call;
        CallHead { position: Position::of_call(activity, self.sequence), export, procedure, meta }
    }

    /// Returns whether a caller has waited for this long: for the call's end, or for something in its
    /// exchanges.
    #[inline]
    pub fn is_awaited_since(&self, now: Time, interval: Duration) -> bool {
        let passes = || self.inside.as_ref().is_some_and(|inside| !inside.exchanges.is_empty());
        let waits = !matches!(self.stage, Stage::Cancelling { .. }) && (!self.detached || passes());
        waits && self.timing.first_sent.is_some_and(|sent| now.since(sent) >= interval)
    }

    /// Restarts the call's timer as if the call had just been sent. The first retry is due after `patience`
    /// nanoseconds.
    #[inline]
    pub fn restart_timer(&mut self, now: Time, patience: u64) {
        self.timing.unanswered = 0;
        self.timing.heard = now;
        self.timing.interval = patience * 2;
        self.timing.calm = 0;
        self.timing.due = now.plus(patience);
    }

    /// Brings the next probe of a call that is executed forward to now, if at most a quarter of the time
    /// between two probes is left. The probe then shares a datagram that leaves anyway.
    pub fn bring_probe_forward(&mut self, now: Time) {
        let timing = &mut self.timing;
        let runs = self.stage == Stage::Running && self.receiving.is_none() && timing.unanswered == 0;
        if runs && timing.due <= now.plus(timing.calm / 4) {
            timing.due = timing.due.min(now);
        }
    }

    /// Returns what the client sends again about a call whose answer is late (docs/protocol.md, 5.3).
    pub fn reminder(&self) -> Want {
        match self.stage {
            Stage::Cancelling { .. } => Want::CANCEL,
            _ if self.receiving.is_some() => Want::PULL,
            Stage::Running => Want::PROBE,
            _ if self.sending.is_some() => Want::PROBE,
            _ => Want::CALL,
        }
    }
}
