//! The exported directory: what each procedure of NFS does, in terms of this system's files.
//!
//! Nothing leads out of it: a way is walked name by name from the root, and no symbolic link is followed. (That is the
//! client's affair, RFC 1813 section 2.4.) Every operation walks anew, so what was moved out is gone at once, open or not.
//! Everything is done as the user that the server runs as. What is made, renamed, removed or changed is on the disk when the
//! operation returns (RFC 1813 section 4.7), what is written if asked to.

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

/// To look at something without opening it.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// For content. A pipe must not make the call wait for its other end, nor a terminal become ours.
const CONTENT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// The place in a directory is none.
pub const BAD_COOKIE: Errno = Errno::OVERFLOW;
/// What is asked of a file: how it is, and when it was born.
const ALL: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
/// How many bytes of directory are read at once.
const DIRECTORY_BYTES: usize = 32 << 10;

/// A directory and all below it.
#[derive(Debug)]
pub struct Files {
    root: OwnedFd,
    places: Places,
    opened: Opened,
    /// How often the disk has failed to take what was written.
    losses: AtomicU64,
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

impl Change {
    fn is_nothing(&self) -> bool {
        let Change { mode, user, group, size, times } = self;
        [mode, user, group].iter().all(|part| part.is_none()) && size.is_none() && times.is_none()
    }
}

impl Files {
    /// The directory at `path`. It stays this one, also if it is renamed.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> Result<Files> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let key = Key::of(&of_open(&root)?);
        Ok(Files { root, places: Places::new(key), opened: Opened::default(), losses: AtomicU64::new(0) })
    }

    /// The exported directory itself.
    pub fn root(&self) -> Key {
        self.places.root()
    }

    /// How often the disk has failed to take what was written: perhaps also what others wrote, and have not committed.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// A file's attributes.
    pub fn stat(&self, file: Key) -> Result<Statx> {
        Ok(self.walk(file)?.1)
    }

    /// The file that is called `name` in `directory`.
    pub fn lookup(&self, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        let here = self.directory(directory)?;
        match name {
            b"." => return self.known(directory),
            // Nothing is above the root.
            b".." => return self.known(self.places.directory(directory).ok_or(Errno::STALE)?),
            _ => {}
        }
        self.find(&here, directory, name)
    }

    /// Up to `length` bytes from `offset`, whether the file ends there, and its attributes.
    pub fn read(&self, file: Key, offset: u64, length: usize) -> Result<(Vec<u8>, bool, Statx)> {
        let (open, stat) = self.open_content(file, false)?;
        let size = stat.stx_size;
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
        // It may have become shorter meanwhile.
        let ended = full < length || offset.saturating_add(full as u64) >= size;
        Ok((bytes, ended, of_open(&open)?))
    }

    /// Writes `bytes` at `offset`; when it returns they are on the disk as far as `stable` says. How many they were: fewer if there
    /// was no room for all.
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
                // Why not is for who sends the rest.
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

    /// What was written is on the disk when it returns.
    pub fn commit(&self, file: Key) -> Result<()> {
        self.synced(rustix::fs::fsync(self.open_content(file, false)?.0))?;
        self.settle(file);
        Ok(())
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
    pub fn may(&self, file: Key, wanted: Access) -> Result<bool> {
        let look = self.look(file)?;
        match rustix::fs::accessat(rustix::fs::CWD, self_path(&look), wanted, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Changes attributes, those that are given.
    pub fn change(&self, file: Key, change: &Change) -> Result<()> {
        let (look, stat) = self.walk(file)?;
        let is_link = kind(&stat) == FileType::Symlink;
        // A link has no permissions of its own, and the path would lead through it.
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

    /// Whoever was writing it goes on; else it is open for no longer than that, or nobody could run it.
    fn set_size(&self, file: Key, size: u64) -> Result<()> {
        let size = i64::try_from(size).map_err(|_| Errno::FBIG)?;
        let is_written = self.opened.get(file, true).is_some();
        let done = rustix::fs::ftruncate(self.open_content(file, true)?.0, size as u64);
        if !is_written {
            self.opened.forget(file);
        }
        done
    }

    /// Makes a file, which has these times if any are given. It is an error if there is one already.
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
        // Its maker writes it, though the permissions that it has from the start may forbid that.
        self.opened.keep(file, made, true);
        Ok(file)
    }

    /// The file that could not be made because it is there. It is not opened: what is there may be a device.
    pub fn existing(&self, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        match self.lookup(directory, name) {
            Ok((_, stat)) if kind(&stat) != FileType::RegularFile => Err(Errno::EXIST),
            // It has gone meanwhile: who asks again makes it.
            Err(Errno::NOENT) => Err(Errno::AGAIN),
            found => found,
        }
    }

    /// Makes a directory. None if it was made, and moved or removed at once, as with what else is made here.
    pub fn make_directory(&self, directory: Key, name: &[u8], mode: u32) -> Result<Option<Key>> {
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        rustix::fs::mkdirat(&here, plain(name)?, permissions(mode))?;
        self.made(&here, names, (directory, name), FileType::Directory)
    }

    /// Makes a symbolic link that says `text`.
    pub fn make_link(&self, directory: Key, name: &[u8], text: &[u8]) -> Result<Option<Key>> {
        let here = self.directory(directory)?;
        let names = self.readable(&here)?;
        rustix::fs::symlinkat(text, &here, plain(name)?)?;
        self.made(&here, names, (directory, name), FileType::Symlink)
    }

    /// Makes a pipe or a socket. (Devices are not for strangers to make.)
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

    /// What was just made in a directory, and is on the disk with it. None if somebody has moved or removed it, or put something
    /// else in its place: it was made all the same.
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
            // Where that cannot be opened, or not any more, everything is synced.
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
        // It is done, whoever has renamed it once more meanwhile.
        let _ = self.lookup(to.0, to.1);
        // The new name first: a crash between the two loses no file.
        let new_synced = self.sync(new_names);
        let old_synced = old_names.map_or(Ok(()), |names| self.sync(names));
        new_synced.and(old_synced)
    }

    /// Gives a file one more name.
    pub fn link(&self, file: Key, directory: Key, name: &[u8]) -> Result<()> {
        let ((look, stat), here) = (self.walk(file)?, self.directory(directory)?);
        let names = self.readable(&here)?;
        let content = if kind(&stat) == FileType::RegularFile { self.readable(&look)? } else { None };
        // Through its path in /proc, which needs no privilege as an empty path would.
        rustix::fs::linkat(rustix::fs::CWD, self_path(&look), &here, plain(name)?, AtFlags::SYMLINK_FOLLOW)?;
        // Who makes a file safely gives it its name last, and removes the first.
        self.places.note(file, directory, name);
        self.sync(content)?;
        self.sync(names)
    }

    /// The names in a directory from `cookie` (0: from the beginning), as long as `take` wants them; it may have each found, as
    /// [`lookup`](Files::lookup) does. Whether it ended there.
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

    /// How full the file system is.
    pub fn space(&self, file: Key) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.look(file)?)
    }

