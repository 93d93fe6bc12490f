//! Record marking (RFC 5531 section 11): splits a byte stream into messages, without I/O.
//!
//! A record is one message, cut into fragments. Four bytes in front of each fragment, its mark, give its
//! length and say whether it is the last. farcall sends one fragment, because some servers accept no more,
//! and receives any fragmentation within [`Limits`].
//!
//! ```
//! use farcall_onc::wire::record::{Limits, Records, begin, end};
//!
//! let mut out = Vec::new();
//! let at = begin(&mut out);
//! out.extend(b"a message");
//! end(&mut out, at)?;
//!
//! let mut records = Records::new(Limits::default());
//! for part in out.chunks(5) {
//!     records.space()[..part.len()].copy_from_slice(part); // as a read from a socket does
//!     records.filled(part.len());
//! }
//! assert_eq!(records.next()?.as_deref(), Some(&b"a message"[..]));
//! assert_eq!(records.next()?, None);
//! # Ok::<(), farcall_onc::wire::record::RecordError>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use farcall::env::Time;
use farcall::room::{self, NoMemory};

/// The length of the mark in front of a fragment, in bytes.
pub const MARK: usize = 4;
/// The bit of a mark that says that the fragment ends its record.
const LAST: u32 = 1 << 31;
/// The size of the space for one read, in bytes: `ROOM` at first, and up to `MOST_ROOM` once reads fill the
/// buffer.
const ROOM: usize = 8 << 10;
const MOST_ROOM: usize = 256 << 10;

/// Leaves room for the mark of a record. The caller then appends the record, and passes the returned position
/// to [`end`].
#[inline]
pub fn begin(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; MARK]);
    at
}

/// Marks all bytes that were appended since [`begin`] as one record of one fragment.
///
/// # Errors
/// If the record is longer than a mark can express. The record is then removed from `out`.
#[inline]
pub fn end(out: &mut Vec<u8>, at: usize) -> Result<(), RecordError> {
    let length = out.len().saturating_sub(at + MARK);
    let limit = (LAST - 1) as usize;
    let Some(mark) = out.get_mut(at..at + MARK).filter(|_| length <= limit) else {
        out.truncate(at);
        return Err(RecordError::TooLong { length, limit });
    };
    mark.copy_from_slice(&(LAST | length as u32).to_be_bytes());
    Ok(())
}

/// Returns the mark of a record of one fragment of `len` bytes, which must be fewer than 2 GiB.
#[inline]
pub(crate) fn mark(len: usize) -> [u8; MARK] {
    (LAST | u32::try_from(len).unwrap_or(LAST - 1)).to_be_bytes()
}

/// The limits of what a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest record, in bytes; 64 MiB by default. Memory is allocated as bytes arrive, not as marks
    /// announce them.
    pub record: usize,
    /// The most fragments of a record; 16,384 by default, because some clients send more than a thousand.
    pub fragments: u32,
    /// The longest time from the first byte of a record to its last; 60 seconds by default.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { record: 64 << 20, fragments: 1 << 14, time: Duration::from_secs(60) }
    }
}

/// Splits received bytes into records. After an error nothing more can be read from the stream.
#[derive(Debug)]
pub struct Records {
    limits: Limits,
    /// The bytes that were read and not yet taken are in `start..end`. Once [`Records::next`] has returned
    /// `None`, only the first bytes of a mark are left there.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The bytes received so far of a record of which more is to come.
    record: Vec<u8>,
    fragments: u32,
    fragment: Option<Fragment>,
    /// When [`Records::check`] first found that record unfinished.
    since: Option<Time>,
}

/// A fragment whose mark has arrived.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    /// The bytes that are not yet in `Records::record`.
    left: usize,
    last: bool,
}

impl Records {
    /// Returns the state before the first byte of a stream.
    pub fn new(limits: Limits) -> Records {
        Records {
            limits,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            record: Vec::new(),
            fragments: 0,
            fragment: None,
            since: None,
        }
    }

