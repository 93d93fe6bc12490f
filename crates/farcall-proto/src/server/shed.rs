//! Drops what the server keeps of calls that have ended, when a bound is exceeded: results that fit a
//! datagram each, and whole calls. Bounds the number of activities too (docs/protocol.md, "Bounds").
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other.

use std::time::Duration;

use super::Server;
use super::activities::MAP_COST;
use super::hosts::{HostName, Kept};
use super::memory::{
    CANDIDATES, LEAST_SHARE, LEAST_SLOTS, MAX_LOOKS, STOPPED_AFTER, budget_for, candidates, max_slots,
};
use super::work::{Last, Phase};
use crate::Time;
use crate::wire::Position;

/// The maximum number of calls that a search for one to drop spares, and of those that it finds that cannot
/// go.
const MAX_SPARED: usize = MAX_LOOKS / 2;
/// The minimum of either number.
const MIN_SPARED: usize = 8;
/// A search was easy if it found no more than this many calls that cannot go for each that it dropped, and as
/// many more.
const EASY_LOOKS: usize = 4;

/// No younger conversation is forgotten for its activities: when a conversation is forgotten, the server also
/// refuses all unused tickets that it gave before. Newcomers use their tickets within this time.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// How hard it is to find something to drop.
#[derive(Debug)]
pub(super) struct Shedding {
    /// The maximum number of calls that the next search for a call to drop finds that cannot go. It is halved
    /// after each search that was not easy, and doubled after each that was. So calls that cannot be dropped
    /// do not cost many looks for each new call.
    looks: usize,
    /// The maximum number of calls that this search spares, because their conversations are within their
    /// least share. It is doubled while there is a conversation beyond its share, and halved while there is
    /// none.
    spares: usize,
    /// How many conversations of the heaviest host were looked at in vain, since one was last forgotten, to
    /// find an idle one with many activities; and that host.
    busy: (u32, usize),
    /// Whether there is no such conversation, so that further activities are refused.
    nothing_idle: bool,
}

impl Default for Shedding {
    fn default() -> Shedding {
        Shedding { looks: MAX_SPARED, spares: MAX_SPARED, busy: (0, 0), nothing_idle: false }
    }
}

impl Shedding {
    /// Forgets how many conversations were found that are not idle, because there are not too many
    /// activities.
    fn forget_search(&mut self) {
        (self.busy, self.nothing_idle) = ((0, 0), false);
    }
}

/// What a search for calls to drop has found.
#[derive(Default)]
struct Search {
    /// The number of calls that it has dropped.
    dropped: usize,
    /// The number of calls that it has found that cannot go.
    vain: usize,
    /// Whether it has dropped a call of a conversation beyond its least share.
    beyond_share: bool,
}

impl Server {
    /// Drops results of calls that have ended, of the host that pays, until the budget is kept. Spares
    /// conversations within their least share if others of the host hold more. To keep the bound of calls,
    /// also refuses calls whose arguments are arriving, and drops results that are being sent in fragments.
    pub(super) fn shed_kept(&mut self, now: Time, kind: Kept, budget: usize, latest: (u64, u32)) {
        if self.hosts.total(kind) <= budget {
            return;
        }
        if kind != Kept::Calls {
            self.search(now, (kind, budget), latest, (MAX_SPARED, MAX_SPARED));
            return;
        }
        let Shedding { looks, spares, .. } = self.shedding;
        let found = self.search(now, (kind, budget), latest, (looks, spares));
        let adapt = |most: usize, more: bool| {
            let adapted = if more { 2 * most } else { most / 2 };
            adapted.clamp(MIN_SPARED, MAX_SPARED)
        };
        self.shedding.looks = adapt(looks, found.vain <= EASY_LOOKS * (1 + found.dropped));
        let latest_is_beyond = || {
            self.table.find(latest.0).is_some_and(|place| {
                let more = self.table.at(place).more.as_ref();
                more.is_some_and(|more| more.kept(kind) > budget / LEAST_SHARE)
            })
        };
        self.shedding.spares = adapt(spares, found.beyond_share || latest_is_beyond());
    }

