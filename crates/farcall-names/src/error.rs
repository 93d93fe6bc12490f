//! The errors of a registry.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{Address, Owner};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a registry. No error changes the registry's content.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A live process exports this name already, which can be the calling process; or it was added by hand.
    Taken {
        /// The name, as in `FileAccess/ebbets`.
        name: String,
        /// The process that exports it, or [`Owner::NONE`].
        owner: Owner,
        /// The address at which it is exported.
        address: Address,
    },
    /// The file or directory cannot be trusted, because another user could have put it there.
    Untrusted {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: Distrust,
    },
    /// The registry's file cannot be parsed. It is left as it is. To repair the registry, look at the file,
    /// and then move it away.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// The registry's file is in a format that this version of farcall does not know.
    Format {
        /// The file.
        path: PathBuf,
        /// The version of the format that it claims.
        found: String,
    },
    /// The entry or the registry exceeds a bound.
    TooLarge {
        /// What is counted, such as `"fingerprints"`.
        what: &'static str,
        /// The number of the counted things.
        size: usize,
        /// The greatest number that is allowed.
        limit: usize,
    },
    /// Another process held the registry's lock for too long.
    Busy {
        /// The lock's file.
        path: PathBuf,
        /// The process that has written its number into the lock's file.
        holder: Option<u32>,
    },
    /// No host of the registry has answered in time. If something was to be changed, it may have been.
    Unavailable {
        /// The registry's place, as in `etcd://10.0.0.1`.
        registry: String,
        /// What the host that was asked last has answered, or why it has not.
        why: String,
    },
    /// The registry's own rules do not let this process do that.
    NotPermitted {
        /// The registry's place.
        registry: String,
        /// The registry's answer.
        why: String,
    },
    /// The registry has refused.
    Refused {
        /// The registry's place.
        registry: String,
        /// The number of its answer (gRPC's status code).
        code: i64,
        /// The registry's answer.
        why: String,
    },
    /// A server of the registry is of a version that does not keep what was asked for.
    Unsafe {
        /// The registry's place.
        registry: String,
        /// Which version it has, what goes wrong with it, and what to do.
        why: String,
    },
    /// What the registry holds under this key is not an entry.
    Malformed {
        /// The key.
        key: String,
        /// What is wrong with its value.
        why: String,
    },
    /// The entry does not count for this importer, which has keys.
    NotGenuine {
        /// The name, as in `FileAccess/ebbets`.
        name: String,
        /// What was expected, what came, and what to do.
        why: String,
    },
    /// The operating system refused.
    Io {
        /// The operation, such as `"reading"`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Why a file or directory cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// It is a symbolic link, which can lead anywhere.
    SymbolicLink,
    /// It is not a directory.
    NotADirectory,
    /// It is not a regular file.
    NotAFile,
    /// The user with this number owns it, but this process runs as another user.
    Owner(u32),
    /// It is a directory with this mode, which lets other users in. The mode must be 0700.
    Mode(u32),
    /// It is a private file with this mode, which lets other users read it. The mode must be 0600.
    FileMode(u32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { name, owner: Owner::NONE, address } => {
                write!(f, "{name} was added by hand, at {address}, and stays until it is removed")
            }
            Self::Taken { name, owner, address } => {
                write!(f, "{name} is already exported by {owner} at {address}")
            }
            Self::Untrusted { path, why } => {
                write!(f, "{} cannot be trusted: {why}", path.display())
            }
            Self::Corrupt { path, line, why } => {
                write!(f, "{}, line {line}: {why}", path.display())
            }
            Self::Format { path, found } => {
                write!(
                    f,
                    "{} is in format {found:?}, which this version of farcall does not know",
                    path.display()
                )
            }
            Self::TooLarge { what, size, limit } => {
                write!(f, "{size} {what}; at most {limit} are allowed")
            }
            Self::Busy { path, holder: Some(pid) } => {
                write!(
                    f,
                    "{} is locked, apparently by process {pid}; check whether that process is stopped",
                    path.display()
                )
            }
            Self::Busy { path, holder: None } => {
                write!(f, "{} is locked by another process", path.display())
            }
            Self::Unavailable { registry, why } => {
                write!(f, "the registry {registry} does not answer: {why}")
            }
            Self::NotPermitted { registry, why } => {
                write!(f, "the registry {registry} does not permit this: {why}")
            }
            Self::Refused { registry, why, .. } => write!(f, "the registry {registry} refuses: {why}"),
            Self::Unsafe { registry, why } => write!(f, "the registry {registry}: {why}"),
            Self::Malformed { key, why } => {
                write!(f, "the entry {key} cannot be read: {why}")
            }
            Self::NotGenuine { name, why } => {
                write!(f, "the registry's entry of {name} does not count: {why}")
            }
            Self::Io { doing, path, source } => write!(f, "{doing} {}: {source}", path.display()),
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolicLink => f.write_str("it is a symbolic link"),
            Self::NotADirectory => f.write_str("it is not a directory"),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::Owner(uid) => write!(f, "it belongs to another user, with id {uid}"),
            Self::Mode(mode) => write!(f, "its mode {mode:04o} lets other users in; it must be 0700"),
            Self::FileMode(mode) => {
                write!(f, "its mode {mode:04o} lets other users read it; it must be 0600")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error in the place of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceError {
    pub(crate) place: String,
    pub(crate) why: String,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlaceError { place, why } = self;
        write!(f, "{place:?} is not the place of a registry: {why}")
    }
}

impl std::error::Error for PlaceError {}
