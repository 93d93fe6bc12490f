//! The table of a clerk, which is the name service of a machine: an open-addressed hash table in a segment of
//! memory. Local and remote readers probe it in the same way.

use std::ops::ControlFlow;

use xxhash_rust::xxh3::xxh3_64;

use super::entry::{DELETED, Entry, FREE, RECORD_BYTES, Record, Slot, WRITING};
use crate::{Memory, Result};

/// The most slots in which a name can be, counted from the slot that its hash selects.
pub(super) const MAX_PROBED_SLOTS: u64 = 256;

/// The number of slots that are read at once after the first slot. They fit one packet.
const RUN_SLOTS: u64 = 8;

/// The most further reads of a record that is being written.
const MAX_REREADS: usize = 4;

/// Returns the slot that a name's hash selects, where probing begins. All tables of one size have the same
/// first slot for a name.
fn first_slot(name: &str, slots: u64) -> u64 {
    xxh3_64(name.as_bytes()) % slots
}

/// Returns how many slots a table has.
pub(super) fn slots(table: &dyn Memory) -> u64 {
    table.size() / RECORD_BYTES as u64
}

/// The outcome of a search for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Search<T> {
    Found(T),
    /// The table does not have the name.
    Missing,
    /// The permitted reads did not show whether the table has the name.
    Unfinished,
}

/// Returns the entry of a name, if the table has it, and the number of reads.
pub(super) fn find(table: &dyn Memory, name: &str) -> Result<(Option<Entry>, u64)> {
    let (found, reads) = locate(table, name, u64::MAX)?;
    Ok((found.found().map(|(_, entry)| entry), reads))
}

/// Looks for the entry of a name with at most `max_reads` reads. Returns also the number of reads.
pub(super) fn find_within(table: &dyn Memory, name: &str, max_reads: u64) -> Result<(Search<Entry>, u64)> {
    let (found, reads) = locate(table, name, max_reads)?;
    let found = match found {
        Search::Found((_, entry)) => Search::Found(entry),
        Search::Missing => Search::Missing,
        Search::Unfinished => Search::Unfinished,
    };
    Ok((found, reads))
}

/// Looks for the slot and the entry of a name. Returns also the number of reads.
fn locate(table: &dyn Memory, name: &str, max_reads: u64) -> Result<(Search<(u64, Entry)>, u64)> {
    let mut found = Search::Missing;
    let (reads, is_finished) = probe(table, name, max_reads, |place, slot| match slot {
        Slot::Free => ControlFlow::Break(()),
        Slot::Held(Record { entry: Some(entry), .. }) if entry.name == name => {
            found = Search::Found((place, entry));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })?;
    Ok((if is_finished { found } else { Search::Unfinished }, reads))
}

impl<T> Search<T> {
    fn found(self) -> Option<T> {
        match self {
            Search::Found(found) => Some(found),
            Search::Missing | Search::Unfinished => None,
        }
    }
}

/// The outcome of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The table did not have the name before.
    New,
    /// The table had an entry with the same name, which was replaced.
    Replaced,
    /// Nothing was added: the slots in which the name can be are in use.
    NoRoom,
}

