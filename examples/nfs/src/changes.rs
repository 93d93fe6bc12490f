//! Notes which files are being changed. This shows whether a change was the only one between the reading of a
//! file's attributes before and after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::places::Key;

/// The changes that are under way.
#[derive(Debug, Default)]
pub struct Changes(Mutex<HashMap<Key, Changing>>);

/// The changes of one file.
#[derive(Debug, Default)]
struct Changing {
    /// How many changes are under way.
    now: usize,
    /// How many changes have begun since no change was under way.
    since: usize,
}

/// A change that is under way until this is dropped.
#[derive(Debug)]
pub struct Change<'a> {
    changes: &'a Changes,
    file: Key,
    is_first: bool,
}

impl Changes {
    /// Notes that a file is about to be changed.
    pub fn begin(&self, file: Key) -> Change<'_> {
        let mut files = self.lock();
        let changing = files.entry(file).or_default();
        changing.now += 1;
        changing.since += 1;
        Change { changes: self, file, is_first: changing.since == 1 }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Changing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change<'_> {
    /// Returns whether no other change has overlapped this one.
    pub fn is_alone(&self) -> bool {
        self.is_first && self.changes.lock().get(&self.file).is_some_and(|changing| changing.since == 1)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut files = self.changes.lock();
        let Some(changing) = files.get_mut(&self.file) else { return };
        changing.now -= 1;
        if changing.now == 0 {
            files.remove(&self.file);
        }
    }
}
