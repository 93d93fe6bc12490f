//! Operations that [`FileAccess`] does not offer, for servers of other interfaces over the same directory.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::{Directory, attributes, kind, number, open};
use crate::path::Below;
use crate::{Attributes, FileError, FileKind};

/// The file at a path. A symbolic link is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Itself {
    /// The device and the inode, which identify the file under all of its names.
    pub number: (u64, u64),
    /// The attributes; for a symbolic link, its own.
    pub attributes: Attributes,
}

/// The size and the free space of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Statistics {
    /// Its size in bytes.
    pub total: u64,
    /// The free bytes.
    pub free: u64,
    /// The number of files that can still be created.
    pub files: u64,
}

type Result<T> = std::result::Result<T, FileError>;

/// Flags to open an existing file for writing. Opening a pipe must not wait for its other end, and a terminal
/// must not become this process's.
const TO_WRITE: OFlags = OFlags::WRONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Directory {
    /// Returns the file at a path, without following a symbolic link.
    ///
    /// # Errors
    /// Those of [`FileAccess::stat`](crate::FileAccess::stat).
    pub fn itself(&self, path: &str) -> Result<Itself> {
        let (parent, name) = self.parent(path)?;
        let stat = rustix::fs::statat(&parent, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Itself { number: number(&stat), attributes: attributes(&stat) })
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// When there is no link, or its target is not UTF-8.
    pub fn link(&self, path: &str) -> Result<String> {
        let (parent, name) = self.parent(path)?;
        let target = rustix::fs::readlinkat(&parent, name.as_str(), Vec::new()).map_err(|why| match why {
            Errno::INVAL => FileError::Refused("it is not a symbolic link".into()),
            other => other.into(),
        })?;
        target.into_string().map_err(|_| FileError::Refused("the link is not UTF-8".into()))
    }

    /// Writes bytes into an existing regular file. The file grows if they reach beyond its end.
    ///
    /// # Errors
    /// Those of [`FileAccess::read`](crate::FileAccess::read). Some of the bytes may have been written.
    pub fn write(&self, path: &str, offset: u64, mut bytes: &[u8]) -> Result<()> {
        let file = self.to_write(path)?;
        let mut at = offset;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&file, bytes, at) {
                Ok(0) => return Err(FileError::Failed("nothing more can be written".into())),
                Ok(written) => {
                    bytes = &bytes[written..];
                    at = at.saturating_add(written as u64);
                }
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Returns whether there is a regular file that may be written.
    pub fn is_writable(&self, path: &str) -> bool {
        self.to_write(path).is_ok()
    }

    /// Returns the size and the free space of the directory's file system.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn statistics(&self) -> Result<Statistics> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Statistics { total: bytes(found.f_blocks), free: bytes(found.f_bavail), files: found.f_favail })
    }

    fn to_write(&self, path: &str) -> Result<OwnedFd> {
        let file = self.below(path, TO_WRITE)?;
        match kind(&rustix::fs::fstat(&file)?) {
            FileKind::File => Ok(file),
            _ => Err(FileError::NotAFile),
        }
    }

    /// Returns the directory that contains the last name of a path, and that name.
    pub(super) fn parent(&self, path: &str) -> Result<(OwnedFd, String)> {
        let below = Below::parse(path)?;
        let (way, name) = below.split();
        let way = way.collect::<Vec<_>>().join("/");
        Ok((self.below(&way, open::TO_LOOK | OFlags::DIRECTORY)?, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_stands_at_a_path_is_told_read_and_written() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), b"before").unwrap();
        std::os::unix::fs::symlink("file", scratch.path().join("link")).unwrap();
        let directory = Directory::open(scratch.path()).unwrap();

        assert_eq!(directory.itself("link").unwrap().attributes.kind, FileKind::Link);
        assert_eq!(directory.itself("").unwrap().attributes.kind, FileKind::Directory);
        assert_ne!(directory.itself("link").unwrap().number, directory.itself("file").unwrap().number);
        assert_eq!(directory.link("link").unwrap(), "file");
        assert!(directory.link("file").is_err() && directory.link("").is_err());

        directory.write("file", 4, b"after").unwrap();
        assert_eq!(fs::read(scratch.path().join("file")).unwrap(), b"befoafter");
        assert_eq!(directory.write("", 0, b"x"), Err(FileError::NotAFile));
        assert_eq!(directory.write("none", 0, b"x"), Err(FileError::NotFound));
        assert!(directory.write("file", u64::MAX, b"x").is_err());
        assert!(directory.is_writable("file") && !directory.is_writable("none"));
        assert!(directory.statistics().unwrap().total > 0);
    }

    #[test]
    fn nothing_outside_is_reached() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("served")).unwrap();
        fs::write(scratch.path().join("outside"), b"secret").unwrap();
        std::os::unix::fs::symlink("../outside", scratch.path().join("served/out")).unwrap();
        let directory = Directory::open(scratch.path().join("served")).unwrap();
        assert!(directory.write("out", 0, b"x").is_err());
        assert!(directory.itself("../outside").is_err() && directory.link("../served/out").is_err());
        assert_eq!(fs::read(scratch.path().join("outside")).unwrap(), b"secret");
    }
}
