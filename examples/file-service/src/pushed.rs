//! A clerk (a process that serves the programs of one machine) of the structure WR: the server pushes changed
//! entries into the clerk's memory, and the clerk asks it to write.
//!
//! When the server could not write into the clerk's memory, the clerk attaches anew, and gets all entries
//! again.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use farcall::{Error, Kind, Ran, Result};
use farcall_file_access::{Attributes, Contents, FileError, Statistics};

use crate::direct::Direct;
use crate::paths::Paths;
use crate::{Files, Found, Handle, Names};

/// Attaches the clerk to the server: a new mailbox, a new segment, new tables. The paths are those of the
/// handles that clients have.
pub(crate) type Attach = Box<dyn Fn(Option<Arc<Paths>>) -> Result<Direct, FileError> + Send + Sync>;

/// The most attachments for one operation.
const MAX_ATTACHMENTS: usize = 3;

/// A clerk, in its present attachment.
pub(crate) struct Pushed {
    attach: Attach,
    now: RwLock<Arc<Direct>>,
    /// Locked by a thread that attaches anew.
    attaching: Mutex<()>,
}

impl Pushed {
    pub(crate) fn new(attach: Attach) -> Result<Pushed, FileError> {
        let now = RwLock::new(Arc::new(attach(None)?));
        Ok(Pushed { attach, now, attaching: Mutex::default() })
    }

    /// Executes an operation, and again if the clerk's memory was not current.
    fn with<T>(&self, operation: impl Fn(&Direct) -> Result<T, FileError>) -> Result<T, FileError> {
        for _ in 0..MAX_ATTACHMENTS {
            let now = self.now();
            match operation(&now) {
                Err(Error::CallFailed(why)) if why.kind() == Kind::Forgotten && why.ran() == Ran::No => {
                    self.attach_anew(&now)?;
                }
                outcome => return outcome,
            }
        }
        operation(&self.now())
    }

    fn now(&self) -> Arc<Direct> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Attaches anew, unless another thread has done so since `former` was the attachment.
    fn attach_anew(&self, former: &Arc<Direct>) -> Result<(), FileError> {
        let _attaching = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&self.now(), former) {
            let next = (self.attach)(Some(former.missing.paths().clone()))?;
            *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        }
        Ok(())
    }
}

impl Files for Pushed {
    fn null(&self) -> Result<(), FileError> {
        self.now().null()
    }

    fn root(&self) -> Result<Handle, FileError> {
        self.now().root()
    }

    fn attributes(&self, file: Handle) -> Result<Attributes, FileError> {
        self.with(|now| now.attributes(file))
    }

    fn look_up(&self, directory: Handle, name: &str) -> Result<Found, FileError> {
        self.with(|now| now.look_up(directory, name))
    }

    fn read_link(&self, link: Handle) -> Result<String, FileError> {
        self.with(|now| now.read_link(link))
    }

    fn read(&self, file: Handle, offset: u64, length: u32) -> Result<Contents, FileError> {
        self.with(|now| now.read(file, offset, length))
    }

    fn read_directory(&self, directory: Handle, after: &str) -> Result<Names, FileError> {
        self.with(|now| now.read_directory(directory, after))
    }

    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.now().write(file, offset, bytes)
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        self.with(Files::statistics)
    }

    fn commit(&self, file: Handle) -> Result<(), FileError> {
        self.now().commit(file)
    }
}
