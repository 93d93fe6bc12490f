//! Reads and writes what a datagram has around its frames: the header and the tag.

use super::kinds::{BIND, TICKET};
use super::{Body, Malformed, Number};
use crate::scheme::Scheme;

/// The wire version that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the header.
pub(crate) const HEADER: usize = 20;

/// Bytes of a frame's head: type, flags, length.
pub(crate) const FRAME_HEAD: usize = 4;

/// The offsets, in the header, of the scheme, of the seal's marks and phase, of the receiver's conversation
/// and of the datagram's number.
const SCHEME_AT: usize = 1;
const PHASE_AT: usize = 2;
const CONVERSATION_AT: usize = 4;
const NUMBER_AT: usize = 12;

/// The mark, beside the phase, of a datagram whose first frame is a TICKET that is not encrypted.
const CLEAR: u16 = 0x8000;
/// The mark of a datagram that is sealed as the answer to one question.
const ANSWER: u16 = 0x4000;

/// Which conversation gets a datagram that a client's socket received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The client conversation of this identifier.
    Conversation(u64),
    /// The conversation that talks to the datagram's source address. A server sends such a datagram when it
    /// does not know the client's identifier: a challenge, or a refusal of an unknown conversation.
    Sender,
}

/// Reads a datagram's destination and checks nothing else. Returns `None` if the datagram is too short to
/// have one.
#[inline]
pub fn route(datagram: &[u8]) -> Option<Route> {
    Some(match word(datagram, CONVERSATION_AT)? {
        0 => Route::Sender,
        id => Route::Conversation(id),
    })
}

/// The header of a datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The receiver's identifier of the conversation, or zero if the sender does not know it.
    pub conversation: u64,
    /// The datagram's number. A sender uses no number twice in a conversation.
    pub number: u64,
    pub scheme: Scheme,
}

impl Header {
    /// Reads the header of a datagram, and checks nothing but that it is well formed.
    #[inline(always)]
    fn read(head: &[u8; HEADER]) -> Result<Header, Malformed> {
        match Scheme::of(head[1]) {
            Some(scheme) if head[0] == VERSION => Ok(Header {
                conversation: u64_at(head, CONVERSATION_AT),
                number: u64_at(head, NUMBER_AT),
                scheme,
            }),
            _ => Err(Malformed),
        }
    }

    /// Checks the tag of the datagram that has this header, and returns the bytes of its frames. In a scheme
    /// with secrets, the datagram must have been opened before. If `check` is false, the tag is not checked.
    #[inline(always)]
    pub fn open<'d>(&self, datagram: &'d [u8], opened: Option<Opened>, check: bool) -> Option<&'d [u8]> {
        let right = self.scheme.checks(datagram, opened.is_some());
        if !right && (check || self.scheme.has_secrets()) {
            return None;
        }
        frames_of(datagram, self.scheme)
    }
}

/// The conversation that a datagram is for, and how the datagram is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The receiver's identifier of the conversation, or zero if this end does not know it.
    pub conversation: u64,
    pub scheme: Scheme,
    /// This end's identifier of the conversation, whose cipher seals the datagram in a scheme with secrets.
    pub sealed_for: u64,
}

impl Target {
    /// Returns the target of a datagram in a scheme without secrets.
    pub const fn without_secrets(conversation: u64, scheme: Scheme) -> Target {
        Target { conversation, scheme, sealed_for: 0 }
    }

    /// Writes the header and, in a scheme without secrets, the tag of a datagram around its frames.
    /// `inserted` bytes of the frames are not in this buffer but are sent from another one. Takes the
    /// `Number` by value, so that no second datagram can use it.
    #[inline(always)]
    pub fn close(&self, datagram: &mut [u8], inserted: usize, number: Number) {
        let Target { conversation, scheme, .. } = *self;
        if let Some(head) = datagram.first_chunk_mut::<HEADER>() {
            head[..CONVERSATION_AT].copy_from_slice(&[VERSION, scheme as u8, 0, 0]);
            head[CONVERSATION_AT..NUMBER_AT].copy_from_slice(&conversation.to_be_bytes());
            head[NUMBER_AT..].copy_from_slice(&number.value().to_be_bytes());
        }
        scheme.close(datagram, inserted);
    }
}

/// Returns whether a datagram has to be opened by its conversation's cipher before it is read.
#[inline(always)]
pub fn is_sealed(datagram: &[u8]) -> bool {
    let secret = |scheme: Scheme| scheme.has_secrets();
    datagram.len() > HEADER
        && Scheme::of(datagram[SCHEME_AT]).is_some_and(secret)
        && marks(datagram) & ANSWER == 0
}

/// Returns the word of a datagram's marks and phase.
fn marks(datagram: &[u8]) -> u16 {
    u16::from_be_bytes([datagram[PHASE_AT], datagram[PHASE_AT + 1]])
}

