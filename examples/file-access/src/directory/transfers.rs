//! Whole files as bulk: fetched, and stored beside their names until they are complete.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use farcall::Bulk;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Directory, Number, kind, number, open, size};
use crate::{Digest, Digesting, FileError, FileKind};

/// Flags to open the unfinished file, and to make it. Opening a pipe must not wait for its other end, and a
/// symbolic link may lead anywhere.
const UNFINISHED: OFlags = open::TO_READ.union(OFlags::NOFOLLOW);
const TO_STORE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Directory {
    /// Serves [`FileAccess::fetch`](crate::FileAccess::fetch).
    pub(super) fn bytes_of(
        &self,
        path: &str,
        offset: u64,
        quota: u64,
    ) -> farcall::Result<Bulk<FileError>, FileError> {
        let (file, _) = self.to_read(path)?;
        // There are no bytes beyond the largest offset of the system.
        if i64::try_from(offset).is_err() {
            return Ok(Bulk::from_bytes(Vec::new()));
        }
        Ok(Bulk::from_file(File::from(file), offset, quota).map_err(failed)?)
    }

    /// Serves [`FileAccess::digest`](crate::FileAccess::digest).
    pub(super) fn digest_of(&self, path: &str, length: u64) -> farcall::Result<Digest, FileError> {
        let (file, _) = self.to_read(path)?;
        digest(File::from(file).take(length))
    }

    /// Serves [`FileAccess::unfinished`](crate::FileAccess::unfinished).
    pub(super) fn digest_of_unfinished(&self, path: &str) -> farcall::Result<Digest, FileError> {
        self.quota()?;
        match self.open_unfinished(path, UNFINISHED) {
            Ok(found) => digest(File::from(found.file)),
            Err(FileError::NotFound) => Ok(Digesting::default().end()),
            Err(why) => Err(why.into()),
        }
    }

    /// Serves [`FileAccess::store`](crate::FileAccess::store).
    pub(super) fn write_unfinished(
        &self,
        path: &str,
        offset: u64,
        mut content: Bulk,
    ) -> farcall::Result<u64, FileError> {
        let quota = self.quota()?;
        let found = self.open_unfinished(path, TO_STORE)?;
        let turn = self.storing.begin(found.number);
        found.cut(offset, &turn)?;
        let mut sink = Sink { file: &found.file, at: offset, turn: &turn };
        // What has been written stays there, whatever becomes of the rest.
        let copied = content.copy_to(&mut sink, quota.saturating_sub(offset));
        drop(turn.hold()?);
        Ok(offset + copied.done()?)
    }

    /// Serves [`FileAccess::finish`](crate::FileAccess::finish).
    pub(super) fn name_unfinished(
        &self,
        path: &str,
        whole: Digest,
        modified: SystemTime,
        replace: bool,
    ) -> farcall::Result<(), FileError> {
        self.quota()?;
        let found = self.open_unfinished(path, OFlags::RDWR | UNFINISHED)?;
        // While this lock is held, the file stays as it was checked: no other transfer begins or renames it.
        let transfers = self.storing.of(found.number);
        let transfers = lock(&transfers);
        if transfers.is_under_way {
            return Err(FileError::Refused("another transfer to the same file is under way".into()).into());
        }
        found.check_name()?;
        let Unfinished { parent, file, part, name, .. } = found;
        let mut file = File::from(file);
        let is = digest(&mut file)?;
        if is != whole {
            let why = format!("the {} bytes that are here are not the {} sent", is.length, whole.length);
            return Err(FileError::Refused(why).into());
        }
        file.set_modified(modified).and_then(|()| file.sync_all()).map_err(failed)?;
        match replace {
            true => rustix::fs::renameat(&parent, &part, &parent, &name).map_err(FileError::from)?,
            false => rename_to_new(&parent, &part, &name).map_err(FileError::from)?,
        }
        Ok(())
    }

    /// Returns the most bytes of a stored file.
    fn quota(&self) -> Result<u64, FileError> {
        self.quota.ok_or(FileError::NotPermitted)
    }

    /// Opens what is there of a file that is being stored.
    fn open_unfinished(&self, path: &str, flags: OFlags) -> Result<Unfinished, FileError> {
        let (parent, name) = self.parent(path)?;
        if name == "." {
            return Err(FileError::NotAFile);
        }
        let part = format!(".{name}.part");
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat(&parent, part.as_str(), flags, mode)?;
        let stat = rustix::fs::fstat(&file)?;
        match kind(&stat) {
            FileKind::File => Ok(Unfinished { parent, file, number: number(&stat), part, name }),
            _ => Err(FileError::NotAFile),
        }
    }
}

