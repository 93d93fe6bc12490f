//! Keeps files open that were read or written lately, so that the next access need not open them again.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::places::Key;

/// The most files that are kept open.
const MAX_OPEN: usize = 128;

/// The files that are kept open, the one that was used last at the end. This does not check whether a client
/// may still reach a file.
#[derive(Debug, Default)]
pub struct Opened(Mutex<VecDeque<Open>>);

#[derive(Debug)]
struct Open {
    key: Key,
    file: Arc<OwnedFd>,
    /// Whether the file was opened for writing as well.
    to_write: bool,
}

impl Opened {
    /// Returns the file if it is open. If `to_write`, it must be open for writing.
    pub fn get(&self, file: Key, to_write: bool) -> Option<Arc<OwnedFd>> {
        let mut files = self.lock();
        let place = files.iter().position(|open| open.key == file && (open.to_write || !to_write))?;
        let open = files.remove(place)?;
        let file = open.file.clone();
        files.push_back(open);
        Some(file)
    }

    /// Keeps a file open, in place of an earlier descriptor. If there are too many, closes the least recently
    /// used one.
    pub fn keep(&self, key: Key, file: Arc<OwnedFd>, to_write: bool) {
        let mut files = self.lock();
        files.retain(|open| open.key != key);
        files.push_back(Open { key, file, to_write });
        if files.len() > MAX_OPEN {
            files.pop_front();
        }
    }

    /// Closes the least recently used file as soon as no thread uses it. Returns false if there is none.
    pub fn forget_oldest(&self) -> bool {
        self.lock().pop_front().is_some()
    }

    /// Closes a file as soon as no thread uses it.
    pub fn forget(&self, file: Key) {
        self.lock().retain(|open| open.key != file);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
