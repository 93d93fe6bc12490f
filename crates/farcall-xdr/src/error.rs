//! The error type of encoding and decoding: the reason, the byte, and the field.

use std::borrow::Cow;
use std::fmt;

/// Why a value could not be encoded or decoded, at which byte and in which field.
///
/// An error is one pointer wide. The path to the field is built only after a failure, so it costs nothing in
/// successful calls.
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
    /// The `.field` and `[index]` steps, outermost first.
    path: String,
}

/// The reason for an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input ends inside the value.
    Truncated {
        /// The number of bytes that the item needs.
        needed: usize,
        /// The number of bytes that are left.
        remaining: usize,
    },
    /// A list announces more elements than the remaining bytes can hold.
    Count {
        /// The number of elements announced.
        count: usize,
        /// The number of bytes that are left.
        remaining: usize,
    },
    /// A string, opaque data or an array is longer than its declared maximum.
    TooLong {
        /// The length, in bytes or elements.
        length: usize,
        /// The declared maximum, in bytes or elements.
        max: u32,
    },
    /// The bytes of a string are not UTF-8.
    NotUtf8,
    /// The integer of a boolean is neither 0 nor 1.
    NotBool(u32),
    /// The integer of a character is not a Unicode scalar value.
    NotChar(u32),
    /// A padding byte is not zero.
    Padding,
    /// An integer does not fit the declared narrower type.
    OutOfRange {
        /// The integer on the wire.
        value: i64,
        /// The declared type.
        of: &'static str,
    },
    /// An integer selects no variant of an enumeration or union.
    UnknownTag {
        /// The integer on the wire.
        value: i32,
        /// The name of the enumeration or union.
        of: &'static str,
    },
    /// A map has the same key twice, or a set the same element.
    Duplicate,
    /// This number of bytes follows the value.
    Trailing(usize),
    /// Lists, maps and boxes nest deeper than this limit.
    TooDeep(u32),
    /// The value takes more memory than this limit, in bytes.
    TooMuchMemory(usize),
    /// The value has more elements that take no bytes than this limit.
    TooManyEmpty(u32),
    /// This process has no memory for so many more bytes.
    NoMemory(usize),
    /// The encoded value is longer than this limit of the encoder, in bytes.
    BufferFull(usize),
    /// Another reason, which a type's own implementation reports.
    Invalid(Cow<'static, str>),
}

impl Error {
    /// Returns an error at byte `offset`. [`Decoder::error`](crate::Decoder::error) and
    /// [`Encoder::error`](crate::Encoder::error) fill in the offset themselves.
    #[cold]
    pub fn new(kind: ErrorKind, offset: usize) -> Error {
        Error(Box::new(Inner { kind, offset, container: None, path: String::new() }))
    }

    /// Returns the reason.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the byte at which the error was found, counted from the start of the encoding.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// Returns the place as `Directory.entries[3].name`, or an empty string if the value has no parts.
    pub fn path(&self) -> String {
        match self.0.container {
            Some(container) => format!("{container}{}", self.0.path),
            None => self.0.path.clone(),
        }
    }

    /// Adds to the path that the failed value is this field of the type `container`.
    #[cold]
    pub fn in_field(mut self, container: &'static str, field: &str) -> Error {
        self.0.path.insert_str(0, field);
        self.0.path.insert(0, '.');
        self.0.container = Some(container);
        self
    }

    /// Adds to the path that the failed value is the list's element at this index.
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
            NoMemory(bytes) => write!(f, "this process has no memory for {bytes} more bytes"),
            TooManyEmpty(limit) => write!(f, "more than {limit} elements of no bytes"),
            BufferFull(limit) => write!(f, "the encoding is longer than {limit} bytes"),
            Invalid(why) => f.write_str(why),
        }
    }
}
