//! Finds the files of clients' handles, by the directory and the name under which each was last seen.
//!
//! A handle identifies a file by device, inode and time of birth (RFC 1813 section 2.3.3 leaves its content
//! to the server). The system opens no file by its inode without privilege, so the path to it is kept here.
//! The path is only a hint: the caller checks that it leads to the file, and otherwise the handle is stale.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Statx, makedev};

/// The most files that are known. When there are more, the half that was used longest ago is forgotten. (Each
/// file takes about 100 bytes in addition to its name.)
const MAX_FILES: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };
/// The most directories between the root and a file.
const MAX_DEPTH: usize = 256;

/// Identifies a file, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    device: u64,
    inode: u64,
    /// The time of birth in nanoseconds, because the system reuses the inode of a deleted file. 0 where it is
    /// unknown.
    born: u64,
}

impl Key {
    /// Returns the key of the file with these attributes.
    pub fn of(stat: &Statx) -> Key {
        let born = (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000);
        let born = born.wrapping_add(stat.stx_btime.tv_nsec.into());
        Key { device: makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino, born }
    }

    /// Returns the bytes of the file's handle.
    pub fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let parts = [self.device, self.inode, self.born];
        bytes.chunks_exact_mut(8).zip(parts).for_each(|(to, part)| to.copy_from_slice(&part.to_be_bytes()));
        bytes
    }

    /// Returns the key in the bytes of a handle.
    pub fn parse(bytes: [u8; 24]) -> Key {
        let [device, inode, born] = [0, 8, 16].map(|at| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(part)
        });
        Key { device, inode, born }
    }
}

/// The paths to all files for which clients hold handles.
#[derive(Debug)]
pub struct Places {
    root: Key,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    places: HashMap<Key, Place>,
    /// A counter that grows with each use.
    age: u64,
}

#[derive(Debug)]
struct Place {
    directory: Key,
    name: Box<[u8]>,
    /// When the file or directory was last used. A directory is never older than a file in it: if the
    /// directory were forgotten first, the file could not be found.
    age: u64,
}

impl Places {
    /// Returns a table in which only the root is known.
    pub fn new(root: Key) -> Places {
        Places { root, known: Mutex::default() }
    }

    /// Returns the root.
    pub fn root(&self) -> Key {
        self.root
    }

    /// Notes that `file` is in `directory` under `name`.
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
        if known.places.len() > MAX_FILES {
            known.forget_half();
        }
    }

    /// Returns the path from the root to the file, which is empty for the root. Returns `None` if the file is
    /// not known.
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

    /// Returns the directory in which the file was last seen. The root is its own directory.
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
    /// Notes that a file, and the directories above it, are used. Returns the file and these directories
    /// without the root, or `None` if they do not lead to the root.
    fn used(&mut self, file: Key, root: Key) -> Option<Vec<Key>> {
        self.age += 1;
        let (mut here, mut chain) = (file, Vec::new());
        while here != root {
            let place = self.places.get_mut(&here).filter(|_| chain.len() < MAX_DEPTH)?;
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
        for inode in 0..=MAX_FILES as u64 {
            places.note(key(inode + 2), key(1), b"x");
        }
        assert_eq!(places.way(key(2)), None);
        assert!(places.way(key(MAX_FILES as u64 + 2)).is_some());
    }

    #[test]
    fn a_directory_is_remembered_as_long_as_what_is_in_it() {
        let places = Places::new(key(1));
        places.note(key(2), key(1), b"directory");
        places.note(key(3), key(2), b"used");
        for inode in 4..=MAX_FILES as u64 {
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
