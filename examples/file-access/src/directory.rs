//! A server of [`FileAccess`] for one directory of this machine.

mod more;
mod open;
mod transfers;

use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use farcall::{Bulk, Result};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::path::Below;
use crate::{Attributes, Contents, Digest, Entry, FileAccess, FileError, FileKind, MAX_PAGE, MAX_READ, Page};
use transfers::Storing;

pub use more::{Itself, Statistics};

/// Serves the files below a directory, and nothing else. Clients may store files only if it is
/// [`writable`](Directory::writable).
///
/// No path leads out of the directory, even if files are renamed or linked meanwhile. On Linux the kernel
/// resolves the path with `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`: it follows symbolic links that stay
/// inside, and others are [`FileError::NotPermitted`]. On other systems, and on Linux before 5.6, the path is
/// opened name by name, and no symbolic link is followed. Mount points below the directory are served.
///
/// The server keeps nothing between calls, so clients cannot exhaust its memory: one call holds at most three
/// descriptors, and at most [`MAX_READ`] bytes or two pages of entries. What was stored of a file that is not
/// finished stays in the directory, as `.NAME.part`.
#[derive(Debug)]
pub struct Directory {
    root: OwnedFd,
    how: open::How,
    /// The most bytes of a file that clients store; `None` if they may not.
    quota: Option<u64>,
    storing: Storing,
}

impl Directory {
    /// Opens the directory at `path`. The server keeps serving it if it is renamed.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.as_ref(), flags, rustix::fs::Mode::empty())?;
        Ok(Directory { root, how: open::How::best(), quota: None, storing: Storing::default() })
    }

    /// Lets clients store files, of at most `quota` bytes each.
    #[must_use]
    pub fn writable(self, quota: u64) -> Directory {
        Directory { quota: Some(quota), ..self }
    }

    /// Makes the directory resolve paths as on a system whose kernel cannot.
    #[cfg(test)]
    fn walking(self) -> Directory {
        Directory { how: open::How::Walk, ..self }
    }

    fn below(&self, path: &str, flags: OFlags) -> std::result::Result<OwnedFd, FileError> {
        Ok(self.how.open(self.root.as_fd(), &Below::parse(path)?, flags)?)
    }

    /// Opens a regular file.
    fn to_read(&self, path: &str) -> std::result::Result<(OwnedFd, Stat), FileError> {
        let file = self.below(path, open::TO_READ)?;
        let stat = rustix::fs::fstat(&file)?;
        match kind(&stat) {
            FileKind::File => Ok((file, stat)),
            _ => Err(FileError::NotAFile),
        }
    }
}

impl FileAccess for Directory {
    fn list(&self, path: &str, after: &str) -> Result<Page, FileError> {
        let directory = self.below(path, open::TO_READ | OFlags::DIRECTORY)?;
        let mut page = Page::default();
        for name in names(&directory, after, &mut page)? {
            match rustix::fs::statat(&directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => page.entries.push(Entry { name, attributes: attributes(&stat) }),
                Err(Errno::NOENT) => {} // it was removed while we looked
                Err(why) => return Err(FileError::from(why).into()),
            }
        }
        Ok(page)
    }

    fn stat(&self, path: &str) -> Result<Attributes, FileError> {
        let file = self.below(path, open::TO_LOOK)?;
        let stat = rustix::fs::fstat(&file).map_err(FileError::from)?;
        Ok(attributes(&stat))
    }

