//! Open-addressed hash tables in a segment of shared memory. One read of an entry shows whether the entry is
//! whole.
//!
//! ```text
//! entry  end · key key key · length · value … · begin     each part is a word, except the value
//! ```
//!
//! An entry is whole if `end` and `begin` have the same version. A writer first swaps `begin` from the
//! version that it saw whole to a greater one. That swap is the token: only one process succeeds. Then the
//! writer writes the entry, and `end` last. A reader reads the words in ascending order, `end` first and
//! `begin` last, so `begin` shows whether a change was under way. Versions of an entry never repeat.
//!
//! The server writes even versions. A clerk (a process that caches files for its machine) writes odd ones:
//! their values are not in the file yet. Only the server changes an odd version to an even one, so it can
//! restore an entry from the file if a clerk has died while it wrote.
//!
//! A key is in one of [`WINDOW`] places, beginning with its own place. An entry is replaced but never
//! emptied, so a place that was never used ends the search.

use std::hint::spin_loop;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use farcall::Bytes;
use farcall::memory::{Memory, Result};

/// The key of an entry.
pub(crate) type Key = [u64; 3];

/// The number of places in which a key may be.
const WINDOW: u64 = 8;

/// The most reads of an entry that is being changed.
const MAX_READS: usize = 64;

const WORD: usize = 8;
const HEADER: usize = 5 * WORD;

/// The bit of the length word that says that clerks may write the value.
const WRITABLE: u64 = 1 << 63;

/// The position of a table in its segment, and the sizes of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    base: u64,
    entries: u64,
    room: usize,
}

/// The outcome of a look-up in a table.
#[derive(Debug)]
pub(crate) enum Look {
    Found(Entry),
    Missing,
    /// A process is changing the entry, or has died while it changed the entry.
    Held,
}

/// An entry that was read whole.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) place: u64,
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// The length of the whole value in bytes.
    pub(crate) length: usize,
    pub(crate) writable: bool,
    /// The requested part of the value, as far as the value reaches.
    pub(crate) bytes: Bytes,
}

impl Entry {
    /// Returns the entry with only this part of its bytes. The entry must have all bytes of its value.
    pub(crate) fn part(mut self, part: Range<usize>) -> Entry {
        let end = part.end.min(self.bytes.len());
        self.bytes = self.bytes.slice(part.start.min(end)..end);
        self
    }
}

/// The right to change an entry.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) place: u64,
    /// The version of the entry before the token was taken.
    pub(crate) was: u64,
    pub(crate) version: u64,
}

impl Table {
    /// Returns a table at `base` whose values have at most `room` bytes, a multiple of eight.
    pub(crate) fn new(base: u64, entries: u32, room: usize) -> Table {
        debug_assert!(room.is_multiple_of(WORD));
        Table { base, entries: u64::from(entries.max(1)), room }
    }

    /// Returns the offset at which the table begins.
    pub(crate) fn start(&self) -> u64 {
        self.base
    }

    /// Returns the offset at which the table ends.
    pub(crate) fn end(&self) -> u64 {
        self.at(self.entries)
    }

    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Looks up the value of a key, or a part of the value. Reads the segment once if the key is in its own
    /// place or in the place that `hints` names.
    pub(crate) fn look(
        &self,
        memory: &dyn Memory,
        key: Key,
        part: Range<usize>,
        hints: &Hints,
    ) -> Result<Look> {
        let home = self.home(key);
        let mut place = (home + hints.of(self, key)) % self.entries;
        for _ in 0..MAX_READS {
            let read = self.read(memory, place, &part)?;
            if read.key == key {
                match read.entry() {
                    Some(entry) => return Ok(Look::Found(entry)),
                    None => spin_loop(),
                }
                continue;
            }
            let found = match read.unused && place == home {
                true => None,
                false => self.place(memory, key)?,
            };
            let Some(found) = found else { return Ok(Look::Missing) };
            place = found;
            hints.set(self, key, (place + self.entries - home) % self.entries);
        }
        Ok(Look::Held)
    }

