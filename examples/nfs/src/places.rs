//! Where the files that clients hold handles of are to be found: by the directory and the name that each was last seen under.
//!
//! A handle names a file by device and inode (RFC 1813 section 2.3.3 leaves that to the server). The system opens nothing by
//! inode without privilege, so the way to it is kept here. It is only a hint: whoever follows it checks that it led to the
//! inode, and the handle is stale if it did not.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;

/// How many files are known at most; the half that was seen longest ago is forgotten beyond it. (About 100 bytes each.)
const MOST: usize = 1 << 20;
/// How deep below the root a file may be.
const DEPTH: usize = 256;

/// A file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    device: u64,
    inode: u64,
}

impl Key {
    /// The file that the system speaks of.
    #[allow(clippy::unnecessary_cast, reason = "narrower on some systems")]
    pub fn of(stat: &Stat) -> Key {
        Key { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }

    /// What a handle of it has inside.
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.device) << 64 | u128::from(self.inode)).to_be_bytes()
    }

    /// The file of such bytes.
    pub fn parse(bytes: [u8; 16]) -> Key {
        let both = u128::from_be_bytes(bytes);
        Key { device: (both >> 64) as u64, inode: both as u64 }
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
    /// Grows with each that is entered.
    age: u64,
}

#[derive(Debug)]
struct Place {
    directory: Key,
    name: Box<[u8]>,
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
        known.age += 1;
        let age = known.age;
        if let Some(place) =
            known.places.get_mut(&file).filter(|place| place.directory == directory && *place.name == *name)
        {
            place.age = age;
            return;
        }
        known.places.insert(file, Place { directory, name: name.into(), age });
        if known.places.len() > MOST {
            known.forget_half();
        }
    }

    /// The names that lead from the root to the file, the last first; none if it is not known.
    pub fn way(&self, file: Key) -> Option<Vec<Box<[u8]>>> {
        let known = self.lock();
        let mut way = Vec::new();
        let mut here = file;
        while here != self.root {
            let place = known.places.get(&here).filter(|_| way.len() < DEPTH)?;
            way.push(place.name.clone());
            here = place.directory;
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
        Key { device: 7, inode }
    }

    #[test]
    fn a_key_survives_its_bytes() {
        let key = Key { device: u64::MAX - 1, inode: 3 };
        assert_eq!(Key::parse(key.bytes()), key);
    }

    #[test]
    fn the_way_leads_from_the_file_to_the_root() {
        let places = Places::new(key(1));
        places.note(key(2), key(1), b"home");
        places.note(key(3), key(2), b"notes");
        let way: Vec<Vec<u8>> = places.way(key(3)).unwrap().into_iter().map(Vec::from).collect();
        assert_eq!(way, [b"notes".to_vec(), b"home".to_vec()]);
        assert_eq!(places.way(key(1)).unwrap().len(), 0);
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
}