/// Adds an entry. If the table has an entry with the same name, replaces that entry. Only one thread at a time
/// may add or delete.
pub(super) fn add(table: &dyn Memory, entry: &Entry) -> Result<Added> {
    let (mut first_empty, mut former) = (None, None);
    probe(table, &entry.name, u64::MAX, |place, slot| {
        let of_name =
            matches!(&slot, Slot::Held(Record { entry: Some(other), .. }) if other.name == entry.name);
        if of_name {
            former = Some(place);
        } else if !matches!(slot, Slot::Held(_)) {
            first_empty.get_or_insert(place);
        }
        if of_name || slot == Slot::Free { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let Some(place) = former.or(first_empty) else { return Ok(Added::NoRoom) };
    let (at, bytes) = (place * RECORD_BYTES as u64, Record::of(entry.clone()).to_bytes());
    // The record becomes invalid before any part of it changes, and valid after all of it has.
    table.write(at, &WRITING)?;
    table.write(at + 8, &bytes[8..])?;
    table.write(at, &bytes[..8])?;
    Ok(if former.is_some() { Added::Replaced } else { Added::New })
}

/// Deletes the entry of a name if the entry has this generation. Returns whether it did.
pub(super) fn delete(table: &dyn Memory, name: &str, generation: u64) -> Result<bool> {
    let Some((place, entry)) = locate(table, name, u64::MAX)?.0.found() else { return Ok(false) };
    if entry.generation != generation {
        return Ok(false);
    }
    mark(table, place, DELETED)?;
    // Deleted slots in front of a free slot are freed. Otherwise names that come and go would fill the table
    // with deleted slots.
    let slots = slots(table);
    if read_one(table, (place + 1) % slots)? != Slot::Free {
        return Ok(true);
    }
    let mut last = place;
    for _ in 0..slots {
        mark(table, last, FREE)?;
        last = (last + slots - 1) % slots;
        if read_one(table, last)? != Slot::Deleted {
            break;
        }
    }
    Ok(true)
}

/// Returns all entries.
pub(super) fn entries(table: &dyn Memory) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for place in 0..slots(table) {
        if let Slot::Held(Record { entry: Some(entry), .. }) = read_one(table, place)? {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Calls `visit` with each slot in which the name may be, in order, until `visit` breaks. The first slot is
/// read alone, later slots several at once. Returns the number of reads, which `max_reads` bounds, and
/// whether the search was finished within that bound.
fn probe(
    table: &dyn Memory,
    name: &str,
    max_reads: u64,
    mut visit: impl FnMut(u64, Slot) -> ControlFlow<()>,
) -> Result<(u64, bool)> {
    let (slots, mut reads) = (slots(table), 0);
    if slots == 0 {
        return Ok((reads, true));
    }
    let (mut place, mut left, mut run) = (first_slot(name, slots), slots.min(MAX_PROBED_SLOTS), 1);
    let mut bytes = [0; RUN_SLOTS as usize * RECORD_BYTES];
    while left > 0 {
        if reads >= max_reads {
            return Ok((reads, false));
        }
        run = left.min(slots - place).min(run);
        let bytes = &mut bytes[..run as usize * RECORD_BYTES];
        table.read(place * RECORD_BYTES as u64, bytes)?;
        reads += 1;
        for (which, bytes) in bytes.as_chunks::<RECORD_BYTES>().0.iter().enumerate() {
            let place = place + which as u64;
            let mut slot = Slot::parse(bytes);
            for _ in 0..MAX_REREADS {
                if slot == Slot::Unsound && reads < max_reads {
                    slot = read_one(table, place)?;
                    reads += 1;
                }
            }
            if visit(place, slot).is_break() {
                return Ok((reads, true));
            }
        }
        (place, left, run) = ((place + run) % slots, left - run, RUN_SLOTS);
    }
    Ok((reads, true))
}

/// Reads a slot.
pub(super) fn read_one(table: &dyn Memory, place: u64) -> Result<Slot> {
    let mut bytes = [0; RECORD_BYTES];
    table.read(place * RECORD_BYTES as u64, &mut bytes)?;
    Ok(Slot::parse(&bytes))
}

fn mark(table: &dyn Memory, place: u64, flag: [u8; 8]) -> Result<()> {
    table.write(place * RECORD_BYTES as u64, &flag)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::access::Refused;
    use crate::words;

    /// Plain memory that counts its reads.
    struct Plain {
        words: Box<[AtomicU64]>,
        len: usize,
        reads: AtomicU64,
    }

    impl Plain {
        fn of(places: usize) -> Plain {
            Plain::bytes(places * RECORD_BYTES)
        }

        fn bytes(len: usize) -> Plain {
            Plain { words: words::zeros(len), len, reads: AtomicU64::new(0) }
        }

        fn find(&self, name: &str) -> Option<u64> {
            find(self, name).unwrap().0.map(|entry| entry.generation)
        }

        fn add(&self, name: &str, generation: u64) -> bool {
            let address = "10.0.0.7:7000".parse().unwrap();
            let entry = Entry { name: name.to_owned(), address, generation, size: 64, rights: 7 };
            add(self, &entry).unwrap() != Added::NoRoom
        }

        fn slots(&self) -> Vec<Slot> {
            (0..slots(self)).map(|place| read_one(self, place).unwrap()).collect()
        }
    }

    impl Memory for Plain {
        fn size(&self) -> u64 {
            self.len as u64
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            assert!(into.len() <= 1024, "a read is one packet");
            words::read(&self.words, offset, into);
            Ok(())
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            words::write(&self.words, offset, bytes);
            Ok(())
        }

        fn write_notify(&self, _: u64, _: &[u8]) -> Result<()> {
            Err(Refused::NotPermitted.into())
        }

        fn compare_and_swap(&self, _: u64, _: u64, _: u64) -> Result<u64> {
            Err(Refused::NotPermitted.into())
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Returns names whose hashes all select one slot.
    fn colliding(places: u64, place: u64, count: usize) -> Vec<String> {
        (0..).map(|n| format!("n{n}")).filter(|name| first_slot(name, places) == place).take(count).collect()
    }

    #[test]
    fn the_hash_is_what_the_documentation_says() {
        // The hash is the 64-bit XXH3 of the name's bytes, so a clerk of any version finds what another clerk
        // has added.
        assert_eq!(first_slot("Load", 1 << 32), xxh3_64(b"Load") % (1 << 32));
        assert_eq!(xxh3_64(b"Load"), 13_359_318_210_798_624_463);
    }

    #[test]
    fn a_name_in_its_own_slot_is_found_by_one_read() {
        let table = Plain::of(1024);
        assert!(table.add("Load", 1));
        let before = table.reads.load(Ordering::Relaxed);
        assert_eq!(find(&table, "Load").unwrap().1, 1);
        assert_eq!(find(&table, "Other").unwrap(), (None, 1));
        assert_eq!(table.reads.load(Ordering::Relaxed) - before, 2);
    }

    #[test]
    fn names_that_collide_are_found_around_the_end() {
        let table = Plain::of(16);
        let names = colliding(16, 14, 11);
        for (generation, name) in names.iter().enumerate() {
            assert!(table.add(name, generation as u64 + 1));
        }
        for (generation, name) in names.iter().enumerate() {
            assert_eq!(table.find(name), Some(generation as u64 + 1));
        }
        // The reads are of slot 14, slot 15, slots 0 to 7, and slots 8 to 13.
        assert_eq!(find(&table, &names[10]).unwrap().1, 4);
        assert_eq!(find(&table, &names[9]).unwrap().1, 3);
        assert_eq!(table.find("elsewhere"), None);
    }

    #[test]
    fn a_name_added_again_replaces_itself() {
        let table = Plain::of(16);
        let names = colliding(16, 3, 3);
        names.iter().for_each(|name| assert!(table.add(name, 1)));
        assert!(table.add(&names[2], 2));
        assert_eq!(table.find(&names[2]), Some(2));
        // This is so even when a slot nearer to the name's first slot has become free.
        assert!(delete(&table, &names[0], 1).unwrap());
        assert!(table.add(&names[2], 3));
        assert_eq!(table.find(&names[2]), Some(3));
        assert_eq!(table.slots().iter().filter(|slot| matches!(slot, Slot::Held(_))).count(), 2);
    }

    #[test]
    fn a_deleted_name_blocks_no_other_and_its_slot_is_used_again() {
        let table = Plain::of(16);
        let names = colliding(16, 3, 3);
        names.iter().for_each(|name| assert!(table.add(name, 1)));
        assert!(!delete(&table, &names[1], 7).unwrap(), "of another generation");
        assert!(delete(&table, &names[1], 1).unwrap());
        assert!(!delete(&table, &names[1], 1).unwrap());
        assert_eq!((table.find(&names[1]), table.find(&names[2])), (None, Some(1)));
        assert_eq!(table.slots()[4], Slot::Deleted);
        assert!(table.add(&names[1], 2));
        assert!(matches!(table.slots()[4], Slot::Held(_)));
    }

    #[test]
    fn deleted_slots_before_a_free_one_are_freed() {
        let table = Plain::of(16);
        let names = colliding(16, 14, 5);
        names.iter().for_each(|name| assert!(table.add(name, 1)));
        for name in &names[1..4] {
            assert!(delete(&table, name, 1).unwrap());
        }
        assert_eq!(table.slots().iter().filter(|slot| **slot == Slot::Deleted).count(), 3);
        assert!(delete(&table, &names[4], 1).unwrap());
        assert_eq!(table.slots().iter().filter(|slot| **slot == Slot::Free).count(), 15);
        assert_eq!(table.find(&names[0]), Some(1));
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Plain::of(8);
        (0..8).for_each(|n| assert!(table.add(&format!("n{n}"), 1)));
        assert!(!table.add("one more", 1) && !table.add("more", 1));
        assert_eq!(table.find("more"), None);
        assert!(table.add("n3", 2), "there is room for what is there");
        assert!(delete(&table, "n5", 1).unwrap());
        assert!(table.add("more", 1));
        assert_eq!(table.find("more"), Some(1));
        (0..8).for_each(|n| drop(delete(&table, &format!("n{n}"), if n == 3 { 2 } else { 1 })));
        assert_eq!(entries(&table).unwrap().len(), 1);
    }

    #[test]
    fn a_search_of_few_reads_says_when_it_is_unfinished() {
        let table = Plain::of(64);
        let names = colliding(64, 3, 12);
        names[..11].iter().for_each(|name| assert!(table.add(name, 1)));
        let search = |name: &str, reads| find_within(&table, name, reads).unwrap();
        let found = |name: &str| Search::Found(find(&table, name).unwrap().0.unwrap());
        assert_eq!(search(&names[0], 0), (Search::Unfinished, 0));
        assert_eq!(search(&names[0], 1), (found(&names[0]), 1));
        assert_eq!(search(&colliding(64, 40, 1)[0], 1), (Search::Missing, 1));
        assert_eq!(search(&names[1], 1), (Search::Unfinished, 1));
        assert_eq!(search(&names[8], 2), (found(&names[8]), 2));
        assert_eq!(search(&names[9], 2), (Search::Unfinished, 2));
        assert_eq!(search(&names[11], 2), (Search::Unfinished, 2));
        assert_eq!(search(&names[11], 3), (Search::Missing, 3));
    }

    /// A table that nobody honest wrote: sound records in wrong slots, records of other names without end,
    /// broken records. A search ends after a bounded number of reads, and finds only its own name.
    #[test]
    fn hostile_tables_cost_a_bounded_number_of_reads() {
        const SLOTS: usize = 2 * MAX_PROBED_SLOTS as usize;
        const MOST: u64 = 2 + MAX_PROBED_SLOTS / RUN_SLOTS + MAX_PROBED_SLOTS * MAX_REREADS as u64;
        let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
        println!("SEED={seed}");
        let mut random: u64 = seed;
        for round in 0..64 {
            let table = Plain::of(SLOTS);
            for place in 0..SLOTS {
                random = xxh3_64(&random.to_le_bytes());
                let name = if random >> 60 == 0 { "Load".to_owned() } else { format!("n{}", random % 50) };
                let address = "192.0.2.1:7".parse().unwrap();
                let entry = Entry { name, address, generation: random | 1, size: random, rights: 7 };
                let mut bytes = Record::of(entry).to_bytes();
                if round % 2 == 1 && random.is_multiple_of(3) {
                    bytes[(random >> 8) as usize % RECORD_BYTES] ^= 1;
                }
                words::write(&table.words, (place * RECORD_BYTES) as u64, &bytes);
            }
            for name in ["Load", "n7", "none"] {
                for max_reads in [1, 2, u64::MAX] {
                    let before = table.reads.load(Ordering::Relaxed);
                    let (found, reads) = find_within(&table, name, max_reads).unwrap();
                    assert!(reads <= max_reads.min(MOST), "{reads} reads");
                    assert_eq!(table.reads.load(Ordering::Relaxed) - before, reads);
                    assert!(!matches!(found, Search::Found(entry) if entry.name != name));
                }
            }
        }
    }

    #[test]
    fn impossible_tables_are_probed_to_an_end() {
        assert_eq!(Plain::of(0).find("Load"), None);
        let tiny = Plain::bytes(100);
        assert_eq!(tiny.find("Load"), None);
        let filled = Plain::of(4096);
        words::write(&filled.words, 0, &[0xa5; 4096 * RECORD_BYTES]);
        assert_eq!(filled.find("Load"), None);
        let reads = filled.reads.load(Ordering::Relaxed);
        assert!(
            reads <= 1 + MAX_PROBED_SLOTS / RUN_SLOTS + 1 + MAX_PROBED_SLOTS * MAX_REREADS as u64,
            "{reads} reads"
        );
        let one = Plain::of(1);
        assert!(one.add("a", 1) && !one.add("b", 1) && one.find("a") == Some(1) && one.find("b").is_none());
        assert!(delete(&one, "a", 1).unwrap() && one.add("b", 1));
    }

    /// Adds and deletes names, and compares the table with a map after each step.
    #[test]
    fn names_come_and_go() {
        let (table, mut held) = (Plain::of(32), std::collections::BTreeMap::new());
        let mut seed = 7_u64;
        for generation in 1..20_000 {
            seed = xxh3_64(&seed.to_le_bytes());
            let name = format!("n{}", seed % 40);
            if seed >> 32 & 1 == 0 {
                if table.add(&name, generation) {
                    held.insert(name, generation);
                } else {
                    assert!(held.len() == 32 && !held.contains_key(&name));
                }
            } else {
                let former = held.remove(&name);
                assert_eq!(delete(&table, &name, former.unwrap_or(1)).unwrap(), former.is_some());
            }
            if generation % 64 == 0 {
                (0..40)
                    .map(|n| format!("n{n}"))
                    .for_each(|n| assert_eq!(table.find(&n), held.get(&n).copied()));
            }
        }
    }
}
