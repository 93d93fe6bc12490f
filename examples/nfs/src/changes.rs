//! Which files are being changed, to know whether a change was the only one between what was seen before it and after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::places::Key;

/// The changes that are under way.
#[derive(Debug, Default)]
pub struct Changes(Mutex<HashMap<Key, Changing>>);

/// Of one file: how many are, and how many were since there was one.
#[derive(Debug, Default)]
struct Changing {
    now: usize,
    since: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Change<'a> {
    changes: &'a Changes,
    file: Key,
    is_first: bool,
}

impl Changes {
    /// A file is about to be changed.
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
    /// Whether there was no other since it began.
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
