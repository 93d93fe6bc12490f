//! A directory that only its user can enter, and the operations on its files.

#[cfg(not(unix))]
#[path = "directory/other.rs"]
mod system;
#[cfg(unix)]
#[path = "directory/unix.rs"]
mod system;
mod turn;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub(crate) use system::{Directory, of_user};

use crate::{Error, Result};

impl Directory {
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
pub(crate) fn read_bounded(file: File, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn io_error(doing: &'static str, directory: &Path, name: &str, source: impl Into<io::Error>) -> Error {
    let path: PathBuf = if name.is_empty() { directory.to_owned() } else { directory.join(name) };
    Error::Io { doing, path, source: source.into() }
}
