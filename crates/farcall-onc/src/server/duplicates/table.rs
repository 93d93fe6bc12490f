//! Where calls and their answers are kept: a line for each host, and the host that has most gives its oldest
//! up first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use super::{Fate, HostKey, Key, Lasting, Outcome, Retention, Ticket};

/// All that is kept.
pub(super) struct Table {
    /// Where calls stand, by their checksums. Several are of one key, if clients on different connections
    /// call alike.
    places: HashTable<Place>,
    /// Those of each host. A line with no calls is nobody's.
    lines: Vec<Line>,
    free: Vec<u32>,
    hosts: HashMap<HostKey, u32>,
    /// Hosts by how much is kept of them, in units of two to a power: an order that seldom changes. Among
    /// equals the one that is known longest comes last.
    heaviest: BTreeSet<(usize, Reverse<u64>, u32)>,
    unit: u32,
    /// The line that is looked at next for what is too old.
    look: usize,
    /// How many calls there were.
    numbers: u64,
    bytes: usize,
}

/// Where a call stands: in which line, and behind how many that ever stood there.
struct Place {
    checksum: u64,
    line: u32,
    at: u64,
}

/// The calls of one host as they came: side by side, since those that come and go together are soon no more
/// in a cache.
struct Line {
    host: HostKey,
    /// How many calls there were before its first.
    since: u64,
    calls: VecDeque<Known>,
    /// Where the first of them stands.
    first: u64,
    bytes: usize,
}

struct Known {
    key: Key,
    number: NonZero<u64>,
    /// Of the connection that it came by.
    fate: Option<Arc<Fate>>,
    answer: Option<Answer>,
}

/// What a call was answered with.
pub(super) struct Answer {
    pub(super) at: Duration,
    pub(super) outcome: Outcome,
}

/// What an entry takes besides its reply, and a host besides its entries.
pub(super) const ENTRY: usize = 256;
pub(super) const HOST: usize = 768;
/// Calls that are being served and are moved to the end of a line at a time.
const MOVES: usize = 4;
/// Hosts that are looked at for what is too old at a time.
const HOSTS: usize = 2;

impl Known {
    /// Whether it is the same as no call that comes by a connection of this fate, or by any new one: it is
    /// too old, or its client is owed nothing. It stays until it is the oldest, though no place leads to it.
    fn is_past(&self, is_old: impl Fn(Duration) -> bool, fate: Option<&Arc<Fate>>) -> bool {
        let is_its_own = |former: &Arc<Fate>| fate.is_some_and(|fate| Arc::ptr_eq(former, fate));
        self.answer.as_ref().is_some_and(|answer| is_old(answer.at))
            || self.fate.as_ref().is_some_and(|former| !is_its_own(former) && former.is_in_order())
    }