    /// Drops calls until the budget is kept, or `looks` calls were found that cannot go. Spares at most
    /// `spares` calls.
    fn search(
        &mut self,
        now: Time,
        (kind, budget): (Kept, usize),
        latest: (u64, u32),
        (looks, spares): (usize, usize),
    ) -> Search {
        let lone = self.lone_host(kind, latest);
        let (mut found, mut left_to_spare) = (Search::default(), spares);
        // The host that was looked at last, and how many of its calls were not looked at yet.
        let mut turn = (u32::MAX, 0);
        for _ in 0..(2 * self.hosts.listed).min(MAX_LOOKS) {
            if self.hosts.total(kind) <= budget || found.vain >= looks {
                break;
            }
            let Some(host) = self.heaviest(kind, lone) else { break };
            turn = if turn.0 == host { turn } else { (host, self.hosts.at(host).calls.len()) };
            let Some((conversation, activity)) = self.hosts.oldest(host) else { break };
            let may_spare = left_to_spare > 0 && turn.1 > 0;
            turn.1 = turn.1.saturating_sub(1);
            let Some((place, more)) = self.table.of_host(conversation, host) else { continue };
            let is_beyond_share = more.kept(kind) > budget / LEAST_SHARE;
            let Some(work) = more.activities.work(activity) else { continue };
            let (phase, sequence) = (work.phase, work.position.sequence);
            let had_time = now.since(work.since.max(more.spoke)) >= STOPPED_AFTER || now > more.due;
            let goes = match phase {
                Phase::Running => false,
                Phase::Done(_) if work.outgoing.is_some() => {
                    kind == Kept::Calls && (had_time || turn.1 == 0 || found.vain >= looks / 2)
                }
                Phase::Done(_) => true,
                Phase::Receiving | Phase::Over => kind == Kept::Calls,
            };
            let is_spared = goes && may_spare && !is_beyond_share;
            if !goes || is_spared || (conversation, activity) == latest {
                self.hosts.list(host, (conversation, activity));
                left_to_spare -= usize::from(is_spared);
                found.vain += usize::from(!is_spared);
                continue;
            }
            found.dropped += 1;
            found.beyond_share |= is_beyond_share;
            if phase == Phase::Receiving {
                self.set_last(place, activity, Last::new(sequence, true));
            }
            self.forget_work(place, activity);
        }
        found
    }

    /// Returns the host of a call if nothing else of this kind is kept for the host.
    fn lone_host(&self, kind: Kept, (conversation, activity): (u64, u32)) -> Option<u32> {
        let more = self.table.at(self.table.find(conversation)?).more.as_ref()?;
        let own = if kind == Kept::Calls { 1 } else { more.activities.work(activity)?.payload.len() };
        (self.hosts.kept(more.host, kind) == own).then_some(more.host)
    }

    /// Keeps the number of activities of all conversations within bounds, by forgetting an idle conversation
    /// with many activities, of the host that pays. While there is none, further activities are
    /// [refused](Server::refuses_activity).
    #[inline]
    pub(super) fn enforce_slots(&mut self, now: Time) {
        if self.hosts.total(Kept::Activities) > LEAST_SLOTS {
            self.forget_widest(now);
        } else if self.shedding.nothing_idle {
            self.shedding.forget_search();
        }
    }

    #[cold]
    fn forget_widest(&mut self, now: Time) {
        if self.hosts.total(Kept::Activities) <= max_slots(&self.config) {
            self.shedding.forget_search();
            return;
        }
        let Some(host) = self.heaviest(Kept::Activities, None) else { return };
        if self.shedding.busy.0 != host {
            self.shedding.busy = (host, 0);
        }
        let Server { hosts, table, admission, seals, config, .. } = self;
        let listed = hosts.at(host).wide.len();
        let newest = admission.issuer.date_before(now, LEAST_AGE);
        let widest = candidates(&mut hosts.at_mut(host).wide, |conversation| {
            let (place, more) = table.of_host(conversation, host)?;
            let idle = more.running == 0
                && table.at(place).issued <= newest
                && !seals.stays(conversation, config.mutant);
            Some(((idle, more.kept(Kept::Activities)), idle.then_some(place)))
        });
        if let Some(place) = widest.flatten() {
            (self.shedding.busy.1, self.shedding.nothing_idle) = (0, false);
            self.forget(now, place);
            return;
        }
        self.shedding.busy.1 += CANDIDATES;
        self.shedding.nothing_idle = self.shedding.busy.1 >= listed;
    }

    /// Returns whether a call of an activity that has had no call is refused because all clients have too
    /// many activities. Then every older call of such an activity of the conversation is refused too.
    pub(super) fn refuses_activity(&mut self, place: usize, position: Position) -> bool {
        if !self.lacks_activity(place, position) {
            return false;
        }
        let more = self.table.at_mut(place).more_or_new(&mut self.hosts);
        more.refused_through = more.refused_through.max(position.sequence);
        true
    }

    /// Returns what [`Server::refuses_activity`] does, but notes nothing.
    pub(super) fn lacks_activity(&self, place: usize, Position { activity, sequence, .. }: Position) -> bool {
        if activity == 0 {
            return false;
        }
        let entry = self.table.at(place);
        if let Some(more) = &entry.more {
            if sequence <= more.refused_through {
                return true;
            }
            if more.activities.get(activity).is_some() {
                return false;
            }
        }
        self.hosts.total(Kept::Activities) > max_slots(&self.config) && self.lacks_activity_for(entry.host())
    }

