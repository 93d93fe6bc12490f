//! The exported directory: what each procedure of NFS does, in terms of this system's files.
//!
//! Nothing leads out of it: a way is walked name by name from the root, and no symbolic link is followed. (That is the
//! client's affair, RFC 1813 section 2.4.) Everything is done as the user that the server runs as.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RawDir, SeekFrom, Stat, StatVfs, Timestamps, Uid};
use rustix::io::{Errno, Result};

use crate::opened::Opened;
use crate::places::{Key, Places};

/// To look at something without opening it.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// For content. A pipe must not make the call wait for its other end, nor a terminal become ours.
const CONTENT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How many bytes of directory are read at once.
const DIRECTORY_BYTES: usize = 32 << 10;

/// A directory and all below it.
#[derive(Debug)]
pub struct Files {
    root: OwnedFd,
    places: Places,
    opened: Opened,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its inode.
    pub inode: u64,
    /// The name.
    pub name: Vec<u8>,
    /// Where the next begins.
    pub cookie: u64,
}

/// What is to be changed of a file's attributes.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub user: Option<u32>,
    /// The group.
    pub group: Option<u32>,
    /// The length.
    pub size: Option<u64>,
    /// When it was read and written; [`UTIME_NOW`](rustix::fs::UTIME_NOW) and `UTIME_OMIT` as the system has them.
    pub times: Option<Timestamps>,
}

