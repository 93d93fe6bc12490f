//! The interface of a file server: its procedures, results and errors.

use std::fmt;
use std::time::SystemTime;

use farcall::{Bulk, Bytes, Xdr};

/// The most bytes of a path.
pub const MAX_PATH: usize = 4096;

/// The most entries of one [`Page`].
pub const MAX_PAGE: usize = 1024;

/// The most bytes that one [`FileAccess::read`] returns.
pub const MAX_READ: u32 = 1 << 20;

/// The files of one server, which may be read, and stored if the server allows it.
///
/// A path is relative to the served directory: names joined by `/`, in UTF-8, at most [`MAX_PATH`] bytes. The
/// directory itself is `""` or `"."`. A path that begins with `/`, has `..` as a name, or contains a NUL is
/// [`FileError::BadPath`]. A symbolic link is followed if the server can be sure that it stays inside;
/// otherwise it is [`FileError::NotPermitted`].
///
/// The procedures that read are idempotent and keep nothing at the server. So an interrupted call can be
/// repeated, at this server or at another server of the same files. A transfer that broke goes on from the
/// offset that it had reached.
///
/// A file is stored in three steps, so that nobody sees a part of it: [`unfinished`](FileAccess::unfinished)
/// says what is there of an earlier attempt, [`store`](FileAccess::store) transfers the rest, and
/// [`finish`](FileAccess::finish) checks all of it and gives it its name.
#[farcall::interface]
pub trait FileAccess {
    /// Returns the entries of a directory whose names come after `after`, in ascending order of the names'
    /// bytes, at most [`MAX_PAGE`] of them. `""` is before all names. If [`Page::more`] is set, ask again
    /// with the last name.
    ///
    /// An entry that exists while a directory is listed is listed exactly once, whatever other entries appear
    /// or disappear.
    #[idempotent]
    fn list(&self, path: &str, after: &str) -> farcall::Result<Page, FileError>;

    /// Returns the attributes of a file or a directory. A symbolic link is followed.
    #[idempotent]
    fn stat(&self, path: &str) -> farcall::Result<Attributes, FileError>;

    /// Returns at most `length` bytes of a file, from byte `offset` on. Returns fewer at the end of the file,
    /// none after its end, and never more than [`MAX_READ`].
    #[idempotent]
    fn read(&self, path: &str, offset: u64, length: u32) -> farcall::Result<Contents, FileError>;

    /// Returns the bytes of a file from byte `offset` on, at most `quota` of them: as many as the file has
    /// when they are sent.
    fn fetch(&self, path: &str, offset: u64, quota: u64) -> farcall::Result<Bulk<FileError>, FileError>;

    /// Returns the digest of the first `length` bytes of a file, or of all of them if it has fewer.
    #[idempotent]
    #[blocking]
    fn digest(&self, path: &str, length: u64) -> farcall::Result<Digest, FileError>;

    /// Returns the digest of what [`store`](FileAccess::store) has left unfinished of a file. Its length is 0
    /// if there is nothing.
    #[idempotent]
    #[blocking]
    fn unfinished(&self, path: &str) -> farcall::Result<Digest, FileError>;

    /// Writes bytes of a file that is not finished, from byte `offset` on, which must not be beyond what is
    /// there. Discards what was behind `offset`. Returns how many bytes of the file are there now. If the
    /// transfer breaks, those that have arrived stay. Only the latest transfer to a file may write. An
    /// earlier one that is still under way fails with [`FileError::Refused`], because its client may be gone.
    #[blocking]
    fn store(&self, path: &str, offset: u64, content: Bulk) -> farcall::Result<u64, FileError>;

    /// Makes a complete file of what was stored, if its digest is `whole`: it gets the name and the time of
    /// change. A file of that name is replaced only if `replace` is set; otherwise the call fails with
    /// [`FileError::Exists`]. While a transfer to the file is under way, the call fails with
    /// [`FileError::Refused`].
    #[blocking]
    fn finish(
        &self,
        path: &str,
        whole: Digest,
        modified: SystemTime,
        replace: bool,
    ) -> farcall::Result<(), FileError>;
}

/// The length of some bytes, and their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Digest {
    /// How many bytes there are.
    pub length: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
}

/// Some entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Page {
    /// The entries, by ascending name.
    #[xdr(max = 1024)]
    pub entries: Vec<Entry>,
    /// The number of entries of the whole directory whose names are not UTF-8 and cannot be returned.
    pub unnameable: u32,
    /// Whether there are entries after these.
    pub more: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Entry {
    /// The entry's name, which is not a path: it contains no `/`.
    pub name: String,
    /// The attributes of the entry itself. A symbolic link is not followed.
    pub attributes: Attributes,
}

/// The attributes of a file. `size` and `modified` together show whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(extensible)]
pub struct Attributes {
    /// The kind of file.
    pub kind: FileKind,
    /// The size in bytes. For files other than regular ones, its meaning depends on the server's system.
    pub size: u64,
    /// When its contents last changed.
    pub modified: SystemTime,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file, which can be read.
    #[xdr(tag = 1)]
    File,
    /// A directory, which can be listed.
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

/// The exception of every procedure of [`FileAccess`].
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[non_exhaustive]
pub enum FileError {
    /// No file has that name.
    #[xdr(tag = 1)]
    NotFound,
    /// The file exists, but the server may not read it, or a symbolic link on the path may lead out of the
    /// served directory.
    #[xdr(tag = 2)]
    NotPermitted,
    /// The file is not a regular file.
    #[xdr(tag = 3)]
    NotAFile,
    /// The file, or a file on the path to it, is not a directory.
    #[xdr(tag = 4)]
    NotADirectory,
    /// The path is not valid; the text is the reason.
    #[xdr(tag = 5)]
    BadPath(String),
    /// The server's system failed; the text is its error.
    #[xdr(tag = 6)]
    Failed(String),
    /// A file of that name exists, and must not be replaced.
    #[xdr(tag = 7)]
    Exists,
    /// The server refuses the request; the text is the reason.
    #[xdr(tag = 8)]
    Refused(String),
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
            FileError::Exists => f.write_str("a file of this name exists"),
            FileError::Refused(why) => write!(f, "refused: {why}"),
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

    #[test]
    fn procedures_that_take_as_long_as_a_file_are_marked_as_blocking() {
        let procedures = &<dyn FileAccess as farcall::stub::Interface>::interface().procedures;
        let blocking = procedures.iter().filter(|procedure| procedure.blocking);
        let names: Vec<&str> = blocking.map(|procedure| &*procedure.name).collect();
        assert_eq!(names, ["digest", "unfinished", "store", "finish"]);
    }

    #[test]
    fn a_request_that_is_refused_is_no_failure_of_the_system() {
        let refused = FileError::Refused("why".into());
        assert_eq!(refused.to_string(), "refused: why");
        assert_eq!(xdr::to_vec(&refused).unwrap(), b"\0\0\0\x08\0\0\0\x03why\0");
        assert_eq!(FileError::Exists.to_string(), "a file of this name exists");
        assert_eq!(xdr::to_vec(&FileError::Exists).unwrap(), b"\0\0\0\x07");
    }

    fn entry() -> Entry {
        let attributes = Attributes { kind: FileKind::File, size: 0, modified: SystemTime::UNIX_EPOCH };
        Entry { name: "a".into(), attributes }
    }
}
