//! What the server lets go, and when: results that were acknowledged, held long enough or over
//! budget, fragments over budget, buffers to be used again (docs/memory-protocol.md).

use std::time::Duration;

use super::Server;
use super::table::Last;
use super::work::{GIVEN_UP, More, Phase, Work};
use crate::wire::Position;
use crate::{Failure, Kind, Mutant, Ran, Rule, Time};

/// What an assembly costs besides its bytes, for the budget.
pub(super) const ASSEMBLY: usize = 256;

/// Activities that may have something held, or are not idle long enough to give their memory back.
const MAX_WORKS: usize = 1 << 18;

/// Activities beyond the first that are remembered, at the least, of all conversations together.
const LEAST_SLOTS: usize = 1 << 16;

/// How many of them are looked at in one go: by the timer, and for room.
const SLICE: usize = 4096;
const LOOKS: usize = 1024;

/// The results of a receiver that has not spoken of any for so long are not being transferred.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// How long whoever is sent results of accesses may be silent while others wait, who asks every second; and how often that is
/// looked at.
const FALLS_SILENT: Duration = Duration::from_secs(2);
const CROWDED: Duration = Duration::from_millis(250);

/// Who fetches results while there is no room for others' is to do so at this rate, in bytes a second: 2 Mbit/s.
const SLOWEST: u64 = 256 << 10;

const SPARE_WORKS: usize = 1024;
const SPARE_BUFFERS: usize = 1024;
pub(super) const SPARE_BYTES: usize = crate::spares::SHORTEST;