    /// Returns the place of a key, whether its entry is whole or not.
    pub(crate) fn place(&self, memory: &dyn Memory, key: Key) -> Result<Option<u64>> {
        let mut keys = [[0; 3 * WORD]; WINDOW as usize];
        let places = self.window(key);
        let mut ranges: Vec<(u64, &mut [u8])> = places
            .clone()
            .zip(&mut keys)
            .map(|(place, into)| (self.at(place) + WORD as u64, &mut into[..]))
            .collect();
        memory.read_each(&mut ranges)?;
        Ok(places.zip(&keys).find(|(_, found)| words(*found) == key).map(|(place, _)| place))
    }

    /// Returns the places in which a key may be, its own place first.
    fn window(&self, key: Key) -> impl Iterator<Item = u64> + Clone + use<> {
        let (home, entries) = (self.home(key), self.entries);
        (0..WINDOW.min(entries)).map(move |step| (home + step) % entries)
    }

    /// Returns the places that overlap these bytes of the segment.
    pub(crate) fn places(&self, bytes: Range<u64>) -> Range<u64> {
        let place = |offset: u64| offset.saturating_sub(self.base) / self.size();
        if bytes.end <= self.base {
            return 0..0;
        }
        place(bytes.start).min(self.entries)..(place(bytes.end - 1) + 1).min(self.entries)
    }

    /// Returns all places.
    pub(crate) fn all(&self) -> Range<u64> {
        0..self.entries
    }

    /// Returns the key at a place, whether its entry is whole or not.
    pub(crate) fn key(&self, memory: &dyn Memory, place: u64) -> Result<Key> {
        let mut key = [0; 3 * WORD];
        memory.read(self.at(place) + WORD as u64, &mut key)?;
        Ok(words(&key))
    }

    /// Returns the entry at a place if it is whole.
    pub(crate) fn entry(&self, memory: &dyn Memory, place: u64) -> Result<Option<Entry>> {
        Ok(self.read(memory, place, &(0..self.room))?.entry())
    }

    /// Returns the entry as it was when its token was acquired.
    pub(crate) fn held(&self, memory: &dyn Memory, token: &Token) -> Result<Entry> {
        Ok(self.read(memory, token.place, &(0..self.room))?.taken())
    }

    /// Returns the place of a key. If the table does not have the key, returns a place that was never used.
    /// If all of the key's places are used, returns the one that `turn` selects, whose entry is to be
    /// replaced.
    pub(crate) fn spot(&self, memory: &dyn Memory, key: Key, turn: u64) -> Result<u64> {
        if let Some(place) = self.place(memory, key)? {
            return Ok(place);
        }
        for place in self.window(key) {
            if self.versions(memory, place)? == (0, 0) {
                return Ok(place);
            }
        }
        Ok((self.home(key) + turn % WINDOW.min(self.entries)) % self.entries)
    }

    /// Acquires the token of a whole entry. Returns `None` if another process was faster.
    pub(crate) fn acquire(
        &self,
        memory: &dyn Memory,
        place: u64,
        was: u64,
        odd: bool,
    ) -> Result<Option<Token>> {
        let version = (was | 1).wrapping_add(if odd { 2 } else { 1 });
        let found = memory.compare_and_swap(self.begin(place), was, version)?;
        Ok((found == was).then_some(Token { place, was, version }))
    }

    /// Returns the two version words of an entry: (`end`, `begin`).
    pub(crate) fn versions(&self, memory: &dyn Memory, place: u64) -> Result<(u64, u64)> {
        let (mut end, mut begin) = ([0; WORD], [0; WORD]);
        memory.read_each(&mut [(self.at(place), &mut end), (self.begin(place), &mut begin)])?;
        Ok((u64::from_le_bytes(end), u64::from_le_bytes(begin)))
    }