    /// The file that is called `name` in a directory, which is open.
    fn find(&self, here: &OwnedFd, directory: Key, name: &[u8]) -> Result<(Key, Statx)> {
        let stat = at(here, plain(name)?)?;
        let file = Key::of(&stat);
        self.places.note(file, directory, name);
        Ok((file, stat))
    }

    fn known(&self, file: Key) -> Result<(Key, Statx)> {
        Ok((file, self.stat(file)?))
    }

    /// The directory, to do something in.
    fn directory(&self, directory: Key) -> Result<OwnedFd> {
        let (found, stat) = self.walk(directory)?;
        match kind(&stat) {
            FileType::Directory => Ok(found),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The file, to look at.
    fn look(&self, file: Key) -> Result<OwnedFd> {
        Ok(self.walk(file)?.0)
    }

    /// The regular file, to read or to write, and its attributes; kept open for a while. One that is only read is not open to be
    /// written: nobody could run it.
    fn open_content(&self, file: Key, to_write: bool) -> Result<(Arc<OwnedFd>, Statx)> {
        // Looked at first: to open a device may do something.
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

    /// Closes a file that was written, now that it is on the disk: nobody could run it while it is open. But one that could not
    /// be opened to be written again.
    fn settle(&self, file: Key) {
        if self.opened.get(file, true).is_some() && matches!(self.may(file, Access::WRITE_OK), Ok(true)) {
            self.opened.forget(file);
        }
    }

    /// Opens what syncs a file's attributes, before they are changed; none if that is everything.
    fn to_sync(&self, file: Key, look: &OwnedFd, stat: &Statx) -> Result<Option<Arc<OwnedFd>>> {
        match (self.opened.get(file, false), kind(stat)) {
            (Some(open), _) => Ok(Some(open)),
            (None, FileType::RegularFile | FileType::Directory) => Ok(self.readable(look)?.map(Arc::new)),
            // To open it may do something.
            _ => Ok(None),
        }
    }

    /// Opens what is to be synced; none where nobody may. Before it is changed: where no more can be opened, nothing is done.
    fn readable(&self, look: &OwnedFd) -> Result<Option<OwnedFd>> {
        match self.room(|| rustix::fs::open(self_path(look), CONTENT | OFlags::RDONLY, Mode::empty())) {
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            open => open.map(Some),
        }
    }

    /// What was opened for that is on the disk when it returns, its names or its content, and its attributes; everything, if that is none.
    fn sync(&self, open: Option<impl AsFd>) -> Result<()> {
        self.synced(open.map_or(Err(Errno::INVAL), rustix::fs::fsync))
    }

    /// What becomes of having it synced. What its file system cannot sync alone is synced with everything.
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

    /// Opens something. Where no more can be opened, what is only kept open for later makes room.
    fn room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) if self.opened.forget_oldest() => {}
                opened => return opened,
            }
        }
    }

    /// Closes a file that has lost a name, perhaps its last: as long as it is open the disk has no room for others.
    fn close(&self, file: Result<Statx>) {
        let _ = file.map(|stat| self.opened.forget(Key::of(&stat)));
    }

    /// The file, found by its way, to look at; its attributes.
    fn walk(&self, file: Key) -> Result<(OwnedFd, Statx)> {
        let way = self.places.way(file).ok_or(Errno::STALE)?;
        let path = if way.is_empty() { b"." } else { &way[..] };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let found = match self.room(|| rustix::fs::openat2(&self.root, path, LOOK, Mode::empty(), inside)) {
            // An old system, one that does not let us, a long path.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN | Errno::NAMETOOLONG) => {
                self.room(|| self.step_by_step(path))
            }
            found => found,
        };
        // What is not there any more was there when its handle was given.
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

    /// Opens each name in the directory before it.
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

/// The attributes of what is called so in a directory.
fn at(directory: &OwnedFd, name: &[u8]) -> Result<Statx> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ALL)
}

/// The attributes of what is open.
fn of_open(open: &OwnedFd) -> Result<Statx> {
    rustix::fs::statx(open, "", AtFlags::EMPTY_PATH, ALL)
}

/// Those that may be given: nobody leaves a program here that runs as the server's user, whoever starts it.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o1777)
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
pub fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// A path to what was opened only to look at, for system calls that take no such descriptor.
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
