//! What clerks ask of the server by call: what [`FileAccess`](farcall_file_access::FileAccess) does not offer, and how
//! to reach its memory. By path, as there.

use farcall::{Result, Xdr};
use farcall_file_access::{Attributes, FileError, Statistics};

use crate::Found;

/// The rest of what a file service needs.
#[farcall::interface]
pub trait MoreFiles {
    /// Nothing.
    #[idempotent]
    fn null(&self) -> Result<(), FileError>;

    /// What stands at a path; a symbolic link is not followed.
    #[idempotent]
    fn look_up(&self, path: &str) -> Result<Looked, FileError>;

    /// Where a symbolic link leads.
    #[idempotent]
    fn read_link(&self, path: &str) -> Result<String, FileError>;

    /// Writes into a regular file.
    #[idempotent]
    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// How full the file system is.
    #[idempotent]
    fn statistics(&self) -> Result<Statistics, FileError>;

    /// Takes to a file what clerks have written into the server's memory; says what could not be.
    fn commit(&self, path: &str) -> Result<(), FileError>;

    /// A new clerk, whose segment for answers is to be had under this name: where its requests may be written.
    /// `reads` says whether it reads the server's memory: before the first that does, nothing is kept there.
    #[blocking]
    fn attach(&self, answers: &str, reads: bool) -> Result<Attached, FileError>;
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Looked {
    /// Which file.
    pub found: Found,
    /// Its attributes.
    pub attributes: Attributes,
}

/// What a clerk must know of the server's segment.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Attached {
    /// Which server it is: what stands in its memory from its eighth byte on.
    pub identity: u64,
    /// Which mailbox is the clerk's.
    pub mailbox: u32,
    /// The number after which the clerk's letters are numbered.
    pub last: u64,
    /// How many entries its tables have.
    pub shape: Shape,
}

/// How many entries the server's tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Shape {
    /// Attributes of files.
    pub attributes: u32,
    /// Names.
    pub names: u32,
    /// Symbolic links.
    pub links: u32,
    /// Pages of directories.
    pub pages: u32,
    /// Blocks of files, 8 KiB each.
    pub blocks: u32,
}

impl Shape {
    /// Some 10 MiB.
    pub const SMALL: Shape = Shape { attributes: 2048, names: 4096, links: 512, pages: 256, blocks: 1024 };
}