    /// Returns the space to read the next bytes into. It is never empty.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        if end == self.buffer.len() && end < MOST_ROOM {
            let wanted = (end * 2).clamp(ROOM, MOST_ROOM);
            // Without memory for more space, reads are short.
            if wanted == ROOM || room::reserve_exact(&mut self.buffer, wanted - end).is_ok() {
                self.buffer.resize(wanted, 0);
            }
        }
        if start > 0 {
            self.buffer.copy_within(start..end, 0);
            (self.start, self.end) = (0, end - start);
        }
        if self.end == self.buffer.len() {
            // This happens only if the caller reads again without taking the records out.
            self.buffer.resize(self.end + ROOM, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that this many bytes of [`Records::space`] were read.
    #[inline]
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.buffer.len().min(self.end + bytes);
    }

    /// Returns the next record that has arrived completely. The record is owned if it arrived in pieces.
    /// Returns `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the peer exceeds a limit.
    #[allow(clippy::should_implement_trait)] // The result borrows from `self`.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Cow<'_, [u8]>>, RecordError> {
        loop {
            let fragment = match self.fragment {
                Some(fragment) => fragment,
                None => match self.mark()? {
                    Some(fragment) => fragment,
                    None => return Ok(None),
                },
            };
            let take = fragment.left.min(self.end - self.start);
            let taken = self.start..self.start + take;
            self.start += take;
            if take == fragment.left && fragment.last && self.record.is_empty() {
                self.finish();
                return Ok(Some(Cow::Borrowed(&self.buffer[taken])));
            }
            let reserved = room::reserve(&mut self.record, take);
            reserved.map_err(|why| RecordError::NoMemory(why.bytes))?;
            self.record.extend_from_slice(&self.buffer[taken]);
            if take < fragment.left {
                self.fragment = Some(Fragment { left: fragment.left - take, ..fragment });
                return Ok(None);
            }
            self.fragment = None;
            if fragment.last {
                self.finish();
                return Ok(Some(Cow::Owned(std::mem::take(&mut self.record))));
            }
        }
    }

    /// Returns the record if the received bytes are exactly one record of one fragment. The caller must then
    /// [skip](Records::skip) the record.
    #[inline]
    pub(crate) fn alone(&self) -> Option<&[u8]> {
        let (mark, record) = self.buffer[self.start..self.end].split_first_chunk::<MARK>()?;
        let whole = self.fragments == 0 && (u32::from_be_bytes(*mark) ^ LAST) as usize == record.len();
        (whole && record.len() <= self.limits.record).then_some(record)
    }

    /// Removes the record that `alone` returned.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.start = self.end;
        self.finish();
    }

    /// Returns whether a part of a record has arrived.
    pub fn is_partial(&self) -> bool {
        self.fragments > 0 || self.start < self.end
    }

    /// Checks how long the unfinished record has taken, if there is one. To be called when [`Records::next`]
    /// has found no more records.
    ///
    /// # Errors
    /// If the record has taken longer than the limit.
    pub fn check(&mut self, now: Time) -> Result<(), RecordError> {
        if !self.is_partial() {
            return Ok(());
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) > self.limits.time {
            return Err(RecordError::TooSlow(self.limits.time));
        }
        Ok(())
    }

    /// Returns since when there has been an unfinished record: since the first [`Records::check`] that found
    /// it so.
    pub(crate) fn unfinished_since(&self) -> Option<Time> {
        self.since.filter(|_| self.is_partial())
    }

    /// Returns when the unfinished record will have taken too long. The time counts from the first
    /// [`Records::check`] that found the record unfinished.
    pub fn patience(&self) -> Option<Time> {
        Some(self.since? + self.limits.time)
    }

    /// Frees memory that an idle connection does not need.
    pub fn rest(&mut self) {
        if !self.is_partial() {
            (self.buffer, self.record) = (Vec::new(), Vec::new());
            (self.start, self.end) = (0, 0);
        }
    }

    /// Frees memory that is not needed until more of an unfinished record arrives. To be called when
    /// [`Records::next`] has found no more records. Afterwards at most twice the received bytes are
    /// [held](Records::held).
    pub(crate) fn settle(&mut self) {
        if self.is_partial() {
            // Without memory for a copy, nothing is freed.
            let Ok(received) = room::copied(&self.buffer[self.start..self.end]) else { return };
            self.buffer = received;
            (self.start, self.end) = (0, self.buffer.len());
        }
    }

    /// Returns the number of bytes of memory held.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.buffer.len() + self.record.capacity()
    }

    /// Takes the next mark, if it has arrived.
    #[inline]
    fn mark(&mut self) -> Result<Option<Fragment>, RecordError> {
        let Some(mark) = self.buffer[self.start..self.end].first_chunk::<MARK>() else { return Ok(None) };
        let mark = u32::from_be_bytes(*mark);
        self.start += MARK;
        let (left, last) = ((mark & !LAST) as usize, mark & LAST != 0);
        if self.fragments == self.limits.fragments {
            return Err(RecordError::TooManyFragments(self.limits.fragments));
        }
        self.fragments += 1;
        let length = self.record.len().saturating_add(left);
        if length > self.limits.record {
            return Err(RecordError::TooLong { length, limit: self.limits.record });
        }
        Ok(Some(Fragment { left, last }))
    }

    #[inline]
    fn finish(&mut self) {
        self.fragment = None;
        self.fragments = 0;
        self.since = None;
    }
}

