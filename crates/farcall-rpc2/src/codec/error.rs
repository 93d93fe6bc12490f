//! Why a value cannot be transcoded, and in which of its parts.

use std::fmt;

use farcall::room::NoMemory;

/// Why a value cannot be transcoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    /// The way to the part that is wrong, from the innermost outwards.
    path: Vec<String>,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes end within the value.
    Truncated {
        /// How many bytes are needed.
        needed: usize,
        /// How many bytes are left.
        left: usize,
    },
    /// So many bytes follow the value.
    Trailing(usize),
    /// A list has more elements than the bytes that are left can hold.
    Count {
        /// How many elements it should have.
        count: usize,
        /// How many bytes are left.
        left: usize,
    },
    /// A string contains a zero byte, at which it would end for a program in C.
    ZeroByte,
    /// A string lacks the zero byte behind it.
    NoZeroByte,
    /// A number of 8 bits is larger than 255.
    OutOfRange(u32),
    /// Structs nest deeper than this.
    TooDeep(u32),
    /// This process has no memory for so many more bytes.
    NoMemory(usize),
}

impl Error {
    pub(super) fn new(kind: ErrorKind) -> Error {
        Error { kind, path: Vec::new() }
    }

    pub(super) fn within(mut self, part: impl fmt::Display) -> Error {
        self.path.push(part.to_string());
        self
    }

    /// Returns what is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Truncated { needed, left } => write!(f, "needs {needed} bytes, and {left} are left"),
            ErrorKind::Trailing(bytes) => write!(f, "{bytes} bytes follow the value"),
            ErrorKind::Count { count, left } => write!(f, "{count} elements, and {left} bytes are left"),
            ErrorKind::ZeroByte => write!(f, "a string contains a zero byte, which RPC2 cannot send"),
            ErrorKind::NoZeroByte => write!(f, "no zero byte ends the string"),
            ErrorKind::TooDeep(most) => write!(f, "structs nest more than {most} deep"),
            ErrorKind::NoMemory(bytes) => write!(f, "{}", NoMemory { bytes: *bytes }),
            ErrorKind::OutOfRange(number) => write!(f, "{number} does not fit into 8 bits"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        match path.is_empty() {
            true => write!(f, "{}", self.kind),
            false => write!(f, "{}: {}", path.join("."), self.kind),
        }
    }
}

impl std::error::Error for Error {}
