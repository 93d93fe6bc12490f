//! Moves conversations to other addresses, and cleans up the lists of what is kept for each host
//! (docs/protocol.md, "Changes of address").
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other. A host is a machine, known by its IP address.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::Server;
use super::hosts::{HostName, Kept};
use super::more::More;
use super::work::Phase;
use crate::Time;

/// A conversation moves to another host at most once in this time, but for `MOVES_AT_ONCE`.
const MOVE_INTERVAL: Duration = Duration::from_millis(125);
/// The interval is longer by this time for each call for which something is kept, because a move lists each
/// of them again.
const MOVE_INTERVAL_PER_CALL: Duration = Duration::from_micros(125);

/// The maximum number of moves of a conversation at once. A datagram that was sent before a move can come
/// after it, and then the conversation moves back, and again to where it is.
const MOVES_AT_ONCE: u32 = 3;

/// A host's list is cleaned up when it has more than twice as many entries as it needs, and this many more.
const LIST_SLACK: usize = 64;

impl Server {
    /// Returns whether a conversation may move to an address now. A client can have good tickets for two
    /// hosts and alternate between them.
    pub(super) fn may_move(&self, now: Time, place: usize, to: SocketAddr) -> bool {
        let entry = self.table.at(place);
        let Some(more) = &entry.more else { return true };
        let most_ahead = (MOVES_AT_ONCE - 1) * move_interval(more);
        entry.host() == HostName::at(&to) || more.moves_until.is_none_or(|until| until <= now + most_ahead)
    }

    /// Moves a conversation to another address. What is kept for it counts for the new host from now on.
    pub(super) fn move_to(&mut self, now: Time, place: usize, to: SocketAddr) {
        let entry = self.table.at_mut(place);
        let from = entry.host();
        entry.move_to(&to);
        let host = entry.host();
        if host == from {
            return;
        }
        self.admission.conversing.remove(from);
        self.admission.conversing.add(host, 1);
        if let Some(more) = &mut entry.more {
            let from = more.moves_until.map_or(now, |until| until.max(now));
            more.moves_until = Some(from + move_interval(more));
            let arriving = more.activities.works().filter(|work| work.incoming.is_some());
            let arriving: Vec<u32> = arriving.map(|work| work.position.activity).collect();
            arriving.iter().for_each(|activity| self.hosts.end_receiving(more.host, (entry.id, *activity)));
            self.hosts.leave(more.host, &more.kept);
            let left = std::mem::replace(&mut more.host, self.hosts.enter(host));
            Kept::ALL.into_iter().for_each(|kind| self.hosts.recount(more.host, kind, 0, more.kept(kind)));
            let works = more.activities.works();
            works.for_each(|work| self.hosts.list(more.host, (entry.id, work.position.activity)));
            arriving.iter().for_each(|activity| self.hosts.begin_receiving(more.host, (entry.id, *activity)));
            if !more.activities.is_empty() {
                self.hosts.at_mut(more.host).wide.push_back(entry.id);
            }
            let entered = more.host;
            self.tidy(left);
            self.tidy(entered);
        }
    }

    /// Cleans up a host's lists.
    pub(super) fn tidy(&mut self, host: u32) {
        self.tidy_calls(host);
        self.tidy_receiving(host);
        self.tidy_wide(host);
    }

    /// Cleans up a host's list of calls for which something is kept when about half of its entries are out
    /// of date, or are there twice.
    #[inline]
    pub(super) fn tidy_calls(&mut self, host: u32) {
        if self.hosts.at(host).calls.len() > 2 * self.hosts.kept(host, Kept::Calls) + LIST_SLACK {
            let Server { hosts, table, .. } = self;
            let is_kept = |more: &More, activity| more.activities.work(activity).is_some();
            hosts.retain_calls(host, |(conversation, activity)| {
                table.of_host(conversation, host).is_some_and(|(_, more)| is_kept(more, activity))
            });
        }
    }

    /// Does the same for the list of calls whose arguments are arriving.
    pub(super) fn tidy_receiving(&mut self, host: u32) {
        let Server { hosts, table, .. } = self;
        let host_has = |call: &(u64, u32)| {
            let work = table.of_host(call.0, host).and_then(|(_, more)| more.activities.work(call.1));
            work.is_some_and(|work| work.phase == Phase::Receiving)
        };
        let host = hosts.at_mut(host);
        if host.receiving.len() > 2 * host.arriving + LIST_SLACK
            && let Some(newest) = host.receiving.pop_back()
        {
            let mut seen = HashSet::from([newest]);
            host.receiving.retain(|call| host_has(call) && seen.insert(*call));
            host.receiving.push_back(newest);
        }
    }

    /// Does the same for the list of conversations with activities beyond the first.
    pub(super) fn tidy_wide(&mut self, place: u32) {
        let Server { hosts, table, .. } = self;
        let host = hosts.at_mut(place);
        if host.wide.len() > 2 * host.conversations + LIST_SLACK {
            let mut seen = HashSet::new();
            let is_wide = |more: &More| !more.activities.is_empty();
            host.wide.retain(|id| {
                table.of_host(*id, place).is_some_and(|(_, more)| is_wide(more)) && seen.insert(*id)
            });
        }
    }
}

fn move_interval(more: &More) -> Duration {
    MOVE_INTERVAL + MOVE_INTERVAL_PER_CALL * more.works
}