/// Shows that a datagram was opened by the cipher of its conversation.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The phase in which the datagram was sealed.
    pub(crate) phase: u32,
}

/// What a cipher needs to know of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub number: u64,
    /// The lowest bits of the phase in which the datagram was sealed.
    pub phase: u16,
    /// How many bytes at the start are not encrypted.
    pub clear: usize,
}

impl Layout {
    /// Reads the layout of a datagram that has arrived. Returns `None` if it cannot be a sealed datagram.
    pub fn read(datagram: &[u8]) -> Option<Layout> {
        let number = word(datagram, NUMBER_AT)?;
        let marks = marks(datagram);
        let clear = if marks & CLEAR == 0 { HEADER } else { end_of_first(datagram)? };
        Some(Layout { number, phase: marks & !(CLEAR | ANSWER), clear })
    }

    /// Marks a datagram that is to be sealed in a phase, and returns its layout. A TICKET in front stays
    /// clear, because the receiver may need it to find the key.
    pub fn mark(datagram: &mut [u8], phase: u32) -> Option<Layout> {
        let number = word(datagram, NUMBER_AT)?;
        let (mut marks, mut clear) = (phase as u16 & !(CLEAR | ANSWER), HEADER);
        if datagram.get(HEADER) == Some(&TICKET) {
            (marks, clear) = (marks | CLEAR, end_of_first(datagram)?);
        }
        datagram[PHASE_AT..CONVERSATION_AT].copy_from_slice(&marks.to_be_bytes());
        Some(Layout { number, phase: phase as u16, clear })
    }

    /// Marks a datagram that is to be sealed as an answer, and returns its number.
    #[cfg(feature = "secure")]
    pub fn mark_answer(datagram: &mut [u8]) -> Option<u64> {
        let number = word(datagram, NUMBER_AT)?;
        datagram[PHASE_AT..CONVERSATION_AT].copy_from_slice(&ANSWER.to_be_bytes());
        Some(number)
    }
}

/// Returns where the first frame of a datagram ends.
fn end_of_first(datagram: &[u8]) -> Option<usize> {
    let len = datagram.get(HEADER + 2..HEADER + FRAME_HEAD)?.first_chunk()?;
    let end = HEADER + FRAME_HEAD + usize::from(u16::from_be_bytes(*len));
    (end <= datagram.len()).then_some(end)
}

/// Reads a datagram's header and finds its frames. Checks no tag.
#[inline(always)]
pub(crate) fn peek(datagram: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let header = Header::read(datagram.first_chunk().ok_or(Malformed)?)?;
    Ok((header, frames_of(datagram, header.scheme).ok_or(Malformed)?))
}

/// Checks a datagram's header and tag, and returns the header and the bytes of the frames. In a scheme with
/// secrets, the datagram must have been opened before. If `check` is false, the tag of a scheme without
/// secrets is not checked.
#[inline(always)]
pub(crate) fn open(
    datagram: &[u8],
    opened: Option<Opened>,
    check: bool,
) -> Result<(Header, &[u8]), Malformed> {
    let header = Header::read(datagram.first_chunk().ok_or(Malformed)?)?;
    let frames = header.open(datagram, opened, check).ok_or(Malformed)?;
    Ok((header, frames))
}

/// Returns the frames of a datagram in that scheme, without a check of the tag.
#[inline(always)]
pub(crate) fn frames_of(datagram: &[u8], scheme: Scheme) -> Option<&[u8]> {
    datagram.get(HEADER..datagram.len().checked_sub(scheme.tag())?)
}

/// Reads the beginning of a datagram that this end sent, as an ICMP error quotes it. Returns whose datagram
/// it was, and its number. The first is `Ok(the conversation)`, or `Err(the client's identifier)` for a BIND
/// that was sent before there was a conversation.
pub(crate) fn quoted(quoted: &[u8]) -> Option<(Result<u64, u64>, u64)> {
    let of = match route(quoted)? {
        Route::Conversation(conversation) => Ok(conversation),
        // A BIND names no conversation, but its first field is the client's identifier, which only the two
        // ends know.
        Route::Sender if quoted.get(HEADER) == Some(&BIND) => Err(word(quoted, HEADER + FRAME_HEAD)?),
        Route::Sender => return None,
    };
    Some((of, word(quoted, NUMBER_AT)?))
}

/// Returns the 64-bit word at an offset, or `None` if `bytes` ends before its last byte.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the 64-bit word at an offset. The word must lie within the array.
#[inline(always)]
pub(super) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

#[inline(always)]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// Writes one datagram into a buffer that the caller provides.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
    target: Target,
}