    fn read(&self, path: &str, offset: u64, length: u32) -> Result<Contents, FileError> {
        let (file, stat) = self.to_read(path)?;
        let left = size(&stat).saturating_sub(offset);
        let length = u64::from(length.min(MAX_READ));
        // Files of /proc have size 0 and content; only then is more asked for than the size says.
        let room = if size(&stat) == 0 { length } else { length.min(left) };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room as usize).map_err(|_| FileError::from(Errno::NOMEM))?;
        bytes.resize(room as usize, 0);
        let read = fill(&file, offset, &mut bytes).map_err(FileError::from)?;
        bytes.truncate(read);
        Ok(Contents(bytes.into()))
    }

    fn fetch(&self, path: &str, offset: u64, quota: u64) -> Result<Bulk<FileError>, FileError> {
        self.bytes_of(path, offset, quota)
    }

    fn digest(&self, path: &str, length: u64) -> Result<Digest, FileError> {
        self.digest_of(path, length)
    }

    fn unfinished(&self, path: &str) -> Result<Digest, FileError> {
        self.digest_of_unfinished(path)
    }

    fn store(&self, path: &str, offset: u64, content: Bulk) -> Result<u64, FileError> {
        self.write_unfinished(path, offset, content)
    }

    fn finish(
        &self,
        path: &str,
        whole: Digest,
        modified: SystemTime,
        replace: bool,
    ) -> Result<(), FileError> {
        self.name_unfinished(path, whole, modified, replace)
    }
}

/// Returns the first names after `after`, in order. Notes in `page` whether names were left out.
fn names(directory: &OwnedFd, after: &str, page: &mut Page) -> std::result::Result<Vec<String>, FileError> {
    // A heap with the last name on top: a directory of any size needs only the memory of one page.
    let mut first = BinaryHeap::<String>::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            page.unnameable = page.unnameable.saturating_add(1);
            continue;
        };
        if name <= after || matches!(name, "." | "..") {
            continue;
        }
        if first.len() < MAX_PAGE {
            first.push(name.to_owned());
            continue;
        }
        page.more = true;
        if let Some(mut last) = first.peek_mut().filter(|last| last.as_str() > name) {
            *last = name.to_owned();
        }
    }
    Ok(first.into_sorted_vec())
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let mut full = 0;
    while full < buffer.len() {
        // There are no bytes beyond the largest offset of the system.
        let Some(at) = offset.checked_add(full as u64).filter(|at| i64::try_from(*at).is_ok()) else {
            break;
        };
        match rustix::io::pread(file, &mut buffer[full..], at) {
            Ok(0) => break,
            Ok(read) => full += read,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(full)
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes { kind: kind(stat), size: size(stat), modified: modified(stat) }
}

fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode as _) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    }
}

/// The device and the inode of a file, which identify it under all of its names.
type Number = (u64, u64);

#[allow(clippy::unnecessary_cast, reason = "they have other types on some systems")]
fn number(stat: &Stat) -> Number {
    (stat.st_dev as u64, stat.st_ino as u64)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the time of change, or the nearest time that can be represented: a file system may contain any
/// number.
fn modified(stat: &Stat) -> SystemTime {
    #[allow(clippy::unnecessary_cast, reason = "32 bits on some systems")]
    let seconds = stat.st_mtime as i64;
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    time.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

impl From<Errno> for FileError {
    fn from(why: Errno) -> FileError {
        match why {
            Errno::NOENT => FileError::NotFound,
            Errno::NOTDIR => FileError::NotADirectory,
            Errno::ISDIR => FileError::NotAFile,
            // EXDEV: the path would lead out. ELOOP: the path has a symbolic link, or too many of them.
            Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP => FileError::NotPermitted,
            // A socket, or a device without a driver, cannot be opened at all.
            Errno::NXIO | Errno::NODEV => FileError::NotAFile,
            Errno::NAMETOOLONG => FileError::BadPath("a name in it is too long".into()),
            Errno::EXIST => FileError::Exists,
            other => FileError::Failed(io::Error::from(other).to_string()),
        }
    }
}

impl From<FileError> for io::Error {
    fn from(why: FileError) -> io::Error {
        let kind = match why {
            FileError::NotFound => io::ErrorKind::NotFound,
            FileError::NotPermitted => io::ErrorKind::PermissionDenied,
            FileError::NotADirectory => io::ErrorKind::NotADirectory,
            FileError::Exists => io::ErrorKind::AlreadyExists,
            FileError::BadPath(_) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, why)
    }
}

#[cfg(test)]
mod tests;
