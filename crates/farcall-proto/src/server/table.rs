//! The table of conversations: one open-addressed array, with 64 bytes for each idle conversation.
//!
//! The server chooses identifiers at random and inserts only conversations with a verified ticket. But a
//! client sees the identifier before it shows the ticket, so it chooses which of its conversations are
//! inserted. It must not be able to choose those that collide. So the hash is multiplicative, with a secret
//! multiplier (Dietzfelbinger and others, "A reliable randomized algorithm for the closest-pair problem",
//! 1997).
//!
//! The table uses linear probing, deletes by shifting entries back (Knuth, volume 3, section 6.4,
//! algorithm R), and doubles when it is seven eighths full.
//!
//! A conversation joins one client endpoint to one server endpoint. Its activities are numbered slots; in
//! each, the client makes one call after the other.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use super::counts::Count;
use super::hosts::{HostName, Hosts};
use super::more::More;
use super::work::{Last, Work};
use crate::BASE_DATAGRAM;
use crate::scheme::Scheme;
use crate::wire::Target;

/// One conversation. An idle conversation takes no other memory.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The server's identifier of the conversation; zero marks a free place.
    pub id: u64,
    /// The client's identifier.
    pub client: u64,
    /// The client's address as an IPv6 address: its upper and its lower half.
    ip: [u64; 2],
    port: u16,
    scope: u16,
    /// When the client was last heard, in the server's coarse units. These are multiples of four; the two
    /// lowest bits hold the scheme of that datagram.
    heard: u32,
    /// The date of the client's ticket.
    pub issued: u64,
    /// The last call of activity 0.
    pub last: Last,
    /// The rest of what is kept of the conversation, while it is not idle or if it has used more than one
    /// activity.
    pub more: Option<Box<More>>,
}

/// The server's coarse unit of time, about an eighth of a second.
pub(super) const UNIT: Duration = Duration::from_nanos(1 << 27);

/// The bits of [`Entry::heard`] that hold the scheme.
const SCHEME: u32 = 3;

/// The lower half of the IPv4 address 0.0.0.0 as an IPv6 address (RFC 4291 section 2.5.5.2).
const MAPPED: u64 = 0xffff << 32;

impl Entry {
    pub fn new(id: u64, client: u64, issued: u64, from: SocketAddr) -> Entry {
        let mut entry = Entry { id, client, issued, ..Entry::default() };
        entry.move_to(&from);
        entry
    }

