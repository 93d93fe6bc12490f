//! Remembers clients that were bound and have not called, so that a drain can tell them (docs/protocol.md,
//! section 5.8). Without that, the first call of such a client could go to a server that is gone.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::Server;
use super::counts::Counts;
use super::hosts::HostName;
use super::table::Entry;
use crate::scheme::Scheme;
use crate::wire::Ticket;
use crate::{Rule, Time};

/// The most conversations that are remembered. When there are more, the host that has most makes way.
const MAX_UNCALLED: usize = 1024;

/// The most of them of one client. A client uses the first answer that it receives, which seldom is a later
/// one than this.
const MAX_OF_A_CLIENT: usize = 4;

/// Conversations that clients were given and have not used, the oldest first.
#[derive(Debug)]
pub(super) struct Uncalled {
    all: VecDeque<Unused>,
    per_host: Counts,
}

/// A conversation that its client has not used.
#[derive(Debug)]
struct Unused {
    conversation: u64,
    client: SocketAddr,
    scheme: Scheme,
    ticket: Ticket<'static>,
}

impl Uncalled {
    pub fn new(key: [u8; 16]) -> Uncalled {
        Uncalled { all: VecDeque::new(), per_host: Counts::new(key) }
    }

    /// Remembers a conversation that a client was given.
    pub fn add(&mut self, client: SocketAddr, conversation: u64, scheme: Scheme, ticket: &Ticket<'static>) {
        let is_same = |unused: &&Unused| unused.client == client && unused.ticket.client == ticket.client;
        if self.all.iter().filter(is_same).count() >= MAX_OF_A_CLIENT {
            return;
        }
        if self.all.len() >= MAX_UNCALLED {
            self.make_room();
        }
        self.per_host.add(HostName::at(&client), 1);
        self.all.push_back(Unused { conversation, client, scheme, ticket: ticket.clone() });
    }

    /// Forgets a conversation that its client uses now.
    pub fn remove(&mut self, conversation: u64) {
        if let Some(place) = self.all.iter().position(|unused| unused.conversation == conversation) {
            self.remove_at(place);
        }
    }

    /// Forgets the oldest conversation of the host that has most.
    fn make_room(&mut self) {
        let count = |place: usize| self.per_host.of(HostName::at(&self.all[place].client));
        // Of equals the first one counts, so it is the oldest one.
        if let Some(place) = (0..self.all.len()).rev().max_by_key(|place| count(*place)) {
            self.remove_at(place);
        }
    }

    fn remove_at(&mut self, place: usize) {
        if let Some(unused) = self.all.remove(place) {
            self.per_host.remove(HostName::at(&unused.client));
        }
    }

    fn pop(&mut self) -> Option<Unused> {
        let unused = self.all.pop_front()?;
        self.per_host.remove(HostName::at(&unused.client));
        Some(unused)
    }
}

impl Server {
    /// Lets all conversations begin that clients were given and have not used, so that they are told of a
    /// drain like any other.
    #[cold]
    pub(super) fn begin_uncalled(&mut self, now: Time) {
        if self.config.mutant.breaks(Rule::UncalledUntold) {
            return;
        }
        while let Some(unused) = self.uncalled.pop() {
            self.begin_unused(now, &unused);
        }
    }

    /// Lets a conversation begin, if its ticket is still good and nobody has to make way for it.
    fn begin_unused(&mut self, now: Time, unused: &Unused) {
        let Unused { conversation, client, scheme, ref ticket } = *unused;
        let is_good = self.stands(now, conversation, ticket, client).is_ok();
        let is_full = self.table.len() >= self.config.max_conversations;
        if !is_good || is_full || self.table.find(conversation).is_some() {
            return;
        }
        #[cfg(feature = "secure")]
        match self.admitted(scheme, conversation, ticket) {
            Ok(None) => {}
            Ok(Some(admitted)) => {
                let (coarse, mutant) = (self.coarse(now), self.config.mutant);
                self.seals.secrets.insert((conversation, None), admitted, coarse, mutant);
            }
            Err(_) => return,
        }
        self.enter(now, Entry::new(conversation, ticket.client, ticket.issued, client), scheme);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Issuer;

    #[test]
    fn the_host_that_has_most_makes_way() {
        let mut uncalled = Uncalled::new([7; 16]);
        let mut issuer = Issuer::new(Time::default(), &[1; 32]);
        let mut add = |host: u8, client: u64| {
            let from = SocketAddr::from(([10, 0, 0, host], 1 + client as u16));
            let ticket = issuer.issue(Time::default(), 0, client, client, from);
            uncalled.add(from, client, Scheme::Open, &ticket);
        };
        add(1, 1);
        (2..10_000).for_each(|client| add(2, client));
        add(3, 10_001);
        // One client asks again and again.
        (0..100).for_each(|_| add(3, 10_002));
        assert_eq!(uncalled.all.len(), MAX_UNCALLED);
        let all_of = |host: u8| {
            let ip = std::net::IpAddr::from([10, 0, 0, host]);
            uncalled.all.iter().filter(move |one| one.client.ip() == ip)
        };
        let of = |host: u8| all_of(host).count();
        assert_eq!((of(1), of(3)), (1, 1 + MAX_OF_A_CLIENT));
        let newest = all_of(2).next_back();
        assert_eq!(newest.map(|one| one.conversation), Some(9_999), "the oldest ones of the host went");
        (0..10_003).for_each(|conversation| uncalled.remove(conversation));
        assert_eq!(uncalled.per_host.of(HostName::at(&([10, 0, 0, 2], 1).into())), 0);
    }
}
