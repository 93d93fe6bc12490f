//! The bytes of a direction that its sender keeps until they have arrived.

use std::collections::VecDeque;
use std::iter::from_fn;
use std::ops::Range;

use bytes::{Buf as _, Bytes};

/// The least bytes that are shared. To copy fewer is cheaper than to remember where they are.
const MIN_SHARED_BYTES: usize = 8 << 10;

/// So few bytes are copied also where there may be no memory for them: the message goes on slowly.
const FEW_BYTES: usize = 4 << 10;

/// The bytes that the sender keeps. Short ones are copied into one buffer; long ones are shared with their
/// owner.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The position of the first byte in the direction.
    base: u64,
    /// The copied bytes, in order.
    copied: VecDeque<u8>,
    /// The shared bytes, each with its position in the direction. Copied bytes fill the positions between
    /// them.
    shared: VecDeque<(u64, Bytes)>,
    /// The number of shared bytes.
    shared_len: usize,
}

/// Bytes that follow each other in a direction and in memory.
#[derive(Clone, Debug)]
pub(super) enum Piece<'a> {
    Copied(&'a [u8]),
    Shared(&'a Bytes, Range<usize>),
}

impl<'a> Piece<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Piece::Copied(bytes) => bytes,
            Piece::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl Kept {
    /// Returns an empty value whose first byte will have this position.
    pub fn from(base: u64) -> Kept {
        Kept { base, ..Kept::default() }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.shared.is_empty()
    }

    /// Returns the memory that the bytes take, in bytes.
    pub fn memory(&self) -> usize {
        self.copied.capacity() + self.shared_len + self.shared.capacity() * size_of::<(u64, Bytes)>()
    }

    /// Adds a copy of the first bytes of `bytes`: of all, or of as many, a multiple of four, as this process
    /// has memory for. Returns how many. They are none only while other bytes are kept.
    pub fn copy(&mut self, bytes: &[u8]) -> usize {
        let len =
            if self.copied.try_reserve(bytes.len()).is_ok() { bytes.len() } else { self.fit(bytes.len()) };
        self.copied.extend(&bytes[..len]);
        len
    }

    /// Makes room for fewer than `wanted` bytes. Returns for how many.
    #[cold]
    fn fit(&mut self, wanted: usize) -> usize {
        let mut len = (wanted / 2) & !3;
        while len > FEW_BYTES {
            if self.copied.try_reserve_exact(len).is_ok() {
                return len;
            }
            len = (len / 2) & !3;
        }
        // What is kept is acknowledged some time, and makes room then. If nothing is, a few go on alone.
        if self.is_empty() { wanted.min(FEW_BYTES) } else { 0 }
    }

    /// Adds bytes, without a copy if they are many. Returns how many, as [`Kept::copy`] does.
    pub fn share(&mut self, bytes: Bytes) -> usize {
        if bytes.len() < MIN_SHARED_BYTES {
            return self.copy(&bytes);
        }
        let (place, len) = (self.end(), bytes.len());
        self.shared_len += len;
        self.shared.push_back((place, bytes));
        len
    }

    /// Drops the bytes before the position `through`.
    pub fn release(&mut self, through: u64) {
        let mut released = (through.saturating_sub(self.base) as usize).min(self.len());
        self.base = self.base.max(through);
        while let Some((place, bytes)) = self.shared.front_mut()
            && *place < through
        {
            let len = bytes.len().min((through - *place) as usize);
            released -= len;
            self.shared_len -= len;
            if len == bytes.len() {
                self.shared.pop_front();
            } else {
                bytes.advance(len);
                *place = through;
            }
        }
        self.copied.drain(..released);
        if self.copied.is_empty() {
            self.copied = VecDeque::new();
        }
        if self.shared.is_empty() {
            self.shared = VecDeque::new();
        }
    }

    /// Returns the bytes of a range, piece by piece.
    pub fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = Piece<'_>> + Clone {
        let (mut at, end) = (start.max(self.base), end.min(self.end()));
        let mut shared = self.shared.iter().peekable();
        // How many of the bytes before `at` were not copied.
        let mut before = 0;
        from_fn(move || {
            while let Some((_, passed)) = shared.next_if(|(place, bytes)| place + bytes.len() as u64 <= at) {
                before += passed.len() as u64;
            }
            if at >= end {
                return None;
            }
            let piece = match shared.peek() {
                Some((place, bytes)) if *place <= at => {
                    let stop = (end - place).min(bytes.len() as u64);
                    Piece::Shared(bytes, (at - place) as usize..stop as usize)
                }
                next => {
                    let stop = next.map_or(end, |(place, _)| end.min(*place));
                    let from = (at - self.base - before) as usize;
                    Piece::Copied(self.copied_slice(from, (stop - at) as usize))
                }
            };
            at += piece.bytes().len() as u64;
            Some(piece)
        })
    }

    /// Returns copied bytes from an index on: at most `len`, and fewer where they go on elsewhere in memory.
    fn copied_slice(&self, from: usize, len: usize) -> &[u8] {
        let (first, second) = self.copied.as_slices();
        let rest = match first.get(from..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => &second[from - first.len()..],
        };
        &rest[..len.min(rest.len())]
    }

    fn len(&self) -> usize {
        self.copied.len() + self.shared_len
    }

    fn end(&self) -> u64 {
        self.base + self.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_and_shared_bytes_stay_in_order_whatever_is_released() {
        let mut seed = 1u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let (mut kept, mut all, mut base) = (Kept::default(), Vec::new(), 0);
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..below(20_000)).map(|_| below(256) as u8).collect();
            all.extend_from_slice(&bytes);
            let len = bytes.len();
            let added = match below(2) {
                0 => kept.copy(&bytes),
                _ => kept.share(bytes.into()),
            };
            assert_eq!(added, len);
            base += below((all.len() as u64 - base).min(30_000) + 1);
            kept.release(base);
            assert_eq!((kept.base(), kept.is_empty()), (base, base == all.len() as u64));
            let start = base + below(all.len() as u64 - base + 1);
            let end = start + below(all.len() as u64 - start + 1);
            let pieces = kept.pieces(start, end);
            assert!(pieces.clone().all(|piece| !piece.bytes().is_empty()));
            let found: Vec<u8> = pieces.flat_map(|piece| piece.bytes().to_vec()).collect();
            assert_eq!(found, all[start as usize..end as usize]);
        }
        kept.release(all.len() as u64);
        assert_eq!(kept.memory(), 0);
    }
}