    /// Returns the client's address.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        let [upper, lower] = self.ip;
        if upper == 0 && lower & !u64::from(u32::MAX) == MAPPED {
            return SocketAddr::V4(SocketAddrV4::new((lower as u32).into(), self.port));
        }
        let ip = u128::from(upper) << 64 | u128::from(lower);
        SocketAddr::V6(SocketAddrV6::new(ip.into(), self.port, 0, u32::from(self.scope)))
    }

    /// Returns the scheme in which the client was last heard.
    #[inline(always)]
    pub fn scheme(&self) -> Scheme {
        Scheme::of((self.heard & SCHEME) as u8).unwrap_or_default()
    }

    /// Returns the target of datagrams to the client: its identifier of the conversation, and the scheme.
    #[inline(always)]
    pub fn target(&self) -> Target {
        self.target_in(self.scheme())
    }

    /// Returns the target of datagrams to the client in the given scheme.
    #[inline(always)]
    pub fn target_in(&self, scheme: Scheme) -> Target {
        Target { conversation: self.client, scheme, sealed_for: self.id }
    }

    /// Returns when the client was last heard, in the server's coarse units.
    #[inline(always)]
    pub fn heard(&self) -> u32 {
        self.heard & !SCHEME
    }

    /// Notes that the client was heard at a coarse time, in a scheme.
    #[inline(always)]
    pub fn hear(&mut self, coarse: u32, scheme: Scheme) {
        self.heard = coarse | scheme as u32;
    }

    /// Returns for how long the client has been silent at a coarse time, in its units: 0 if that time was
    /// read before the client was heard.
    pub fn silent(&self, now: u32) -> u32 {
        (now.wrapping_sub(self.heard()) as i32).max(0) as u32
    }

    /// Notes that the client was heard, at a coarse time that can be out of date. The time replaces the noted
    /// one only if it is later.
    #[inline(always)]
    pub fn hear_late(&mut self, coarse: u32, scheme: Scheme) {
        let later = coarse.wrapping_sub(self.heard()) as i32 > 0;
        self.hear(if later { coarse } else { self.heard() }, scheme);
    }

    /// Returns whether a datagram in that scheme, from that address, may belong to this conversation. In a
    /// conversation in a scheme with secrets, every datagram must be in that scheme.
    #[inline(always)]
    pub fn takes(&self, scheme: Scheme, from: &SocketAddr) -> bool {
        self.agrees(scheme) && (scheme != Scheme::Local || from.ip().is_loopback())
    }

    /// Returns whether a datagram in that scheme may belong to this conversation, wherever it is from.
    #[inline(always)]
    pub fn agrees(&self, scheme: Scheme) -> bool {
        self.heard & SCHEME == scheme as u32 || !scheme.has_secrets() && !self.scheme().has_secrets()
    }

    #[inline(always)]
    pub fn is_at(&self, from: &SocketAddr) -> bool {
        match from {
            SocketAddr::V4(v4) => self.port == v4.port() && self.ip == mapped(v4),
            SocketAddr::V6(v6) => self.is_at_v6(v6),
        }
    }

    #[inline(never)]
    fn is_at_v6(&self, from: &SocketAddrV6) -> bool {
        self.port == from.port() && self.ip == halves(from)
    }

    /// Returns the last call of an activity.
    #[inline(always)]
    pub fn last(&self, activity: u32) -> Last {
        match activity {
            0 => self.last,
            n => {
                self.more.as_ref().and_then(|more| more.activities.get(n)).map_or(Last::default(), |s| s.last)
            }
        }
    }

    /// Returns the largest datagram that passes to the client, in bytes.
    #[inline]
    pub fn datagram(&self) -> usize {
        self.more.as_ref().map_or(BASE_DATAGRAM, |more| more.datagram as usize)
    }

    /// Returns the work of an activity.
    #[inline(always)]
    pub fn work(&self, activity: u32) -> Option<&Work> {
        self.more.as_ref()?.activities.work(activity)
    }

    /// Returns the host that the client is on.
    pub fn host(&self) -> HostName {
        HostName::of(self.ip)
    }

    /// Returns the further state that a conversation has while it is not idle. Makes it if there is none.
    pub fn more_or_new(&mut self, hosts: &mut Hosts) -> &mut More {
        let host = self.host();
        self.more.get_or_insert_with(|| Box::new(More::new(hosts.enter(host))))
    }

    pub fn move_to(&mut self, from: &SocketAddr) {
        (self.ip, self.scope) = match from {
            SocketAddr::V4(v4) => (mapped(v4), 0),
            SocketAddr::V6(v6) => (halves(v6), v6.scope_id() as u16),
        };
        self.port = from.port();
    }
}

#[inline]
fn mapped(v4: &SocketAddrV4) -> [u64; 2] {
    [0, MAPPED | u64::from(v4.ip().to_bits())]
}

fn halves(v6: &SocketAddrV6) -> [u64; 2] {
    let bits = v6.ip().to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// All conversations of a server.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Entry>,
    /// The secret odd multiplier of the hash.
    multiplier: u64,
    /// The hash is the product shifted right by this many bits: as many bits remain as number the places.
    shift: u32,
    used: usize,
    hand: usize,
}

const MIN_PLACES: usize = 16;

/// The maximum number of entries that `victim` looks at to find one to forget.
const MAX_LOOKS: usize = 64;
/// The number of suitable entries among which `victim` chooses.
const CHOICES: usize = 8;

impl Table {
    /// Makes an empty table. `secret` decides which identifiers collide.
    pub fn new(secret: u64) -> Table {
        Table { places: Vec::new(), multiplier: secret | 1, shift: u64::BITS - 1, used: 0, hand: 0 }
    }

