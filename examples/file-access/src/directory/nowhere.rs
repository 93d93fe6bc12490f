//! The replacement for [`Directory`] on systems where no server can make sure that no path leaves its
//! directory.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use farcall::{Bulk, Result};

use crate::{Attributes, Contents, Digest, FileAccess, FileError, Page};

/// Would serve the files below a directory. On this system no value of it exists.
#[derive(Debug)]
pub struct Directory(Infallible);

impl Directory {
    /// Fails, because this system is not supported.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn open(_: impl AsRef<Path>) -> io::Result<Directory> {
        let why = "directories are served on Unix only, where a path can be opened without leaving them";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Would let clients store files.
    #[must_use]
    pub fn writable(self, _: u64) -> Directory {
        match self.0 {}
    }
}

impl FileAccess for Directory {
    fn list(&self, _: &str, _: &str) -> Result<Page, FileError> {
        match self.0 {}
    }

    fn stat(&self, _: &str) -> Result<Attributes, FileError> {
        match self.0 {}
    }

    fn read(&self, _: &str, _: u64, _: u32) -> Result<Contents, FileError> {
        match self.0 {}
    }

    fn fetch(&self, _: &str, _: u64, _: u64) -> Result<Bulk<FileError>, FileError> {
        match self.0 {}
    }

    fn digest(&self, _: &str, _: u64) -> Result<Digest, FileError> {
        match self.0 {}
    }

    fn unfinished(&self, _: &str) -> Result<Digest, FileError> {
        match self.0 {}
    }

    fn store(&self, _: &str, _: u64, _: Bulk) -> Result<u64, FileError> {
        match self.0 {}
    }

    fn finish(&self, _: &str, _: Digest, _: SystemTime, _: bool) -> Result<(), FileError> {
        match self.0 {}
    }
}