impl Files {
    /// The directory at `path`. It stays this one, also if it is renamed.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> Result<Files> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let key = Key::of(&rustix::fs::fstat(&root)?);
        Ok(Files { root, places: Places::new(key), opened: Opened::default() })
    }

    /// The exported directory itself.
    pub fn root(&self) -> Key {
        self.places.root()
    }

    /// A file's attributes.
    pub fn stat(&self, file: Key) -> Result<Stat> {
        if let Some(open) = self.opened.get(file) {
            return fresh(&open);
        }
        rustix::fs::fstat(self.look(file)?)
    }

    /// The file that is called `name` in `directory`.
    pub fn lookup(&self, directory: Key, name: &[u8]) -> Result<(Key, Stat)> {
        let here = self.directory(directory)?;
        match name {
            b"." => return self.known(directory),
            // Nothing is above the root.
            b".." => return self.known(self.places.directory(directory).ok_or(Errno::STALE)?),
            _ => {}
        }
        let stat = rustix::fs::statat(&here, plain(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        let file = Key::of(&stat);
        self.places.note(file, directory, name);
        Ok((file, stat))
    }

    /// Up to `length` bytes from `offset`, and whether the file ends there.
    pub fn read(&self, file: Key, offset: u64, length: usize) -> Result<(Vec<u8>, bool)> {
        let open = self.content(file)?;
        let size = size(&fresh(&open)?);
        let length = length.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(length));
        let mut bytes = vec![0; length];
        let mut full = 0;
        while full < length {
            match rustix::io::pread(&open, &mut bytes[full..], offset + full as u64) {
                Ok(0) => break,
                Ok(read) => full += read,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        bytes.truncate(full);
        Ok((bytes, offset.saturating_add(full as u64) >= size))
    }

    /// Writes all of `bytes` at `offset`; they are on the disk when it returns if `stable`.
    pub fn write(&self, file: Key, offset: u64, bytes: &[u8], stable: bool) -> Result<()> {
        offset.checked_add(bytes.len() as u64).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::FBIG)?;
        let open = self.content(file)?;
        fresh(&open)?;
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::pwritev(&open, &[IoSlice::new(&bytes[written..])], offset + written as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        if stable { rustix::fs::fdatasync(&open) } else { Ok(()) }
    }

    /// What was written is on the disk when it returns.
    pub fn commit(&self, file: Key) -> Result<()> {
        rustix::fs::fdatasync(self.content(file)?)
    }

    /// What a symbolic link says.
    pub fn read_link(&self, file: Key) -> Result<Vec<u8>> {
        let link = self.look(file)?;
        rustix::fs::readlinkat(&link, "", Vec::new()).map(|text| text.into_bytes()).map_err(|why| match why {
            // What is no link has no such name.
            Errno::NOENT => Errno::INVAL,
            why => why,
        })
    }

    /// Which of `wanted` (as the system's `R_OK`, `W_OK`, `X_OK`) whoever runs this may do.
    pub fn may(&self, file: Key, wanted: rustix::fs::Access) -> Result<bool> {
        let look = self.look(file)?;
        match rustix::fs::accessat(rustix::fs::CWD, self_path(&look), wanted, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Changes attributes, those that are given.
    pub fn change(&self, file: Key, change: &Change) -> Result<()> {
        if let Some(size) = change.size {
            let size = i64::try_from(size).map_err(|_| Errno::FBIG)?;
            rustix::fs::ftruncate(self.content(file)?, size as u64)?;
        }
        let look = self.look(file)?;
        let path = self_path(&look);
        let is_link = kind(&rustix::fs::fstat(&look)?) == FileType::Symlink;
        // A link has no permissions of its own, and the path would lead through it.
        if let Some(mode) = change.mode.filter(|_| !is_link) {
            rustix::fs::chmodat(rustix::fs::CWD, path.as_str(), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if change.user.is_some() || change.group.is_some() {
            let (user, group) = (change.user.map(Uid::from_raw), change.group.map(Gid::from_raw));
            rustix::fs::chownat(&look, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        match &change.times {
            Some(times) if !is_link => rustix::fs::utimensat(rustix::fs::CWD, path.as_str(), times, AtFlags::empty()),
            _ => Ok(()),
        }
    }

    /// Makes a file. One that is there already is left as it is, and an error if `new`.
    pub fn create(&self, directory: Key, name: &[u8], mode: u32, new: bool) -> Result<Key> {
        let here = self.directory(directory)?;
        let flags = CONTENT | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let made = match rustix::fs::openat(&here, plain(name)?, flags, Mode::from_raw_mode(mode & 0o7777)) {
            // Not opened: it may be a device.
            Err(Errno::EXIST) if !new => {
                let (file, stat) = self.lookup(directory, name)?;
                return if kind(&stat) == FileType::RegularFile { Ok(file) } else { Err(Errno::EXIST) };
            }
            made => made?,
        };
        let file = Key::of(&rustix::fs::fstat(&made)?);
        self.places.note(file, directory, name);
        self.opened.keep(file, Arc::new(made));
        Ok(file)
    }

    /// Makes a directory.
    pub fn make_directory(&self, directory: Key, name: &[u8], mode: u32) -> Result<Key> {
        let here = self.directory(directory)?;
        rustix::fs::mkdirat(&here, plain(name)?, Mode::from_raw_mode(mode & 0o7777))?;
        Ok(self.lookup(directory, name)?.0)
    }

    /// Makes a symbolic link that says `text`.
    pub fn make_link(&self, directory: Key, name: &[u8], text: &[u8]) -> Result<Key> {
        let here = self.directory(directory)?;
        rustix::fs::symlinkat(text, &here, plain(name)?)?;
        Ok(self.lookup(directory, name)?.0)
    }

    /// Makes a pipe or a socket. (Devices are not for strangers to make.)
    pub fn make_special(&self, directory: Key, name: &[u8], kind: FileType, mode: u32) -> Result<Key> {
        if !matches!(kind, FileType::Fifo | FileType::Socket) {
            return Err(Errno::NOTSUP);
        }
        let here = self.directory(directory)?;
        rustix::fs::mknodat(&here, plain(name)?, kind, Mode::from_raw_mode(mode & 0o7777), 0)?;
        Ok(self.lookup(directory, name)?.0)
    }

    /// Removes a file, or an empty directory if `directories`.
    pub fn remove(&self, directory: Key, name: &[u8], directories: bool) -> Result<()> {
        let here = self.directory(directory)?;
        let name = plain(name)?;
        if let Ok(stat) = rustix::fs::statat(&here, name, AtFlags::SYMLINK_NOFOLLOW) {
            self.opened.forget(Key::of(&stat));
        }
        let flags = if directories { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&here, name, flags)
    }

    /// Gives a file another name, in the same directory or another.
    pub fn rename(&self, from: (Key, &[u8]), to: (Key, &[u8])) -> Result<()> {
        let (old, new) = (self.directory(from.0)?, self.directory(to.0)?);
        rustix::fs::renameat(&old, plain(from.1)?, &new, plain(to.1)?)?;
        self.lookup(to.0, to.1).map(drop)
    }

    /// Gives a file one more name.
    pub fn link(&self, file: Key, directory: Key, name: &[u8]) -> Result<()> {
        let (look, here) = (self.look(file)?, self.directory(directory)?);
        // Through its path in /proc, which needs no privilege as an empty path would.
        rustix::fs::linkat(rustix::fs::CWD, self_path(&look), &here, plain(name)?, AtFlags::SYMLINK_FOLLOW)
    }

    /// The names in a directory from `cookie` (0: from the beginning), as long as `take` wants them. Whether it ended there.
    pub fn list(&self, directory: Key, cookie: u64, mut take: impl FnMut(Entry) -> bool) -> Result<bool> {
        let here = self.directory(directory)?;
        let readable = rustix::fs::openat(&here, ".", CONTENT | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        if cookie > 0 {
            rustix::fs::seek(&readable, SeekFrom::Start(cookie))?;
        }
        let mut buffer = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let mut names = RawDir::new(&readable, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            if !take(Entry { inode: entry.ino(), name, cookie: entry.next_entry_cookie() }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How full the file system is.
    pub fn space(&self, file: Key) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.look(file)?)
    }

    fn known(&self, file: Key) -> Result<(Key, Stat)> {
        Ok((file, self.stat(file)?))
    }

    /// The directory, to do something in.
    fn directory(&self, directory: Key) -> Result<OwnedFd> {
        let found = self.look(directory)?;
        match kind(&rustix::fs::fstat(&found)?) {
            FileType::Directory => Ok(found),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The file, to look at.
    fn look(&self, file: Key) -> Result<OwnedFd> {
        self.walk(file, LOOK)
    }

    /// The regular file, to read and if possible to write; kept open for a while.
    fn content(&self, file: Key) -> Result<Arc<OwnedFd>> {
        if let Some(open) = self.opened.get(file) {
            return Ok(open);
        }
        // Looked at first: to open a device may do something.
        match kind(&rustix::fs::fstat(self.look(file)?)?) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let open = match self.walk(file, CONTENT | OFlags::RDWR) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => self.walk(file, CONTENT | OFlags::RDONLY),
            open => open,
        };
        let open = Arc::new(open?);
        self.opened.keep(file, open.clone());
        Ok(open)
    }

    /// Opens each name in the directory before it, and makes sure that they led to the file.
    fn walk(&self, file: Key, flags: OFlags) -> Result<OwnedFd> {
        let way = self.places.way(file).ok_or(Errno::STALE)?;
        let Some((last, above)) = way.split_first() else {
            return rustix::fs::openat(&self.root, ".", flags, Mode::empty());
        };
        let mut here: Option<OwnedFd> = None;
        for name in above.iter().rev() {
            here = Some(step(here.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), name, LOOK | OFlags::DIRECTORY)?);
        }
        let found = step(here.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), last, flags)?;
        match Key::of(&rustix::fs::fstat(&found)?) == file {
            true => Ok(found),
            false => Err(Errno::STALE),
        }
    }
}

/// One name further. What is not there any more was there when its handle was given.
fn step(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|why| match why {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Errno::STALE,
        why => why,
    })
}

/// The attributes of an open file, which nobody may have removed.
fn fresh(open: &OwnedFd) -> Result<Stat> {
    let stat = rustix::fs::fstat(open)?;
    if stat.st_nlink == 0 { Err(Errno::STALE) } else { Ok(stat) }
}

/// A name that is no path.
fn plain(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
        _ => Ok(name),
    }
}

/// What kind of file it is.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// How long it is, in bytes.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// A path to what was opened only to look at, for system calls that take no such descriptor.
fn self_path(look: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", look.as_raw_fd())
}