    /// Writes another key and value into the entry. The entry is whole when the token is released.
    pub(crate) fn put(
        &self,
        memory: &dyn Memory,
        token: &Token,
        key: Key,
        value: &[u8],
        writable: bool,
    ) -> Result<()> {
        let value = &value[..value.len().min(self.room)];
        let length = value.len() as u64 | if writable { WRITABLE } else { 0 };
        let mut bytes = Vec::with_capacity(HEADER - WORD + value.len());
        key.iter().chain([&length]).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(value);
        memory.write(self.at(token.place) + WORD as u64, &bytes)
    }

    /// Changes a part of the value, which must not grow, and releases the token with notice.
    pub(crate) fn finish(&self, memory: &dyn Memory, token: Token, at: usize, bytes: &[u8]) -> Result<()> {
        let place = self.at(token.place);
        memory
            .write_each(&[(place + (HEADER + at) as u64, bytes), (place, &token.version.to_le_bytes())], true)
    }

    /// Changes a part of the value, which must not grow, and keeps the token.
    #[cfg(test)]
    pub(crate) fn change(&self, memory: &dyn Memory, token: &Token, at: usize, bytes: &[u8]) -> Result<()> {
        memory.write(self.at(token.place) + (HEADER + at) as u64, bytes)
    }

    /// Releases the token: the entry is whole again. `notify` says whether the exporter is notified.
    pub(crate) fn release(&self, memory: &dyn Memory, token: Token, notify: bool) -> Result<()> {
        let end = token.version.to_le_bytes();
        match notify {
            true => memory.write_notify(self.at(token.place), &end),
            false => memory.write(self.at(token.place), &end),
        }
    }

    fn read(&self, memory: &dyn Memory, place: u64, part: &Range<usize>) -> Result<Read> {
        let part = part.start.min(self.room)..part.end.min(self.room);
        let mut bytes = vec![0; HEADER + part.len() + WORD];
        if part.len() == self.room {
            memory.read(self.at(place), &mut bytes)?;
        } else if part.start == 0 {
            let (front, begin) = bytes.split_at_mut(HEADER + part.len());
            memory.read_each(&mut [(self.at(place), front), (self.begin(place), begin)])?;
        } else {
            let (header, rest) = bytes.split_at_mut(HEADER);
            let (value, begin) = rest.split_at_mut(part.len());
            let value_at = self.at(place) + (HEADER + part.start) as u64;
            memory.read_each(&mut [
                (self.at(place), header),
                (value_at, value),
                (self.begin(place), begin),
            ])?;
        }
        let [end, first, second, third, length] = words(&bytes);
        let [begin] = words(&bytes[HEADER + part.len()..]);
        let unused = end == 0 && begin == 0;
        Ok(Read {
            place,
            end,
            begin,
            unused,
            key: [first, second, third],
            length,
            start: part.start,
            room: self.room,
            bytes,
        })
    }

    /// Returns the offset and the bytes that a holder of the token writes to show that the entry is held.
    pub(crate) fn mark_of_holder(&self, token: &Token) -> (u64, [u8; WORD]) {
        (self.begin(token.place), token.version.to_le_bytes())
    }

    /// Returns the offset and the bytes of the used part of an entry, without the two versions.
    pub(crate) fn content(&self, memory: &dyn Memory, place: u64) -> Result<(u64, Vec<u8>)> {
        let mut bytes = vec![0; HEADER - WORD + self.room];
        memory.read(self.at(place) + WORD as u64, &mut bytes)?;
        let [_, _, _, length] = words(&bytes);
        let used = usize::try_from(length & !WRITABLE).unwrap_or(self.room).min(self.room);
        bytes.truncate(HEADER - WORD + used);
        Ok((self.at(place) + WORD as u64, bytes))
    }

    /// Returns the offset of the version that is written last.
    pub(crate) fn end_of(&self, place: u64) -> u64 {
        self.at(place)
    }

    fn size(&self) -> u64 {
        (HEADER + self.room + WORD) as u64
    }

    fn at(&self, place: u64) -> u64 {
        self.base + place * self.size()
    }