impl<'a> Writer<'a> {
    /// Begins a datagram of at most `limit` bytes, or as many as the buffer has if it is shorter.
    #[inline(always)]
    pub fn new(out: &'a mut [u8], limit: usize, target: Target) -> Writer<'a> {
        let limit = limit.min(out.len());
        let out = &mut out[..limit];
        debug_assert!(limit >= HEADER + target.scheme.tag());
        Writer { out, len: HEADER, target }
    }

    /// Returns the number of bytes written so far, including the header but not the tag.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of the frames written so far.
    pub fn written(&self) -> &[u8] {
        &self.out[HEADER..self.len]
    }

    /// Copies in frames that [`frames_by`] has written. They must fit.
    pub fn frames(&mut self, frames: &[u8]) {
        let end = self.len + frames.len();
        self.out[self.len..end].copy_from_slice(frames);
        self.len = end;
    }

    /// Returns how many bytes the tag takes.
    #[inline(always)]
    pub(super) fn tag(&self) -> usize {
        self.target.scheme.tag()
    }

    /// Returns the largest length in bytes that the body of one more frame may have.
    #[inline]
    pub fn room(&self) -> usize {
        (self.out.len() - self.tag()).saturating_sub(self.len + FRAME_HEAD) & !3
    }

    /// Returns the free bytes that would follow the next frame's head and the first `before` bytes of its
    /// body. Returns `None` if the head and those bytes do not fit.
    #[inline(always)]
    pub(super) fn unwritten(&mut self, before: usize) -> Option<&mut [u8]> {
        let end = self.out.len() - self.tag();
        self.out.get_mut(self.len + FRAME_HEAD + before..end)
    }

    /// Returns whether there is room for a frame whose body has `len` bytes.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.len + FRAME_HEAD + len + self.tag() <= self.out.len()
    }

    /// Begins a frame whose body has `len` bytes, which must be within [`Writer::room`].
    #[inline]
    pub(super) fn frame(&mut self, kind: u8, flags: u8, len: usize) -> Body<'_> {
        self.frame_after::<0>(kind, flags, len, 0).1
    }

    /// Begins a frame. `len` is the length of the whole body. `inserted` of these bytes are sent from another
    /// buffer, so room is reserved only for the others. Returns the body's first `N` bytes separately, as an
    /// array, so that writing them needs no further checks.
    #[inline(always)]
    pub(super) fn frame_after<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        len: usize,
        inserted: usize,
    ) -> (&mut [u8; N], Body<'_>) {
        debug_assert!(len <= self.room() && len.is_multiple_of(4));
        let (head, rest) =
            self.out[self.len..].split_first_chunk_mut::<FRAME_HEAD>().expect("room for a frame");
        let [high, low] = (len as u16).to_be_bytes();
        *head = [kind, flags, high, low];
        let written = len - inserted;
        self.len += FRAME_HEAD + written;
        let (first, rest) = rest[..written].split_first_chunk_mut::<N>().expect("a body of at least N bytes");
        (first, Body::new(rest))
    }

    /// Leaves so many bytes of the datagram to what is sent from another buffer.
    pub(super) fn take_room(&mut self, bytes: usize) {
        let out = std::mem::take(&mut self.out);
        let len = out.len() - bytes;
        self.out = &mut out[..len];
    }

    /// Writes the header and the tag, and returns the datagram. In a scheme with secrets, it still has to be
    /// sealed. Takes the `Number` by value, so that no second datagram
    /// can use it.
    #[inline(always)]
    pub fn finish(self, number: Number) -> &'a mut [u8] {
        self.finish_around(0, number)
    }

    /// Finishes a datagram of whose frames `inserted` bytes are sent from another buffer, and returns what is in
    /// this one. `inserted` must be 0 unless the scheme allows more ([`Scheme::closes_around`]).
    #[inline(always)]
    pub fn finish_around(self, inserted: usize, number: Number) -> &'a mut [u8] {
        let end = self.len + self.tag();
        let Writer { out, target, .. } = self;
        let datagram = &mut out[..end];
        target.close(datagram, inserted, number);
        datagram
    }

    /// Returns the datagram's target.
    #[inline(always)]
    pub fn target(&self) -> Target {
        self.target
    }
}

/// Returns the frames that `write` writes, for a datagram of at most `limit` bytes in that scheme.
pub(crate) fn frames_by(limit: usize, scheme: Scheme, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; limit];
    let mut writer = Writer::new(&mut out, limit, Target::without_secrets(0, scheme));
    write(&mut writer);
    writer.written().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_names_no_conversation_is_routed_by_its_sender() {
        let mut datagram = [7; 40];
        assert_eq!(route(&datagram), Some(Route::Conversation(0x0707_0707_0707_0707)));
        assert_eq!((route(&datagram[..12]), route(&datagram[..11])), (route(&datagram), None));
        datagram[4..12].fill(0);
        assert_eq!(route(&datagram), Some(Route::Sender));
    }
}
