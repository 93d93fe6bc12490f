//! What can go wrong with a registry.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{Address, Owner};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a registry.
///
/// None of these changes what the registry holds.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A live process exports this name: another one, or this one already.
    Taken {
        /// The name, as in `FileAccess/ebbets`.
        name: String,
        /// Who exports it.
        owner: Owner,
        /// Where.
        address: Address,
    },
    /// The file or directory cannot be trusted, because another user may have put it there.
    Untrusted {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: Distrust,
    },
    /// The registry's file does not read as one. It is left as it is: look at it, then move it away.
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
    /// What was to be published exceeds a bound.
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much of it.
        size: usize,
        /// How much is allowed.
        limit: usize,
    },
    /// Another process held the registry's lock for as long as we cared to wait.
    Busy {
        /// The lock's file.
        path: PathBuf,
        /// The process that said it took the lock.
        holder: Option<u32>,
    },
    /// The operating system refused.
    Io {
        /// What was being done, such as `"reading"`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a file or directory cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// It is a symbolic link: it could lead anywhere.
    SymbolicLink,
    /// It is no directory.
    NotADirectory,
    /// It is no regular file.
    NotAFile,
    /// This user owns it, not the user that we run as.
    Owner(u32),
    /// Its permissions let other users in. They ought to be 0700.
    Mode(u32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { name, owner, address } => {
                write!(f, "{name} is exported already, by {owner} at {address}")
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
                write!(f, "{} is locked, it seems by process {pid}; is that stopped?", path.display())
            }
            Self::Busy { path, holder: None } => {
                write!(f, "{} is locked by another process", path.display())
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