    fn begin(&self, place: u64) -> u64 {
        self.at(place) + (HEADER + self.room) as u64
    }

    fn home(&self, key: Key) -> u64 {
        mix(key) % self.entries
    }
}

/// A clerk's memory of how far from its own place each key was found last, so that the next read finds it at
/// once.
#[derive(Debug)]
pub(crate) struct Hints(Vec<AtomicU8>);

impl Hints {
    /// A table without hints, for readers in the server's process.
    pub(crate) const NONE: &Hints = &Hints::EMPTY;

    const EMPTY: Hints = Hints(Vec::new());

    pub(crate) fn new() -> Hints {
        Hints(std::iter::repeat_with(AtomicU8::default).take(1 << 16).collect())
    }

    fn of(&self, table: &Table, key: Key) -> u64 {
        self.slot(table, key).map_or(0, |slot| slot.load(Ordering::Relaxed).into())
    }

    fn set(&self, table: &Table, key: Key, steps: u64) {
        if let Some(slot) = self.slot(table, key) {
            slot.store(steps as u8, Ordering::Relaxed);
        }
    }

    /// Returns the hint of a key. Several keys may share one.
    fn slot(&self, table: &Table, key: Key) -> Option<&AtomicU8> {
        self.0.get((scatter(mix(key) ^ table.base) >> 48) as usize)
    }
}

/// The words and bytes of one read.
struct Read {
    place: u64,
    end: u64,
    begin: u64,
    unused: bool,
    key: Key,
    length: u64,
    start: usize,
    room: usize,
    bytes: Vec<u8>,
}

impl Read {
    fn entry(self) -> Option<Entry> {
        (self.end == self.begin).then(|| self.taken())
    }

    fn taken(self) -> Entry {
        let length = usize::try_from(self.length & !WRITABLE).unwrap_or(self.room).min(self.room);
        let have = self.bytes.len() - HEADER - WORD;
        let bytes =
            Bytes::from(self.bytes).slice(HEADER..HEADER + have.min(length.saturating_sub(self.start)));
        let writable = self.length & WRITABLE != 0;
        Entry { place: self.place, version: self.end, key: self.key, length, writable, bytes }
    }
}

/// Returns the hash of a key, the same in all processes.
fn mix(key: Key) -> u64 {
    key.iter().fold(0, |hash, word| scatter(hash ^ word))
}

/// Returns the hash of a name, the same in all processes.
pub(crate) fn hash(name: &str) -> u64 {
    name.bytes().fold(0x9e37_79b9_7f4a_7c15, |hash, byte| scatter(hash ^ u64::from(byte)))
}

