//! The directory on systems other than Unix. It lies in the user's own directory, and inherits the protection
//! of that.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::io_error;
use crate::Result;

pub(crate) struct Directory {
    path: PathBuf,
}

/// Returns the path of the directory of this process's user.
pub(crate) fn of_user() -> PathBuf {
    let local = std::env::var_os("LOCALAPPDATA").map(PathBuf::from);
    local.unwrap_or_else(std::env::temp_dir).join("farcall")
}

/// Returns the paths of all directories that processes of this process's user may have.
pub(crate) fn all_of_user() -> Vec<PathBuf> {
    vec![of_user()]
}

impl Directory {
    /// Opens the directory, and creates it if it is missing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match fs::create_dir(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(io_error("making", path, "", e)),
            _ => Ok(Self { path: path.to_owned() }),
        }
    }

    /// Opens the directory, if there is one.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        Ok(path.is_dir().then(|| Self { path: path.to_owned() }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading, if there is such a file.
    pub(crate) fn open_existing(&self, name: &str) -> Result<Option<File>> {
        match File::open(self.path.join(name)) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("opening", &self.path, name, e)),
        }
    }

    /// Opens a file to write behind its end.
    pub(super) fn open_to_append(&self, name: &str) -> Result<File> {
        let file = OpenOptions::new().append(true).open(self.path.join(name));
        file.map_err(|e| io_error("opening", &self.path, name, e))
    }

    /// Returns the content of a file. The directory's protection is that of its files.
    pub(crate) fn read_private(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
        self.read(name, limit)
    }

    pub(super) fn open_or_make(&self, name: &str) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.path.join(name)).map_err(|e| io_error("opening", &self.path, name, e))
    }

    pub(super) fn make(&self, name: &str) -> io::Result<File> {
        File::create(self.path.join(name))
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.path.join(name));
    }

    /// Returns true: an open file cannot lose its name on these systems.
    pub(super) fn is_still(&self, _: &str, _: &File) -> Result<bool> {
        Ok(true)
    }
}
