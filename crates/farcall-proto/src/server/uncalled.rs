//! Remembers clients that were bound and have not called, so that a drain can tell them (docs/protocol.md,
//! section 5.8). Without that, the first call of such a client could go to a server that is gone.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::Server;
use super::hosts::{HostName, NetworkName};
use super::table::Entry;
use crate::scheme::Scheme;
use crate::wire::Ticket;
use crate::{Rule, Time};

/// The most conversations that are remembered. When there are more, of the network that has most the host
/// makes way that has most.
const MAX_UNCALLED: usize = 1024;

/// The most of them of one client. A client uses the first answer that it receives, which seldom is a later
/// one than this.
const MAX_OF_A_CLIENT: usize = 4;

/// Conversations that clients were given and have not used.
#[derive(Debug, Default)]
pub(super) struct Uncalled {
    /// Those of each host, the oldest first. The hosts of a network stand together.
    hosts: BTreeMap<(NetworkName, HostName), VecDeque<Unused>>,
    len: usize,
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
    /// Remembers a conversation that a client was given.
    pub fn add(&mut self, client: SocketAddr, conversation: u64, scheme: Scheme, ticket: &Ticket<'static>) {
        let host = HostName::at(&client);
        let is_same = |unused: &&Unused| unused.client == client && unused.ticket.client == ticket.client;
        let of_host = self.hosts.get(&(host.network(), host));
        if of_host.is_some_and(|all| all.iter().filter(is_same).count() >= MAX_OF_A_CLIENT) {
            return;
        }
        if self.len >= MAX_UNCALLED {
            self.make_room();
        }
        let unused = Unused { conversation, client, scheme, ticket: ticket.clone() };
        self.hosts.entry((host.network(), host)).or_default().push_back(unused);
        self.len += 1;
    }

    /// Forgets a conversation that its client uses now.
    pub fn remove(&mut self, conversation: u64) {
        let is = |unused: &Unused| unused.conversation == conversation;
        let mut hosts = self.hosts.iter();
        let found = hosts.find_map(|(host, all)| Some((*host, all.iter().position(is)?)));
        if let Some((host, at)) = found {
            self.remove_at(host, at);
        }
    }

    /// Forgets the oldest conversation of the host that has most, of the network that has most.
    fn make_room(&mut self) {
        let mut networks: Vec<(usize, NetworkName)> = Vec::new();
        for ((network, _), all) in &self.hosts {
            match networks.last_mut().filter(|(_, last)| last == network) {
                Some((len, _)) => *len += all.len(),
                None => networks.push((all.len(), *network)),
            }
        }
        let Some((_, network)) = networks.into_iter().max() else { return };
        let hosts = self.hosts.range((network, HostName::default())..);
        let hosts = hosts.take_while(|((of, _), _)| *of == network);
        if let Some((host, _)) = hosts.max_by_key(|(_, all)| all.len()) {
            self.remove_at(*host, 0);
        }
    }

    fn remove_at(&mut self, host: (NetworkName, HostName), at: usize) -> Option<Unused> {
        let all = self.hosts.get_mut(&host)?;
        let unused = all.remove(at)?;
        if all.is_empty() {
            self.hosts.remove(&host);
        }
        self.len -= 1;
        Some(unused)
    }

    fn pop(&mut self) -> Option<Unused> {
        let host = *self.hosts.keys().next()?;
        self.remove_at(host, 0)
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

    /// Remembers what the server gives to clients.
    struct Given {
        uncalled: Uncalled,
        issuer: Issuer,
    }

    impl Given {
        fn new() -> Given {
            Given { uncalled: Uncalled::default(), issuer: Issuer::new(Time::default(), &[1; 32]) }
        }

        fn add(&mut self, ip: [u8; 4], client: u64) {
            let from = SocketAddr::from((ip, 1 + client as u16));
            let ticket = self.issuer.issue(Time::default(), 0, client, client, from);
            self.uncalled.add(from, client, Scheme::Open, &ticket);
        }

        fn of(&self, ip: [u8; 4]) -> Vec<u64> {
            let host = HostName::at(&(ip, 1).into());
            let all = self.uncalled.hosts.get(&(host.network(), host));
            all.into_iter().flatten().map(|unused| unused.conversation).collect()
        }
    }

    #[test]
    fn the_host_that_has_most_makes_way() {
        let mut given = Given::new();
        given.add([10, 0, 0, 1], 1);
        (2..10_000).for_each(|client| given.add([10, 0, 0, 2], client));
        given.add([10, 0, 0, 3], 10_001);
        // One client asks again and again.
        (0..100).for_each(|_| given.add([10, 0, 0, 3], 10_002));
        assert_eq!(given.uncalled.len, MAX_UNCALLED);
        assert_eq!([1, 3].map(|host| given.of([10, 0, 0, host]).len()), [1, 1 + MAX_OF_A_CLIENT]);
        let newest = given.of([10, 0, 0, 2]).last().copied();
        assert_eq!(newest, Some(9_999), "the oldest ones of the host went");
        (0..10_003).for_each(|conversation| given.uncalled.remove(conversation));
        // Each time one is forgotten.
        assert_eq!((given.of([10, 0, 0, 3]).len(), given.uncalled.len), (3, 3));
    }

    #[test]
    fn many_hosts_of_one_network_make_way_before_a_host_of_another_network_that_has_more() {
        let mut given = Given::new();
        (0..100).for_each(|client| given.add([192, 0, 2, 1], client));
        for host in 0..5_000_u16 {
            let [high, low] = host.to_be_bytes();
            given.add([10, 0, high, low], 1_000 + u64::from(host));
        }
        assert_eq!((given.of([192, 0, 2, 1]).len(), given.uncalled.len), (100, MAX_UNCALLED));
    }
}
