//! Why a value cannot be transcoded, and in which of its parts the fault is.

use std::fmt;

use farcall::room::NoMemory;

/// A fault in a value, with the part of the value that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    kind: ErrorKind,
    /// `arguments`, `result` or `error`.
    root: &'static str,
    /// The way from the root to the faulty part, the innermost step first.
    steps: Vec<Step>,
}

/// A step from a value to one of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(Box<str>),
    Index(usize),
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes end within the value.
    Truncated {
        /// How many bytes the next part needs.
        needed: usize,
        /// How many bytes are left.
        left: usize,
    },
    /// Bytes follow the value; their number.
    Trailing(usize),
    /// This is neither false (0) nor true (1).
    NotBoolean(u32),
    /// No arm of the CHOICE and no constant of the enumeration has this number.
    UnknownDesignator(u32),
    /// A count says that more elements follow than the bytes that are left can hold.
    Count {
        /// The number of elements that the count says.
        count: usize,
        /// How many bytes are left.
        left: usize,
    },
    /// A string or a sequence is longer than its type allows.
    TooLong {
        /// The length, in bytes of a string or elements of a sequence.
        length: usize,
        /// The greatest length that the type allows.
        max: usize,
    },
    /// The number does not fit into a CARDINAL or INTEGER, which have 16 bits.
    OutOfRange(i64),
    /// The value nests more deeply than the limit.
    TooDeep(u32),
    /// The item of a stream is not of its Rust type, for this reason: a string is not UTF-8, for example.
    NotOfItsType(String),
    /// The transcoded value has more bytes than the limit.
    TooLarge {
        /// The number of bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// This process has no memory for so many more bytes.
    NoMemory(usize),
}

impl Error {
    #[cold]
    pub(super) fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Fault { kind, root: "", steps: Vec::new() }))
    }

    /// Returns the error of a buffer that cannot grow.
    #[cold]
    pub(super) fn no_memory(NoMemory { bytes }: NoMemory) -> Error {
        Error::new(ErrorKind::NoMemory(bytes))
    }

    /// Says that the fault is in this field.
    #[cold]
    pub(super) fn in_field(mut self, name: &str) -> Error {
        self.0.steps.push(Step::Field(name.into()));
        self
    }

    /// Says that the fault is in the element with this index.
    #[cold]
    pub(super) fn at_index(mut self, index: usize) -> Error {
        self.0.steps.push(Step::Index(index));
        self
    }

    /// Says which value has the fault.
    #[cold]
    pub(super) fn of(mut self, root: &'static str) -> Error {
        self.0.root = root;
        self
    }

    /// Returns what is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the part of the value that has the fault, such as `arguments.user[3]`.
    pub fn path(&self) -> String {
        let mut path = self.0.root.to_owned();
        for step in self.0.steps.iter().rev() {
            match step {
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path += &format!("[{index}]"),
            }
        }
        path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.0.kind)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Truncated { needed, left } => {
                write!(f, "the message ends here: {needed} bytes are needed, {left} are left")
            }
            ErrorKind::Trailing(bytes) => write!(f, "{bytes} bytes follow the value"),
            ErrorKind::NoMemory(bytes) => write!(f, "{}", NoMemory { bytes: *bytes }),
            ErrorKind::NotBoolean(value) => write!(f, "{value} is not a BOOLEAN, which is 0 or 1"),
            ErrorKind::UnknownDesignator(value) => {
                write!(f, "{value} is none of the numbers that the type has")
            }
            ErrorKind::Count { count, left } => {
                write!(f, "{count} elements do not fit into the {left} bytes that are left")
            }
            ErrorKind::TooLong { length, max } => write!(f, "the length is {length}, and {max} is allowed"),
            ErrorKind::OutOfRange(value) => write!(f, "{value} does not fit into 16 bits"),
            ErrorKind::NotOfItsType(why) => f.write_str(why),
            ErrorKind::TooDeep(limit) => write!(f, "the value nests more than {limit} levels deep"),
            ErrorKind::TooLarge { bytes, limit } => {
                write!(f, "the value has {bytes} bytes, and {limit} are allowed")
            }
        }
    }
}
