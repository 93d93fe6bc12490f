//! The interface that clients call: NFS's operations on handles (table 1a of Thekkath et al. 1994). It is the
//! same for every structure, the ways in which a clerk can work.

use std::sync::Arc;

use farcall::{Result, Xdr};
use farcall_file_access::{Attributes, Contents, FileError, FileKind, Statistics};

/// The bytes of one block of a file. No [`Files::read`] returns more bytes, and no [`Files::write`] takes
/// more.
pub const BLOCK: usize = 8192;

/// The files of one server.
///
/// A handle comes from [`Files::root`] or [`Files::look_up`] of the same clerk. Any other handle is
/// [`FileError::NotFound`]. No symbolic link is followed: clients read the link, and look up its target.
#[farcall::interface]
pub trait Files {
    /// Checks that the server is there.
    fn null(&self) -> Result<(), FileError>;

    /// Returns the exported directory.
    fn root(&self) -> Result<Handle, FileError>;

    /// Returns a file's attributes.
    fn attributes(&self, file: Handle) -> Result<Attributes, FileError>;

    /// Returns the file with this name in a directory.
    fn look_up(&self, directory: Handle, name: &str) -> Result<Found, FileError>;

    /// Returns the target of a symbolic link.
    fn read_link(&self, link: Handle) -> Result<String, FileError>;

    /// Returns at most `length` bytes, and at most [`BLOCK`], from byte `offset` on; fewer only where the
    /// file ends.
    fn read(&self, file: Handle, offset: u64, length: u32) -> Result<Contents, FileError>;

    /// Returns the names in a directory after `after`, in ascending order. The number of names depends on the
    /// structure. If there are names after `after`, returns at least one.
    fn read_directory(&self, directory: Handle, after: &str) -> Result<Names, FileError>;

    /// Writes at most [`BLOCK`] bytes into a file. The file grows if the bytes reach beyond its end. Every
    /// clerk of the same structure sees the bytes at once; all others see them after [`Files::commit`].
    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Returns how full the file system is, as of this service's last write.
    fn statistics(&self) -> Result<Statistics, FileError>;

    /// Waits until all writes to a file, by any clerk, are in the file.
    fn commit(&self, file: Handle) -> Result<(), FileError>;
}

/// Identifies a file, a directory or a symbolic link, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct Handle {
    /// The device.
    pub device: u64,
    /// The number of the file on the device.
    pub inode: u64,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Found {
    /// The file.
    pub handle: Handle,
    /// The file's kind, which never changes.
    pub kind: FileKind,
}

/// A page of a directory's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Names {
    /// The names, in ascending order.
    pub names: Vec<String>,
    /// Whether there are more names after these.
    pub more: bool,
}

/// Returns a stub for a clerk in the same process. The clerk's procedures run on the client's thread.
pub fn client(clerk: Arc<dyn Files>) -> FilesClient {
    farcall::stub::local::<dyn Files>(clerk)
}

/// Returns all names of a directory, in ascending order.
///
/// # Errors
/// Those of [`Files::read_directory`].
pub fn names(files: &dyn Files, directory: Handle) -> Result<Vec<String>, FileError> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let page = files.read_directory(directory, all.last().map_or("", String::as_str))?;
        // An empty page ends the listing.
        let ends = !page.more || page.names.is_empty();
        all.extend(page.names);
        if ends {
            return Ok(all);
        }
    }
}
