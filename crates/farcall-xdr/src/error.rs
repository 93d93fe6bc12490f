//! What is wrong with a value: the reason, the byte, and the field.

use std::borrow::Cow;
use std::fmt;

/// Why a value could not be encoded or decoded, at which byte and in which field.
///
/// It is one pointer wide, and the path is put together only once something has failed, so that
/// success pays nothing for it.
///
/// ```
/// let error = farcall_xdr::from_slice::<Vec<bool>>(&[0, 0, 0, 1, 0, 0, 0, 7]).unwrap_err();
/// assert_eq!(error.to_string(), "at byte 4, in [0]: 7 is not a boolean (0 or 1)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    offset: usize,
    /// The type whose field is the first step of `path`; `None` if the first step is an index.
    container: Option<&'static str>,
    /// `.field` and `[index]` steps, outermost first.
    path: String,
}

/// The reason of an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes end inside the value.
    Truncated {
        /// Bytes that the item takes.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// More elements are announced than the bytes that are left can hold.
    Count {
        /// Elements announced.
        count: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A string, opaque or array is longer than declared.
    TooLong {
        /// Its length, in bytes or elements.
        length: usize,
        /// The declared maximum.
        max: u32,
    },
    /// The bytes of a string are not UTF-8.
    NotUtf8,
    /// A boolean is neither 0 nor 1.
    NotBool(u32),
    /// Not a Unicode scalar value.
    NotChar(u32),
    /// A padding byte is not zero.
    Padding,
    /// An integer does not fit the narrower type that it is declared as.
    OutOfRange {
        /// The integer on the wire.
        value: i64,
        /// The declared type.
        of: &'static str,
    },
    /// An enumeration or union has no variant of this value.
    UnknownTag {
        /// The value on the wire.
        value: i32,
        /// The enumeration or union.
        of: &'static str,
    },
    /// A key stands twice in a map, or an element twice in a set.
    Duplicate,
    /// Bytes follow the value.
    Trailing(usize),
    /// Lists, maps and boxes are nested deeper than the limit.
    TooDeep(u32),
    /// The value would take more memory than the limit, in bytes.
    TooMuchMemory(usize),
    /// The value has more zero-sized elements than the limit allows.
    TooManyEmpty(u32),
    /// The encoding is longer than the encoder's limit, in bytes.
    BufferFull(usize),
    /// An error that a user-defined type reports.
    Invalid(Cow<'static, str>),
}

impl Error {
    /// An error at byte `offset`. [`Decoder::error`](crate::Decoder::error) and
    /// [`Encoder::error`](crate::Encoder::error) know the offset by themselves.
    #[cold]
    pub fn new(kind: ErrorKind, offset: usize) -> Error {
        Error(Box::new(Inner { kind, offset, container: None, path: String::new() }))
    }

    /// The reason.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The byte at which it was found, counted from the start of the encoding.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// The place, as `Directory.entries[3].name`; empty where the value has no parts.
    pub fn path(&self) -> String {
        match self.0.container {
            Some(container) => format!("{container}{}", self.0.path),
            None => self.0.path.clone(),
        }
    }

    /// The same error, seen from the type that has the failed value as its field.
    #[cold]
    pub fn in_field(mut self, container: &'static str, field: &str) -> Error {
        self.0.path.insert_str(0, field);
        self.0.path.insert(0, '.');
        self.0.container = Some(container);
        self
    }

    /// The same error, seen from the list that has the failed value as its element.
    #[cold]
    pub fn at_index(mut self, index: usize) -> Error {
        self.0.path.insert_str(0, &format!("[{index}]"));
        self.0.container = None;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.0.offset)?;
        if !self.0.path.is_empty() {
            write!(f, ", in {}{}", self.0.container.unwrap_or_default(), self.0.path)?;
        }
        write!(f, ": {}", self.0.kind)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ErrorKind::*;
        match self {
            Truncated { needed, remaining } => {
                write!(f, "{needed} bytes are needed, {remaining} are left")
            }
            Count { count, remaining } => {
                write!(f, "{count} elements cannot be in the {remaining} bytes that are left")
            }
            TooLong { length, max } => write!(f, "length {length} is over the maximum of {max}"),
            NotUtf8 => f.write_str("string is not UTF-8"),
            NotBool(value) => write!(f, "{value} is not a boolean (0 or 1)"),
            NotChar(value) => write!(f, "{value:#x} is not a Unicode scalar value"),
            Padding => f.write_str("padding is not zero"),
            OutOfRange { value, of } => write!(f, "{value} does not fit {of}"),
            UnknownTag { value, of } => write!(f, "{value} is not a variant of {of}"),
            Duplicate => f.write_str("the same key stands twice"),
            Trailing(count) => write!(f, "{count} bytes follow the value"),
            TooDeep(limit) => write!(f, "nested deeper than {limit}"),
            TooMuchMemory(limit) => write!(f, "takes more than {limit} bytes of memory"),
            TooManyEmpty(limit) => write!(f, "more than {limit} elements of no bytes"),
            BufferFull(limit) => write!(f, "the encoding is longer than {limit} bytes"),
            Invalid(why) => f.write_str(why),
        }
    }
}
