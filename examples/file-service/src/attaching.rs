//! A clerk (a process that serves the programs of one machine) that attaches to the server anew when that
//! does not know it any more: the server has given it up, or was restarted. So clerks that read memory
//! recover as those that call do (Thekkath et al. 1994, section 3.7).
//!
//! What a clerk wrote into the memory of a server that was killed may be lost, as NFS's unstable writes are.
//! The next commit of such a file says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farcall::{CallFailed, Error, Kind, Ran, Result};
use farcall_file_access::{Attributes, Contents, FileError, Statistics};

use crate::calls::ByCalls;
use crate::direct::Direct;
use crate::paths::Paths;
use crate::{Files, Found, Handle, Names};

/// A clerk's attachment to a server: a mailbox, a segment for answers, and perhaps tables.
pub(crate) trait Attachment: Files {
    /// Returns the paths of the handles that clients have.
    fn paths(&self) -> &Arc<Paths>;

    /// Returns the same attachment with the paths of an earlier one.
    fn with_paths(self, paths: Arc<Paths>) -> Self;
}

impl Attachment for ByCalls {
    fn paths(&self) -> &Arc<Paths> {
        ByCalls::paths(self)
    }

    fn with_paths(self, paths: Arc<Paths>) -> ByCalls {
        ByCalls::with_paths(self, paths)
    }
}

impl Attachment for Direct {
    fn paths(&self) -> &Arc<Paths> {
        self.missing.paths()
    }

    fn with_paths(self, paths: Arc<Paths>) -> Direct {
        let Direct { server, areas, hints, copies, mirror, missing } = self;
        Direct { server, areas, hints, copies, mirror, missing: missing.with_paths(paths) }
    }
}

/// Attaches the clerk to the server: a new mailbox, a new segment, new tables. The paths are those of the
/// handles that clients have.
pub(crate) type Attach<A> = Box<dyn Fn(Option<Arc<Paths>>) -> Result<A, FileError> + Send + Sync>;

/// The most attachments for one operation.
const MAX_ATTACHMENTS: usize = 3;

/// A clerk, in its present attachment.
pub(crate) struct Attaching<A> {
    attach: Attach<A>,
    now: RwLock<Arc<Numbered<A>>>,
    /// Locked by a thread that attaches anew.
    attaching: Mutex<()>,
    /// For each file the number of the attachment by which it was first written since its last commit.
    written: Mutex<HashMap<Handle, u64>>,
}

/// An attachment, and how many there were before it.
struct Numbered<A> {
    number: u64,
    attachment: A,
}

impl<A: Attachment> Attaching<A> {
    pub(crate) fn new(attach: Attach<A>) -> Result<Attaching<A>, FileError> {
        let now = RwLock::new(Arc::new(Numbered { number: 0, attachment: attach(None)? }));
        Ok(Attaching { attach, now, attaching: Mutex::default(), written: Mutex::default() })
    }

    /// Executes an operation that may run twice, and again if the server does not know the clerk any more.
    fn with<T>(&self, operation: impl Fn(&A) -> Result<T, FileError>) -> Result<T, FileError> {
        self.with_numbered(operation).map(|(_, value)| value)
    }

    /// Executes an operation as [`Attaching::with`] does. Returns the number of the attachment that executed
    /// it, too.
    fn with_numbered<T>(
        &self,
        operation: impl Fn(&A) -> Result<T, FileError>,
    ) -> Result<(u64, T), FileError> {
        for _ in 0..MAX_ATTACHMENTS {
            let now = self.now();
            match operation(&now.attachment) {
                Err(Error::CallFailed(why)) if is_over(&why) => self.attach_anew(&now, &why)?,
                outcome => return outcome.map(|value| (now.number, value)),
            }
        }
        let now = self.now();
        operation(&now.attachment).map(|value| (now.number, value))
    }

    fn written(&self) -> MutexGuard<'_, HashMap<Handle, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file was written by the attachment of this number. The first write since a commit counts:
    /// of the later ones, too, it must be known whether they are all there.
    fn note_written(&self, file: Handle, number: u64) {
        let mut written = self.written();
        let first = written.entry(file).or_insert(number);
        *first = number.min(*first);
    }

    fn now(&self) -> Arc<Numbered<A>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Attaches anew, unless another thread has done so since `former` was the attachment.
    ///
    /// # Errors
    /// `why` the former attachment is over, if no server is there; and that of attaching.
    fn attach_anew(&self, former: &Arc<Numbered<A>>, why: &CallFailed) -> Result<(), FileError> {
        let _attaching = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&self.now(), former) {
            let attachment =
                (self.attach)(Some(former.attachment.paths().clone())).map_err(|again| match again {
                    Error::CallFailed(again) if again.kind() == Kind::Unreachable => why.clone().into(),
                    again => again,
                })?;
            let next = Numbered { number: former.number + 1, attachment };
            *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        }
        Ok(())
    }
}

/// Returns whether a failure may be that of an attachment whose server has given it up, has ended, or was
/// restarted.
fn is_over(why: &CallFailed) -> bool {
    matches!(
        why.kind(),
        Kind::Forgotten | Kind::ServerRestarted | Kind::NotExported | Kind::Draining | Kind::Unreachable
    )
}

impl<A: Attachment> Files for Attaching<A> {
    fn null(&self) -> Result<(), FileError> {
        self.with(Files::null)
    }

    fn root(&self) -> Result<Handle, FileError> {
        self.now().attachment.root()
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
        let (number, ()) = self.with_numbered(|now| now.write(file, offset, bytes))?;
        self.note_written(file, number);
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        self.with(Files::statistics)
    }

    fn commit(&self, file: Handle) -> Result<(), FileError> {
        let first = self.written().remove(&file);
        let committed = self.with_numbered(|now| now.commit(file));
        match (first, committed) {
            (Some(first), Ok((number, ()))) if first != number => {
                let why = "what was written to the file since its last commit may be lost: write it again";
                Err(CallFailed::new(Kind::ServerRestarted, Ran::Maybe).because(why).into())
            }
            (Some(first), Err(why)) => {
                // The next commit must say whether what was written is there.
                self.note_written(file, first);
                Err(why)
            }
            (_, committed) => committed.map(drop),
        }
    }
}
