//! The table of calls and their answers, by which a server recognises calls that a client sends again. Each
//! host has a line (a queue) of its calls. When there are too many calls, of the network with most bytes the
//! host with most bytes loses its oldest ones. (One machine can have all hosts of an IPv6 network.)

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use super::{Host, Key, Lasting, Network, Outcome, PeerFate, Retention, Ticket};

/// The calls that are remembered.
pub(super) struct Table {
    /// The places of the calls in `lines`, by the calls' checksums. Several calls may have one key, when
    /// clients on different connections make calls with equal bytes.
    places: HashTable<Place>,
    /// The calls of each host. A line without calls belongs to no host.
    lines: Vec<Line>,
    free: Vec<u32>,
    hosts: HashMap<Host, u32>,
    networks: HashMap<Network, Share>,
    /// The networks in the order of how many bytes are kept for them, and the hosts of each network. The
    /// bytes are counted in large units, of a power of two each, so that the orders seldom change. Among
    /// equals the one that has been known longest comes last.
    heaviest_networks: BTreeSet<(usize, Reverse<u64>, Network)>,
    heaviest_hosts: BTreeSet<(Network, usize, Reverse<u64>, u32)>,
    unit: u32,
    /// The line that was last searched for calls that are too old.
    look: usize,
    /// How many calls have been entered so far.
    numbers: u64,
    bytes: usize,
}

/// What is kept for the hosts of a network.
#[derive(Clone, Copy)]
struct Share {
    /// How many calls of all hosts came before the network's first.
    since: u64,
    hosts: usize,
    bytes: usize,
}

/// The place of a call: its line, and how many calls came before it in that line since the line began.
struct Place {
    checksum: u64,
    line: u32,
    at: u64,
}

/// The calls of one host in the order in which they came. They are stored side by side, because they are
/// dropped together, and are then no longer in the processor's cache.
struct Line {
    host: Host,
    /// How many calls of all hosts came before this host's first.
    since: u64,
    calls: VecDeque<Known>,
    /// The position of the first of `calls`, as [`Place::at`] counts.
    first: u64,
    bytes: usize,
}

struct Known {
    key: Key,
    number: NonZero<u64>,
    /// The fate of the connection by which the call came: whether it still exists, and how it ended.
    fate: Option<Arc<PeerFate>>,
    answer: Option<Answer>,
}

/// The answer that a call got.
pub(super) struct Answer {
    pub(super) at: Duration,
    pub(super) outcome: Outcome,
}

/// How many bytes each entry counts in addition to its reply.
pub(super) const ENTRY_BYTES: usize = 256;
/// How many bytes each host counts in addition to its entries.
pub(super) const HOST_BYTES: usize = 768;
/// How many calls that are still being served one search of a line moves to the end of the line.
const MOVES_AT_A_TIME: usize = 4;
/// How many hosts one call of [`Table::expire`] searches for calls that are too old.
const HOSTS_AT_A_TIME: usize = 2;

impl Known {
    /// Returns whether this call cannot be sent again any more, by a connection of this fate or by a new
    /// connection: the call is too old, or its connection ended in order. Such a call stays in its line until
    /// it is the oldest one, but no place leads to it.
    fn is_past(&self, is_old: impl Fn(Duration) -> bool, fate: Option<&Arc<PeerFate>>) -> bool {
        let is_its_own = |former: &Arc<PeerFate>| fate.is_some_and(|fate| Arc::ptr_eq(former, fate));
        self.answer.as_ref().is_some_and(|answer| is_old(answer.at))
            || self.fate.as_ref().is_some_and(|former| !is_its_own(former) && former.is_in_order())
    }

    /// Returns whether a call with the same key that comes by a connection of this fate is this call, sent
    /// again.
    fn is_sent_again(
        &self,
        fate: Option<&Arc<PeerFate>>,
        look: impl FnOnce(Arc<dyn Lasting>) -> bool,
    ) -> bool {
        match (&self.fate, fate) {
            (Some(former), Some(fate)) if !Arc::ptr_eq(former, fate) => former.may_come_again(look),
            _ => true,
        }
    }
}

