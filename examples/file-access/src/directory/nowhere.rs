//! The type [`Directory`] on systems other than Unix. There a server cannot make sure that a client's path
//! stays within the served directory, so no directory can be served.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use farcall::{Bulk, Result};

use crate::{Attributes, Contents, Digest, FileAccess, FileError, Page};

/// A served directory. This type has no values, because no directory can be served on this system.
#[derive(Debug)]
pub struct Directory(Infallible);

impl Directory {
    /// Returns an error, because no directory can be served on this system.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn open(_: impl AsRef<Path>) -> io::Result<Directory> {
        let why =
            "a directory can be served only on Unix, where a server can keep paths within the directory";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Lets clients store files, on systems on which a directory can be served.
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
