//! Frees what the server keeps of calls: results that were acknowledged, were held long enough or exceed a
//! budget, and unfinished arguments that exceed theirs. Also keeps empty buffers for reuse
//! (docs/memory-protocol.md).
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other. An access is a call that reads or writes exported memory.
//! A host is a machine, known by its IP address.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::hosts::{Amounts, HostName, Kept, counted_result};
use super::more::More;
use super::table::{Table, UNIT};
use super::work::{ACCESS, GIVEN_UP, Last, Phase, Work};
use super::{Server, Spare};
use crate::config::{PATIENCE, interval, silence_of};
use crate::transfer;
use crate::wire::CallHead;
use crate::{ACCESSES, Failure, Kind, Mutant, Ran, Rule, ServerConfig, Time, address};

/// What arguments that arrive in fragments cost besides their bytes, as counted in their budget, in bytes.
pub(super) const ASSEMBLY: usize = 256;

/// The server remembers at least this many activities beyond the first ones, over all conversations, even if
/// it is configured for few conversations.
pub(super) const LEAST_SLOTS: usize = 1 << 16;

/// A sweep goes through kept calls, frees old ones and looks for silent clients. A sweep that is due only
/// because a client may have been silent for too long comes at least this long after the last one.
const MIN_SWEEP_GAP: Duration = Duration::from_millis(5);

/// The maximum number of kept calls that one sweep looks at.
const MAX_SWEPT: usize = 4096;
/// The maximum number of kept calls that are looked at to make room for a new result.
pub(super) const MAX_LOOKS: usize = 1024;

/// If a client has acknowledged nothing for this long, the transfer of results to it counts as stopped.
pub(super) const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// While other accesses wait for room, the result of an access is dropped if its client has been silent for
/// this long. (A client that waits asks every second.)
const SILENT_AFTER: Duration = Duration::from_secs(2);
/// How often the server looks for such clients while accesses wait for room.
const CROWDED_INTERVAL: Duration = Duration::from_millis(250);

/// While there is no room for others' results, a client must fetch its own at this rate at least, in bytes a
/// second (2 Mbit/s).
const MIN_FETCH_RATE: u64 = 256 << 10;

/// A conversation's least share of a budget is one in this many. What the server keeps for a conversation
/// within its least share is dropped last.
pub(super) const LEAST_SHARE: usize = 4096;

/// A host's least share of a budget that is given out in the order of arrival is one in this many, or one
/// thing if that is larger.
const LEAST_SHARE_OF_HOST: usize = 64;
/// A network's least share of that budget, within which its hosts have theirs when most of it is used up, is
/// one in this many, or one thing.
const LEAST_SHARE_OF_NETWORK: usize = 16;

/// The maximum number of one host's calls or conversations that are compared to choose the one to drop.
pub(super) const CANDIDATES: usize = 64;
/// The maximum number of conversations and kept calls that are looked at to make way for one long result.
const MAX_LOOKS_FOR_A_LONG_RESULT: usize = 64 * MAX_LOOKS;

/// The maximum number of activities that are looked at for one ACK.
const LOOKS_FOR_AN_ACK: u64 = 256;

const SPARE_BUFFERS: usize = 1024;
const SPARE_BYTES: usize = crate::spares::SHORTEST;

/// The longest buffer that a call keeps beyond twice the bytes of its result, in bytes. Such a buffer is not
/// counted.
pub(super) const MAX_IDLE_BUFFER_BYTES: usize = 256;

/// Returns the maximum of the memory of activities beyond the first, in slots of 16 bytes.
pub(super) fn max_slots(config: &ServerConfig) -> usize {
    (4 * config.max_conversations).max(LEAST_SLOTS)
}

/// Returns the budget for each kind of thing that is kept, over all hosts.
pub(super) fn budgets(config: &ServerConfig) -> Amounts {
    let mut budgets = Amounts::default();
    budgets[Kept::Arguments as usize] = config.reassembly_budget;
    budgets[Kept::Results as usize] = config.held_budget;
    budgets[Kept::Sending as usize] = config.sending_budget;
    budgets[Kept::Accessed as usize] = config.held_budget;
    budgets[Kept::Exchanges as usize] = config.held_budget;
    budgets[Kept::Calls as usize] = config.max_kept_calls;
    budgets[Kept::Activities as usize] = max_slots(config);
    budgets
}