/// Mixes the bits of a number (the finalizer of splitmix64).
fn scatter(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the first `N` words of bytes. Missing bytes are zeros.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall::Runtime;
    use farcall::memory::{Segment, Settings};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn segment(table: &Table) -> Segment {
        let registry = farcall::names::Memory::new();
        let runtime = Runtime::builder().registry(registry).shared_memory(false).build().unwrap();
        runtime.export_segment("Table", Settings::new(table.end() as usize)).unwrap()
    }

    fn put(table: &Table, memory: &dyn Memory, place: u64, key: Key, value: &[u8]) {
        let (_, begin) = table.versions(memory, place).unwrap();
        let token = table.acquire(memory, place, begin, false).unwrap().unwrap();
        table.put(memory, &token, key, value, false).unwrap();
        table.release(memory, token, false).unwrap();
    }

    #[test]
    fn a_key_is_found_wherever_it_stands_in_its_window() {
        let table = Table::new(64, 16, 32);
        let memory = segment(&table);
        let key = [1, 2, 3];
        for place in table.window(key).skip(1) {
            put(&table, &memory, table.home(key), [9, 9, 9], b"other");
            put(&table, &memory, place, key, b"mine");
            let Look::Found(entry) = table.look(&memory, key, 0..32, Hints::NONE).unwrap() else {
                panic!("at {place}")
            };
            assert_eq!((&*entry.bytes, entry.place, entry.length), (&b"mine"[..], place, 4));
            let Look::Found(entry) = table.look(&memory, key, 1..3, Hints::NONE).unwrap() else {
                panic!("at {place}")
            };
            assert_eq!(&*entry.bytes, b"in");
            put(&table, &memory, place, [8, 8, 8], b"");
            assert!(matches!(table.look(&memory, key, 0..32, Hints::NONE).unwrap(), Look::Missing));
        }
    }

    #[test]
    fn an_entry_that_is_held_is_not_waited_for() {
        let table = Table::new(0, 16, 32);
        let memory = segment(&table);
        let key = [1, 2, 3];
        put(&table, &memory, table.home(key), key, b"mine");
        let Look::Found(entry) = table.look(&memory, key, 0..0, Hints::NONE).unwrap() else { panic!() };
        let token = table.acquire(&memory, entry.place, entry.version, true).unwrap().unwrap();
        assert!(table.acquire(&memory, entry.place, entry.version, true).unwrap().is_none());
        assert!(matches!(table.look(&memory, key, 0..32, Hints::NONE).unwrap(), Look::Held));
        table.change(&memory, &token, 1, b"e").unwrap();
        table.release(&memory, token, false).unwrap();
        let Look::Found(entry) = table.look(&memory, key, 0..32, Hints::NONE).unwrap() else { panic!() };
        assert_eq!((&*entry.bytes, entry.version % 2), (&b"mene"[..], 1));
    }

    #[test]
    fn no_reader_sees_half_of_a_change_or_another_key() {
        let table = Table::new(0, 4, 256);
        let memory = segment(&table);
        let keys: Vec<Key> = (1..=6).map(|n| [n, n, n]).collect();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2_u64)
                .map(|writer| {
                    let (memory, keys) = (&memory, &keys);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(writer);
                        for _ in 0..20_000 {
                            let key = keys[rng.usize(..keys.len())];
                            let place = rng.u64(..4);
                            let (end, begin) = table.versions(memory, place).unwrap();
                            if end != begin {
                                continue;
                            }
                            let Some(token) = table.acquire(memory, place, begin, rng.bool()).unwrap() else {
                                continue;
                            };
                            let mut value = vec![rng.u8(..); rng.usize(1..=256)];
                            let length = value.len();
                            (value[0], value[length - 1]) = (key[0] as u8, key[0] as u8);
                            table.put(memory, &token, key, &value, false).unwrap();
                            table.release(memory, token, false).unwrap();
                        }
                    })
                })
                .collect();
            let reading = scope.spawn(|| {
                let mut found = 0;
                let mut rng = fastrand::Rng::with_seed(5);
                while !ended.load(Ordering::SeqCst) || found == 0 {
                    let key = keys[rng.usize(..keys.len())];
                    let Look::Found(entry) = table.look(&memory, key, 0..256, Hints::NONE).unwrap() else {
                        continue;
                    };
                    let value = &entry.bytes;
                    assert_eq!(value.len(), entry.length);
                    assert_eq!((value[0], value[value.len() - 1]), (key[0] as u8, key[0] as u8));
                    let middle = &value[1.min(value.len() - 1)..(value.len() - 1).max(1)];
                    assert!(middle.iter().all(|byte| *byte == middle[0]), "torn: {middle:?}");
                    found += 1;
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            ended.store(true, Ordering::SeqCst);
            reading.join().unwrap();
        });
    }

    #[test]
    fn places_are_told_by_their_bytes() {
        let table = Table::new(100, 4, 8);
        let size = table.size();
        assert_eq!(table.places(0..100), 0..0);
        assert_eq!(table.places(0..101), 0..1);
        assert_eq!(table.places(100 + size..100 + size + 1), 1..2);
        assert_eq!(table.places(100 + size - 1..100 + size + 1), 0..2);
        assert_eq!(table.places(0..u64::MAX), 0..4);
        assert!(table.places(table.end()..u64::MAX).is_empty());
    }
}
