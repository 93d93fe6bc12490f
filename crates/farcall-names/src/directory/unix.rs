//! The directory on Unix. It is examined once it is open, and its files are opened relative to it.
//!
//! The path in `/tmp` is predictable, so another user may have created it first. If a file is examined by its
//! path and opened afterwards, it can be another file by then. So it is opened first, without following a
//! symbolic link, and then examined.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{io_error, read_bounded};
use crate::{Distrust, Error, Result};

pub(crate) struct Directory {
    path: PathBuf,
    /// The open directory.
    handle: File,
}

/// Returns the path of the directory of this process's user.
pub(crate) fn of_user() -> PathBuf {
    // By the XDG base directory specification, a path that is not absolute must be ignored.
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    match runtime {
        Some(runtime) => runtime.join("farcall"),
        None => PathBuf::from(format!("/tmp/farcall-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Returns the paths of all directories that processes of this process's user may have, whatever their
/// environment, the one of this process first.
pub(crate) fn all_of_user() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let mut all = vec![of_user()];
    for path in [format!("/run/user/{user}/farcall"), format!("/tmp/farcall-{user}")] {
        let path = PathBuf::from(path);
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

impl Directory {
    /// Opens the directory, and creates it if it is missing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(io_error("making", path, "", e)),
        }
        Self::open(path)?.ok_or_else(|| io_error("opening", path, "", Errno::NOENT))
    }

    /// Opens the directory, if there is one.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            // Systems report different errors for a symbolic link in place of a directory, so this asks.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let why = if path.is_symlink() { Distrust::SymbolicLink } else { Distrust::NotADirectory };
                return Err(Error::Untrusted { path: path.to_owned(), why });
            }
            Err(e) => return Err(io_error("opening", path, "", e)),
        };
        let found = handle.metadata().map_err(|e| io_error("examining", path, "", e))?;
        match distrust(found.uid(), found.mode()) {
            Some(why) => Err(Error::Untrusted { path: path.to_owned(), why }),
            None => Ok(Some(Self { path: path.to_owned(), handle })),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading, if there is such a file.
    pub(crate) fn open_existing(&self, name: &str) -> Result<Option<File>> {
        // Without NONBLOCK, opening a pipe in the file's place would block.
        match self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => Ok(Some(file)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens a file to write behind its end.
    pub(super) fn open_to_append(&self, name: &str) -> Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK)
    }

    /// Returns the content of a file, as [`Directory::read`] does, if nobody else can open the file.
    pub(crate) fn read_private(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
        let file = match self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => file,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        let failed = |source| io_error("reading", &self.path, name, source);
        let found = file.metadata().map_err(failed)?;
        if let Some(why) = distrust(found.uid(), found.mode()) {
            let why = if let Distrust::Mode(mode) = why { Distrust::FileMode(mode) } else { why };
            return Err(Error::Untrusted { path: self.path.join(name), why });
        }
        read_bounded(file, limit).map(Some).map_err(failed)
    }

    pub(super) fn open_or_make(&self, name: &str) -> Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK)
    }

    /// Creates a new empty file. Replaces the file that a killed writer may have left.
    pub(super) fn make(&self, name: &str) -> io::Result<File> {
        self.remove(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?);
        keep(&file);
        Ok(file)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// Returns whether `name` is still the name of this open file.
    pub(super) fn is_still(&self, name: &str, file: &File) -> Result<bool> {
        let failed = |e: Errno| io_error("examining", &self.path, name, e);
        let open = rustix::fs::fstat(file).map_err(failed)?;
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<File> {
        let untrusted = |why| Error::Untrusted { path: self.path.join(name), why };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => File::from(fd),
            // FreeBSD reports EMLINK.
            Err(Errno::LOOP | Errno::MLINK) => return Err(untrusted(Distrust::SymbolicLink)),
            Err(Errno::ISDIR | Errno::NXIO) => return Err(untrusted(Distrust::NotAFile)),
            Err(e) => return Err(io_error("opening", &self.path, name, e)),
        };
        let found = file.metadata().map_err(|e| io_error("examining", &self.path, name, e))?;
        if !found.is_file() {
            return Err(untrusted(Distrust::NotAFile));
        }
        // A change of the mode is written to the disk, so it is made once.
        if flags.contains(OFlags::CREATE) && found.mode() & 0o7777 != KEPT {
            keep(&file);
        }
        Ok(file)
    }
}

/// Returns why a directory of this owner and mode cannot be trusted, or `None` if it can. (If the directory
/// has an access control list, the mode's group bits show it.)
fn distrust(uid: u32, mode: u32) -> Option<Distrust> {
    if uid != rustix::process::geteuid().as_raw() {
        return Some(Distrust::Owner(uid));
    }
    (mode & 0o077 != 0).then_some(Distrust::Mode(mode & 0o7777))
}

/// The mode of a file with the sticky bit.
const KEPT: u32 = 0o1600;

/// Sets the sticky bit, so that cleaners do not remove the file when it is old (XDG base directory
/// specification; systemd does the same in `/tmp`). Errors are ignored, because not every system lets a user
/// set this bit on a file.
fn keep(file: &File) {
    let _ = rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR | Mode::SVTX);
}

#[cfg(test)]
mod tests {
    use rustix::io::FdFlags;

    use super::*;

    #[test]
    fn no_descriptor_is_inherited_by_an_executed_program() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::create(&scratch.path().join("registry")).unwrap();
        let files = [directory.make("names.new").unwrap(), directory.open_or_make("lock").unwrap()];
        for file in files.iter().chain([&directory.handle]) {
            assert!(rustix::io::fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC));
        }
    }
}