/// A file that is being stored, and the directory that it is in.
struct Unfinished {
    parent: OwnedFd,
    file: OwnedFd,
    number: Number,
    /// Its name now.
    part: String,
    /// Its name when it is complete.
    name: String,
}

impl Unfinished {
    /// Discards what the file has behind `offset`, at the beginning of a transfer.
    fn cut(&self, offset: u64, turn: &Turn) -> Result<(), FileError> {
        let _held = turn.hold()?;
        self.check_name()?;
        let there = size(&rustix::fs::fstat(&self.file)?);
        if offset > there {
            let why = format!("it cannot go on from byte {offset}, because {there} bytes are there");
            return Err(FileError::Refused(why));
        }
        Ok(rustix::fs::ftruncate(&self.file, offset)?)
    }

    /// Fails unless the unfinished name leads to this file, and no other name does. To be called while the
    /// transfers are locked. Before that, another transfer may have completed the file, and a write would
    /// change the complete file.
    fn check_name(&self) -> Result<(), FileError> {
        let refused = |why: String| Err(FileError::Refused(why));
        match rustix::fs::statat(&self.parent, self.part.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if number(&stat) != self.number => {
                refused(format!("another file has taken the place of {}", self.part))
            }
            Ok(stat) if stat.st_nlink > 1 => refused(format!("{} has another name too", self.part)),
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => refused(format!("{} was completed or removed meanwhile", self.part)),
            Err(why) => Err(why.into()),
        }
    }
}

/// The files that are being stored. Only the latest transfer to a file may write to it.
#[derive(Debug, Default)]
pub(super) struct Storing(Mutex<HashMap<Number, Weak<Mutex<Transfers>>>>);

/// The transfers to one file. A thread holds their lock while it writes to the file or gives it its name.
#[derive(Debug, Default)]
struct Transfers {
    /// The number of the latest transfer.
    latest: u64,
    /// Whether the latest transfer is under way.
    is_under_way: bool,
}

impl Storing {
    /// Begins a transfer to a file. When this returns, earlier transfers do not write to the file any more.
    fn begin(&self, file: Number) -> Turn {
        let transfers = self.of(file);
        let mut all = lock(&transfers);
        all.latest += 1;
        all.is_under_way = true;
        let number = all.latest;
        drop(all);
        Turn { transfers, number }
    }

    /// Returns the transfers to a file. Removes the entries of the files that no thread uses any more.
    fn of(&self, file: Number) -> Arc<Mutex<Transfers>> {
        let mut files = lock(&self.0);
        files.retain(|_, transfers| transfers.strong_count() > 0);
        if let Some(transfers) = files.get(&file).and_then(Weak::upgrade) {
            return transfers;
        }
        let transfers = Arc::default();
        files.insert(file, Arc::downgrade(&transfers));
        transfers
    }
}

/// The right of a transfer to write to its file, until another transfer to the file begins.
struct Turn {
    transfers: Arc<Mutex<Transfers>>,
    /// The number of this transfer.
    number: u64,
}

impl Turn {
    /// Locks the transfers, so that no other one begins. Fails if another one has begun already.
    fn hold(&self) -> Result<MutexGuard<'_, Transfers>, FileError> {
        let transfers = lock(&self.transfers);
        match transfers.latest == self.number {
            true => Ok(transfers),
            false => Err(FileError::Refused("another transfer to the same file has begun".into())),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Ok(mut transfers) = self.hold() {
            transfers.is_under_way = false;
        }
    }
}

/// Writes to a file while it is this transfer's turn.
struct Sink<'t> {
    file: &'t OwnedFd,
    at: u64,
    turn: &'t Turn,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _held = self.turn.hold()?;
        let written = rustix::io::pwrite(self.file, bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the digest of what a reader gives, unless the call is given up meanwhile.
fn digest(reader: impl Read) -> farcall::Result<Digest, FileError> {
    let context = farcall::context();
    let mut digesting = Digesting::default();
    digesting.add_all(reader, || context.is_cancelled()).map_err(failed)?;
    Ok(digesting.end())
}

/// Gives a file a name that no file has.
fn rename_to_new(parent: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match rustix::fs::renameat_with(parent, from, parent, to, rustix::fs::RenameFlags::NOREPLACE) {
        // The file system cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    rustix::fs::linkat(parent, from, parent, to, AtFlags::empty())?;
    rustix::fs::unlinkat(parent, from, AtFlags::empty())
}

fn failed(why: io::Error) -> FileError {
    match why.raw_os_error() {
        Some(number) => Errno::from_raw_os_error(number).into(),
        None => FileError::Failed(why.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
