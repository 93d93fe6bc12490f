//! Files that were read or written lately stay open, so that the next access need not open them again.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::places::Key;

/// How many stay open at most.
const MOST: usize = 128;

/// The files that are open, each in one way, and when each was last used. Whether one may still be reached is not known here.
#[derive(Debug, Default)]
pub struct Opened(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    files: HashMap<Key, Open>,
    now: u64,
}

#[derive(Debug)]
struct Open {
    file: Arc<OwnedFd>,
    /// Whether it was opened to be written, too.
    to_write: bool,
    last: u64,
}

impl Opened {
    /// The file, if it is open, and as it is wanted.
    pub fn get(&self, file: Key, to_write: bool) -> Option<Arc<OwnedFd>> {
        let mut used = self.lock();
        used.now += 1;
        let now = used.now;
        let open = used.files.get_mut(&file).filter(|open| open.to_write || !to_write)?;
        open.last = now;
        Some(open.file.clone())
    }

    /// Keeps it open; the one that was used longest ago is closed if there are too many.
    pub fn keep(&self, key: Key, file: Arc<OwnedFd>, to_write: bool) {
        let mut used = self.lock();
        used.now += 1;
        let last = used.now;
        used.files.insert(key, Open { file, to_write, last });
        if used.files.len() <= MOST {
            return;
        }
        used.forget_oldest();
    }

    /// Closes the one that was used longest ago, as soon as nobody uses it; false if there is none.
    pub fn forget_oldest(&self) -> bool {
        self.lock().forget_oldest()
    }

    /// Closes it, as soon as nobody uses it.
    pub fn forget(&self, file: Key) {
        self.lock().files.remove(&file);
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.files.iter().min_by_key(|(_, open)| open.last).map(|(key, _)| *key);
        oldest.and_then(|oldest| self.files.remove(&oldest)).is_some()
    }
}
