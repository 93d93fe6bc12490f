//! Bytes of a direction that its receiver has in order and that the user has not taken.

use std::collections::VecDeque;

use farcall_base::room;

/// The bytes of each piece but the last, which may have fewer.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes that wait for the user, in pieces. A user who takes a whole piece gets it without a copy.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pieces: VecDeque<Vec<u8>>,
    /// The number of bytes of the first piece that the user has taken.
    taken: usize,
    len: usize,
    memory: usize,
}

impl Ready {
    /// Returns the number of bytes that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory that the pieces take, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Adds a copy of the first bytes of `bytes`: of all, or of as many as this process has memory for.
    /// Returns how many.
    pub fn extend(&mut self, mut bytes: &[u8]) -> usize {
        let before = self.len;
        while !bytes.is_empty() {
            if self.pieces.back().is_none_or(|last| last.len() >= PIECE_BYTES) {
                self.pieces.push_back(Vec::new());
            }
            let Some(last) = self.pieces.back_mut() else { break };
            let (some, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - last.len()));
            let (len, before) = (last.len() + some.len(), last.capacity());
            if len > before {
                let room = if len < PIECE_BYTES / 2 { len.max(2 * before) } else { PIECE_BYTES };
                let (wanted, is_new) = (room - last.len(), last.is_empty());
                if room::reserve_exact(last, wanted).is_err() {
                    if is_new {
                        self.pieces.pop_back();
                    }
                    break;
                }
            }
            last.extend_from_slice(some);
            self.memory += last.capacity() - before;
            self.len += some.len();
            bytes = rest;
        }
        self.len - before
    }

    /// Adds the bytes of a buffer from an index on. Where this process has no memory to copy them, the buffer
    /// itself becomes a piece.
    pub fn append(&mut self, mut buffer: Vec<u8>, from: usize) {
        let rest = buffer.get(from..).unwrap_or_default();
        let copied = self.extend(rest);
        if copied < rest.len() {
            buffer.drain(..from + copied);
            self.len += buffer.len();
            self.memory += buffer.capacity();
            self.pieces.push_back(buffer);
        }
    }

    /// Moves at most `most` bytes to the end of `into`, and returns how many.
    pub fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let mut moved = 0;
        while let Some(first) = self.pieces.front_mut()
            && moved < most
        {
            let len = (first.len() - self.taken).min(most - moved);
            moved += len;
            if self.taken + len < first.len() {
                into.extend_from_slice(&first[self.taken..self.taken + len]);
                self.taken += len;
                continue;
            }
            self.memory -= first.capacity();
            if into.is_empty() && self.taken == 0 {
                *into = std::mem::take(first);
            } else {
                into.extend_from_slice(&first[self.taken..]);
            }
            self.pieces.pop_front();
            self.taken = 0;
        }
        self.len -= moved;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_are_taken_as_there_are_and_whole_pieces_are_not_copied() {
        let mut seed = 1u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % most) as usize
        };
        let (mut ready, mut came, mut taken) = (Ready::default(), Vec::new(), Vec::new());
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..below(70_000)).map(|at| (came.len() + at) as u8).collect();
            came.extend_from_slice(&bytes);
            assert_eq!(ready.extend(&bytes), bytes.len());
            assert!(ready.memory() <= 2 * ready.len() + PIECE_BYTES);
            let (most, had) = (below(140_000), ready.len());
            let mut into = vec![9; below(2)];
            let begin = into.len();
            assert_eq!(ready.take(&mut into, most), had.min(most));
            taken.extend_from_slice(&into[begin..]);
            assert_eq!((taken.len() + ready.len(), ready.is_empty()), (came.len(), had <= most));
        }
        ready.take(&mut taken, usize::MAX);
        assert!(taken == came && ready.memory() == 0);
        ready.extend(&came[..PIECE_BYTES + 8]);
        let (whole, mut into) = (ready.pieces[0].as_ptr(), Vec::new());
        assert_eq!((ready.take(&mut into, PIECE_BYTES), into.as_ptr()), (PIECE_BYTES, whole));
    }
}
