//! Calls and replies (RFC 5531 section 9), between bytes and values. Nothing here allocates or panics.
//!
//! A call's arguments and a reply's results stand behind the header and are not looked at: the stubs know
//! them.

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

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It asks.
    Call,
    /// It answers.
    Reply,
}

/// The identifier and the direction of a message, for who receives both.
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
    /// What its reply will bear.
    pub xid: u32,
    /// The program's number.
    pub program: u32,
    /// The version's number.
    pub version: u32,
    /// The procedure's number.
    pub procedure: u32,
    /// Who calls.
    pub credential: OpaqueAuth<'a>,
    /// What proves it.
    pub verifier: OpaqueAuth<'a>,
}

impl<'a> Call<'a> {
    /// The header and what follows it: the arguments.
    ///
    /// # Errors
    /// If this is no call, or one that must be refused whatever it calls.
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

    /// Appends the header; the arguments follow it.
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
        // Longer than a credential may be (section 8.2): that can be said. What ends too soon cannot be
        // answered.
        Problem::AuthTooLong(_) => BadCall::Refused { xid, why: Rejected::AuthError(stat) },
        _ => BadCall::Unreadable(why),
    }
}

/// Why bytes are not a call that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCall {
    /// It is not a call, or only a part of one: there is nothing to answer.
    Unreadable(Unreadable),
    /// It is a call, and this is the answer to it.
    Refused {
        /// The call's identifier.
        xid: u32,
        /// Why.
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
    /// That of the call which it answers.
    pub xid: u32,
    /// What it says.
    pub answer: Answer<'a>,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The server knew who called (MSG_ACCEPTED).
    Accepted {
        /// What proves that it is the server.
        verifier: OpaqueAuth<'a>,
        /// What became of the call.
        outcome: Accepted<'a>,
    },
    /// The server would not look at the call (MSG_DENIED).
    Rejected(Rejected),
}

/// What became of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted<'a> {
    /// The procedure returned: its result. (Empty when written by who appends the result behind it.)
    Success(&'a [u8]),
    /// No such program here.
    ProgUnavail,
    /// The program is here, in other versions.
    ProgMismatch {
        /// The lowest version here.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The program has no such procedure.
    ProcUnavail,
    /// The procedure cannot read its arguments.
    GarbageArgs,
    /// The server lacked something, or broke.
    SystemErr,
}

/// Why a call was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The server speaks other versions of RPC.
    RpcMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// Who called is not known, not believed or not allowed to.
    AuthError(AuthStat),
}

impl<'a> Reply<'a> {
    /// A reply to an accepted call, without a verifier.
    #[inline]
    pub fn accepted(xid: u32, outcome: Accepted<'a>) -> Reply<'a> {
        Reply { xid, answer: Answer::Accepted { verifier: OpaqueAuth::NONE, outcome } }
    }

    /// A reply to a call that is not accepted.
    pub fn rejected(xid: u32, why: Rejected) -> Reply<'a> {
        Reply { xid, answer: Answer::Rejected(why) }
    }

    /// The reply that a message is.
    ///
    /// # Errors
    /// If it is none, or only a part of one.
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

/// Where and why bytes are not the message that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The byte at which it was found.
    pub offset: usize,
    /// What was found.
    pub problem: Problem,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It ends here, in the middle.
    Truncated,
    /// This says whether it is a call or a reply, and is neither.
    NotAMessage(u32),
    /// This should say that it is a call.
    NotACall(u32),
    /// This should say that it is a reply.
    NotAReply(u32),
    /// A status that RFC 5531 does not know.
    Status(u32),
    /// A credential or a verifier of more than 400 bytes (section 8.2).
    AuthTooLong(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match self.problem {
            Problem::Truncated => f.write_str("the message ends"),
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

/// Takes words from the front of a message.
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
        // Most have none.
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

    /// What is wrong with the word that was just taken.
    #[cold]
    fn problem(&self, problem: Problem) -> Unreadable {
        Unreadable { offset: (self.len - self.rest.len()).saturating_sub(4), problem }
    }
}

#[cfg(test)]
mod tests;
