//! Files that were read or written lately stay open, so that the next access need not walk to them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::places::Key;

/// How many stay open at most.
const MOST: usize = 128;

/// The files that are open, and when each was last used.
#[derive(Debug, Default)]
pub struct Opened(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    files: HashMap<Key, (Arc<OwnedFd>, u64)>,
    now: u64,
}

impl Opened {
    /// The file, if it is open.
    pub fn get(&self, file: Key) -> Option<Arc<OwnedFd>> {
        let mut used = self.lock();
        used.now += 1;
        let now = used.now;
        let (open, last) = used.files.get_mut(&file)?;
        *last = now;
        Some(open.clone())
    }

    /// Keeps it open; the one that was used longest ago is closed if there are too many.
    pub fn keep(&self, file: Key, open: Arc<OwnedFd>) {
        let mut used = self.lock();
        used.now += 1;
        let now = used.now;
        used.files.insert(file, (open, now));
        if used.files.len() <= MOST {
            return;
        }
        let oldest = used.files.iter().min_by_key(|(_, (_, last))| *last).map(|(file, _)| *file);
        if let Some(oldest) = oldest {
            used.files.remove(&oldest);
        }
    }

    /// Closes it, as soon as nobody uses it.
    pub fn forget(&self, file: Key) {
        self.lock().files.remove(&file);
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
