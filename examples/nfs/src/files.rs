//! The exported directory: the operations of NFS's procedures on this system's files.
//!
//! No path leads out of the directory: paths are walked name by name from the root, and no symbolic link is
//! followed. (Clients follow links, RFC 1813 section 2.4.) Every operation walks the path again, so a file
//! that was moved out is gone at once, even if it is open. All operations run as the server's user. A file
//! that is created, renamed, removed or changed is on the disk when the operation returns (RFC 1813 section
//! 4.7); written data is on the disk only if the client asks for that.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    Access, AtFlags, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, StatVfs, Statx, StatxFlags,
    Timestamps, Uid,
};
use rustix::io::{Errno, Result};

use crate::opened::Opened;
use crate::places::{Key, Places};
use crate::protocol::nfs::StableHow;

/// The flags to examine a file without opening its content.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The flags to open content. The call must not wait for the other end of a pipe, nor make a terminal the
/// server's own.
const CONTENT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// The error of an invalid position in a directory.
pub const BAD_COOKIE: Errno = Errno::OVERFLOW;
/// The attributes that are read: the basic ones and the time of birth.
const ALL: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
/// The bytes of the buffer for reading a directory.
const DIRECTORY_BYTES: usize = 32 << 10;

/// A directory and all below it.
#[derive(Debug)]
pub struct Files {
    root: OwnedFd,
    places: Places,
    opened: Opened,
    /// How often the disk has failed to store written data.
    losses: AtomicU64,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The inode.
    pub inode: u64,
    /// The name.
    pub name: Vec<u8>,
    /// The position of the next entry.
    pub cookie: u64,
}

/// A change of a file's attributes.
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
    /// The times of the last read and the last write. [`UTIME_NOW`](rustix::fs::UTIME_NOW) and `UTIME_OMIT`
    /// have the system's meaning.
    pub times: Option<Timestamps>,
}

impl Change {
    fn is_nothing(&self) -> bool {
        let Change { mode, user, group, size, times } = self;
        [mode, user, group].iter().all(|part| part.is_none()) && size.is_none() && times.is_none()
    }
}

