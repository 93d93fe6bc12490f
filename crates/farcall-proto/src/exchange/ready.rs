//! Bytes of a direction that its receiver has in order and that the user has not taken.

use std::collections::VecDeque;

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

    /// Adds a copy of bytes.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            if self.pieces.back().is_none_or(|last| last.len() >= PIECE_BYTES) {
                self.pieces.push_back(Vec::new());
            }
            let Some(last) = self.pieces.back_mut() else { return };
            let (some, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - last.len()));
            let (len, before) = (last.len() + some.len(), last.capacity());
            if len > before {
                let room = if len < PIECE_BYTES / 2 { len.max(2 * before) } else { PIECE_BYTES };
                last.reserve_exact(room - last.len());
            }
            last.extend_from_slice(some);
            self.memory += last.capacity() - before;
            bytes = rest;
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
            ready.extend(&bytes);
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
