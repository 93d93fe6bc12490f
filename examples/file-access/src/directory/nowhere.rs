//! The replacement for [`Directory`] on systems where no server can make sure that no path leaves its
//! directory.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use farcall::Result;

use crate::{Attributes, Contents, FileAccess, FileError, Page};

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
}
