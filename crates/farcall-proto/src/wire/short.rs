//! The short frames, which have a few fields of fixed length, and also PADDING and POST.

use super::kinds::*;
use super::position::POSITION;
use super::{FRAME_HEAD, Frame, Mac, Malformed, Position, Reader, Writer};
#[cfg(feature = "secure")]
use crate::padding::Padding;
#[cfg(feature = "secure")]
use crate::scheme::Scheme;

/// The flag of a PROBE for a call that goes on although its caller does not wait for its end.
const DETACHED: u8 = 0x01;

/// Bytes of a STATE frame.
pub(crate) const STATE_BYTES: usize = FRAME_HEAD + POSITION + 4;

/// An ACK: the client's report of which calls have ended and which datagrams pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Every call of a smaller number has ended at the caller.
    pub low: u64,
    /// The largest datagram that is known to pass both ways.
    pub datagram: u32,
}

/// A USER-PROOF: a client's answer to a server's challenge, by which it shows that it is a process of the
/// server's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserProof {
    /// Which of the user's secrets the code is under.
    pub secret: u64,
    pub mac: Mac,
}

/// A DRAIN: the server takes no more calls, of one export or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    /// The server's identifier of the conversation. A late DRAIN of an earlier incarnation has another one.
    pub conversation: u64,
    /// The export that takes no more calls; zero stands for all.
    pub export: u64,
    /// The greatest number of a call that the server had received of this conversation when it began to
    /// drain. No call with a greater number was executed, or will be.
    pub through: u64,
}

/// What the server knows of a call about which a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The server does not know the call. The client must send it, or send it again.
    Unknown = 0,
    /// The call is being executed, or waits to be executed.
    Running = 2,
    /// The call was executed, and its result is no longer held.
    Gone = 3,
}

/// Reads a short frame. Returns `None` for a frame that is to be skipped: PADDING, and any frame of a type
/// from 0x80 on that this version does not know.
pub(super) fn read(kind: u8, flags: u8, mut r: Reader<'_>) -> Result<Option<Frame<'_>>, Malformed> {
    Ok(Some(match kind {
        // The number of the datagram that the CHALLENGE answers follows. It serves only people who read
        // captures.
        CHALLENGE => Frame::Challenge(r.u64()?),
        CANCEL => Frame::Cancel(Position::read(&mut r)?),
        PROBE => Frame::Probe { position: Position::read(&mut r)?, detached: flags & DETACHED != 0 },
        STATE => {
            let position = Position::read(&mut r)?;
            let known = [Progress::Unknown, Progress::Running, Progress::Gone];
            let number = r.u32()?;
            let progress = known.into_iter().find(|progress| *progress as u32 == number);
            Frame::State(position, progress.ok_or(Malformed)?)
        }
        MTU_PROBE => Frame::MtuProbe(r.u32()?),
        MTU_ECHO => Frame::MtuEcho(r.u32()?),
        POST => Frame::Post(r.u64()?, r.rest()),
        STOP => Frame::Stop(Position::read(&mut r)?, r.u32()?),
        ACK => Frame::Ack(Ack { low: r.u64()?, datagram: r.u32()? }),
        USER_PROOF => Frame::UserProof(UserProof { secret: r.u64()?, mac: Mac(r.array()?) }),
        DRAIN => Frame::Drain(Drain { conversation: r.u64()?, export: r.u64()?, through: r.u64()? }),
        WANTED => Frame::Wanted(Position::read(&mut r)?),
        // The arms of frames that may be skipped must come before this one.
        PADDING | NON_CRITICAL.. => return Ok(None),
        _ => return Err(Malformed),
    }))
}

impl Writer<'_> {
    pub fn user_proof(&mut self, proof: &UserProof) {
        self.frame(USER_PROOF, 0, 24).u64(proof.secret).bytes(&proof.mac.0);
    }

    pub fn drain(&mut self, drain: &Drain) {
        self.frame(DRAIN, 0, 24).u64(drain.conversation).u64(drain.export).u64(drain.through);
    }

    /// Writes a WANTED: the server asks whether a caller still waits for a call.
    pub fn wanted(&mut self, position: Position) {
        self.position(WANTED, 0, position, 0);
    }

    /// Writes a CHALLENGE: a hint that the server does not know the conversation. The client then shows its
    /// ticket.
    pub fn challenge(&mut self, conversation: u64, number: u64) {
        self.frame(CHALLENGE, 0, 16).u64(conversation).u64(number);
    }

    /// Writes a CANCEL: the caller gives a call up.
    pub fn cancel(&mut self, position: Position) {
        self.position(CANCEL, 0, position, 0);
    }

    /// Writes a PROBE: the caller asks what has become of a call.
    pub fn probe(&mut self, position: Position, detached: bool) {
        self.position(PROBE, if detached { DETACHED } else { 0 }, position, 0);
    }

    /// Writes a STATE: the answer to a PROBE.
    pub fn state(&mut self, position: Position, progress: Progress) {
        self.position(STATE, 0, position, 4).u32(progress as u32);
    }

    /// Writes an MTU-PROBE, or the MTU-ECHO that answers one, and pads the datagram to exactly `size` bytes.
    pub fn mtu(&mut self, echo: bool, size: usize) {
        self.frame(if echo { MTU_ECHO } else { MTU_PROBE }, 0, 4).u32(size as u32);
        self.pad(size);
    }

    /// Writes a POST, bytes for an export that belong to no call, and returns whether there was room.
    pub fn post(&mut self, export: u64, bytes: &[u8]) -> bool {
        let fits = self.fits(8 + bytes.len());
        if fits {
            self.frame(POST, 0, 8 + bytes.len()).u64(export).bytes(bytes);
        }
        fits
    }

    /// Writes a STOP: this end wants no more of what the other end sends in an exchange.
    pub fn stop(&mut self, position: Position, reason: u32) {
        self.position(STOP, 0, position, 4).u32(reason);
    }

    /// Writes an ACK.
    pub fn ack(&mut self, ack: Ack) {
        self.frame(ACK, 0, 12).u64(ack.low).u32(ack.datagram);
    }

    /// Brings a datagram that only its receiver can read to the length that hides what it holds.
    #[cfg(feature = "secure")]
    #[inline]
    pub fn hiding_length(mut self, padding: Padding) -> Self {
        if padding != Padding::None && self.target().scheme == Scheme::Secure {
            self.pad(padding.of(self.len() + self.tag()));
        }
        self
    }

    /// Brings the datagram to `size` bytes, tag included, or as near as PADDING can within its limit.
    pub fn pad(&mut self, size: usize) {
        let missing = size.saturating_sub(self.len() + self.tag());
        if missing >= FRAME_HEAD && self.fits(0) {
            let len = (missing - FRAME_HEAD).min(self.room()) & !3;
            self.frame(PADDING, 0, len).zeros();
        }
    }
}
