//! Encodes and decodes the headers of calls and replies (RFC 5531 section 9). Decoding does not allocate and
//! does not panic.
//!
//! A call's arguments and a reply's results follow the header. The stubs encode and decode them.

use std::fmt;

use super::auth::{AuthStat, OpaqueAuth, put};

/// The version of the protocol that RFC 5531 describes, and the only one in use.
pub const RPC_VERSION: u32 = 2;
/// The length of the header of a call whose credential and verifier are both AUTH_NONE.
pub const SHORTEST_CALL: usize = 40;
/// The length of the header of a successful reply whose verifier is AUTH_NONE.
pub const SHORTEST_SUCCESS: usize = 24;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

/// Whether a message is a call or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A call.
    Call,
    /// A reply.
    Reply,
}

/// Returns the identifier and the direction of a message, for a receiver of both calls and replies.
pub fn peek(message: &[u8]) -> Result<(u32, Direction), Unreadable> {
    let mut words = Words::new(message);
    let xid = words.next()?;
    match words.next()? {
        CALL => Ok((xid, Direction::Call)),
        REPLY => Ok((xid, Direction::Reply)),
        other => Err(words.problem(Problem::NotAMessage(other))),
    }
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The identifier, which the reply repeats.
    pub xid: u32,
    /// The program's number.
    pub program: u32,
    /// The version's number.
    pub version: u32,
    /// The procedure's number.
    pub procedure: u32,
    /// The credential, which says who calls.
    pub credential: OpaqueAuth<'a>,
    /// The verifier, which proves the credential.
    pub verifier: OpaqueAuth<'a>,
}

impl<'a> Call<'a> {
    /// Returns the header of a call, and the arguments that follow it.
    ///
    /// # Errors
    /// If the message is not a call, or is a call that must be refused whatever its procedure.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<(Call<'a>, &'a [u8]), BadCall> {
        let mut words = Words::new(message);
        let xid = words.next()?;
        match words.next()? {
            CALL => {}
            other => return Err(words.problem(Problem::NotACall(other)).into()),
        }
        if words.next()? != RPC_VERSION {
            let why = Rejected::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
            return Err(BadCall::Refused { xid, why });
        }
        let (program, version, procedure) = (words.next()?, words.next()?, words.next()?);
        let bad = |stat| move |why| refuse_auth(xid, stat, why);
        let credential = words.auth().map_err(bad(AuthStat::BADCRED))?;
        let verifier = words.auth().map_err(bad(AuthStat::BADVERF))?;
        Ok((Call { xid, program, version, procedure, credential, verifier }, words.rest))
    }

    /// Appends the header. The arguments are to follow it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let words = [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure];
        put(out, words);
        self.credential.write(out);
        self.verifier.write(out);
    }
}

#[cold]
fn refuse_auth(xid: u32, stat: AuthStat, why: Unreadable) -> BadCall {
    match why.problem {
        // A server can tell the caller that a credential is too long (section 8.2). But it cannot answer a
        // message that ends too soon.
        Problem::AuthTooLong(_) => BadCall::Refused { xid, why: Rejected::AuthError(stat) },
        _ => BadCall::Unreadable(why),
    }
}

/// The reason why bytes are not a call that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCall {
    /// The bytes are not a whole call, so there is nothing to answer.
    Unreadable(Unreadable),
    /// The bytes are a call that must be refused with this reply.
    Refused {
        /// The call's identifier.
        xid: u32,
        /// The reason to send.
        why: Rejected,
    },
}

impl From<Unreadable> for BadCall {
    #[cold]
    fn from(why: Unreadable) -> BadCall {
        BadCall::Unreadable(why)
    }
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The identifier of the call that the reply answers.
    pub xid: u32,
    /// The answer.
    pub answer: Answer<'a>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The server accepted the caller's credentials (MSG_ACCEPTED).
    Accepted {
        /// The verifier, which proves that the server sent the reply.
        verifier: OpaqueAuth<'a>,
        /// The outcome of the call.
        outcome: Accepted<'a>,
    },
    /// The server rejected the call (MSG_DENIED).
    Rejected(Rejected),
}

/// The outcome of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted<'a> {
    /// The procedure returned this result. It is empty if the writer of the reply appends the result later.
    Success(&'a [u8]),
    /// The server does not have the program.
    ProgUnavail,
    /// The server has other versions of the program.
    ProgMismatch {
        /// The lowest version that the server has.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The program does not have the procedure.
    ProcUnavail,
    /// The server cannot read the arguments.
    GarbageArgs,
    /// The server lacked a resource, or failed.
    SystemErr,
}

/// The reason why a call was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The server speaks other versions of RPC.
    RpcMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The caller is not known, not believed or not allowed to call.
    AuthError(AuthStat),
}

impl<'a> Reply<'a> {
    /// Returns a reply to an accepted call, with an AUTH_NONE verifier.
    #[inline]
    pub fn accepted(xid: u32, outcome: Accepted<'a>) -> Reply<'a> {
        Reply { xid, answer: Answer::Accepted { verifier: OpaqueAuth::NONE, outcome } }
    }

    /// Returns a reply to a rejected call.
    pub fn rejected(xid: u32, why: Rejected) -> Reply<'a> {
        Reply { xid, answer: Answer::Rejected(why) }
    }

