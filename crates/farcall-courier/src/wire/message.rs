//! Calls, returns, aborts and rejections, and the exchange of versions.

use std::fmt;

/// The lowest and the highest version of Courier that one end of a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest version.
    pub lowest: u16,
    /// The highest version.
    pub highest: u16,
}

/// The version of Courier that a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Courier {
    /// Version 2: the number of a program has 16 bits, and a rejection does not say which versions of a
    /// program the server has.
    Two,
    /// Version 3, of XSIS 038112.
    Three,
}

impl Versions {
    /// The number of bytes on the wire.
    pub const BYTES: usize = 4;
    /// All versions that this crate speaks.
    pub const ALL: Versions = Versions { lowest: 2, highest: 3 };
    /// Version 3 alone.
    pub const THREE: Versions = Versions { lowest: 3, highest: 3 };

    /// Returns the two words on the wire.
    pub fn to_bytes(self) -> [u8; Versions::BYTES] {
        let ([a, b], [c, d]) = (self.lowest.to_be_bytes(), self.highest.to_be_bytes());
        [a, b, c, d]
    }

    /// Returns the versions in two words.
    pub fn from_bytes([a, b, c, d]: [u8; Versions::BYTES]) -> Versions {
        Versions { lowest: u16::from_be_bytes([a, b]), highest: u16::from_be_bytes([c, d]) }
    }

    /// Returns the highest version that both ends speak and this crate knows.
    pub fn common(self, other: Versions) -> Option<Courier> {
        let has = |version| [self, other].iter().all(|end| (end.lowest..=end.highest).contains(&version));
        if has(3) {
            Some(Courier::Three)
        } else if has(2) {
            Some(Courier::Two)
        } else {
            None
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { lowest, highest } = *self;
        if lowest == highest {
            write!(f, "version {lowest}")
        } else {
            write!(f, "versions {lowest} to {highest}")
        }
    }
}

/// A message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A call of a procedure.
    Call(Call<'a>),
    /// The server does not execute the call with this identifier.
    Reject(u16, Rejection),
    /// The procedure has returned these words of results to the call with this identifier.
    Return(u16, &'a [u8]),
    /// The procedure has reported an error to the call with this identifier: the error's number, then the
    /// words of its arguments.
    Abort(u16, &'a [u8]),
}

/// A call of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The transaction identifier.
    pub id: u16,
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u16,
    /// The number of the procedure.
    pub procedure: u16,
    /// The words of the arguments.
    pub arguments: &'a [u8],
}

/// Why a server does not execute a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The server does not have the program (0).
    NoSuchProgram,
    /// The server has the program in other versions (1). Version 2 of Courier does not say which.
    NoSuchVersion(Option<Versions>),
    /// The program has no procedure with this number (2).
    NoSuchProcedure,
    /// The arguments are not those of the procedure (3).
    InvalidArguments,
    /// Another reason. 65535 is the standard's number for it.
    Unspecified(u16),
}

/// The standard's number of an unspecified reason for a rejection.
pub const UNSPECIFIED: u16 = 65_535;

/// The words of the error by which a server answers an expedited call that needs a stream. They are those of
/// the Clearinghouse's error `CallError[useCourier]`; Courier itself has no message for it.
pub const USE_A_STREAM: [u8; 4] = [0, 1, 0, 4];

pub(super) const CALL: u16 = 0;
pub(super) const REJECT: u16 = 1;
pub(super) const RETURN: u16 = 2;
pub(super) const ABORT: u16 = 3;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message ends within its header.
    Truncated {
        /// The transaction identifier, if the message has one and says that it is a call.
        call: Option<u16>,
    },
    /// No kind of message has this number.
    UnknownKind(u16),
}

impl<'a> Message<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// The message ends too early, or is of no kind that Courier has.
    pub fn parse(bytes: &'a [u8], courier: Courier) -> Result<Message<'a>, Malformed> {
        let truncated = Malformed::Truncated { call: None };
        let (kind, rest) = word(bytes).ok_or(truncated)?;
        if kind > ABORT {
            return Err(Malformed::UnknownKind(kind));
        }
        let (id, rest) = word(rest).ok_or(truncated)?;
        match kind {
            CALL => call(id, rest, courier).map(Message::Call).ok_or(Malformed::Truncated { call: Some(id) }),
            REJECT => Ok(Message::Reject(id, Rejection::parse(rest, courier).ok_or(truncated)?)),
            RETURN => Ok(Message::Return(id, rest)),
            _ => match word(rest) {
                Some(_) => Ok(Message::Abort(id, rest)),
                None => Err(truncated),
            },
        }
    }

    /// Appends the message. Version 2 of Courier has no more than 16 bits for a program's number; the higher
    /// bits are lost.
    pub fn write(&self, courier: Courier, out: &mut Vec<u8>) {
        let mut put = |words: &[u16]| words.iter().for_each(|word| out.extend(word.to_be_bytes()));
        match self {
            Message::Call(call) => {
                put(&[CALL, call.id]);
                if courier == Courier::Three {
                    put(&[(call.program >> 16) as u16]);
                }
                put(&[call.program as u16, call.version, call.procedure]);
                out.extend(call.arguments);
            }
            Message::Reject(id, why) => {
                put(&[REJECT, *id, why.code()]);
                if let (Rejection::NoSuchVersion(Some(versions)), Courier::Three) = (why, courier) {
                    put(&[versions.lowest, versions.highest]);
                }
            }
            Message::Return(id, result) => {
                put(&[RETURN, *id]);
                out.extend(*result);
            }
            Message::Abort(id, error) => {
                put(&[ABORT, *id]);
                out.extend(*error);
            }
        }
    }
}

/// Parses what follows the identifier of a call.
fn call(id: u16, rest: &[u8], courier: Courier) -> Option<Call<'_>> {
    let (high, rest) = match courier {
        Courier::Three => word(rest)?,
        Courier::Two => (0, rest),
    };
    let (low, rest) = word(rest)?;
    let (version, rest) = word(rest)?;
    let (procedure, arguments) = word(rest)?;
    Some(Call { id, program: u32::from(high) << 16 | u32::from(low), version, procedure, arguments })
}

impl Rejection {
    /// Parses what follows the identifier of a rejection. Ignores words after it.
    pub(super) fn parse(bytes: &[u8], courier: Courier) -> Option<Rejection> {
        let (code, rest) = word(bytes)?;
        let range = rest.first_chunk().filter(|_| courier == Courier::Three);
        Some(match code {
            0 => Rejection::NoSuchProgram,
            1 => Rejection::NoSuchVersion(range.map(|range| Versions::from_bytes(*range))),
            2 => Rejection::NoSuchProcedure,
            3 => Rejection::InvalidArguments,
            other => Rejection::Unspecified(other),
        })
    }

    /// Returns the number on the wire.
    pub fn code(self) -> u16 {
        match self {
            Rejection::NoSuchProgram => 0,
            Rejection::NoSuchVersion(_) => 1,
            Rejection::NoSuchProcedure => 2,
            Rejection::InvalidArguments => 3,
            Rejection::Unspecified(code) => code,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated { .. } => f.write_str("the message ends within its header"),
            Malformed::UnknownKind(kind) => {
                write!(f, "{kind} is no kind of message: they are 0 to 3")
            }
        }
    }
}

impl std::error::Error for Malformed {}

/// Takes the first word of some bytes.
pub(super) fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}
