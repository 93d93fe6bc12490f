//! The datagram and its frames (docs/protocol.md, "Datagrams" and "Frames").
//!
//! Each frame type is read and written in one file; `short.rs` has all the short types. The other files hold
//! what several frames share: `datagram.rs` the header and the tag, `fields.rs` the fields of a body,
//! `position.rs` and `part.rs` the beginnings and ends of frames about a call, `handshake.rs` a field of BIND
//! and WELCOME.
//!
//! The contract of this module: any bytes give values or [`Malformed`]; nothing panics, nothing is allocated,
//! and the work is linear in the datagram. Callers check [`Writer::room`] before they write. Writers that can
//! fail return `None` and write nothing.

mod bind;
mod call;
mod data;
mod datagram;
mod fields;
mod handshake;
pub mod kinds;
mod number;
mod part;
mod position;
mod result;
mod select;
mod short;
mod stale;
#[cfg(feature = "secure")]
mod step;
mod ticket;
mod welcome;

pub(crate) use bind::Bind;
pub use bind::MAX_NAME;
#[cfg(feature = "secure")]
pub(crate) use bind::OwnedBind;
pub(crate) use call::{CallHead, Meta, call_overhead};
pub(crate) use data::{Data, END_LEN};
pub(crate) use datagram::Layout;
pub(crate) use datagram::{
    FRAME_HEAD, HEADER, Header, Target, Writer, frames_by, frames_of, open, peek, quoted,
};
pub use datagram::{Opened, Route, VERSION, is_sealed, route};
pub(crate) use fields::ip_octets;
use fields::{Body, Reader};
pub(crate) use handshake::Handshake;
use kinds::*;
pub(crate) use number::{Number, Numbers};
pub(crate) use part::{Fragment, Part};
pub(crate) use position::Position;
use result::DIRECTIONS;
pub(crate) use result::{RESULT_HEAD, ResultHead, Status, read_failure, write_failure};
pub(crate) use select::{Credit, Extent, MAX_RANGES, Select};
pub(crate) use short::{Ack, Drain, Progress, STATE_BYTES, UserProof};
pub(crate) use stale::{Stale, StaleReason};
#[cfg(feature = "secure")]
pub(crate) use step::{Prologue, Step, resumption, whole};
pub(crate) use ticket::{CHALLENGED, Mac, Ticket};
pub use welcome::Fingerprint;
pub(crate) use welcome::{Ended, Welcome};

/// The longest body of a frame, in bytes.
const MAX_BODY: usize = u16::MAX as usize;

/// A datagram or frame that breaks the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A frame as it was received.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    Bind(Bind<'a>),
    Welcome(Welcome<'a>),
    /// The server does not know this conversation; the client must show its ticket.
    Challenge(u64),
    Stale(Stale),
    Ticket(Ticket<'a>),
    Call(CallHead, Part<'a>),
    /// The number says how many halves of exchanges (what the server sends in one) must be received before
    /// the result is delivered.
    Result(ResultHead, u32, Part<'a>),
    Select(Position, Select<'a>),
    Cancel(Position),
    Probe {
        position: Position,
        /// Whether the call is to go on although its caller does not wait for its end.
        detached: bool,
    },
    State(Position, Progress),
    MtuProbe(u32),
    MtuEcho(u32),
    /// Bytes for an export that belong to no call. There is no answer.
    Post(u64, &'a [u8]),
    Data(Position, Data<'a>),
    Credit(Position, Credit<'a>),
    /// The sender of this frame wants no more of the data that the other end sends in this exchange. The
    /// number is the reason.
    Stop(Position, u32),
    Ack(Ack),
    UserProof(UserProof),
    Drain(Drain),
    /// The server asks whether a caller still waits for a call that it executes.
    Wanted(Position),
}

/// The frames of a datagram, one after the other. After an error no more may be read.
pub(crate) struct Frames<'a> {
    rest: Reader<'a>,
}

/// A frame of which only the type, the flags and the length were read.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    kind: u8,
    flags: u8,
    body: Reader<'a>,
}

impl<'a> Frames<'a> {
    pub fn new(frames: &'a [u8]) -> Frames<'a> {
        Frames { rest: Reader::new(frames) }
    }

    /// Returns the next frame, or `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Raw<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [kind, flags, high, low] = self.rest.array()?;
        let len = u16::from_be_bytes([high, low]) as usize;
        if !len.is_multiple_of(4) {
            return Err(Malformed);
        }
        Ok(Some(Raw { kind, flags, body: Reader::new(self.rest.bytes(len)?) }))
    }

    /// Returns the first frame, if it can be read.
    pub fn first(frames: &'a [u8]) -> Option<Frame<'a>> {
        Frames::new(frames).next().ok()??.read().ok()?
    }
}

impl<'a> Raw<'a> {
    /// Returns the call and its arguments, or `None` if the frame is not a CALL.
    #[inline]
    pub fn call(&self) -> Option<Result<(CallHead, Part<'a>), Malformed>> {
        if self.kind == CALL { Some(CallHead::read(self.flags, self.body)) } else { None }
    }

    /// Returns the result and its bytes, or `None` if the frame is not a RESULT or if exchanges must be
    /// received before the result.
    #[inline(always)]
    pub fn result(&self) -> Option<Result<(ResultHead, Part<'a>), Malformed>> {
        let usual = self.kind == RESULT && self.flags & DIRECTIONS == 0;
        if usual { Some(ResultHead::read(self.flags, self.body)) } else { None }
    }

    /// Returns the bytes of the frame's body.
    #[cfg(feature = "secure")]
    pub fn body(&self) -> &'a [u8] {
        self.body.rest()
    }

    /// Reads a frame of any type. Returns `None` for PADDING and for an unknown frame that may be skipped.
    pub fn read(&self) -> Result<Option<Frame<'a>>, Malformed> {
        let (flags, body) = (self.flags, self.body);
        Ok(Some(match self.kind {
            BIND => Frame::Bind(Bind::read(flags, body)?),
            WELCOME => Frame::Welcome(Welcome::read(body)?),
            STALE => Frame::Stale(Stale::read(body)?),
            TICKET => Frame::Ticket(Ticket::read(&mut { body })?),
            CALL => CallHead::read(flags, body).map(|(head, part)| Frame::Call(head, part))?,
            RESULT => {
                let (head, directions, part) = ResultHead::read_any(flags, body)?;
                Frame::Result(head, directions, part)
            }
            SELECT => Select::read(flags, body).map(|(position, select)| Frame::Select(position, select))?,
            DATA => Data::read(flags, body).map(|(position, data)| Frame::Data(position, data))?,
            CREDIT => Credit::read(flags, body).map(|(position, credit)| Frame::Credit(position, credit))?,
            kind => return short::read(kind, flags, body),
        }))
    }
}

/// Splits the body of a datagram's only frame after its first `N` bytes. Returns `None` if there are several
/// frames, or if the frame is of another type or has a flag.
#[inline(always)]
fn only<const N: usize>(frames: &[u8], kind: u8) -> Option<(&[u8; N], &[u8])> {
    let (head, body) = frames.split_first_chunk::<FRAME_HEAD>()?;
    if !(N..=MAX_BODY).contains(&body.len()) || !body.len().is_multiple_of(4) {
        return None;
    }
    let expected = u32::from(kind) << 24 | body.len() as u32;
    if u32::from_be_bytes(*head) == expected { body.split_first_chunk::<N>() } else { None }
}

#[cfg(test)]
mod tests;