    /// Parses a reply.
    ///
    /// # Errors
    /// If the message is not a whole reply.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Reply<'a>, Unreadable> {
        let mut words = Words::new(message);
        let xid = words.next()?;
        match words.next()? {
            REPLY => {}
            other => return Err(words.problem(Problem::NotAReply(other))),
        }
        let answer = match words.next()? {
            ACCEPTED => Answer::Accepted { verifier: words.auth()?, outcome: Accepted::parse(&mut words)? },
            DENIED => Answer::Rejected(Rejected::parse(&mut words)?),
            other => return Err(words.problem(Problem::Status(other))),
        };
        Ok(Reply { xid, answer })
    }

    /// Appends the reply, and the result if it has one.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.answer {
            Answer::Accepted { verifier, outcome } => {
                put(out, [self.xid, REPLY, ACCEPTED]);
                verifier.write(out);
                outcome.write(out);
            }
            Answer::Rejected(why) => {
                put(out, [self.xid, REPLY, DENIED]);
                why.write(out);
            }
        }
    }
}

impl<'a> Accepted<'a> {
    fn parse(words: &mut Words<'a>) -> Result<Accepted<'a>, Unreadable> {
        Ok(match words.next()? {
            0 => Accepted::Success(words.rest),
            1 => Accepted::ProgUnavail,
            2 => Accepted::ProgMismatch { low: words.next()?, high: words.next()? },
            3 => Accepted::ProcUnavail,
            4 => Accepted::GarbageArgs,
            5 => Accepted::SystemErr,
            other => return Err(words.problem(Problem::Status(other))),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Accepted::Success(result) => {
                put(out, [0]);
                out.extend_from_slice(result);
            }
            Accepted::ProgUnavail => put(out, [1]),
            Accepted::ProgMismatch { low, high } => put(out, [2, low, high]),
            Accepted::ProcUnavail => put(out, [3]),
            Accepted::GarbageArgs => put(out, [4]),
            Accepted::SystemErr => put(out, [5]),
        }
    }
}

impl Rejected {
    fn parse(words: &mut Words<'_>) -> Result<Rejected, Unreadable> {
        Ok(match words.next()? {
            0 => Rejected::RpcMismatch { low: words.next()?, high: words.next()? },
            1 => Rejected::AuthError(AuthStat(words.next()?)),
            other => return Err(words.problem(Problem::Status(other))),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Rejected::RpcMismatch { low, high } => put(out, [0, low, high]),
            Rejected::AuthError(stat) => put(out, [1, stat.0]),
        }
    }
}

/// The place and the reason of a failure to read a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The offset in the message, in bytes.
    pub offset: usize,
    /// The problem there.
    pub problem: Problem,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The message ends here, before its end was expected.
    Truncated,
    /// This word must be 0 for a call or 1 for a reply, and is neither.
    NotAMessage(u32),
    /// This word must be 0, for a call.
    NotACall(u32),
    /// This word must be 1, for a reply.
    NotAReply(u32),
    /// RFC 5531 does not define this status.
    Status(u32),
    /// A credential or a verifier of more than 400 bytes (section 8.2).
    AuthTooLong(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match self.problem {
            Problem::Truncated => f.write_str("the message ends too early"),
            Problem::NotAMessage(found) => write!(f, "{found} where a call has 0 and a reply 1"),
            Problem::NotACall(found) => write!(f, "{found} where a call has 0"),
            Problem::NotAReply(found) => write!(f, "{found} where a reply has 1"),
            Problem::Status(found) => write!(f, "there is no status {found}"),
            Problem::AuthTooLong(found) => {
                write!(f, "a credential of {found} bytes, where at most 400 are allowed")
            }
        }
    }
}

impl std::error::Error for Unreadable {}

/// Reads 32-bit words from the front of a message.
struct Words<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Words<'a> {
    #[inline]
    fn new(message: &'a [u8]) -> Words<'a> {
        Words { rest: message, len: message.len() }
    }

    #[inline]
    fn next(&mut self) -> Result<u32, Unreadable> {
        let Some((word, rest)) = self.rest.split_first_chunk() else { return Err(self.truncated()) };
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    #[inline]
    fn auth(&mut self) -> Result<OpaqueAuth<'a>, Unreadable> {
        let (flavor, len) = (self.next()?, self.next()?);
        // Most credentials and verifiers have no body.
        if len == 0 {
            return Ok(OpaqueAuth::empty(flavor));
        }
        let padded = (len as usize).checked_next_multiple_of(4);
        let Some((body, rest)) = padded.and_then(|padded| self.rest.split_at_checked(padded)) else {
            return Err(self.too_long(len).unwrap_or_else(|| self.truncated()));
        };
        let auth = body.get(..len as usize).and_then(|body| OpaqueAuth::new(flavor, body));
        let Some(auth) = auth else { return Err(self.problem(Problem::AuthTooLong(len))) };
        self.rest = rest;
        Ok(auth)
    }

    #[cold]
    fn too_long(&self, len: u32) -> Option<Unreadable> {
        (len as usize > OpaqueAuth::LONGEST).then(|| self.problem(Problem::AuthTooLong(len)))
    }

    #[cold]
    fn truncated(&self) -> Unreadable {
        Unreadable { offset: self.len - self.rest.len(), problem: Problem::Truncated }
    }

    /// Returns a problem with the word that was just read.
    #[cold]
    fn problem(&self, problem: Problem) -> Unreadable {
        Unreadable { offset: (self.len - self.rest.len()).saturating_sub(4), problem }
    }
}

#[cfg(test)]
mod tests;