    /// Whether one that has the same key and comes by a connection of this fate is the same call.
    fn is_sent_again(&self, fate: Option<&Arc<Fate>>, look: impl FnOnce(Arc<dyn Lasting>) -> bool) -> bool {
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

    /// Where the next call will stand.
    fn end(&self) -> u64 {
        self.first + self.calls.len() as u64
    }
}

impl Table {
    /// An empty one for about so many bytes.
    pub(super) fn new(budget: usize) -> Table {
        Table {
            places: HashTable::new(),
            lines: Vec::new(),
            free: Vec::new(),
            hosts: HashMap::new(),
            heaviest: BTreeSet::new(),
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

    /// The answer of a call that is the same as one of this key which comes by a connection of this fate, if
    /// there is one.
    pub(super) fn find(
        &mut self,
        key: &Key,
        fate: Option<&Arc<Fate>>,
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
        // One goes for each that comes: there are never many of one key, however many clients come and go.
        if let Some(past) = past
            && let Ok(place) = places.find_entry(key.checksum, |place| (place.line, place.at) == past)
        {
            place.remove();
        }
        None
    }

    /// Enters a call that is being served.
    pub(super) fn add(&mut self, key: Key, fate: Option<Arc<Fate>>) -> Ticket {
        let (checksum, number) = (key.checksum, NonZero::<u64>::MIN.saturating_add(self.numbers));
        self.numbers += 1;
        let place = self.line_of(HostKey::at(key.host));
        let line = &mut self.lines[place as usize];
        let at = line.end();
        line.calls.push_back(Known { key, number, fate, answer: None });
        self.places.insert_unique(checksum, Place { checksum, line: place, at }, |place| place.checksum);
        Ticket { checksum, number }
    }

    fn line_of(&mut self, host: HostKey) -> u32 {
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
        self.heaviest.insert((0, Reverse(self.numbers), place));
        self.count(place, HOST as isize);
        place
    }

    /// So much more is kept in a line, or less.
    fn count(&mut self, place: u32, bytes: isize) {
        let line = &mut self.lines[place as usize];
        let before = line.bytes >> self.unit;
        self.bytes = self.bytes.saturating_add_signed(bytes);
        line.bytes = line.bytes.saturating_add_signed(bytes);
        let after = line.bytes >> self.unit;
        if before != after {
            let since = Reverse(line.since);
            self.heaviest.remove(&(before, since, place));
            self.heaviest.insert((after, since, place));
        }
    }

    /// Enters what a call was answered with. One that has taken long begins anew at the end of the line: it
    /// is the likeliest to be sent again.
    pub(super) fn answer(&mut self, ticket: &Ticket, answer: Answer) {
        /// So many others may have come meanwhile.
        const FEW: u64 = 8;
        let Table { places, lines, .. } = self;
        let same = |place: &Place| {
            let known = lines.get(place.line as usize).and_then(|line| line.get(place.at));
            known.is_some_and(|known| known.number == ticket.number)
        };
        let Some(place) = places.find_mut(ticket.checksum, same) else { return };
        let line = &mut lines[place.line as usize];
        let (bytes, end) = (answer.outcome.len() + ENTRY, line.end());
        let Some(known) = line.get_mut(place.at) else { return };
        if end - place.at <= FEW {
            known.answer = Some(answer);
        } else {
            let known = Known { key: known.key, number: known.number, fate: known.fate.take(), answer: Some(answer) };
            place.at = end;
            line.calls.push_back(known);
        }
        let line = place.line;
        self.count(line, bytes as isize);
    }

    /// Removes what is too old, a few hosts at a time, and what is too much, of the host that has most. What
    /// is still being served goes to the end of the line, a few at a time.
    pub(super) fn expire(&mut self, now: Duration, retention: Retention) {
        for _ in 0..HOSTS.min(self.lines.len()) {
            self.look = (self.look + 1) % self.lines.len();
            let is_old = |answer: &Answer| now.saturating_sub(answer.at) >= retention.time;
            self.shorten(self.look as u32, |_, answer| is_old(answer));
        }
        while self.bytes > retention.bytes
            && let Some((_, _, heaviest)) = self.heaviest.last().copied()
        {
            let before = self.bytes;
            let next = self.heaviest.iter().nth_back(1).map_or(0, |(units, ..)| units << self.unit);
            // Not further than to what the next has.
            self.shorten(heaviest, |table, _| {
                table.bytes > retention.bytes && table.lines[heaviest as usize].bytes >= next
            });
            if self.bytes == before {
                return;
            }
        }
    }

    /// Takes the oldest calls out of a line as long as they are answered and this holds of them.
    fn shorten(&mut self, place: u32, mut goes: impl FnMut(&Table, &Answer) -> bool) {
        let mut moves = 0;
        while let Some(oldest) = self.lines[place as usize].calls.front() {
            match &oldest.answer {
                Some(answer) if !goes(self, answer) => return,
                Some(answer) => {
                    let bytes = answer.outcome.len() + ENTRY;
                    self.pop(place);
                    self.count(place, -(bytes as isize));
                }
                None if moves == MOVES => return,
                None => {
                    moves += 1;
                    self.pop(place);
                }
            }
        }
        self.forget_if_empty(place);
    }

    /// Removes the first of a line, or moves it behind the others if it is being served. (One that no place
    /// leads to is neither.)
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

    /// A host of which nothing is kept any more leaves its line.
    fn forget_if_empty(&mut self, place: u32) {
        let line = &mut self.lines[place as usize];
        if !line.calls.is_empty() || self.hosts.get(&line.host) != Some(&place) {
            return;
        }
        self.hosts.remove(&line.host);
        self.heaviest.remove(&(line.bytes >> self.unit, Reverse(line.since), place));
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut line.bytes));
        line.calls = VecDeque::new();
        self.free.push(place);
    }
}