impl Server {
    /// Frees what was held long enough, and acts on the other timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.all_inside.timers.is_empty() {
            self.look_inside(now);
        }
        #[cfg(feature = "secure")]
        self.look_at_ticket_keys(now);
        #[cfg(feature = "secure")]
        self.compute_late_handshakes(now);
        if self.sweep.due.is_none_or(|at| now < at) {
            return;
        }
        if self.config.mutant.breaks(Rule::HeldForever) {
            self.set_sweep(None);
            return;
        }
        self.note_absence(now);
        self.spare.long.trim(now);
        let crowded = std::mem::take(&mut self.sending.crowded);
        let (all, slice) = (self.hosts.listed as u32, self.hosts.listed.min(MAX_SWEPT) as u32);
        let mut soonest = None;
        for _ in 0..slice {
            let Some((host, call)) = self.hosts.next() else {
                break;
            };
            if self.sweep_one(now, host, call, crowded, &mut soonest) {
                self.hosts.list(host, call);
            }
        }
        let round = (self.config.hold / 2).min(silence_of(PATIENCE));
        // If one sweep does not reach all calls, the sweeps follow each other so closely that silent clients
        // are noticed in time.
        let round = if all > slice && self.unfinished > 0 { round.min(interval(PATIENCE)) } else { round };
        #[cfg(feature = "secure")]
        let has_ciphers = self.seals.secrets.erase_idle(now);
        #[cfg(not(feature = "secure"))]
        let has_ciphers = false;
        let next = match self.hosts.listed {
            0 => has_ciphers.then(|| now + round),
            _ => Some(now + round.saturating_mul(slice) / all),
        };
        // A sweep at the moment at which a client will have been silent for too long finds its calls only if
        // it reaches all. Otherwise it would look at others' calls, however many such moments there are.
        let soonest = soonest.filter(|_| all == slice);
        self.set_sweep(
            next.map(|next| soonest.map_or(next, |due: Time| next.min(due.max(now + MIN_SWEEP_GAP)))),
        );
    }

    /// Frees what is kept of a call if it was held long enough. While accesses wait for room (`crowded`),
    /// also frees the result of an access whose client is silent or too slow. Cancels the call if the server
    /// executes it and its client is silent. Returns whether anything is still kept of the call for `host`.
    /// Lowers `soonest` to the time at which the call's client will have been silent for too long.
    fn sweep_one(
        &mut self,
        now: Time,
        host: u32,
        (conversation, activity): (u64, u32),
        crowded: bool,
        soonest: &mut Option<Time>,
    ) -> bool {
        let Some((place, _)) = self.table.of_host(conversation, host) else { return false };
        let speaks = self.speaks(now, place);
        let Some(more) = self.table.at_mut(place).more.as_deref_mut() else { return false };
        let silence = more.silence();
        let Some(work) = more.activities.work_mut(activity) else { return false };
        let in_vain = work.sends_in_vain(speaks, silence, self.config.mutant);
        let old = now.since(work.since) >= self.config.hold;
        let waits_in_vain = now.since(work.since.max(more.spoke)) >= SILENT_AFTER || now > more.due;
        let over = old || in_vain || crowded && work.is_accessed() && waits_in_vain;
        let sequence = work.position.sequence;
        match work.phase {
            Phase::Running => {
                if let Some(due) = self.look_for_silence(now, place, activity) {
                    *soonest = Some(soonest.map_or(due, |other| other.min(due)));
                }
                return true;
            }
            _ if !over => return true,
            // The call's arguments never arrived completely. It counts as refused, and its caller is told so
            // if it asks.
            Phase::Receiving => self.set_last(place, activity, Last::new(sequence, true)),
            Phase::Done(_) | Phase::Over => {}
        }
        self.forget_work(place, activity);
        false
    }

    /// Frees the result, the fragments and the exchanges of an activity's last call. The server still
    /// remembers the call's number.
    pub(super) fn release(&mut self, place: usize, activity: u32) {
        if self.has_inside(place, activity) {
            self.end_inside(place, activity);
        }
        let Some(more) = &mut self.table.at_mut(place).more else { return };
        let Some(work) = more.activities.work_mut(activity) else { return };
        let payload = std::mem::take(&mut work.payload);
        debug_assert_ne!(work.phase, Phase::Running);
        work.phase = Phase::Over;
        if work.outgoing.is_some() || work.incoming.is_some() {
            self.release_fragments(place, activity, payload.len());
        } else {
            more.recount(&mut self.hosts, Kept::Results, counted_result(payload.len()), 0);
        }
        self.recycle(payload);
    }

    #[cold]
    fn release_fragments(&mut self, place: usize, activity: u32, len: usize) {
        let Some(more) = &mut self.table.at_mut(place).more else {
            return;
        };
        let Some(work) = more.activities.work_mut(activity) else { return };
        let accessed = work.is_accessed();
        let Some(outgoing) = work.outgoing.take() else {
            self.end_assembly(place, activity);
            return;
        };
        let insert = work.insert.take();
        let held = len + insert.as_ref().map_or(0, |insert| insert.bytes.len());
        more.recount(&mut self.hosts, Kept::Sending, held, 0);
        more.recount(&mut self.hosts, Kept::Accessed, if accessed { held } else { 0 }, 0);
        more.path.in_flight -= outgoing.in_flight;
        self.sending.loose.extend(insert.map(|insert| insert.bytes));
        self.note_room(place);
        self.wake_next(place);
    }

    /// Frees everything that is kept of an activity's last call except its number.
    pub(super) fn forget_work(&mut self, place: usize, activity: u32) {
        self.release(place, activity);
        self.drop_work(place, activity);
    }

    fn drop_work(&mut self, place: usize, activity: u32) {
        let entry = self.table.at_mut(place);
        let Some(more) = &mut entry.more else { return };
        if more.activities.home(activity).and_then(Option::take).is_none() {
            return;
        }
        more.works -= 1;
        more.recount(&mut self.hosts, Kept::Calls, 1, 0);
        if more.works == 0 && more.activities.is_empty() && more.refused_through == 0 {
            self.hosts.leave(more.host, &more.kept);
            entry.more = None;
        }
    }

    /// Frees results of calls with numbers below `low`, which have all ended at the caller. For each number
    /// that `low` has advanced, looks at one activity, in turn. So an ACK costs no more than the calls that
    /// it reports, and no more than a few datagrams.
    pub(super) fn release_below(&mut self, place: usize, low: u64) {
        let Some(more) = &mut self.table.at_mut(place).more else { return };
        let round = 1 + more.activities.used as u64;
        let from = more.released.max(low.saturating_sub(round));
        let looks = low.saturating_sub(from).min(LOOKS_FOR_AN_ACK);
        more.released = from + looks;
        for _ in 0..looks {
            let Some(more) = &mut self.table.at_mut(place).more else { return };
            let activity = more.hand;
            more.hand = more.activities.after(activity);
            let ended = |work: &Work| {
                let held = matches!(work.phase, Phase::Done(_));
                (held || work.phase == Phase::Over && work.inside.is_some()) && work.position.sequence < low
            };
            if more.activities.work(activity).is_some_and(ended) {
                self.release(place, activity);
            }
        }
    }

    /// Returns how many bytes of results the conversation is being sent in fragments.
    fn sending_at(&self, place: usize) -> usize {
        self.table.at(place).more.as_ref().map_or(0, |more| more.kept(Kept::Sending))
    }

    /// Takes the arguments of a call whose fragments have all arrived. From now on the call counts as
    /// executing.
    pub(super) fn assembled(&mut self, place: usize, activity: u32) -> Vec<u8> {
        let Some(incoming) = self.end_assembly(place, activity) else { return Vec::new() };
        if let Some(more) = &mut self.table.at_mut(place).more
            && let Some(work) = more.activities.work_mut(activity)
        {
            work.phase = Phase::Running;
            more.running += 1;
        }
        incoming.into_bytes()
    }

    /// Takes out the arguments of a call, complete or not, that were arriving in fragments, and no longer
    /// counts them as kept.
    pub(super) fn end_assembly(&mut self, place: usize, activity: u32) -> Option<Box<transfer::Incoming>> {
        let entry = self.table.at_mut(place);
        let more = entry.more.as_mut()?;
        let incoming = more.activities.work_mut(activity)?.incoming.take()?;
        more.recount(&mut self.hosts, Kept::Arguments, incoming.memory() + ASSEMBLY, 0);
        self.hosts.end_receiving(more.host, (entry.id, activity));
        self.spare.receiving -= 1;
        self.spare.lent -= incoming.lent;
        Some(incoming)
    }

    /// Keeps arguments that are arriving within their budget, by refusing calls of the host that pays. Refuses
    /// first a call of the host's conversation that has the most, if that is more than its least share, and
    /// prefers a call of which nothing arrived lately.
    pub(super) fn enforce_reassembly(&mut self, now: Time) {
        while self.hosts.total(Kept::Arguments) > self.config.reassembly_budget
            && !self.config.mutant.breaks(Rule::UnfinishedKept)
        {
            let Some((place, activity)) = self.unfinished_that_pays() else { return };
            let Some(work) = self.existing_work(place, activity) else { return };
            let position = work.position;
            self.stats.evicted_calls += 1;
            self.stats.paid = Some(self.table.at(place).address());
            let failure = Failure::new(Kind::Overloaded, Ran::No).with_detail("no room for its arguments");
            self.refuse(now, place, position, failure);
        }
    }

    /// Chooses the call to refuse: of the host that pays for arguments, a call whose arguments are arriving.
    fn unfinished_that_pays(&mut self) -> Option<(usize, u32)> {
        let share = self.config.reassembly_budget / LEAST_SHARE;
        let host = self.heaviest(Kept::Arguments, None)?;
        let rank = |table: &mut Table, (conversation, activity): (u64, u32)| {
            let (place, more) = table.of_host_mut(conversation, host)?;
            let kept = more.kept(Kept::Arguments);
            let work = more.activities.work_mut(activity).filter(|work| work.incoming.is_some())?;
            let over = if kept > share { kept } else { 0 };
            Some(((over, !std::mem::take(&mut work.progressed)), (place, activity)))
        };
        let Server { hosts, table, .. } = self;
        candidates(&mut hosts.at_mut(host).receiving, |call| rank(table, call))
    }

    /// Returns the host that has to give something of this kind up: of the network for which the most is kept,
    /// the host for which the most is kept.
    pub(super) fn heaviest(&mut self, kind: Kept, spared: Option<u32>) -> Option<u32> {
        if self.config.mutant.breaks(Rule::NoShareOfHosts) {
            self.hosts.first(kind)
        } else {
            self.hosts.heaviest(kind, spared)
        }
    }

    /// Keeps results within their budgets when the result of the call `latest` has been added, or has begun
    /// to be sent in fragments. Drops the oldest results of the host that pays.
    #[inline]
    pub(super) fn enforce_held(&mut self, now: Time, latest: (u64, u32)) {
        if self.hosts.total(Kept::Results) > self.config.held_budget
            || self.hosts.total(Kept::Sending) > self.config.held_budget.min(self.config.sending_budget)
        {
            self.shed(now, latest);
        }
    }

    #[cold]
    fn shed(&mut self, now: Time, latest: (u64, u32)) {
        self.shed_kept(now, Kept::Results, self.config.held_budget, latest);
        self.shed_sending(now, latest);
    }

    /// Keeps results that are being sent in fragments within two budgets. Beyond `held_budget`, drops those
    /// whose transfer has stopped. Beyond `sending_budget`, also drops those that are fetched too slowly, and
    /// if that is not enough, [another result](Server::make_way).
    fn shed_sending(&mut self, now: Time, latest: (u64, u32)) {
        let budget = self.config.held_budget;
        let unbounded = self.config.mutant.breaks(Rule::SendingUnbounded);
        let most = if unbounded { usize::MAX } else { self.config.sending_budget };
        // This bounds how often the search runs: not each time that a call ends while something long is being
        // sent.
        let looks =
            self.hosts.total(Kept::Sending) > budget && now.since(self.sweep.looked) >= CROWDED_INTERVAL;
        self.sweep.looked = if looks { now } else { self.sweep.looked };
        for _ in 0..self.hosts.listed.min(MAX_LOOKS) {
            let sent = looks && self.hosts.total(Kept::Sending) > budget;
            let full = self.hosts.total(Kept::Sending) > most;
            if !(sent || full) {
                return;
            }
            let Some((host, (conversation, activity))) = self.hosts.next() else { return };
            let Some(place) = self.table.find(conversation) else { continue };
            let Some(more) = &self.table.at(place).more else { continue };
            let Some(work) = more.activities.work(activity) else { continue };
            let still = now.since(work.since.max(more.spoke)) >= STOPPED_AFTER;
            let goes = work.outgoing.is_some() && (still || full && now > more.due);
            if goes && (conversation, activity) != latest {
                self.forget_work(place, activity);
            } else {
                self.hosts.list(host, (conversation, activity));
            }
        }
        if self.hosts.total(Kept::Sending) > most {
            self.make_way(most, latest);
        }
    }

    /// Makes room for a result that has just become ready to be sent. While another host [pays
    /// before](Hosts::pays_before) the result's own host, drops results of the conversation of that host that
    /// is being sent the most. Otherwise drops results of a conversation of the same host that is being sent
    /// more. If there is none, drops the new result, unless it is the only one.
    fn make_way(&mut self, most: usize, (conversation, activity): (u64, u32)) {
        let Some(place) = self.table.find(conversation) else { return };
        let Some(own) = self.table.at(place).more.as_ref().map(|more| more.host) else { return };
        let mut looks = MAX_LOOKS_FOR_A_LONG_RESULT;
        while looks > 0 {
            let payer = self.pays_before(own);
            let calls = self.hosts.at(payer.unwrap_or(own)).calls.len();
            looks = looks.saturating_sub(1 + calls.min(MAX_LOOKS));
            let Some(heaviest) = self.sent_most(payer.unwrap_or(own)) else { break };
            let yields = |server: &Server| {
                server.hosts.total(Kept::Sending) > most
                    && match payer {
                        Some(host) => server.hosts.pays_before(host, own, Kept::Sending),
                        None => server.sending_at(heaviest) > server.sending_at(place),
                    }
            };
            if !yields(self) {
                break;
            }
            let mut at = 0;
            loop {
                self.release_if_sent(heaviest, at);
                at = self.table.at(heaviest).more.as_ref().map_or(0, |more| more.activities.after(at));
                if at == 0 || !yields(self) {
                    break;
                }
            }
        }
        let total = self.hosts.total(Kept::Sending);
        let alone = self.table.at(place).work(activity).is_some_and(|work| work.len() == total);
        if total > most && !alone {
            self.release_if_sent(place, activity);
        }
    }

    /// Returns a host that gives up a result before the host `own` does: the heaviest of the heaviest network
    /// or, if that network is not heavier than its own, the heaviest of its own network.
    fn pays_before(&mut self, own: u32) -> Option<u32> {
        let [of_all, of_network] =
            [self.heaviest(Kept::Sending, None), self.hosts.heaviest_beside(own, Kept::Sending)];
        let pays = |host: &u32| self.hosts.pays_before(*host, own, Kept::Sending);
        of_all.into_iter().chain(of_network).find(pays)
    }

    /// Returns the conversation of a host that is being sent the most bytes, among those with the oldest
    /// calls.
    fn sent_most(&self, host: u32) -> Option<usize> {
        let calls = self.hosts.at(host).calls.iter().take(MAX_LOOKS);
        let places = calls.filter_map(|(conversation, _)| self.table.of_host(*conversation, host));
        let heaviest = places.map(|(place, more)| (more.kept(Kept::Sending), place)).max();
        heaviest.filter(|(bytes, _)| *bytes > 0).map(|(_, place)| place)
    }

    fn release_if_sent(&mut self, place: usize, activity: u32) {
        if self.existing_work(place, activity).is_some_and(|work| work.outgoing.is_some()) {
            self.release(place, activity);
        }
    }

    /// Returns whether an access from `from` with a result of `len` bytes may be executed now. If not, the
    /// access has to wait until less of other accesses' results is being sent. The budget is given out in the
    /// order of arrival, and least shares of hosts are reserved. While an access waits,
    /// [`Server::handle_timeout`] drops results whose clients have fallen silent.
    pub fn has_room(&mut self, now: Time, from: &SocketAddr, len: usize) -> bool {
        let (budget, total) = (self.config.held_budget, self.hosts.total(Kept::Accessed));
        let kept = self.hosts.kept_at(HostName::at(from), Kept::Accessed);
        let has = total == 0 || total + len <= budget_for(budget, len, kept);
        if !has {
            self.sending.crowded = true;
            self.set_sweep(self.sweep.due.map(|at| at.min(now + CROWDED_INTERVAL)));
        }
        has
    }

    /// Frees the memory of a conversation that was forgotten.
    pub(super) fn dissolve(&mut self, conversation: u64, more: More) {
        let (host, kept) = (more.host, more.kept);
        for work in more.activities.into_works() {
            if let Some(incoming) = &work.incoming {
                self.hosts.end_receiving(host, (conversation, work.position.activity));
                self.spare.receiving -= 1;
                self.spare.lent -= incoming.lent;
            }
            self.sending.loose.extend(work.insert.map(|insert| insert.bytes));
        }
        self.hosts.leave(host, &kept);
        self.tidy(host);
    }

    /// Returns an empty buffer for a result of about `len` bytes. Reuses an earlier one if there is one.
    #[inline]
    pub fn buffer(&mut self, now: Time, len: usize) -> Vec<u8> {
        if len > SPARE_BYTES
            && let Some(buffer) = self.spare.long.take(now, len)
        {
            return buffer;
        }
        let Spare { short, buffers, .. } = &mut self.spare;
        let (first, second) = if len <= MAX_IDLE_BUFFER_BYTES { (short, buffers) } else { (buffers, short) };
        first.pop().or_else(|| second.pop()).unwrap_or_default()
    }

    /// Takes back the buffer of arguments or of a result, for reuse.
    #[inline(always)]
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.spare.recycle(buffer);
    }

    /// Converts a time to units of an eighth of a second, shifted left by two bits; the two low bits have
    /// another use. The units are fine enough to tell which conversation was idle longest.
    #[inline]
    pub(super) fn coarse(&self, now: Time) -> u32 {
        ((now.as_nanos() / UNIT.as_nanos() as u64) << 2) as u32
    }
}

