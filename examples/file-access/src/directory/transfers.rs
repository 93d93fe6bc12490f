//! Whole files as bulk: fetched, and stored beside their names until they are complete.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use farcall::Bulk;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Directory, kind, open, size};
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

/// The device and the inode of a file.
type Number = (u64, u64);

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
        let turn = self.storing.begin(found.number());
        // Nobody else writes from here on, so the length is what it will be.
        let there = size(&rustix::fs::fstat(&found.file).map_err(FileError::from)?);
        if offset > there {
            let why = format!("it cannot go on from byte {offset}, because {there} bytes are there");
            return Err(FileError::Failed(why).into());
        }
        rustix::fs::ftruncate(&found.file, offset).map_err(FileError::from)?;
        let mut sink = Sink { file: found.file, at: offset, turn: &turn };
        // What has been written stays there, whatever becomes of the rest.
        let copied = content.copy_to(&mut sink, quota.saturating_sub(offset));
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
        // Whoever still stores the file must not change it after it was checked.
        let _turn = self.storing.begin(found.number());
        let Unfinished { parent, file, part, name, .. } = found;
        let mut file = File::from(file);
        let is = digest(&mut file)?;
        if is != whole {
            let why = format!("the {} bytes that are here are not the {} sent", is.length, whole.length);
            return Err(FileError::Failed(why).into());
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
            FileKind::File => Ok(Unfinished { parent, file, stat, part, name }),
            _ => Err(FileError::NotAFile),
        }
    }
}

/// A file that is being stored, and the directory that it is in.
struct Unfinished {
    parent: OwnedFd,
    file: OwnedFd,
    stat: Stat,
    /// Its name now.
    part: String,
    /// Its name when it is complete.
    name: String,
}

impl Unfinished {
    #[allow(clippy::unnecessary_cast, reason = "they have other types on some systems")]
    fn number(&self) -> Number {
        (self.stat.st_dev as u64, self.stat.st_ino as u64)
    }
}

/// The files that are being stored. Of several transfers to one file the last one goes on.
#[derive(Debug, Default)]
pub(super) struct Storing(Mutex<HashMap<Number, Arc<Mutex<Owner>>>>);

/// Whether a transfer may still write.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    ThisTransfer,
    Another,
}

impl Storing {
    /// Begins a transfer to a file. Returns when no other one writes any more.
    fn begin(&self, number: Number) -> Turn<'_> {
        let owner = Arc::new(Mutex::new(Owner::ThisTransfer));
        let earlier = lock(&self.0).insert(number, owner.clone());
        if let Some(earlier) = earlier {
            *lock(&earlier) = Owner::Another;
        }
        Turn { storing: self, number, owner }
    }
}

/// The right to write to a file, until another transfer to it begins.
struct Turn<'s> {
    storing: &'s Storing,
    number: Number,
    owner: Arc<Mutex<Owner>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.storing.0);
        if all.get(&self.number).is_some_and(|owner| Arc::ptr_eq(owner, &self.owner)) {
            all.remove(&self.number);
        }
    }
}

/// Writes to a file while it is this transfer's turn.
struct Sink<'t> {
    file: OwnedFd,
    at: u64,
    turn: &'t Turn<'t>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let owner = lock(&self.turn.owner);
        if *owner == Owner::Another {
            return Err(io::Error::other("another transfer to the same file has begun"));
        }
        let written = rustix::io::pwrite(&self.file, bytes, self.at)?;
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
#[cfg(any(target_os = "linux", target_os = "android"))]
fn rename_to_new(parent: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(parent, from, parent, to, rustix::fs::RenameFlags::NOREPLACE)
}

/// Gives a file a name that no file has.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn rename_to_new(parent: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::linkat(parent, from, parent, to, rustix::fs::AtFlags::empty())?;
    rustix::fs::unlinkat(parent, from, rustix::fs::AtFlags::empty())
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
