//! Drops what the server keeps of calls that have ended, when a bound is exceeded: results that fit a
//! datagram each, and whole calls. Bounds the number of activities too (docs/protocol.md, "Bounds").
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other.

use super::Server;
use super::activities::MAP_COST;
use super::hosts::Kept;
use super::memory::{
    CANDIDATES, LEAST_SHARE, LEAST_SLOTS, MAX_LOOKS, STOPPED_AFTER, budget_for, candidates, max_slots,
};
use super::work::{Last, Phase};
use crate::Time;
use crate::wire::Position;

/// The minimum of the number of calls that a search for one to drop looks at.
const MIN_LOOKS: usize = 16;
/// A search was easy if it looked at no more than this many calls for each that it dropped, and as many more.
const EASY_LOOKS: usize = 4;

/// How hard it is to find something to drop.
#[derive(Debug)]
pub(super) struct Shedding {
    /// The maximum number of calls that the next search for a call to drop looks at. It is halved after each
    /// search that was not easy, and doubled after each that was. So calls that cannot be dropped do not cost
    /// many looks for each new call.
    looks: usize,
    /// How many conversations of the heaviest host were looked at in vain, since one was last forgotten, to
    /// find an idle one with many activities.
    busy: usize,
    /// Whether there is no such conversation, so that further activities are refused.
    nothing_idle: bool,
}

impl Default for Shedding {
    fn default() -> Shedding {
        Shedding { looks: MAX_LOOKS, busy: 0, nothing_idle: false }
    }
}

impl Server {
    /// Drops results of calls that have ended, of the host that pays, until the budget is kept. Spares
    /// conversations within their least share if others of the host hold more. To keep the bound of calls,
    /// also refuses calls whose arguments are arriving, and drops results that are being sent in fragments.
    pub(super) fn shed_kept(&mut self, now: Time, kind: Kept, budget: usize, latest: (u64, u32)) {
        let before = self.hosts.total(kind);
        if before <= budget {
            return;
        }
        let is_of_calls = kind == Kept::Calls;
        let most = if is_of_calls { self.shedding.looks } else { MAX_LOOKS };
        let looked = self.shed_within(now, (kind, budget), latest, most.min(2 * self.hosts.listed));
        if is_of_calls {
            let is_easy = looked <= EASY_LOOKS * (1 + before - self.hosts.total(kind));
            let looks = if is_easy { 2 * most } else { most / 2 };
            self.shedding.looks = looks.clamp(MIN_LOOKS, MAX_LOOKS);
        }
    }

    /// Does what [`Server::shed_kept`] does, but looks at no more than `looks` calls. Returns how many it
    /// looked at.
    fn shed_within(
        &mut self,
        now: Time,
        (kind, budget): (Kept, usize),
        latest: (u64, u32),
        looks: usize,
    ) -> usize {
        let lone = self.lone_host(kind, latest);
        // The host that was looked at last, and how many of its calls were not looked at yet.
        let mut turn = (u32::MAX, 0);
        for look in 0..looks {
            if self.hosts.total(kind) <= budget {
                return look;
            }
            let Some(host) = self.heaviest(kind, lone) else { return look };
            turn = if turn.0 == host { turn } else { (host, self.hosts.at(host).calls.len()) };
            let Some((conversation, activity)) = self.hosts.oldest(host) else { return look };
            let may_spare = look < looks / 2 && turn.1 > 0;
            turn.1 = turn.1.saturating_sub(1);
            let Some((place, more)) = self.table.of_host(conversation, host) else { continue };
            let spared = may_spare && more.kept(kind) <= budget / LEAST_SHARE;
            let Some(work) = more.activities.work(activity) else { continue };
            let (phase, sequence) = (work.phase, work.position.sequence);
            let had_time = now.since(work.since.max(more.spoke)) >= STOPPED_AFTER || now > more.due;
            let goes = match phase {
                Phase::Running => false,
                Phase::Done(_) if work.outgoing.is_some() => kind == Kept::Calls && (had_time || !may_spare),
                Phase::Done(_) => true,
                Phase::Receiving | Phase::Over => kind == Kept::Calls,
            };
            if !goes || spared || (conversation, activity) == latest {
                self.hosts.list(host, (conversation, activity));
                continue;
            }
            if phase == Phase::Receiving {
                self.set_last(place, activity, Last::new(sequence, true));
            }
            self.forget_work(place, activity);
        }
        looks
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
        }
    }

    #[cold]
    fn forget_widest(&mut self, now: Time) {
        if self.hosts.total(Kept::Activities) <= max_slots(&self.config) {
            return;
        }
        let Some(host) = self.heaviest(Kept::Activities, None) else { return };
        let Server { hosts, table, .. } = self;
        let listed = hosts.at(host).wide.len();
        let widest = candidates(&mut hosts.at_mut(host).wide, |conversation| {
            let (place, more) = table.of_host(conversation, host)?;
            let idle = more.running == 0;
            Some(((idle, more.kept(Kept::Activities)), idle.then_some(place)))
        });
        if let Some(place) = widest.flatten() {
            self.shedding.busy = 0;
            self.shedding.nothing_idle = false;
            self.forget(now, place);
            return;
        }
        self.shedding.busy += CANDIDATES;
        self.shedding.nothing_idle = self.shedding.busy >= listed;
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
        // Each datagram tries to forget an idle conversation again while there are too many activities.
        self.shedding.nothing_idle && {
            let kept = self.hosts.kept_at(entry.host(), Kept::Activities);
            self.hosts.total(Kept::Activities) > budget_for(max_slots(&self.config), MAP_COST, kept)
        }
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

    #[test]
    fn calls_that_cannot_be_dropped_cost_few_looks_for_each_new_call() {
        const FIRST: u32 = 1000;
        let mut server = executing(FIRST as usize / 2, FIRST);
        let host = server.hosts.heaviest(Kept::Calls, None).unwrap();
        // Each look at a call that cannot be dropped moves it to the end of the list.
        for activity in FIRST + 1..FIRST + 20 {
            let oldest = server.hosts.at(host).calls[MIN_LOOKS];
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