    /// Returns an identifier's home: the place at which the search for it begins.
    #[inline(always)]
    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    pub fn len(&self) -> usize {
        self.used
    }

    #[inline]
    pub fn find(&self, id: u64) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = self.home(id);
        loop {
            match self.places[at].id {
                0 => return None,
                found if found == id => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Returns all conversations.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().filter(|entry| entry.id != 0)
    }

    /// Returns at most `looks` places from the place `from` on, up to the last one. Numbers beyond that begin
    /// again at the first place. Free places have the identifier 0.
    pub fn part(&self, from: usize, looks: usize) -> &[Entry] {
        let from = from & self.places.len().saturating_sub(1);
        &self.places[from..(from + looks).min(self.places.len())]
    }

    /// Returns how many places there are, free ones included.
    pub fn size(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub fn at(&self, place: usize) -> &Entry {
        &self.places[place]
    }

    #[inline]
    pub fn at_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.places[place]
    }

    /// Returns a conversation's place and its further state, if the conversation has such state and its
    /// client is at `host`.
    pub fn of_host(&self, id: u64, host: u32) -> Option<(usize, &More)> {
        let place = self.find(id)?;
        Some((place, self.at(place).more.as_deref().filter(|more| more.host == host)?))
    }

    /// Returns what [`Table::of_host`] does, mutably.
    pub fn of_host_mut(&mut self, id: u64, host: u32) -> Option<(usize, &mut More)> {
        let place = self.find(id)?;
        Some((place, self.at_mut(place).more.as_deref_mut().filter(|more| more.host == host)?))
    }

    /// Inserts an entry whose identifier is not in the table, and returns its place. Places found before are
    /// no longer valid.
    pub fn insert(&mut self, entry: Entry) -> usize {
        if self.places.is_empty() || (self.used + 1) * 8 > self.places.len() * 7 {
            self.grow();
        }
        self.used += 1;
        self.place(entry)
    }

    fn place(&mut self, entry: Entry) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(entry.id);
        while self.places[at].id != 0 {
            at = (at + 1) & mask;
        }
        self.places[at] = entry;
        at
    }

    fn grow(&mut self) {
        let size = (self.places.len() * 2).max(MIN_PLACES);
        let mut places = Vec::new();
        places.resize_with(size, Entry::default);
        let old = std::mem::replace(&mut self.places, places);
        self.shift = u64::BITS - size.ilog2();
        for entry in old {
            if entry.id != 0 {
                self.place(entry);
            }
        }
    }

