//! The reply to a call, also from peers that number their replies wrongly.
//!
//! A connection has one call outstanding at a time, and is abandoned with a call whose reply has not come. So
//! the next reply on a connection belongs to the outstanding call, whatever number it has. The number is a
//! check of the peer. Some peers fail it, and are understood nevertheless:
//!
//! - Some send the identifier 0 in each reply.
//! - 4.4BSD's server repeats the identifier of the call before in a rejection.
//! - Dodo's server exchanges the kind and the identifier when it rejects an unknown procedure.
//!
//! Any other number is refused.

use std::fmt;

use super::message::{ABORT, Courier, Malformed, Message, REJECT, Rejection};

/// The first identifier that a client uses. Smaller ones could be confused with kinds of messages, in replies
/// that exchange the two.
pub const FIRST_ID: u16 = 0x100;

/// The reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The words of the results.
    Return(&'a [u8]),
    /// The number of the error, then the words of its arguments.
    Abort(&'a [u8]),
    /// The server has not executed the call.
    Reject(Rejection),
}

/// Why bytes are not the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// They are not a message.
    Malformed(Malformed),
    /// They are a call.
    Call,
    /// They are the reply to a call with another identifier.
    OtherCall {
        /// The identifier of the call.
        expected: u16,
        /// The identifier of the reply.
        found: u16,
    },
}

impl<'a> Reply<'a> {
    /// Parses the reply to the call with the identifier `id`. The call before on this connection, if there
    /// was one, had the identifier `former`.
    ///
    /// # Errors
    /// The bytes are no reply, or the reply to another call.
    pub fn parse(
        bytes: &'a [u8],
        courier: Courier,
        id: u16,
        former: Option<u16>,
    ) -> Result<Reply<'a>, BadReply> {
        if id >= FIRST_ID
            && let Some(rejection) = exchanged(bytes, courier, id)
        {
            return Ok(Reply::Reject(rejection));
        }
        let (found, reply) = match Message::parse(bytes, courier).map_err(BadReply::Malformed)? {
            Message::Call(_) => return Err(BadReply::Call),
            Message::Return(found, result) => (found, Reply::Return(result)),
            Message::Abort(found, error) => (found, Reply::Abort(error)),
            Message::Reject(found, why) => (found, Reply::Reject(why)),
        };
        let is_former = matches!(reply, Reply::Reject(_)) && Some(found) == former;
        if found != id && found != 0 && !is_former {
            return Err(BadReply::OtherCall { expected: id, found });
        }
        Ok(reply)
    }
}

/// Parses a rejection whose kind and identifier are exchanged.
fn exchanged(bytes: &[u8], courier: Courier, id: u16) -> Option<Rejection> {
    let (header, rest) = bytes.split_first_chunk::<4>()?;
    let ([a, b], [c, d]) = (id.to_be_bytes(), REJECT.to_be_bytes());
    if *header != [a, b, c, d] || id <= ABORT {
        return None;
    }
    Rejection::parse(rest, courier)
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadReply::Malformed(why) => why.fmt(f),
            BadReply::Call => f.write_str("the server sent a call where a reply was expected"),
            BadReply::OtherCall { expected, found } => {
                write!(f, "the reply is to call {found}, and call {expected} was made")
            }
        }
    }
}

impl std::error::Error for BadReply {}
