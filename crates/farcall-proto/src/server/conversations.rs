//! Tells of single conversations of a server with keys, for those who look after it: who the client is, how
//! the conversation is sealed, and how old its keys are. No secret is told.
//!
//! A server can have a million conversations, and the lock under which it is called protects every call. So
//! the table is looked at in steps, and between them the lock can be given up.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::Principal;
use farcall_crypto::{Level, Suite};

use super::Server;
use super::table::{Entry, UNIT};
use crate::Time;

/// A conversation of a server with keys, as it is now.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The client's address.
    pub client: SocketAddr,
    /// Who the client is.
    pub principal: Arc<Principal>,
    /// How much its seals protect.
    pub level: Level,
    /// The algorithm of its seals.
    pub suite: Suite,
    /// How long ago the last Diffie-Hellman handshake was from which its keys follow, to the second. A
    /// resumption is none.
    pub handshake: Duration,
    /// The number of the phase of its keys, from 0.
    pub phase: u32,
    /// The number of its calls that are being executed or queued.
    pub running: u32,
    /// How long ago the client was heard, to an eighth of a second.
    pub heard: Duration,
}

/// The busiest conversations that were found so far: first those with the most running calls, then those
/// whose clients were heard last.
#[derive(Debug)]
pub struct Busiest {
    /// The greatest number of conversations to be found.
    most: usize,
    /// The least busy one is on top, to be replaced first.
    found: BinaryHeap<Reverse<Rank>>,
    /// The place of the table to look at next, and how many were looked at.
    next: usize,
    looked: usize,
    /// Only conversations of the client with this key are found.
    of: Option<[u8; 32]>,
    /// How many conversations were found, also those that were not busy enough.
    count: usize,
}

/// How busy a conversation is: its running calls, for how long its client is silent, and its identifier.
type Rank = (u32, Reverse<u32>, u64);

impl Busiest {
    /// The places of the table that one step looks at.
    const LOOKS: usize = 128;
    /// The most places that are looked at in all. A table with as many is full of 114,688 conversations.
    const MAX_LOOKS: usize = 1 << 17;

    /// Begins to look for at most `most` conversations. In a table that is larger than what is looked at, the
    /// search begins at the place where an earlier one [ended](Busiest::next); otherwise that does not matter.
    pub fn new(most: usize, from: usize) -> Busiest {
        let next = from - from % Busiest::LOOKS;
        Busiest { most, found: BinaryHeap::new(), next, looked: 0, of: None, count: 0 }
    }

    /// Looks only for conversations of the client with this key.
    #[must_use]
    pub fn of(self, key: [u8; 32]) -> Busiest {
        Busiest { of: Some(key), ..self }
    }

    /// Returns how many conversations there are of those that are looked for. Those that begin and end meanwhile
    /// make it inexact.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the place at which a later search should begin.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Returns the identifiers of the conversations that were found, the busiest first.
    pub fn found(self) -> Vec<u64> {
        // A table that has grown meanwhile may have shown a conversation twice.
        let mut told = BTreeSet::new();
        let found = self.found.into_sorted_vec().into_iter().map(|Reverse((.., id))| id);
        found.filter(|id| told.insert(*id)).collect()
    }

    fn note(&mut self, rank: Rank) {
        self.count += 1;
        if self.found.len() < self.most {
            self.found.push(Reverse(rank));
        } else if let Some(mut least) = self.found.peek_mut()
            && rank > least.0
        {
            *least = Reverse(rank);
        }
    }
}

impl Server {
    /// Looks at a few more conversations: at most 128. Returns false when all were looked at, or 131,072
    /// places of the table. A conversation can be missed if others begin and end between two steps.
    pub fn look_for_busiest(&self, now: Time, busiest: &mut Busiest) -> bool {
        let coarse = self.coarse(now);
        let left = self.table.size().min(Busiest::MAX_LOOKS).saturating_sub(busiest.looked);
        let part = self.table.part(busiest.next, left.min(Busiest::LOOKS));
        let is_wanted = |id| match busiest.of {
            Some(key) => self.seals.secrets.principal(id).is_some_and(|principal| principal.key == key),
            None => true,
        };
        let wanted: Vec<_> = part.iter().filter(|entry| entry.id != 0 && is_wanted(entry.id)).collect();
        for entry in wanted {
            busiest.note((running(entry), Reverse(entry.silent(coarse)), entry.id));
        }
        busiest.next = busiest.next.wrapping_add(part.len());
        busiest.looked += part.len();
        busiest.looked < self.table.size().min(Busiest::MAX_LOOKS)
    }

    /// Tells of a conversation that was found, if it still exists.
    pub fn conversation(&self, now: Time, id: u64) -> Option<Conversation> {
        let entry = self.table.at(self.table.find(id)?);
        let secrets = self.seals.secrets.secrets(id)?;
        let began = Duration::from_nanos(entry.issued);
        let since = now.since(self.admission.issuer.born).saturating_sub(began);
        Some(Conversation {
            client: entry.address(),
            principal: self.seals.secrets.principal(id)?,
            level: secrets.level(),
            suite: secrets.suite(),
            handshake: since + Duration::from_secs(secrets.resumed_after().into()),
            phase: secrets.phase(),
            running: running(entry),
            heard: UNIT * (entry.silent(self.coarse(now)) >> 2),
        })
    }
}