/// Returns how much of a budget may be used up when a host wants `len` of it. As much again is reserved for
/// hosts that are within their least share, the last half of it for hosts of networks that are within theirs.
/// `kept` is what the host and its network have already.
pub(super) fn budget_for(budget: usize, len: usize, kept: (usize, usize)) -> usize {
    let (of_host, of_network) = kept;
    let is_within = |kept, share| kept == 0 || kept + len <= budget / share;
    match is_within(of_host, LEAST_SHARE_OF_HOST) {
        true if is_within(of_network, LEAST_SHARE_OF_NETWORK) => 2 * budget,
        true => budget + budget / 2,
        false => budget,
    }
}

impl Spare {
    /// Takes back a buffer for reuse.
    #[inline(always)]
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > SPARE_BYTES {
            return self.long.give(buffer);
        }
        let is_short = buffer.capacity() <= MAX_IDLE_BUFFER_BYTES;
        let spares = if is_short { &mut self.short } else { &mut self.buffers };
        if spares.len() < SPARE_BUFFERS && buffer.capacity() > 0 {
            buffer.clear();
            spares.push(buffer);
        }
    }
}

/// Returns what `rank` gives for the entry of the greatest rank in a host's `list`. Looks only at some of the
/// first entries and moves them to the end, so that the next search looks at others. Entries for which `rank`
/// returns `None` are out of date and leave the list.
pub(super) fn candidates<C: Copy, R: PartialOrd, T>(
    list: &mut VecDeque<C>,
    mut rank: impl FnMut(C) -> Option<(R, T)>,
) -> Option<T> {
    let (mut best, mut looked) = (None, 0);
    for _ in 0..list.len() {
        let Some(entry) = list.pop_front() else { break };
        let Some((rank, what)) = rank(entry) else { continue };
        list.push_back(entry);
        if best.as_ref().is_none_or(|(most, _)| rank > *most) {
            best = Some((rank, what));
        }
        looked += 1;
        if looked == CANDIDATES {
            break;
        }
    }
    best.map(|(_, what)| what)
}