impl Server {
    /// Lets go of what was held long enough.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.sweep.is_none_or(|at| now < at) {
            return;
        }
        if self.config.mutant.breaks(Rule::HeldForever) {
            self.sweep = None;
            return;
        }
        self.spares.trim(now);
        let crowded = std::mem::take(&mut self.crowded);
        let (all, slice) = (self.works.len() as u32, self.works.len().min(SLICE) as u32);
        for _ in 0..slice {
            let Some((conversation, activity)) = self.works.pop_front() else {
                break;
            };
            if !self.sweep_one(now, conversation, activity, crowded) {
                self.works.push_back((conversation, activity));
            }
        }
        self.sweep = (!self.works.is_empty()).then(|| now + (self.config.hold / 2).saturating_mul(slice) / all);
        if self.works.capacity() > SLICE && self.works.len() < self.works.capacity() / 4 {
            self.works.shrink_to(2 * self.works.len());
        }
    }

    /// Whether the activity's work is gone.
    fn sweep_one(&mut self, now: Time, conversation: u64, activity: u32, crowded: bool) -> bool {
        let Some(place) = self.table.find(conversation) else {
            return true;
        };
        let hold = self.config.hold;
        let (spoke, due) = self.spoke_and_due(place);
        let Some(work) = self.existing_work(place, activity) else {
            return true;
        };
        let silent = now.since(work.since.max(spoke)) >= FALLS_SILENT;
        let behind = crowded && work.is_accessed() && (silent || now > due);
        let old = now.since(work.since) >= hold;
        let position = work.position;
        match work.phase {
            // Its arguments never came. It is refused, and its caller hears so if it asks.
            Phase::Receiving if old => self.set_last(place, activity, Last::new(position.sequence, true)),
            Phase::Done(_) | Phase::Over if old || behind => {}
            _ => return false,
        }
        self.release(place, activity);
        self.drop_work(place, activity);
        true
    }

    /// When a conversation's client last spoke of any result, since who speaks of one may not have been sent anything yet of the
    /// next; and until when it has time for all.
    fn spoke_and_due(&self, place: usize) -> (Time, Time) {
        self.table.at(place).more.as_ref().map_or_else(Default::default, |more| (more.spoke, more.due))
    }

    /// The caller has had the result, or it was held long enough: its bytes go, the number stays.
    pub(super) fn release(&mut self, place: usize, activity: u32) {
        let Some(work) = self.existing_work(place, activity) else {
            return;
        };
        let payload = std::mem::take(&mut work.payload);
        work.phase = Phase::Over;
        let fragmented = work.outgoing.is_some() || work.incoming.is_some();
        self.held -= payload.len();
        if fragmented {
            self.release_fragments(place, activity, payload.len());
        }
        self.recycle(payload);
    }

    #[cold]
    fn release_fragments(&mut self, place: usize, activity: u32, len: usize) {
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let Some(work) = more.find_mut(activity) else { return };
        let accessed = if work.is_accessed() { len } else { 0 };
        let Some(outgoing) = work.outgoing.take() else {
            return self.let_go_of_assembly(place, activity);
        };
        let insert = work.insert.take();
        let inserted = insert.as_ref().map_or(0, |insert| insert.bytes.len());
        self.moving -= len + inserted;
        more.moving -= len + inserted;
        self.held -= inserted;
        self.accessed -= accessed;
        more.in_flight -= outgoing.in_flight();
        self.loose.extend(insert.map(|insert| insert.bytes));
        self.note_room(place);
        self.wake_next(place);
    }

    fn drop_work(&mut self, place: usize, activity: u32) {
        let entry = self.table.at_mut(place);
        let Some(more) = &mut entry.more else { return };
        let (home, works) = more.home(activity);
        let Some(mut work) = home.take() else { return };
        (work.queued, work.waiting, work.progressed) = (false, false, false);
        *works -= 1;
        if *works == 0 && more.rest.is_empty() {
            entry.more = None;
        }
        if self.spare_works.len() < SPARE_WORKS {
            self.spare_works.push(work);
        }
    }

    pub(super) fn release_below(&mut self, place: usize, low: u64) {
        for activity in 0..self.activities(place) {
            let Some(work) = self.existing_work(place, activity) else {
                continue;
            };
            if matches!(work.phase, Phase::Done(_)) && work.position.sequence < low {
                self.release(place, activity);
            }
        }
    }

    /// How many activities of a conversation may have something held.
    fn activities(&self, place: usize) -> u32 {
        self.table.at(place).more.as_ref().map_or(0, |more| 1 + more.rest.len() as u32)
    }

    /// How many bytes it is being sent in fragments.
    fn moving_at(&self, place: usize) -> usize {
        self.table.at(place).more.as_ref().map_or(0, |more| more.moving)
    }

    /// The bytes of a message whose fragments have all come: its call is to run.
    pub(super) fn assembled(&mut self, place: usize, activity: u32) -> Vec<u8> {
        let Some(work) = self.existing_work(place, activity) else {
            return Vec::new();
        };
        work.phase = Phase::Running;
        let Some(incoming) = work.incoming.take() else {
            return Vec::new();
        };
        self.reassembling -= incoming.memory() + ASSEMBLY;
        self.receiving -= 1;
        incoming.into_bytes()
    }

    pub(super) fn let_go_of_assembly(&mut self, place: usize, activity: u32) {
        let Some(work) = self.existing_work(place, activity) else {
            return;
        };
        if let Some(incoming) = work.incoming.take() {
            self.reassembling -= incoming.memory() + ASSEMBLY;
            self.receiving -= 1;
        }
    }

    /// Keeps reassembly within its budget: the oldest that makes no progress is refused first.
    pub(super) fn enforce_reassembly(&mut self, now: Time) {
        let mut looks = 2 * self.works.len();
        while self.reassembling > self.config.reassembly_budget && looks > 0 {
            looks -= 1;
            let Some((conversation, activity)) = self.works.pop_front() else {
                return;
            };
            let Some(place) = self.table.find(conversation) else {
                continue;
            };
            let Some(work) = self.existing_work(place, activity) else {
                continue;
            };
            let position = work.position;
            let receiving = work.phase == Phase::Receiving;
            let spared = receiving && std::mem::take(&mut work.progressed);
            self.works.push_back((conversation, activity));
            if receiving && !spared {
                let failure = Failure::new(Kind::Overloaded, Ran::No).with_detail("no room for its arguments");
                self.refuse(now, place, position, failure);
            }
        }
    }

    /// Keeps the activities of all conversations together within bounds, since one packet can make a
    /// conversation have thousands: of a few that are idle the one with most is forgotten.
    #[inline]
    pub(super) fn enforce_slots(&mut self, now: Time) {
        if self.slots > LEAST_SLOTS {
            self.forget_widest(now);
        }
    }

    #[cold]
    fn forget_widest(&mut self, now: Time) {
        if self.slots > 4 * self.config.max_conversations
            && let Some(widest) = self.table.widest()
        {
            self.forget(now, widest);
        }
    }

    /// Keeps held results within their budgets when `latest` has become one: the oldest go first.
    #[inline]
    pub(super) fn enforce_held(&mut self, now: Time, latest: (u64, u32)) {
        if self.held > self.config.held_budget || self.works.len() > MAX_WORKS {
            self.shed(now, latest);
        }
    }

    /// The same of what is being sent in fragments, when `latest` has been begun.
    pub(super) fn enforce_sending(&mut self, now: Time, latest: (u64, u32)) {
        if self.moving > self.config.sending_budget {
            self.shed(now, latest);
        }
    }

    /// What is being sent in fragments has budgets of its own: beyond one it is let go if it stands still, for it is not
    /// kept for fear of loss; beyond the other also if it is fetched too slowly, and if that is not enough [one makes way](Server::make_way).
    #[cold]
    fn shed(&mut self, now: Time, latest: (u64, u32)) {
        let budget = self.config.held_budget;
        let unbounded = self.config.mutant.breaks(Rule::SendingUnbounded);
        let most = if unbounded { usize::MAX } else { self.config.sending_budget };
        // Not whenever a call ends while something long is being sent.
        let looks = self.moving > budget && now.since(self.looked) >= CROWDED;
        self.looked = if looks { now } else { self.looked };
        let mut heaviest = (0, 0);
        for _ in 0..self.works.len().min(LOOKS) {
            let kept = self.held - self.moving > budget;
            let sent = looks && self.moving > budget;
            let full = self.moving > most;
            let many = self.works.len() > MAX_WORKS;
            if !(kept || sent || full || many) {
                return;
            }
            let Some((conversation, activity)) = self.works.pop_front() else {
                return;
            };
            let Some(place) = self.table.find(conversation) else {
                continue;
            };
            let (spoke, due) = self.spoke_and_due(place);
            heaviest = heaviest.max((self.moving_at(place), conversation));
            let Some(work) = self.existing_work(place, activity) else {
                continue;
            };
            let still = now.since(work.since.max(spoke)) >= STANDS_STILL;
            let goes = match work.phase {
                Phase::Receiving | Phase::Running => false,
                Phase::Done(_) if work.outgoing.is_some() => still && (sent || full) || full && now > due,
                Phase::Done(_) => kept || many,
                Phase::Over => many,
            };
            if goes && (conversation, activity) != latest {
                self.release(place, activity);
                self.drop_work(place, activity);
            } else {
                self.works.push_back((conversation, activity));
            }
        }
        if self.moving > most {
            self.make_way(most, heaviest.1, latest);
        }
    }

    /// There is no room for what has just become a result. Who is being sent most gives way, if that is more than its own
    /// conversation is; else it does itself, unless it is the only one. (All that was looked at may have been of conversations
    /// that are forgotten: then nobody is known to be sent more.)
    fn make_way(&mut self, most: usize, heaviest: u64, (conversation, activity): (u64, u32)) {
        let Some(place) = self.table.find(conversation) else { return };
        let heaviest = self.table.find(heaviest).unwrap_or(place);
        for other in 0..self.activities(heaviest) {
            if self.moving <= most || self.moving_at(heaviest) <= self.moving_at(place) {
                break;
            }
            self.release_if_sent(heaviest, other);
        }
        let alone = self.table.at(place).work(activity).is_some_and(|work| work.len() == self.moving);
        if self.moving > most && !alone {
            self.release_if_sent(place, activity);
        }
    }

    fn release_if_sent(&mut self, place: usize, activity: u32) {
        if self.existing_work(place, activity).is_some_and(|work| work.outgoing.is_some()) {
            self.release(place, activity);
        }
    }

    /// Whether an access whose result has so many bytes may be executed, or is to wait until less is being sent of others. Then
    /// [`Server::handle_timeout`] lets go of the results of whoever has fallen silent, after which there may be room.
    pub fn has_room(&mut self, now: Time, len: usize) -> bool {
        let has = self.accessed == 0 || self.accessed + len <= self.config.held_budget;
        if !has {
            self.crowded = true;
            self.sweep = self.sweep.map(|at| at.min(now + CROWDED));
        }
        has
    }

    /// A forgotten conversation's memory.
    pub(super) fn dissolve(&mut self, more: More) {
        for work in more.into_works() {
            self.held -= work.len();
            self.moving -= work.outgoing.as_ref().map_or(0, |_| work.len());
            self.accessed -= if work.is_accessed() { work.len() } else { 0 };
            if let Some(incoming) = &work.incoming {
                self.reassembling -= incoming.memory() + ASSEMBLY;
                self.receiving -= 1;
            }
            self.loose.extend(work.insert.map(|insert| insert.bytes));
        }
    }

    /// An empty buffer for a result of about `len` bytes, used before if there is one.
    #[inline]
    pub fn buffer(&mut self, now: Time, len: usize) -> Vec<u8> {
        if len > SPARE_BYTES
            && let Some(buffer) = self.spares.take(now, len)
        {
            return buffer;
        }
        self.spare_buffers.pop().unwrap_or_default()
    }

    /// Takes back the buffer of arguments or of a result.
    #[inline(always)]
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > SPARE_BYTES {
            return self.spares.give(buffer);
        }
        if self.spare_buffers.len() < SPARE_BUFFERS && buffer.capacity() > 0 {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    /// Time in eighths of a second, enough to tell who was idle longest; even, to leave a bit.
    #[inline]
    pub(super) fn coarse(&self, now: Time) -> u32 {
        ((now.as_nanos() >> 27) << 1) as u32
    }
}