impl Line {
    fn get(&self, at: u64) -> Option<&Known> {
        self.calls.get(usize::try_from(at.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, at: u64) -> Option<&mut Known> {
        self.calls.get_mut(usize::try_from(at.checked_sub(self.first)?).ok()?)
    }

    /// Returns the position of the next call that is added.
    fn end(&self) -> u64 {
        self.first + self.calls.len() as u64
    }
}

impl Table {
    /// Makes an empty table for about `budget` bytes.
    pub(super) fn new(budget: usize) -> Table {
        Table {
            places: HashTable::new(),
            lines: Vec::new(),
            free: Vec::new(),
            hosts: HashMap::new(),
            networks: HashMap::new(),
            heaviest_networks: BTreeSet::new(),
            heaviest_hosts: BTreeSet::new(),
            unit: (budget / 1024).max(1).ilog2(),
            look: 0,
            numbers: 0,
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(|line| line.calls.len()).sum()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// Looks for an earlier call of which a call with this key, by a connection of this fate, is a
    /// repetition. Returns the earlier call's answer, which is `None` while that call is being served.
    pub(super) fn find(
        &mut self,
        key: &Key,
        fate: Option<&Arc<PeerFate>>,
        is_old: impl Fn(Duration) -> bool,
        mut look: impl FnMut(Arc<dyn Lasting>) -> bool,
    ) -> Option<Option<&Answer>> {
        let mut past = None;
        let Table { places, lines, .. } = self;
        let known = |place: &Place| lines.get(place.line as usize)?.get(place.at);
        let same = |place: &Place| {
            let Some(known) = known(place).filter(|known| known.key == *key) else { return false };
            if known.is_past(&is_old, fate) {
                past = Some((place.line, place.at));
                return false;
            }
            known.is_sent_again(fate, &mut look)
        };
        if let Some(found) = places.find(key.checksum, same).and_then(known) {
            return Some(found.answer.as_ref());
        }
        // Each call that comes removes one place of a call that cannot be sent again. So there are never many
        // places with one key, however many clients come and go.
        if let Some(past) = past
            && let Ok(place) = places.find_entry(key.checksum, |place| (place.line, place.at) == past)
        {
            place.remove();
        }
        None
    }

    /// Enters a call that is being served.
    pub(super) fn add(&mut self, key: Key, fate: Option<Arc<PeerFate>>) -> Ticket {
        let (checksum, number) = (key.checksum, NonZero::<u64>::MIN.saturating_add(self.numbers));
        self.numbers += 1;
        let place = self.line_of(Host::at(key.host));
        let line = &mut self.lines[place as usize];
        let at = line.end();
        line.calls.push_back(Known { key, number, fate, answer: None });
        self.places.insert_unique(checksum, Place { checksum, line: place, at }, |place| place.checksum);
        Ticket { checksum, number }
    }

    fn line_of(&mut self, host: Host) -> u32 {
        if let Some(place) = self.hosts.get(&host) {
            return *place;
        }
        let line = Line { host, since: self.numbers, calls: VecDeque::new(), first: 0, bytes: 0 };
        let place = match self.free.pop() {
            Some(place) => {
                self.lines[place as usize] = line;
                place
            }
            None => {
                self.lines.push(line);
                self.lines.len() as u32 - 1
            }
        };
        self.hosts.insert(host, place);
        let (since, network) = (Reverse(self.numbers), host.network());
        let share = self.networks.entry(network).or_insert_with(|| {
            self.heaviest_networks.insert((0, since, network));
            Share { since: since.0, hosts: 0, bytes: 0 }
        });
        share.hosts += 1;
        self.heaviest_hosts.insert((network, 0, since, place));
        self.count(place, HOST_BYTES as isize);
        place
    }

    /// Adds `bytes`, which may be negative, to what is kept in a line.
    fn count(&mut self, place: u32, bytes: isize) {
        let line = &mut self.lines[place as usize];
        let (network, since) = (line.host.network(), Reverse(line.since));
        self.bytes = self.bytes.saturating_add_signed(bytes);
        let change = |held: &mut usize| {
            let before = *held >> self.unit;
            *held = held.saturating_add_signed(bytes);
            (before, *held >> self.unit)
        };
        let (before, after) = change(&mut line.bytes);
        if before != after {
            self.heaviest_hosts.remove(&(network, before, since, place));
            self.heaviest_hosts.insert((network, after, since, place));
        }
        let Some(share) = self.networks.get_mut(&network) else { return };
        let (before, after) = change(&mut share.bytes);
        if before != after {
            self.heaviest_networks.remove(&(before, Reverse(share.since), network));
            self.heaviest_networks.insert((after, Reverse(share.since), network));
        }
    }

    /// Enters the answer that a call got. A call that took long moves to the end of its line, because it is
    /// the likeliest to be sent again.
    pub(super) fn answer(&mut self, ticket: &Ticket, answer: Answer) {
        /// A call took long if more than this many calls of its host came meanwhile.
        const FEW: u64 = 8;
        let Table { places, lines, .. } = self;
        let same = |place: &Place| {
            let known = lines.get(place.line as usize).and_then(|line| line.get(place.at));
            known.is_some_and(|known| known.number == ticket.number)
        };
        let Some(place) = places.find_mut(ticket.checksum, same) else { return };
        let line = &mut lines[place.line as usize];
        let (bytes, end) = (answer.outcome.len() + ENTRY_BYTES, line.end());
        let Some(known) = line.get_mut(place.at) else { return };
        if end - place.at <= FEW {
            known.answer = Some(answer);
        } else {
            let known =
                Known { key: known.key, number: known.number, fate: known.fate.take(), answer: Some(answer) };
            place.at = end;
            line.calls.push_back(known);
        }
        let line = place.line;
        self.count(line, bytes as isize);
    }

    /// Removes calls that are too old, a few hosts at a time. If there are too many calls, also removes calls
    /// of the host that has most bytes, in the network that has. Calls that are still being served move to the end of their line, a
    /// few at a time.
    pub(super) fn expire(&mut self, now: Duration, retention: Retention) {
        for _ in 0..HOSTS_AT_A_TIME.min(self.lines.len()) {
            self.look = (self.look + 1) % self.lines.len();
            let is_old = |answer: &Answer| now.saturating_sub(answer.at) >= retention.time;
            self.shorten(self.look as u32, |_, answer| is_old(answer));
        }
        while self.bytes > retention.bytes
            && let Some((_, _, network)) = self.heaviest_networks.last().copied()
        {
            let before = self.bytes;
            let next_network = self.heaviest_networks.iter().nth_back(1).map_or(0, |(units, ..)| *units);
            let all = (network, 0, Reverse(u64::MAX), 0)..=(network, usize::MAX, Reverse(0), u32::MAX);
            let mut hosts = self.heaviest_hosts.range(all).rev();
            let Some((.., heaviest)) = hosts.next().copied() else { return };
            let next_host = hosts.next().map_or(0, |(_, units, ..)| *units);
            let [next_network, next_host] = [next_network, next_host].map(|units| units << self.unit);
            // The heaviest host loses calls only until it has as little as the next host of its network, or
            // its network as little as the next one.
            self.shorten(heaviest, |table, _| {
                table.bytes > retention.bytes
                    && table.lines[heaviest as usize].bytes >= next_host
                    && table.networks.get(&network).is_some_and(|share| share.bytes >= next_network)
            });
            if self.bytes == before {
                return;
            }
        }
    }

    /// Takes the oldest calls out of a line as long as they are answered and `goes` accepts them.
    fn shorten(&mut self, place: u32, mut goes: impl FnMut(&Table, &Answer) -> bool) {
        let mut moves = 0;
        while let Some(oldest) = self.lines[place as usize].calls.front() {
            match &oldest.answer {
                Some(answer) if !goes(self, answer) => return,
                Some(answer) => {
                    let bytes = answer.outcome.len() + ENTRY_BYTES;
                    self.pop(place);
                    self.count(place, -(bytes as isize));
                }
                None if moves == MOVES_AT_A_TIME => return,
                None => {
                    moves += 1;
                    self.pop(place);
                }
            }
        }
        self.forget_if_empty(place);
    }

    /// Removes the first call of a line. If it is being served, and a place leads to it, it moves to the end
    /// of the line.
    fn pop(&mut self, place: u32) {
        let line = &mut self.lines[place as usize];
        let Some(known) = line.calls.pop_front() else { return };
        let (checksum, at) = (known.key.checksum, line.first);
        line.first += 1;
        let is_it = |other: &Place| (other.line, other.at) == (place, at);
        let Ok(mut found) = self.places.find_entry(checksum, is_it) else { return };
        if known.answer.is_some() {
            found.remove();
            return;
        }
        found.get_mut().at = line.end();
        line.calls.push_back(known);
    }

    /// Frees the line of a host of which nothing is kept any more.
    fn forget_if_empty(&mut self, place: u32) {
        let line = &mut self.lines[place as usize];
        if !line.calls.is_empty() || self.hosts.get(&line.host) != Some(&place) {
            return;
        }
        self.hosts.remove(&line.host);
        let (network, bytes) = (line.host.network(), line.bytes as isize);
        self.count(place, -bytes);
        let line = &mut self.lines[place as usize];
        self.heaviest_hosts.remove(&(network, 0, Reverse(line.since), place));
        line.calls = VecDeque::new();
        self.free.push(place);
        let Some(share) = self.networks.get_mut(&network) else { return };
        share.hosts -= 1;
        if share.hosts == 0 {
            let since = Reverse(share.since);
            self.networks.remove(&network);
            self.heaviest_networks.remove(&(0, since, network));
        }
    }
}