    /// Returns whether a host gets no further activities while all clients have too many. While there is an
    /// idle conversation to forget, each datagram makes room, so that the bound may be exceeded by a quarter.
    /// It may be exceeded by half by hosts that have less than half as much as the host that pays.
    #[cold]
    fn lacks_activity_for(&self, host: HostName) -> bool {
        let (hosts, kind, payer) = (&self.hosts, Kept::Activities, self.shedding.busy.0);
        let most = max_slots(&self.config);
        let beyond = match hosts.has_less_than_half(host, payer, kind) {
            true => most / 2,
            false if self.shedding.nothing_idle => 0,
            false => most / 4,
        };
        hosts.total(kind) > budget_for(most, MAP_COST, hosts.kept_at(host, kind)).max(most + beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Entry;
    use super::*;
    use crate::ServerConfig;

    const NOW: Time = Time::from_nanos(1 << 40);

    /// Makes a server that keeps a call of each activity up to `last`, all of one conversation. It executes
    /// these calls.
    fn executing(max_kept_calls: usize, last: u32) -> Server {
        let mut server =
            Server::new(ServerConfig { max_kept_calls, ..ServerConfig::default() }, NOW, [7; 32]);
        server.table.insert(Entry::new(1, 1, 1, "10.0.0.1:1".parse().unwrap()));
        (1..=last).for_each(|activity| begin(&mut server, activity));
        server
    }

    fn begin(server: &mut Server, activity: u32) {
        let place = server.table.find(1).unwrap();
        server.set_last(place, activity, Last::new(activity.into(), false));
        let work = server.work(NOW, place, activity);
        (work.phase, work.position.activity) = (Phase::Running, activity);
        server.table.at_mut(place).more.as_mut().unwrap().running += 1;
    }

    /// Makes a server that keeps four calls that are over of each of 1,000 conversations of a host. It keeps
    /// all of these conversations' calls before those of one conversation more, which has none so far.
    fn modest(max_kept_calls: usize) -> Server {
        let mut server = executing(max_kept_calls, 0);
        for id in 2..1002 {
            server.table.insert(Entry::new(id, 1, 1, "10.0.0.1:1".parse().unwrap()));
            (1..=4).for_each(|activity| over(&mut server, id, activity));
        }
        server
    }

    fn over(server: &mut Server, id: u64, activity: u32) {
        let place = server.table.find(id).unwrap();
        server.set_last(place, activity, Last::new(activity.into(), true));
        let work = server.work(NOW, place, activity);
        (work.phase, work.position.activity) = (Phase::Over, activity);
    }

    fn kept_calls(server: &Server, ids: std::ops::Range<u64>) -> usize {
        let places = ids.filter_map(|id| server.table.find(id));
        places.map(|place| server.table.at(place).more.as_ref().map_or(0, |more| more.works as usize)).sum()
    }

    #[test]
    fn calls_within_least_shares_stay_while_a_conversation_of_their_host_has_more() {
        // The least share is four calls.
        let mut server = modest(4 * LEAST_SHARE);
        (1..16_300).for_each(|activity| over(&mut server, 1, activity));
        server.audit();
        let kept = kept_calls(&server, 2..1002);
        assert!(kept >= 3_990, "of 4,000 calls of modest clients {kept} are kept");
    }

    #[test]
    fn a_search_costs_few_looks_while_every_conversation_is_within_its_least_share() {
        let mut server = modest(4 * LEAST_SHARE);
        let entry = |id| Entry::new(id, 1, 1, "10.0.0.1:1".parse().unwrap());
        for id in 2000..6000 {
            server.table.insert(entry(id));
            (1..=4).for_each(|activity| over(&mut server, id, activity));
        }
        assert_eq!(server.shedding.spares, MIN_SPARED);
        assert_eq!(server.hosts.total(Kept::Calls), 4 * LEAST_SHARE);
        server.audit();
    }

    #[test]
    fn calls_that_cannot_be_dropped_cost_few_looks_for_each_new_call() {
        const FIRST: u32 = 1000;
        let mut server = executing(FIRST as usize / 2, FIRST);
        let host = server.hosts.heaviest(Kept::Calls, None).unwrap();
        // Each look at a call that cannot be dropped moves it to the end of the list.
        for activity in FIRST + 1..FIRST + 20 {
            let oldest = server.hosts.at(host).calls[MIN_SPARED];
            begin(&mut server, activity);
            assert_eq!(server.hosts.at(host).calls[0], oldest);
        }
        server.audit();
        assert_eq!(server.hosts.total(Kept::Calls), FIRST as usize + 19);
        // All calls end. Now each new call makes two others go at least, until the bound is kept.
        let place = server.table.find(1).unwrap();
        let more = server.table.at_mut(place).more.as_mut().unwrap();
        more.activities.works_mut().for_each(|work| work.phase = Phase::Over);
        more.running = 0;
        (FIRST + 20..FIRST + 60).for_each(|activity| begin(&mut server, activity));
        assert_eq!(server.hosts.total(Kept::Calls), FIRST as usize / 2);
        server.audit();
    }
}