    /// Removes an entry. Places found before are no longer valid.
    pub fn remove(&mut self, place: usize) -> Entry {
        let mask = self.places.len() - 1;
        let removed = std::mem::take(&mut self.places[place]);
        self.used -= 1;
        let mut hole = place;
        let mut at = place;
        loop {
            at = (at + 1) & mask;
            let id = self.places[at].id;
            if id == 0 {
                return removed;
            }
            let home = self.home(id);
            // The entry may move into the hole unless its home lies between the hole and its present place.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.places.swap(hole, at);
                hole = at;
            }
        }
    }

    /// Finds an idle entry to forget in favour of a conversation whose ticket has `date`. Only entries with
    /// older tickets qualify. Looks at a few entries, in turn (the clock algorithm). Among them, chooses
    /// those of the network with the most conversations, then those of the host with the most, and of these
    /// the one that was silent for longest. That approximates a sorted list without keeping one.
    ///
    /// Conversations for which `stays` returns true are not idle.
    pub fn victim(
        &mut self,
        now: u32,
        date: u64,
        count: impl Fn(HostName) -> Count,
        stays: impl Fn(u64) -> bool,
    ) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        let mut best: Option<((Count, u32), usize)> = None;
        let mut seen = 0;
        for _ in 0..MAX_LOOKS.min(self.places.len()) {
            self.hand = (self.hand + 1) & mask;
            let entry = &self.places[self.hand];
            if entry.id == 0
                || entry.issued >= date
                || entry.more.as_ref().is_some_and(|more| more.running > 0)
                || stays(entry.id)
            {
                continue;
            }
            let rank = (count(entry.host()), entry.silent(now));
            if best.is_none_or(|b| rank > b.0) {
                best = Some((rank, self.hand));
            }
            seen += 1;
            if seen == CHOICES {
                break;
            }
        }
        best.map(|b| b.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> Entry {
        Entry::new(id, 1, id, "127.0.0.1:9".parse().unwrap())
    }

    fn table() -> Table {
        Table::new(0x5be8_6de1_a10d_c0f3)
    }

    /// Returns the number of places at which a search for an identifier looks.
    fn steps(table: &Table, id: u64) -> usize {
        let places = table.places.iter().cycle().skip(table.home(id));
        1 + places.take_while(|entry| entry.id != 0 && entry.id != id).count()
    }

    /// Returns the length of the longest of 512 searches for unknown identifiers. The table has 65,536
    /// conversations, which a client has chosen: in all identifiers, the bit `fixed` is zero.
    fn longest_search(mut table: Table, fixed: u32) -> usize {
        let mut x = 1u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        (0..65_536).for_each(|_| _ = table.insert(entry(next() & !(1 << fixed))));
        (0..512).map(|_| steps(&table, next())).max().unwrap()
    }

    #[test]
    fn a_client_that_chooses_among_identifiers_does_not_make_them_collide() {
        // Bits that would number the 131,072 places without a secret.
        for fixed in [0, 8, 16, 47, 55, 63] {
            let longest = longest_search(table(), fixed);
            assert!(longest <= 256, "bit {fixed}: {longest}");
        }
        let longest = longest_search(Table::new(1), 63);
        assert!(longest > 10_000, "{longest} without a secret");
    }

    #[test]
    fn an_idle_conversation_is_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        let mut table = table();
        let mut model = std::collections::BTreeSet::new();
        let mut x = 1u64;
        for _ in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // Few homes, so that chains grow and wrap.
            let id = ((x % 97) << 32) | ((x >> 20) % 29) | (1 << 20);
            match (table.find(id), model.contains(&id)) {
                (Some(place), true) => {
                    assert_eq!(table.remove(place).id, id);
                    model.remove(&id);
                }
                (None, false) => {
                    let place = table.insert(entry(id));
                    assert_eq!(table.at(place).id, id);
                    model.insert(id);
                }
                _ => panic!("table and model differ on {id}"),
            }
            assert_eq!(table.len(), model.len());
        }
        assert!(model.iter().all(|id| table.find(*id).is_some()));
    }

    #[test]
    fn the_table_doubles_when_seven_eighths_are_used_and_no_earlier() {
        let mut table = table();
        for id in 1..=1000 {
            table.insert(entry(id << 7));
            let (used, places) = (table.len(), table.places.len());
            assert!(8 * used <= 7 * places, "{used} of {places}");
            assert!(places == MIN_PLACES || 8 * used > 7 * places / 2, "{used} of {places}");
        }
        assert_eq!(table.entries().count(), 1000);
    }

    #[test]
    fn an_entry_that_stays_is_no_victim() {
        let mut table = table();
        for id in 1..=2 {
            table.insert(entry(id));
        }
        let place = table.victim(400, u64::MAX, |_| Count::default(), |id| id == 1).unwrap();
        assert_eq!(table.at(place).id, 2);
        assert_eq!(table.victim(400, u64::MAX, |_| Count::default(), |_| true), None);
    }

    #[test]
    fn an_entry_returns_its_address_and_tells_hosts_and_ports_apart() {
        let all = ["10.1.2.3:4", "10.1.2.3:5", "10.1.2.4:4", "[::1]:5", "[::2]:5", "[::1]:6", "[1::1]:5"];
        for a in all.into_iter().chain(["[fe80::1%7]:6", "0.0.0.0:0", "255.255.255.255:65535", "[::]:0"]) {
            let a: SocketAddr = a.parse().unwrap();
            let entry = Entry::new(1, 2, 3, a);
            assert_eq!(entry.address(), a);
            assert!(entry.is_at(&a));
            for b in all.map(|b| b.parse().unwrap()) {
                assert_eq!(entry.is_at(&b), a == b, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_conversation_takes_local_datagrams_from_loopback_only_and_keeps_to_a_scheme_with_secrets() {
        let (near, far) = ("127.0.0.1:9".parse().unwrap(), "10.0.0.1:9".parse().unwrap());
        for ours in [Scheme::Open, Scheme::Local] {
            let mut entry = entry(1);
            entry.hear(4, ours);
            assert_eq!((entry.scheme(), entry.heard()), (ours, 4));
            let takes = |theirs| [entry.takes(theirs, &near), entry.takes(theirs, &far)];
            assert_eq!([takes(Scheme::Open), takes(Scheme::Local)], [[true, true], [true, false]]);
            assert_eq!(takes(Scheme::Secure), [false, false]);
        }
        let mut entry = entry(1);
        entry.hear(4, Scheme::Secure);
        let takes = |theirs| [entry.takes(theirs, &near), entry.takes(theirs, &far)];
        let all = [Scheme::Open, Scheme::Local, Scheme::Authenticated, Scheme::Secure].map(takes);
        assert_eq!(all, [[false; 2], [false; 2], [false; 2], [true; 2]]);
    }

    #[test]
    fn a_late_time_replaces_only_an_older_one() {
        let wrapped = (u32::MAX - 3, 4, 4);
        for (heard, late, after) in [(400, 404, 404), (400, 400, 400), (400, 396, 400), wrapped] {
            let mut entry = entry(1);
            entry.hear(heard, Scheme::Open);
            entry.hear_late(late, Scheme::Local);
            assert_eq!((entry.heard(), entry.scheme()), (after, Scheme::Local), "{heard} and {late}");
        }
    }

    #[test]
    fn the_victim_is_idle() {
        let mut table = table();
        for id in 1..=10 {
            let place = table.insert(entry(id));
            table.at_mut(place).hear(4 * (100 - id as u32), Scheme::Open);
        }
        let place = table.victim(400, u64::MAX, |_| Count::default(), |_| false).unwrap();
        assert!(table.at(place).heard() < 400);
    }

    #[test]
    fn the_victim_is_idle_and_has_an_older_ticket_and_is_one_of_eight_candidates() {
        let mut table = table();
        assert_eq!(table.victim(0, u64::MAX, |_| Count::default(), |_| false), None);
        for id in 1..=40 {
            let place = table.insert(entry(id));
            if id % 2 == 0 {
                table.at_mut(place).more = Some(Box::new(More { running: 1, ..More::new(0) }));
            }
        }
        let looked = std::cell::Cell::new(0);
        let mut victim = |date| {
            looked.set(0);
            let count = |_| {
                looked.set(looked.get() + 1);
                Count::default()
            };
            table.victim(400, date, count, |_| false).map(|place| table.at(place).id)
        };
        for _ in 0..100 {
            assert!(victim(30).is_some_and(|id| id < 30 && id % 2 == 1));
            assert!(matches!(victim(4), Some(1 | 3)));
            assert_eq!(victim(2), Some(1));
            assert_eq!(victim(1), None, "no ticket is older");
            victim(u64::MAX);
            assert_eq!(looked.get(), CHOICES);
        }
    }

    #[test]
    fn the_victim_is_of_the_network_and_then_of_the_host_that_has_most() {
        let mut table = table();
        for id in 1..=8 {
            let place = table.insert(entry(id));
            table.at_mut(place).hear(4 * id as u32, Scheme::Open);
        }
        table.insert(Entry::new(9, 1, 9, "10.0.0.1:9".parse().unwrap()));
        let few = HostName::of(table.places[9].ip);
        let many = Count { network: 9, host: 8 };
        for (network, host) in [(9, 1), (1, 9)] {
            let count = |host_name| if host_name == few { Count { network, host } } else { many };
            for _ in 0..100 {
                let place = table.victim(400, u64::MAX, count, |_| false).unwrap();
                assert_ne!(table.at(place).host(), few, "it was not heard for longest");
            }
        }
    }
}
