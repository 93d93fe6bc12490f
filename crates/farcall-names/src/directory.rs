//! A directory that only its user can enter, and the operations on its files.

#[cfg(not(unix))]
#[path = "directory/other.rs"]
mod system;
#[cfg(unix)]
#[path = "directory/unix.rs"]
mod system;
mod turn;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) use system::{Directory, all_of_user, of_user};
pub(crate) use turn::Locked;

use crate::{Error, Result};

impl Directory {
    /// Returns the file's content, up to `limit + 1` bytes, if there is such a file.
    pub(crate) fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_existing(name)? else { return Ok(None) };
        self.read_from(name, &file, 0, limit).map(Some)
    }

    /// Returns the content of a file of this name from a place on, up to `limit + 1` bytes.
    pub(crate) fn read_from(&self, name: &str, file: &File, from: usize, limit: usize) -> Result<Vec<u8>> {
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        let bytes = (&*file).seek(SeekFrom::Start(from)).and_then(|_| read_bounded(file, limit));
        bytes.map_err(|source| io_error("reading", self.path(), name, source))
    }

    /// Writes bytes behind the end of the file `name`, which must exist. If `is_durable`, they outlast a
    /// crash of the machine. The caller must have its turn. After an error a part of the bytes may be there.
    pub(crate) fn append(&self, name: &str, bytes: &[u8], is_durable: bool) -> Result<()> {
        let mut file = self.open_to_append(name)?;
        let written = file.write_all(bytes).and_then(|()| if is_durable { file.sync_all() } else { Ok(()) });
        written.map_err(|source| io_error("writing", self.path(), name, source))
    }

    /// Replaces the file `name` by these bytes, completely or not at all. The caller must have its turn.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = format!("{name}.new");
        let result = self
            .make(&new)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                // Some file systems report only now that the disk is full. Without this call, a crash of the
                // machine could also leave an empty file under the name.
                file.sync_all()
            })
            .map_err(|e| io_error("writing", self.path(), &new, e))
            .and_then(|()| self.rename(&new, name).map_err(|e| io_error("renaming", self.path(), &new, e)));
        if result.is_err() {
            self.remove(&new);
        }
        result
    }
}

/// Reads up to `limit + 1` bytes, so that the caller notices if the file has more than `limit`.
pub(crate) fn read_bounded(file: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn io_error(doing: &'static str, directory: &Path, name: &str, source: impl Into<io::Error>) -> Error {
    let path: PathBuf = if name.is_empty() { directory.to_owned() } else { directory.join(name) };
    Error::Io { doing, path, source: source.into() }
}