impl More {
    /// So many bytes more are being sent in fragments. There is time for all of them, but who is late stays late.
    pub(super) fn begin_to_send(&mut self, now: Time, bytes: usize) {
        let at_slowest = |bytes: usize| Duration::from_millis(bytes as u64 * 1000 / SLOWEST);
        let before = if self.moving == 0 { now + FALLS_SILENT } else { self.due };
        self.moving += bytes;
        self.due = (before + at_slowest(bytes)).min(now + FALLS_SILENT + at_slowest(self.moving));
    }
}

impl Work {
    /// Whether nothing but its result is left of the call that it is of.
    #[inline]
    pub(super) fn may_be_taken_over(&self) -> bool {
        self.phase != Phase::Running && self.outgoing.is_none() && self.incoming.is_none()
    }

    /// It is of another call, which the user has.
    #[inline]
    pub(super) fn begin(&mut self, now: Time, position: Position, mutant: Mutant) {
        self.position = position;
        self.since = now;
        self.phase = Phase::Running;
        self.marks &= u8::from(mutant.breaks(Rule::CancelLeavesMark)) * GIVEN_UP;
    }

    pub(super) fn boxed() -> Box<Work> {
        let position = Position { activity: 0, exchange: 0, sequence: 0 };
        Box::new(Work {
            phase: Phase::Receiving,
            incoming: None,
            outgoing: None,
            position,
            payload: Vec::new(),
            insert: None,
            since: Time::default(),
            marks: 0,
            queued: false,
            waiting: false,
            promised: 0,
            progressed: false,
        })
    }
}
