//! The interface that clerks call: procedures that [`FileAccess`](farcall_file_access::FileAccess) does not
//! offer, and access to the server's memory. Files are named by paths, as in `FileAccess`.

use farcall::{Result, Xdr};
use farcall_file_access::{Attributes, FileError, Statistics};

use crate::Found;

/// The procedures that a file service needs in addition to `FileAccess`.
#[farcall::interface]
pub trait MoreFiles {
    /// Does nothing.
    #[idempotent]
    fn null(&self) -> Result<(), FileError>;

    /// Returns the file at a path. A symbolic link is not followed.
    #[idempotent]
    fn look_up(&self, path: &str) -> Result<Looked, FileError>;

    /// Returns the target of a symbolic link.
    #[idempotent]
    fn read_link(&self, path: &str) -> Result<String, FileError>;

    /// Writes into a regular file.
    #[idempotent]
    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Returns how full the file system is.
    #[idempotent]
    fn statistics(&self) -> Result<Statistics, FileError>;

    /// Writes to a file the changes that clerks have made to its blocks in the server's memory. Fails if a
    /// change could not be written.
    fn commit(&self, path: &str) -> Result<(), FileError>;

    /// Returns the sizes of the server's tables.
    #[idempotent]
    fn shape(&self) -> Result<Shape, FileError>;

    /// Admits a new clerk, whose segment for answers can be imported under this name. The server's memory has
    /// no entries before the first clerk that reads it.
    #[blocking]
    fn attach(&self, answers: &str, reads: Reads) -> Result<Attached, FileError>;

    /// Ends the lease of a clerk that does not use its memory any more. A clerk that dies need not say so.
    fn end_lease(&self, lease: u64) -> Result<(), FileError>;
}

/// What a clerk reads besides answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub enum Reads {
    /// Nothing.
    Answers,
    /// The server's memory.
    ServerMemory,
    /// Its own segment for answers, into which the server pushes entries, and blocks in the server's memory.
    PushedEntries,
}

/// The answer to a look-up of a path.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Looked {
    /// The file's handle and kind.
    pub found: Found,
    /// The file's attributes.
    pub attributes: Attributes,
}

/// What the server tells a new clerk about its segment.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Attached {
    /// The server's identity, which is also the second word of its memory.
    pub identity: u64,
    /// The number of the clerk's mailbox.
    pub mailbox: u32,
    /// The clerk numbers its letters from the number after this one, which also identifies its lease.
    pub last: u64,
    /// The sizes of the server's tables.
    pub shape: Shape,
}

/// The number of entries of each of the server's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Shape {
    /// The entries for attributes of files.
    pub attributes: u32,
    /// The entries for names.
    pub names: u32,
    /// The entries for symbolic links.
    pub links: u32,
    /// The entries for pages of directories.
    pub pages: u32,
    /// The entries for blocks of files, 8 KiB each.
    pub blocks: u32,
}

impl Shape {
    /// A shape of about 10 MiB.
    pub const SMALL: Shape = Shape { attributes: 2048, names: 4096, links: 512, pages: 256, blocks: 1024 };
}
