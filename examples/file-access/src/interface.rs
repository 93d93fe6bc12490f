//! The interface: what can be asked of a server of files, and what it may answer.

use std::fmt;
use std::time::SystemTime;

use farcall::{Bytes, Xdr};

/// The longest path that is looked at, in bytes.
pub const MAX_PATH: usize = 4096;

/// The most entries of one [`Page`].
pub const MAX_PAGE: usize = 1024;

/// The most bytes that one [`FileAccess::read`] gives.
pub const MAX_READ: u32 = 1 << 20;

/// Files of one server, read-only.
///
/// A path is relative to the directory that is served: names joined by `/`, in UTF-8, at most [`MAX_PATH`]
/// bytes. The directory itself is `""` or `"."`. Paths that begin with `/`, that contain `..` as a name, or a
/// NUL, are [`FileError::BadPath`]. A symbolic link is followed where the server can be sure that it stays
/// inside; else it is [`FileError::NotPermitted`].
///
/// Every procedure is idempotent and keeps nothing at the server: a call that was interrupted is simply
/// repeated, here or at another server of the same files.
#[farcall::interface]
pub trait FileAccess {
    /// The entries of a directory whose names come after `after`, in ascending order of the names' bytes, at
    /// most [`MAX_PAGE`] of them. `""` begins at the beginning. Where [`Page::more`] is set, ask again with
    /// the last name.
    ///
    /// An entry that stays while a directory is listed is listed exactly once, whatever else comes and goes.
    #[idempotent]
    fn list(&self, path: &str, after: &str) -> farcall::Result<Page, FileError>;

    /// What is known of a file, of a directory, or of what a symbolic link leads to.
    #[idempotent]
    fn stat(&self, path: &str) -> farcall::Result<Attributes, FileError>;

    /// At most `length` bytes of a file, from byte `offset` on. There are fewer where the file ends, none
    /// past its end, and never more than [`MAX_READ`].
    #[idempotent]
    fn read(&self, path: &str, offset: u64, length: u32) -> farcall::Result<Contents, FileError>;
}

/// Some entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Page {
    /// The entries, by ascending name.
    #[xdr(max = 1024)]
    pub entries: Vec<Entry>,
    /// How many entries of the whole directory cannot be named here, because their names are not UTF-8.
    pub unnameable: u32,
    /// Whether there are entries after these.
    pub more: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Entry {
    /// Its name, which is not a path: it has no `/`.
    pub name: String,
    /// Of the entry itself; a symbolic link is not followed.
    pub attributes: Attributes,
}

/// What is known of a file. `size` and `modified` together tell whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(extensible)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes; what that means of something other than a regular file is up to the server's
    /// system.
    pub size: u64,
    /// When its contents last changed.
    pub modified: SystemTime,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file: it can be read.
    #[xdr(tag = 1)]
    File,
    /// A directory: it can be listed.
    #[xdr(tag = 2)]
    Directory,
    /// A symbolic link.
    #[xdr(tag = 3)]
    Link,
    /// A device, a socket, a pipe.
    #[xdr(tag = 4)]
    Special,
    /// A kind that this program does not know.
    #[xdr(default)]
    Unknown(i32),
}

/// Bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Contents(#[xdr(max = 1_048_576)] pub Bytes);

/// Why there is no answer: the exception of every procedure of [`FileAccess`].
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[non_exhaustive]
pub enum FileError {
    /// There is nothing of that name.
    #[xdr(tag = 1)]
    NotFound,
    /// It is there, but not for you: the server may not read it, or a symbolic link on the way may lead out
    /// of the directory that is served.
    #[xdr(tag = 2)]
    NotPermitted,
    /// It is not a regular file.
    #[xdr(tag = 3)]
    NotAFile,
    /// It, or something on the way to it, is not a directory.
    #[xdr(tag = 4)]
    NotADirectory,
    /// The path is none: what is wrong with it.
    #[xdr(tag = 5)]
    BadPath(String),
    /// The server's system failed: what it said.
    #[xdr(tag = 6)]
    Failed(String),
    /// An exception that this program does not know.
    #[xdr(default)]
    Unknown(i32),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::NotFound => f.write_str("no such file or directory"),
            FileError::NotPermitted => f.write_str("not permitted"),
            FileError::NotAFile => f.write_str("not a regular file"),
            FileError::NotADirectory => f.write_str("not a directory"),
            FileError::BadPath(why) => write!(f, "not a path: {why}"),
            FileError::Failed(why) => write!(f, "the server's system failed: {why}"),
            FileError::Unknown(number) => {
                write!(f, "exception {number}, which this program does not know")
            }
        }
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall::xdr;

    #[test]
    fn declared_maxima_are_the_constants() {
        let page = Page { entries: vec![entry(); MAX_PAGE], ..Page::default() };
        assert!(xdr::to_vec(&page).is_ok());
        let page = Page { entries: vec![entry(); MAX_PAGE + 1], ..Page::default() };
        assert!(xdr::to_vec(&page).is_err());

        let most = MAX_READ as usize;
        assert!(xdr::to_vec(&Contents(vec![0; most].into())).is_ok());
        assert!(xdr::to_vec(&Contents(vec![0; most + 1].into())).is_err());
    }

    #[test]
    fn kinds_and_exceptions_of_a_later_version_are_taken() {
        let later = 77i32.to_be_bytes();
        assert_eq!(xdr::from_slice::<FileKind>(&later), Ok(FileKind::Unknown(77)));
        assert_eq!(xdr::from_slice::<FileError>(&later), Ok(FileError::Unknown(77)));
    }

    fn entry() -> Entry {
        let attributes = Attributes { kind: FileKind::File, size: 0, modified: SystemTime::UNIX_EPOCH };
        Entry { name: "a".into(), attributes }
    }
}