impl More {
    /// Extends the time in which the client must fetch what it is being sent, because this many bytes are
    /// added. A client that is late already stays late.
    pub(super) fn begin_to_send(&mut self, now: Time, bytes: usize) {
        let at_slowest = |bytes: usize| Duration::from_millis(bytes as u64 * 1000 / MIN_FETCH_RATE);
        let others = self.kept(Kept::Sending);
        let before = if others == 0 { now + SILENT_AFTER } else { self.due };
        self.due = (before + at_slowest(bytes)).min(now + SILENT_AFTER + at_slowest(others + bytes));
    }
}

impl Work {
    /// Returns whether nothing but the result is left of the call, so that the activity's next call can reuse
    /// this record.
    #[inline]
    pub(super) fn may_be_taken_over(&self) -> bool {
        // One comparison serves for all three fields, because this runs for every call.
        let parts = address(&self.outgoing) | address(&self.incoming) | address(&self.inside);
        self.phase != Phase::Running && parts == 0
    }

    /// Makes the record that of a new call, which the server now executes.
    #[inline]
    pub(super) fn begin(&mut self, now: Time, head: &CallHead, mutant: Mutant) {
        self.position = head.position;
        self.since = now;
        self.phase = Phase::Running;
        self.marks &= u8::from(mutant.breaks(Rule::CancelLeavesMark)) * GIVEN_UP;
        self.marks |= if head.procedure >= ACCESSES { ACCESS } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Entry;
    use super::super::{CallKey, Export, Finish, Hosts, Request};
    use super::*;
    use crate::fuzzing::seal;

    const NOW: Time = Time::from_nanos(1 << 40);

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000 * millis)
    }

    fn server(config: ServerConfig) -> Server {
        let mut server = Server::new(config, NOW, [7; 32]);
        let names = ["Store", "one"].map(String::from);
        let [type_name, instance] = names;
        server.export(Export { id: 77, type_name, instance, procedures: Vec::new() });
        server
    }

    /// Makes a conversation known to the server. All clients are on one host.
    fn know(server: &mut Server, id: u64) -> SocketAddr {
        let from = SocketAddr::from(([10, 0, 0, 1], id as u16));
        server.table.insert(Entry::new(id, id, id, from));
        from
    }

    /// Delivers a fragment of a call's arguments to the server: `len` of `total` bytes, from `offset` on.
    /// Returns whether the server has the call executed.
    fn comes(server: &mut Server, id: u64, from: SocketAddr, [total, offset, len]: [u32; 3]) -> bool {
        let words = [0, 0, 0, 9, 0, 77, 1, total, offset];
        let head = [0x10, 2, ((36 + len) >> 8) as u8, (36 + len) as u8];
        let body = words.into_iter().flat_map(u32::to_be_bytes).chain((0..len).map(|_| 7));
        let frame: Vec<u8> = head.into_iter().chain(body).collect();
        let (datagram, mut executed) = (seal(id, 1, &frame), false);
        server.receive(NOW, from, &datagram, &mut |request| executed |= matches!(request, Request::Call(_)));
        executed
    }

    #[test]
    fn results_for_many_clients_of_one_host_stay_within_the_budget() {
        // Each result has 68 bytes, which is the least share of a conversation.
        let mut server = server(ServerConfig { held_budget: 68 * LEAST_SHARE, ..ServerConfig::default() });
        for id in 1..=LEAST_SHARE as u64 + 100 {
            let from = know(&mut server, id);
            assert!(comes(&mut server, id, from, [4, 0, 4]));
            let key = CallKey { conversation: id, activity: 0, sequence: 9 };
            server.finish(NOW, key, Finish::Result, &mut vec![7; 68], &mut [0; 1200]).expect("it fits");
            assert!(server.held_bytes() <= 68 * LEAST_SHARE);
        }
    }

    #[test]
    fn shedding_results_forgets_only_calls_that_hold_one() {
        let mut server = server(ServerConfig::default());
        for id in 1..=10 {
            let from = know(&mut server, id);
            assert!(comes(&mut server, id, from, [4, 0, 4]));
            let key = CallKey { conversation: id, activity: 0, sequence: 9 };
            server.finish(NOW, key, Finish::Result, &mut vec![7; 68], &mut [0; 1200]).expect("it fits");
            if id <= 5 {
                let place = server.table.find(id).unwrap();
                server.release(place, 0);
            }
        }
        server.shed_kept(NOW, Kept::Results, 136, (10, 0));
        assert_eq!([Kept::Results, Kept::Calls].map(|kind| server.hosts.total(kind)), [136, 7]);
        server.shed_kept(NOW, Kept::Calls, 2, (10, 0));
        assert_eq!(server.hosts.total(Kept::Calls), 2);
        server.audit();
    }

    #[test]
    fn clients_with_more_than_their_least_share_of_arguments_make_way_first() {
        let reassembly_budget = 1024 * LEAST_SHARE + LEAST_SHARE - 1;
        let mut server = server(ServerConfig { reassembly_budget, ..ServerConfig::default() });
        let modest = know(&mut server, 1);
        assert!(!comes(&mut server, 1, modest, [8, 0, 4]));
        // The server keeps about 2,700 bytes for each other client.
        for id in 2..1700 {
            let from = know(&mut server, id);
            assert!(!comes(&mut server, id, from, [3000, 0, 1200]));
        }
        assert!(server.stats.evicted_calls > 0);
        assert!(comes(&mut server, 1, modest, [8, 4, 4]));
    }

    #[test]
    fn a_buffer_that_is_given_back_is_used_again() {
        let mut server = server(ServerConfig::default());
        let capacity = |server: &mut Server, len| {
            let buffer = server.buffer(Time::default(), len);
            assert!(buffer.is_empty());
            buffer.capacity()
        };
        server.recycle(vec![7; 100]);
        server.recycle(Vec::new());
        assert_eq!([capacity(&mut server, 0), capacity(&mut server, 0)], [100, 0], "the second is new");
        // A long buffer is kept for long messages only.
        for len in [SPARE_BYTES, SPARE_BYTES + 1, 100_000] {
            server.recycle(vec![7; len]);
        }
        assert_eq!([capacity(&mut server, 0), capacity(&mut server, 0)], [SPARE_BYTES, 0]);
        assert_eq!(capacity(&mut server, 50_000), 100_000);
        assert_eq!(capacity(&mut server, SPARE_BYTES + 1), SPARE_BYTES + 1);
        // The number of short buffers that are kept is bounded.
        for _ in 0..2 * SPARE_BUFFERS {
            server.recycle(vec![7; 4]);
            server.recycle(vec![7; 1_000]);
        }
        let Spare { short, buffers, .. } = &server.spare;
        assert_eq!([short.len(), buffers.len()], [SPARE_BUFFERS; 2]);
        assert_eq!([8, 900].map(|len| capacity(&mut server, len)), [4, 1_000]);
    }

    #[test]
    fn the_due_time_covers_all_results_that_are_being_sent_and_is_not_reset_when_it_has_passed() {
        // The bytes that a client has to fetch in a second.
        const SECOND: usize = MIN_FETCH_RATE as usize;
        let mut hosts = Hosts::new(Amounts::default(), Mutant::default());
        let mut more = More::new(hosts.enter(HostName::of([1, 0])));
        let mut begin = |more: &mut More, now, bytes| {
            more.begin_to_send(now, bytes);
            more.recount(&mut hosts, Kept::Sending, 0, bytes);
            more.due
        };
        assert_eq!(begin(&mut more, at(10_000), 3 * SECOND), at(15_000));
        assert_eq!(begin(&mut more, at(10_000), SECOND), at(16_000));
        assert_eq!(begin(&mut more, at(17_000), SECOND), at(17_000), "the client was late already");
        // The due time is never later than if the server began to send all results now.
        more.due = at(50_000);
        assert_eq!(begin(&mut more, at(20_000), SECOND), at(20_000 + 2_000 + 6_000));
        more.kept = Amounts::default();
        assert_eq!(begin(&mut more, at(30_000), SECOND), at(33_000), "no other result is being sent");
    }
}
