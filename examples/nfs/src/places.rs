//! Where the files that clients hold handles of are to be found: by the directory and the name that each was last seen under.
//!
//! A handle names a file by device, inode and birth (RFC 1813 section 2.3.3 leaves that to the server). The system opens nothing by
//! inode without privilege, so the way to it is kept here. It is only a hint: whoever follows it checks that it led to the
//! file, and the handle is stale if it did not.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Statx, makedev};

/// How many files are known at most; the half that was used longest ago is forgotten beyond it. (About 100 bytes each, and the name.)
const MOST: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };
/// How deep below the root a file may be.
const DEPTH: usize = 256;

/// A file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    device: u64,
    inode: u64,
    /// In nanoseconds: an inode is used again when its file is gone. 0 where the file system does not know.
    born: u64,
}

impl Key {
    /// The file that the system speaks of.
    pub fn of(stat: &Statx) -> Key {
        let born = (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000);
        let born = born.wrapping_add(stat.stx_btime.tv_nsec.into());
        Key { device: makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino, born }
    }

    /// What a handle of it has inside.
    pub fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let parts = [self.device, self.inode, self.born];
        bytes.chunks_exact_mut(8).zip(parts).for_each(|(to, part)| to.copy_from_slice(&part.to_be_bytes()));
        bytes
    }

    /// The file of such bytes.
    pub fn parse(bytes: [u8; 24]) -> Key {
        let [device, inode, born] = [0, 8, 16].map(|at| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(part)
        });
        Key { device, inode, born }
    }
}

/// The ways to all files that handles were given of.
#[derive(Debug)]
pub struct Places {
    root: Key,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    places: HashMap<Key, Place>,
    /// Grows with each that is entered or used.
    age: u64,
}

#[derive(Debug)]
struct Place {
    directory: Key,
    name: Box<[u8]>,
    /// When it was last used. Never before what is in it was, or that would be forgotten later and not be found.
    age: u64,
}

impl Places {
    /// A table in which only the root is known.
    pub fn new(root: Key) -> Places {
        Places { root, known: Mutex::default() }
    }

    /// The root.
    pub fn root(&self) -> Key {
        self.root
    }

    /// Notes that `file` stands in `directory` under `name`.
    pub fn note(&self, file: Key, directory: Key, name: &[u8]) {
        if file == self.root {
            return;
        }
        let mut known = self.lock();
        let is_same = |place: &&mut Place| place.directory == directory && *place.name == *name;
        if known.places.get_mut(&file).filter(is_same).is_none() {
            known.places.insert(file, Place { directory, name: name.into(), age: 0 });
        }
        known.used(file, self.root);
        if known.places.len() > MOST {
            known.forget_half();
        }
    }

    /// The path that leads from the root to the file; empty for the root, none if it is not known.
    pub fn way(&self, file: Key) -> Option<Vec<u8>> {
        let mut known = self.lock();
        let chain = known.used(file, self.root)?;
        let names = chain.iter().rev().filter_map(|key| known.places.get(key)).map(|place| &place.name);
        let mut way = Vec::new();
        for name in names {
            if !way.is_empty() {
                way.push(b'/');
            }
            way.extend_from_slice(name);
        }
        Some(way)
    }

    /// The directory that the file was last seen in; the root is its own.
    pub fn directory(&self, file: Key) -> Option<Key> {
        if file == self.root {
            return Some(file);
        }
        self.lock().places.get(&file).map(|place| place.directory)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes that a file is used, and so the directories above it. It and they, but the root; none if they do not lead to the root.
    fn used(&mut self, file: Key, root: Key) -> Option<Vec<Key>> {
        self.age += 1;
        let (mut here, mut chain) = (file, Vec::new());
        while here != root {
            let place = self.places.get_mut(&here).filter(|_| chain.len() < DEPTH)?;
            place.age = self.age;
            chain.push(here);
            here = place.directory;
        }
        Some(chain)
    }

    fn forget_half(&mut self) {
        let mut ages: Vec<u64> = self.places.values().map(|place| place.age).collect();
        let middle = ages.len() / 2;
        let (_, middle, _) = ages.select_nth_unstable(middle);
        let middle = *middle;
        self.places.retain(|_, place| place.age >= middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> Key {
        Key { device: 7, inode, born: 9 }
    }

    #[test]
    fn a_key_survives_its_bytes() {
        let key = Key { device: u64::MAX - 1, inode: 3, born: 1 << 63 };
        assert_eq!(Key::parse(key.bytes()), key);
    }

    #[test]
    fn the_way_leads_from_the_file_to_the_root() {
        let places = Places::new(key(1));
        places.note(key(2), key(1), b"home");
        places.note(key(3), key(2), b"notes");
        assert_eq!(places.way(key(3)).unwrap(), b"home/notes");
        assert_eq!(places.way(key(1)).unwrap(), b"");
        assert_eq!(places.way(key(4)), None);
    }

    #[test]
    fn a_circle_ends() {
        let places = Places::new(key(1));
        places.note(key(2), key(3), b"a");
        places.note(key(3), key(2), b"b");
        assert_eq!(places.way(key(2)), None);
    }

    #[test]
    fn what_was_seen_longest_ago_is_forgotten_first() {
        let places = Places::new(key(1));
        for inode in 0..=MOST as u64 {
            places.note(key(inode + 2), key(1), b"x");
        }
        assert_eq!(places.way(key(2)), None);
        assert!(places.way(key(MOST as u64 + 2)).is_some());
    }

    #[test]
    fn a_directory_is_remembered_as_long_as_what_is_in_it() {
        let places = Places::new(key(1));
        places.note(key(2), key(1), b"directory");
        places.note(key(3), key(2), b"used");
        for inode in 4..=MOST as u64 {
            places.note(key(inode), key(2), b"x");
        }
        assert_eq!(places.way(key(3)).unwrap(), b"directory/used");
        places.note(key(1 << 40), key(2), b"one too many");
        places.note(key(2 << 40), key(2), b"two");
        assert!(places.way(key(1 << 40)).is_some());
        assert_eq!(places.way(key(4)), None);
        assert_eq!(places.way(key(3)).unwrap(), b"directory/used", "it was asked for");
    }
}
