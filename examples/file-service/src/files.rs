//! What clients ask of their clerk: NFS's operations on handles (table 1a), whatever the structure behind them.

use std::sync::Arc;

use farcall::{Result, Xdr};
use farcall_file_access::{Attributes, Contents, FileError, FileKind, Statistics};

/// The bytes of one block of a file, and the most that one [`Files::read`] gives or [`Files::write`] takes.
pub const BLOCK: usize = 8192;

/// The files of one server.
///
/// A handle comes from [`Files::root`] or [`Files::look_up`] of the same clerk; any other is [`FileError::NotFound`].
/// No symbolic link is followed: clients read it, and look up what it names.
#[farcall::interface]
pub trait Files {
    /// Whether the server is there.
    fn null(&self) -> Result<(), FileError>;

    /// The directory that is served.
    fn root(&self) -> Result<Handle, FileError>;

    /// What is known of a file.
    fn attributes(&self, file: Handle) -> Result<Attributes, FileError>;

    /// What has this name in a directory.
    fn look_up(&self, directory: Handle, name: &str) -> Result<Found, FileError>;

    /// Where a symbolic link leads.
    fn read_link(&self, link: Handle) -> Result<String, FileError>;

    /// At most `length` bytes, and at most [`BLOCK`], from byte `offset` on; fewer only where the file ends.
    fn read(&self, file: Handle, offset: u64, length: u32) -> Result<Contents, FileError>;

    /// The names in a directory that come after `after`, in ascending order. How many one answer holds is up to the
    /// structure: at least one, if there is one.
    fn read_directory(&self, directory: Handle, after: &str) -> Result<Names, FileError>;

    /// Writes at most [`BLOCK`] bytes into a file; it grows where they reach beyond its end. Every clerk of the same
    /// structure sees them at once, everybody after [`Files::commit`].
    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// How full the file system is; as of the last write by this service.
    fn statistics(&self) -> Result<Statistics, FileError>;

    /// Waits until what was written to a file is in the file, by whomever.
    fn commit(&self, file: Handle) -> Result<(), FileError>;
}

/// A file, a directory, or a symbolic link, whatever its name: what the server's system knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct Handle {
    /// The device.
    pub device: u64,
    /// The number of the file on it.
    pub inode: u64,
}

/// What a look-up gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Found {
    /// Which file.
    pub handle: Handle,
    /// What it is; that never changes.
    pub kind: FileKind,
}

/// Some names of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Names {
    /// In ascending order.
    pub names: Vec<String>,
    /// Whether there are more after these.
    pub more: bool,
}

/// A client's way to a clerk in its own process: a stub, with the clerk's procedures on the client's thread.
pub fn client(clerk: Arc<dyn Files>) -> FilesClient {
    farcall::stub::local::<dyn Files>(clerk)
}

/// All names of a directory, in ascending order.
///
/// # Errors
/// As of [`Files::read_directory`].
pub fn names(files: &dyn Files, directory: Handle) -> Result<Vec<String>, FileError> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let page = files.read_directory(directory, all.last().map_or("", String::as_str))?;
        // A page that does not get on ends it.
        let ends = !page.more || page.names.is_empty();
        all.extend(page.names);
        if ends {
            return Ok(all);
        }
    }
}
