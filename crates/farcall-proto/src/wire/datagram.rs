//! Reads and writes what a datagram has around its frames: the header and the tag.

use super::kinds::BIND;
use super::{Body, Malformed, Number};
use crate::scheme::{Direction, Key, Scheme, Seal};

/// The wire version that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the header.
pub(crate) const HEADER: usize = 20;

/// Bytes of a frame's head: type, flags, length.
pub(crate) const FRAME_HEAD: usize = 4;

/// The offsets, in the header, of the receiver's conversation and of the datagram's number.
const CONVERSATION_AT: usize = 4;
const NUMBER_AT: usize = 12;

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

    /// Checks the tag of the datagram that has this header, and returns the bytes of its frames. `key` is
    /// asked for the conversation's key if the scheme has secrets. If `check` is false, the tag is not
    /// checked.
    #[inline(always)]
    pub fn open<'d>(
        &self,
        datagram: &'d [u8],
        direction: Direction,
        key: impl FnOnce(u64) -> Option<Key>,
        check: bool,
    ) -> Option<&'d [u8]> {
        let Header { conversation, number, scheme } = *self;
        let key = if scheme.has_secrets() { key(conversation)? } else { Key::NONE };
        let opened = Seal { scheme, key, direction }.open(datagram, (conversation, number), check);
        opened?.get(HEADER..)
    }
}

/// The conversation that a datagram is for, and how the datagram is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The receiver's identifier of the conversation, or zero if this end does not know it.
    pub conversation: u64,
    pub seal: Seal,
}

impl Target {
    /// Writes the header and the tag of a datagram around its frames. `inserted` bytes of the frames are not
    /// in this buffer but are sent from another one. Takes the `Number` by value, so that no second datagram
    /// can use it.
    #[inline(always)]
    pub fn seal(&self, datagram: &mut [u8], inserted: usize, number: Number) {
        let (Target { conversation, seal }, number) = (*self, number.value());
        if let Some(head) = datagram.first_chunk_mut::<HEADER>() {
            head[..CONVERSATION_AT].copy_from_slice(&[VERSION, seal.scheme as u8, 0, 0]);
            head[CONVERSATION_AT..NUMBER_AT].copy_from_slice(&conversation.to_be_bytes());
            head[NUMBER_AT..].copy_from_slice(&number.to_be_bytes());
        }
        seal.close(datagram, (conversation, number), inserted);
    }
}

/// Reads a datagram's header and finds its frames. Checks no tag.
#[inline(always)]
pub(crate) fn peek(datagram: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let header = Header::read(datagram.first_chunk().ok_or(Malformed)?)?;
    Ok((header, frames_of(datagram, header.scheme).ok_or(Malformed)?))
}

/// Checks a datagram's header and tag, and returns the header and the bytes of the frames. In a scheme with
/// secrets, `key` is called with the conversation that the datagram names, and returns its key. If `check` is
/// false, the tag is not checked.
#[inline(always)]
pub(crate) fn open(
    datagram: &[u8],
    direction: Direction,
    key: impl FnOnce(u64) -> Option<Key>,
    check: bool,
) -> Result<(Header, &[u8]), Malformed> {
    let header = Header::read(datagram.first_chunk().ok_or(Malformed)?)?;
    let frames = header.open(datagram, direction, key, check).ok_or(Malformed)?;
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
        debug_assert!(limit >= HEADER + target.seal.scheme.tag());
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
        self.target.seal.scheme.tag()
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

    /// Seals the datagram, and returns its length. Takes the `Number` by value, so that no second datagram
    /// can use it.
    #[inline(always)]
    pub fn finish(self, number: Number) -> usize {
        self.finish_around(0, number)
    }

    /// Seals a datagram of whose frames `inserted` bytes are sent from another buffer, and returns the length
    /// of what is in this one. `inserted` must be 0 unless the scheme allows more ([`Seal::closes_around`]).
    #[inline(always)]
    pub fn finish_around(self, inserted: usize, number: Number) -> usize {
        let end = self.len + self.tag();
        self.target.seal(&mut self.out[..end], inserted, number);
        end
    }
}

/// Returns the frames that `write` writes, for a datagram of at most `limit` bytes in that scheme.
pub(crate) fn frames_by(limit: usize, scheme: Scheme, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; limit];
    let seal = Seal::without_key(scheme, Direction::ToClient);
    let mut writer = Writer::new(&mut out, limit, Target { conversation: 0, seal });
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