fn running(entry: &Entry) -> u32 {
    entry.more.as_ref().map_or(0, |more| more.running)
}

#[cfg(test)]
mod tests {
    use farcall_crypto::Secrets;

    use super::*;
    use crate::scheme::Scheme;
    use crate::{Mutant, ServerConfig};

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    /// Makes a conversation known, whose client was heard at a time, and whose secrets were made that many
    /// seconds after their handshake.
    fn know(server: &mut Server, id: u64, heard: Time, resumed_after: u16) {
        let mut entry = Entry::new(id, id, 5_000_000_000, SocketAddr::from(([10, 0, 0, 1], 4000)));
        entry.hear(server.coarse(heard), Scheme::Secure);
        server.table.insert(entry);
        let mut secrets = Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
        secrets.note_resumed_after(resumed_after);
        let principal = Arc::new(Principal::new(format!("client {id}"), [1; 32]));
        server.seals.secrets.insert((id, Some(1)), (secrets, principal), 0, Mutant::NONE);
    }

    fn server() -> Server {
        Server::new(ServerConfig::default(), at(1), [7; 32])
    }

    /// Looks until the end. Returns the found conversations, and the number of steps.
    fn find(server: &Server, most: usize) -> (Vec<Conversation>, usize) {
        let (mut busiest, mut steps) = (Busiest::new(most, 77), 1);
        while server.look_for_busiest(at(100), &mut busiest) {
            steps += 1;
        }
        (tell(server, busiest), steps)
    }

    fn tell(server: &Server, busiest: Busiest) -> Vec<Conversation> {
        busiest.found().into_iter().filter_map(|id| server.conversation(at(100), id)).collect()
    }

    fn names(found: &[Conversation]) -> Vec<&str> {
        found.iter().map(|one| &*one.principal.name).collect()
    }

    #[test]
    fn those_with_running_calls_come_first_and_then_those_heard_last() {
        let mut server = server();
        for id in 1..=2000 {
            know(&mut server, id, at(20), 0);
        }
        know(&mut server, 2001, at(50), 3600);
        know(&mut server, 2002, at(40), 0);
        for (id, running) in [(900, 1), (1900, 3)] {
            let place = server.table.find(id).unwrap();
            let Server { table, hosts, .. } = &mut server;
            table.at_mut(place).more_or_new(hosts).running = running;
        }
        let (found, steps) = find(&server, 5);
        assert_eq!(names(&found), ["client 1900", "client 900", "client 2001", "client 2002", "client 2000"]);
        assert_eq!(steps, 4096 / Busiest::LOOKS, "no step looks at more");
        let handshakes = [&found[1], &found[2]].map(|one| one.handshake.as_secs());
        assert_eq!(handshakes, [94, 94 + 3600], "a resumption is no handshake");
        assert_eq!((found[0].running, found[0].phase, found[0].heard.as_secs_f64().round()), (3, 0, 80.0));
        assert_eq!(find(&server, 0).0.len(), 0);
    }

    #[test]
    fn few_conversations_are_all_found_and_none_twice() {
        let mut server = server();
        assert_eq!((find(&server, 64).0.len(), find(&server, 64).1), (0, 1));
        for id in 1..=10 {
            know(&mut server, id, at(20), 0);
        }
        let mut busiest = Busiest::new(64, usize::MAX);
        while server.look_for_busiest(at(100), &mut busiest) {}
        // The table grows between two steps.
        (11..=40).for_each(|id| know(&mut server, id, at(20), 0));
        busiest.looked = 0;
        while server.look_for_busiest(at(100), &mut busiest) {}
        server.seals.secrets.remove(7, Mutant::NONE);
        let found = tell(&server, busiest);
        assert_eq!(found.len(), 39);
    }

    #[test]
    fn a_search_in_a_large_table_is_bounded_and_the_next_one_goes_on_where_it_ended() {
        let mut server = server();
        for id in 1..=120_000 {
            know(&mut server, id, at(20), 0);
        }
        assert_eq!(server.table.size(), 2 * Busiest::MAX_LOOKS);
        // A search looks at one half of the table.
        let is_in_first_half = |id: &u64| server.table.find(*id).unwrap() < Busiest::MAX_LOOKS;
        let first = (1..=120_000).rev().find(is_in_first_half).unwrap();
        let second = (1..=120_000).find(|id| !is_in_first_half(id)).unwrap();
        let heard = server.coarse(at(50));
        let place = server.table.find(second).unwrap();
        server.table.at_mut(place).hear(heard, Scheme::Secure);
        let mut from = 0;
        for expected in [first, second, first] {
            let (mut busiest, mut steps) = (Busiest::new(1, from), 1);
            while server.look_for_busiest(at(100), &mut busiest) {
                steps += 1;
            }
            assert_eq!(steps, Busiest::MAX_LOOKS / Busiest::LOOKS);
            from = busiest.next();
            assert_eq!(names(&tell(&server, busiest)), [format!("client {expected}")]);
        }
    }
}