impl Files {
    /// Opens the directory at `path`. It stays the exported one if it is renamed.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> Result<Files> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let key = Key::of(&of_open(&root)?);
        Ok(Files { root, places: Places::new(key), opened: Opened::default(), losses: AtomicU64::new(0) })
    }

    /// Returns the exported directory itself.
    pub fn root(&self) -> Key {
        self.places.root()
    }

    /// Returns how often the disk has failed to store written data. A failure may have lost uncommitted data
    /// of any client.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Returns a file's attributes.
    pub fn stat(&self, file: Key) -> Result<Statx> {
        Ok(self.walk(file)?.1)
    }

    /// Returns the file with this name in a directory.
    pub fn lookup(&self, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        let here = self.directory(directory)?;
        match name {
            b"." => return self.known(directory),
            // The root is its own parent.
            b".." => return self.known(self.places.directory(directory).ok_or(Errno::STALE)?),
            _ => {}
        }
        self.find(&here, directory, name)
    }

    /// Reads up to `length` bytes from `offset` on. Returns them, whether the file ends there, and its
    /// attributes.
    pub fn read(&self, file: Key, offset: u64, length: usize) -> Result<(Vec<u8>, bool, Statx)> {
        let (open, stat) = self.open_content(file, false)?;
        let size = stat.stx_size;
        let length = length.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(length));
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::NOMEM)?;
        bytes.resize(length, 0);
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
        // The file may have become shorter meanwhile.
        let ended = full < length || offset.saturating_add(full as u64) >= size;
        Ok((bytes, ended, of_open(&open)?))
    }

    /// Writes `bytes` at `offset`. When it returns, they are on the disk as far as `stable` says. Returns how
    /// many were written: fewer if there was no room for all.
    pub fn write(&self, file: Key, offset: u64, bytes: &[u8], stable: StableHow) -> Result<usize> {
        offset
            .checked_add(bytes.len() as u64)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or(Errno::FBIG)?;
        let (open, _) = self.open_content(file, true)?;
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::pwritev(&open, &[IoSlice::new(&bytes[written..])], offset + written as u64) {
                Ok(0) if written == 0 => return Err(Errno::IO),
                Ok(more) if more > 0 => written += more,
                Err(Errno::INTR) => {}
                Err(why) if written == 0 => return Err(why),
                // The client gets the error when it sends the rest.
                Ok(_) | Err(_) => break,
            }
        }
        match stable {
            StableHow::Unstable => return Ok(written),
            StableHow::DataSync => self.synced(rustix::fs::fdatasync(&open))?,
            StableHow::FileSync => self.synced(rustix::fs::fsync(&open))?,
        }
        self.settle(file);
        Ok(written)
    }

    /// Waits until all written data of a file is on the disk.
    pub fn commit(&self, file: Key) -> Result<()> {
        self.synced(rustix::fs::fsync(self.open_content(file, false)?.0))?;
        self.settle(file);
        Ok(())
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, file: Key) -> Result<Vec<u8>> {
        let link = self.look(file)?;
        rustix::fs::readlinkat(&link, "", Vec::new()).map(|text| text.into_bytes()).map_err(|why| match why {
            // The system reports this error for a file that is not a link.
            Errno::NOENT => Errno::INVAL,
            why => why,
        })
    }

    /// Returns whether the server's user has the `wanted` access to a file.
    pub fn may(&self, file: Key, wanted: Access) -> Result<bool> {
        let look = self.look(file)?;
        match rustix::fs::accessat(rustix::fs::CWD, self_path(&look), wanted, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Changes the given attributes of a file.
    pub fn change(&self, file: Key, change: &Change) -> Result<()> {
        let (look, stat) = self.walk(file)?;
        let is_link = kind(&stat) == FileType::Symlink;
        // A link has no permissions of its own, and the system would follow it.
        let change = if is_link { &Change { mode: None, ..change.clone() } } else { change };
        if change.is_nothing() {
            return Ok(());
        }
        let open = self.to_sync(file, &look, &stat)?;
        if let Some(size) = change.size {
            self.set_size(file, size)?;
        }
        let path = self_path(&look);
        if let Some(mode) = change.mode {
            rustix::fs::chmodat(rustix::fs::CWD, path.as_str(), permissions(mode), AtFlags::empty())?;
        }
        if change.user.is_some() || change.group.is_some() {
            let (user, group) = (change.user.map(Uid::from_raw), change.group.map(Gid::from_raw));
            rustix::fs::chownat(&look, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        match &change.times {
            Some(times) if is_link => rustix::fs::utimensat(&look, "", times, AtFlags::EMPTY_PATH)?,
            Some(times) => rustix::fs::utimensat(rustix::fs::CWD, path.as_str(), times, AtFlags::empty())?,
            None => {}
        }
        self.sync(open)
    }

    /// Sets a file's length. A file that was not open for writing before is closed afterwards, because a file
    /// cannot be executed while it is open for writing.
    fn set_size(&self, file: Key, size: u64) -> Result<()> {
        let size = i64::try_from(size).map_err(|_| Errno::FBIG)?;
        let is_written = self.opened.get(file, true).is_some();
        let done = rustix::fs::ftruncate(self.open_content(file, true)?.0, size as u64);
        if !is_written {
            self.opened.forget(file);
        }
        done
    }

    /// Creates a file, with these times if any are given. Fails if there is one already.
    pub fn create(&self, directory: Key, name: &[u8], mode: u32, times: Option<&Timestamps>) -> Result<Key> {
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        let (name, flags) = (plain(name)?, CONTENT | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
        let made = self.room(|| rustix::fs::openat(&here, name, flags, permissions(mode)))?;
        let file = Key::of(&of_open(&made)?);
        self.places.note(file, directory, name);
        if let Some(times) = times {
            rustix::fs::futimens(&made, times)?;
        }
        let made = Arc::new(made);
        self.sync(Some(made.clone()))?;
        self.sync(names)?;
        // The client that created the file may write it, even if its permissions forbid that.
        self.opened.keep(file, made, true);
        Ok(file)
    }

    /// Returns the regular file that could not be created because it exists. It is not opened, because it may
    /// be a device.
    pub fn existing(&self, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        match self.lookup(directory, name) {
            Ok((_, stat)) if kind(&stat) != FileType::RegularFile => Err(Errno::EXIST),
            // The file has gone meanwhile. A client that tries again creates it.
            Err(Errno::NOENT) => Err(Errno::AGAIN),
            found => found,
        }
    }

    /// Creates a directory. Returns `None` if it was created and then moved or removed at once.
    pub fn make_directory(&self, directory: Key, name: &[u8], mode: u32) -> Result<Option<Key>> {
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        rustix::fs::mkdirat(&here, plain(name)?, permissions(mode))?;
        self.made(&here, names, (directory, name), FileType::Directory)
    }

    /// Creates a symbolic link to `text`. Returns `None` if it was created and then moved or removed at once.
    pub fn make_link(&self, directory: Key, name: &[u8], text: &[u8]) -> Result<Option<Key>> {
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        rustix::fs::symlinkat(text, &here, plain(name)?)?;
        self.made(&here, names, (directory, name), FileType::Symlink)
    }

    /// Creates a pipe or a socket; clients may not create devices. Returns `None` if it was created and then
    /// moved or removed at once.
    pub fn make_special(
        &self,
        directory: Key,
        name: &[u8],
        kind: FileType,
        mode: u32,
    ) -> Result<Option<Key>> {
        if !matches!(kind, FileType::Fifo | FileType::Socket) {
            return Err(Errno::NOTSUP);
        }
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        rustix::fs::mknodat(&here, plain(name)?, kind, permissions(mode), 0)?;
        self.made(&here, names, (directory, name), kind)
    }

    /// Returns the file that was just created in a directory, and waits until it is on the disk. Returns
    /// `None` if its name by now belongs to another file, or to none.
    fn made(
        &self,
        here: &OwnedFd,
        names: Option<OwnedFd>,
        (directory, name): (Key, &[u8]),
        made: FileType,
    ) -> Result<Option<Key>> {
        let found = self.find(here, directory, name).ok().filter(|(_, stat)| kind(stat) == made);
        self.sync(names)?;
        if made == FileType::Directory {
            // If the directory cannot be opened, `sync` syncs the whole system.
            let flags = CONTENT | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            self.sync(rustix::fs::openat(here, name, flags, Mode::empty()).ok())?;
        }
        Ok(found.map(|(file, _)| file))
    }

    /// Removes a file, or an empty directory if `directories`.
    pub fn remove(&self, directory: Key, name: &[u8], directories: bool) -> Result<()> {
        let here = self.directory(directory)?;
        let name = plain(name)?;
        let names = self.readable(&here)?;
        let gone = at(&here, name);
        let flags = if directories { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&here, name, flags)?;
        self.close(gone);
        self.sync(names)
    }

    /// Gives a file another name, in the same directory or another.
    pub fn rename(&self, from: (Key, &[u8]), to: (Key, &[u8])) -> Result<()> {
        let (old, new) = (self.directory(from.0)?, self.directory(to.0)?);
        let new_names = self.readable(&new)?;
        let old_names = if from.0 == to.0 { None } else { Some(self.readable(&old)?) };
        let gone = at(&new, plain(to.1)?);
        rustix::fs::renameat(&old, plain(from.1)?, &new, plain(to.1)?)?;
        self.close(gone);
        // The rename is done, even if another process has renamed the file again.
        let _ = self.lookup(to.0, to.1);
        // The new name is synced first: a crash between the two loses no file.
        let new_synced = self.sync(new_names);
        let old_synced = old_names.map_or(Ok(()), |names| self.sync(names));
        new_synced.and(old_synced)
    }

    /// Gives a file one more name.
    pub fn link(&self, file: Key, directory: Key, name: &[u8]) -> Result<()> {
        let ((look, stat), here) = (self.walk(file)?, self.directory(directory)?);
        let names = self.readable(&here)?;
        let content = if kind(&stat) == FileType::RegularFile { self.readable(&look)? } else { None };
        // The file is named by a path in /proc, because an empty path with a descriptor would need a
        // privilege.
        rustix::fs::linkat(rustix::fs::CWD, self_path(&look), &here, plain(name)?, AtFlags::SYMLINK_FOLLOW)?;
        // Programs that replace a file safely link it to its final name, and then remove the first name.
        self.places.note(file, directory, name);
        self.sync(content)?;
        self.sync(names)
    }

    /// Calls `take` with the entries of a directory from `cookie` on (0: from the beginning), until it
    /// returns false. `take` may look each one up by the function that it gets. Returns whether the directory
    /// has ended.
    pub fn list(
        &self,
        directory: Key,
        cookie: u64,
        mut take: impl FnMut(Entry, &dyn Fn(&[u8]) -> Result<(Key, Statx)>) -> bool,
    ) -> Result<bool> {
        let here = self.directory(directory)?;
        let flags = CONTENT | OFlags::RDONLY | OFlags::DIRECTORY;
        let readable = self.room(|| rustix::fs::openat(&here, ".", flags, Mode::empty()))?;
        if cookie > 0 {
            rustix::fs::seek(&readable, SeekFrom::Start(cookie)).map_err(|_| BAD_COOKIE)?;
        }
        let mut buffer = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let find = |name: &[u8]| match name {
            b"." | b".." => self.lookup(directory, name),
            name => self.find(&here, directory, name),
        };
        let mut names = RawDir::new(&readable, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            if !take(Entry { inode: entry.ino(), name, cookie: entry.next_entry_cookie() }, &find) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns how full the file system is.
    pub fn space(&self, file: Key) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.look(file)?)
    }

    /// Returns the file with this name in a directory that is open.
    fn find(&self, here: &OwnedFd, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        let stat = at(here, plain(name)?)?;
        let file = Key::of(&stat);
        self.places.note(file, directory, name);
        Ok((file, stat))
    }

    fn known(&self, file: Key) -> Result<(Key, Statx)> {
        Ok((file, self.stat(file)?))
    }

    /// Opens a directory, to operate on its entries.
    fn directory(&self, directory: Key) -> Result<OwnedFd> {
        let (found, stat) = self.walk(directory)?;
        match kind(&stat) {
            FileType::Directory => Ok(found),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Opens a file, to examine it.
    fn look(&self, file: Key) -> Result<OwnedFd> {
        Ok(self.walk(file)?.0)
    }

    /// Opens the content of a regular file. Returns it with the file's attributes, and keeps it open for a
    /// while. A file that is only read is not opened for writing, because no program could execute it
    /// meanwhile.
    fn open_content(&self, file: Key, to_write: bool) -> Result<(Arc<OwnedFd>, Statx)> {
        // The file is examined first: opening a device may have an effect.
        let (look, stat) = self.walk(file)?;
        match kind(&stat) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        if let Some(open) = self.opened.get(file, to_write) {
            return Ok((open, stat));
        }
        let way = if to_write { OFlags::RDWR } else { OFlags::RDONLY };
        let open = Arc::new(self.room(|| rustix::fs::open(self_path(&look), CONTENT | way, Mode::empty()))?);
        self.opened.keep(file, open.clone(), to_write);
        Ok((open, stat))
    }

    /// Closes a file whose data is on the disk, because the file cannot be executed while it is open for
    /// writing. Keeps a file open that could not be opened for writing again.
    fn settle(&self, file: Key) {
        if self.opened.get(file, true).is_some() && matches!(self.may(file, Access::WRITE_OK), Ok(true)) {
            self.opened.forget(file);
        }
    }

    /// Opens the file that syncs a file's attributes, before they are changed. Returns `None` if the whole
    /// system must be synced.
    fn to_sync(&self, file: Key, look: &OwnedFd, stat: &Statx) -> Result<Option<Arc<OwnedFd>>> {
        match (self.opened.get(file, false), kind(stat)) {
            (Some(open), _) => Ok(Some(open)),
            (None, FileType::RegularFile | FileType::Directory) => Ok(self.readable(look)?.map(Arc::new)),
            // Opening another kind of file, such as a device, may have an effect.
            _ => Ok(None),
        }
    }

    /// Opens a file or directory to sync it later. Returns `None` where that is not permitted. The caller
    /// opens it before the change, so that nothing is changed if no more files can be opened.
    fn readable(&self, look: &OwnedFd) -> Result<Option<OwnedFd>> {
        match self.room(|| rustix::fs::open(self_path(look), CONTENT | OFlags::RDONLY, Mode::empty())) {
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            open => open.map(Some),
        }
    }

    /// Syncs an open file or directory with its attributes, or the whole system if there is none.
    fn sync(&self, open: Option<impl AsFd>) -> Result<()> {
        self.synced(open.map_or(Err(Errno::INVAL), rustix::fs::fsync))
    }

    /// Handles the outcome of a sync. If the file system cannot sync the file alone, syncs the whole system.
    fn synced(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(Errno::INVAL) => {
                rustix::fs::sync();
                Ok(())
            }
            Err(why) => {
                self.losses.fetch_add(1, Ordering::SeqCst);
                Err(why)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Opens a file. If too many files are open, closes files that are only kept open for later.
    fn room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) if self.opened.forget_oldest() => {}
                opened => return opened,
            }
        }
    }

    /// Closes a file that has lost a name, perhaps its last: while it is open, its space on the disk is not
    /// free.
    fn close(&self, file: Result<Statx>) {
        let _ = file.map(|stat| self.opened.forget(Key::of(&stat)));
    }

    /// Walks the path to a file. Returns it, opened to be examined, with its attributes.
    fn walk(&self, file: Key) -> Result<(OwnedFd, Statx)> {
        let way = self.places.way(file).ok_or(Errno::STALE)?;
        let path = if way.is_empty() { b"." } else { &way[..] };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let found = match self.room(|| rustix::fs::openat2(&self.root, path, LOOK, Mode::empty(), inside)) {
            // The system is old or forbids the call, or the path is long.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN | Errno::NAMETOOLONG) => {
                self.room(|| self.step_by_step(path))
            }
            found => found,
        };
        // The file existed when the client got its handle.
        let found = found.map_err(|why| match why {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => Errno::STALE,
            why => why,
        })?;
        let stat = of_open(&found)?;
        match Key::of(&stat) == file {
            true => Ok((found, stat)),
            false => Err(Errno::STALE),
        }
    }

    /// Walks a path by opening each name in the directory before it.
    fn step_by_step(&self, path: &[u8]) -> Result<OwnedFd> {
        let mut names = path.split(|byte| *byte == b'/');
        let last = names.next_back().ok_or(Errno::STALE)?;
        let mut here: Option<OwnedFd> = None;
        let step = |here: Option<&OwnedFd>, name: &[u8], flags| {
            rustix::fs::openat(here.map_or(self.root.as_fd(), AsFd::as_fd), name, flags, Mode::empty())
        };
        for name in names {
            here = Some(step(here.as_ref(), name, LOOK | OFlags::DIRECTORY)?);
        }
        step(here.as_ref(), last, LOOK)
    }
}

/// Returns the attributes of the file with this name in a directory.
fn at(directory: &OwnedFd, name: &[u8]) -> Result<Statx> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ALL)
}

/// Returns the attributes of an open file.
fn of_open(open: &OwnedFd) -> Result<Statx> {
    rustix::fs::statx(open, "", AtFlags::EMPTY_PATH, ALL)
}

/// Returns the permissions that clients may set: not set-user-ID, with which a program would run as the
/// server's user.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o1777)
}

/// Checks that a name is not a path.
fn plain(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
        _ => Ok(name),
    }
}

/// Returns the type of a file.
pub fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Returns a path to a file that was opened only to be examined, for system calls that do not accept such a
/// descriptor.
fn self_path(look: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", look.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_as_soon_as_it_was_made_was_made() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::open(directory.path()).unwrap();
        let root = files.root();
        let here = files.directory(root).unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        for name in [&b"gone"[..], b"file"] {
            let made = files.made(&here, files.readable(&here).unwrap(), (root, name), FileType::Directory);
            assert_eq!(made, Ok(None), "and something else is not what was made");
        }
    }
}