/// The reason why a stream of records cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A record is longer than the limit.
    TooLong {
        /// The length that its marks announce so far, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A record has more fragments than the limit.
    TooManyFragments(u32),
    /// A record took longer than the limit to arrive.
    TooSlow(Duration),
    /// This process has no memory for so many more bytes of a record.
    NoMemory(usize),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::TooLong { length, limit } => {
                write!(f, "a record has {length} bytes, more than the {limit} that are allowed")
            }
            RecordError::TooManyFragments(limit) => write!(f, "a record has more than {limit} fragments"),
            RecordError::NoMemory(bytes) => write!(f, "{}", NoMemory { bytes: *bytes }),
            RecordError::TooSlow(limit) => write!(f, "a record took longer than {limit:?} to arrive"),
        }
    }
}

impl std::error::Error for RecordError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_has_not_come_whole_holds_at_most_twice_what_has() {
        for piece in [1, 3, 100, 5_000, 70_000] {
            let mut records = Records::new(Limits::default());
            let record = [&0xffff_ffff_u32.to_be_bytes()[..], &vec![7; 1 << 20]].concat();
            let limits = Limits { record: usize::MAX, ..Limits::default() };
            records.limits = limits;
            let mut came = 0;
            for part in record.chunks(piece).take(20_000) {
                let space = records.space();
                let len = part.len().min(space.len());
                space[..len].copy_from_slice(&part[..len]);
                records.filled(len);
                came += len;
                assert_eq!(records.next(), Ok(None));
                records.settle();
                // The smallest allocation of a vector is eight bytes.
                assert!(records.held() <= 2 * came.max(8), "{} bytes for {came}", records.held());
            }
        }
    }

    #[test]
    fn a_record_is_alone_if_it_came_whole_and_nothing_with_it() {
        let limits = Limits { record: 8, ..Limits::default() };
        let alone = |parts: &[&[u8]]| {
            let mut records = Records::new(limits);
            for part in parts {
                records.space()[..part.len()].copy_from_slice(part);
                records.filled(part.len());
                if records.alone().is_some() {
                    let record = records.alone().map(<[u8]>::to_vec);
                    records.skip();
                    assert!(!records.is_partial() && records.next() == Ok(None));
                    return record;
                }
                let _ = records.next();
                let _ = records.check(Time::default());
            }
            None
        };
        let whole = [0x80, 0, 0, 2, b'a', b'b'];
        assert_eq!(alone(&[&whole]).unwrap(), b"ab");
        assert_eq!(alone(&[&[0x80, 0], &[0, 2, b'a', b'b']]).unwrap(), b"ab", "its mark came in two");
        assert_eq!(alone(&[&[0x80, 0, 0, 0]]).unwrap(), b"");
        assert_eq!(alone(&[&whole[..5], &whole[5..]]), None, "taken apart already");
        assert_eq!(alone(&[&[whole, whole].concat()]), None, "two");
        assert_eq!(alone(&[&[0, 0, 0, 2, b'a', b'b']]), None, "not the last fragment");
        assert_eq!(alone(&[&[0, 0, 0, 1, b'a'], &whole]), None, "the last of two fragments");
        assert_eq!(alone(&[&[&[0x80, 0, 0, 9][..], &[0; 9]].concat()]), None, "too long");
    }
}
