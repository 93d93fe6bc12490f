//! Keeps long buffers for reuse, so that a long message needs no fresh memory. Their number and size are
//! bounded, and they are freed when none was asked for in the last second.

use std::sync::Mutex;
use std::time::Duration;

use farcall_base::lock;

use crate::Time;

/// The shortest buffer that is kept, in bytes.
pub(crate) const SHORTEST: usize = 16 << 10;

/// The longest buffer that is kept, in bytes.
const MAX_BUFFER_BYTES: usize = 8 << 20;
/// The maximum number of buffers that are kept.
const MAX_BUFFERS: usize = 16;
/// The maximum size of all kept buffers together, in bytes.
const MAX_ALL_BYTES: usize = 16 << 20;

/// How long buffers are kept after one was last asked for.
const IDLE: Duration = Duration::from_secs(1);

/// Long buffers for reuse. All conversations of an endpoint share them.
#[derive(Debug, Default)]
pub struct Spares {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    /// When a buffer was last asked for.
    asked: Time,
}

impl Spares {
    /// Returns an empty buffer for about `len` bytes: the shortest that is long enough, or else the longest
    /// there is.
    pub fn take(&self, now: Time, len: usize) -> Option<Vec<u8>> {
        let mut kept = lock(&self.kept);
        kept.asked = now;
        let fitness = |buffer: &Vec<u8>| match buffer.capacity() {
            enough if enough >= len => (0, enough),
            short => (1, usize::MAX - short),
        };
        let (best, _) = kept.buffers.iter().enumerate().min_by_key(|(_, buffer)| fitness(buffer))?;
        Some(kept.buffers.swap_remove(best))
    }

    /// Keeps a buffer if it is long enough and there is room.
    #[inline]
    pub fn give(&self, buffer: Vec<u8>) {
        if (SHORTEST..=MAX_BUFFER_BYTES).contains(&buffer.capacity()) {
            self.keep(buffer);
        }
    }

    #[inline(never)]
    fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = lock(&self.kept);
        let bytes: usize = kept.buffers.iter().map(Vec::capacity).sum();
        if kept.buffers.len() < MAX_BUFFERS && bytes + buffer.capacity() <= MAX_ALL_BYTES {
            kept.buffers.push(buffer);
        }
    }

    /// Frees all buffers if none was asked for in the last second.
    pub fn trim(&self, now: Time) {
        let mut kept = lock(&self.kept);
        if now.since(kept.asked) >= IDLE {
            *kept = Kept::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_that_is_long_enough_is_taken() {
        let spares = Spares::default();
        for capacity in [1 << 10, 20 << 10, 1 << 20, 100 << 10, 9 << 20] {
            spares.give(Vec::with_capacity(capacity));
        }
        let take = |len| spares.take(Time::default(), len).map(|buffer| buffer.capacity());
        assert_eq!(
            [take(50_000), take(50_000), take(50_000)],
            [Some(100 << 10), Some(1 << 20), Some(20 << 10)]
        );
        assert_eq!(take(1), None, "neither the too short nor the too long was kept");
    }

    #[test]
    fn spare_buffers_are_bounded_in_number_and_in_total_size() {
        let quarter = MAX_ALL_BYTES / 4;
        for (capacity, most) in
            [(SHORTEST, MAX_BUFFERS), (quarter, 4), (quarter + 1, 3), (MAX_BUFFER_BYTES, 2)]
        {
            let spares = Spares::default();
            for _ in 0..3 {
                (0..100).for_each(|_| spares.give(Vec::with_capacity(capacity)));
                spares.take(Time::default(), 1).expect("buffers were given");
                (0..100).for_each(|_| spares.give(Vec::with_capacity(capacity)));
                let taken: Vec<_> = std::iter::from_fn(|| spares.take(Time::default(), 1)).collect();
                assert_eq!(taken.len(), most, "of {capacity} bytes each");
            }
        }
        let spares = Spares::default();
        for capacity in [SHORTEST - 1, MAX_BUFFER_BYTES + 1] {
            spares.give(Vec::with_capacity(capacity));
        }
        assert_eq!(spares.take(Time::default(), 1), None);
    }

    #[test]
    fn spare_buffers_are_freed_a_second_after_the_last_request() {
        let (spares, asked) = (Spares::default(), Time::from_nanos(7));
        spares.take(asked, 1);
        spares.give(Vec::with_capacity(SHORTEST));
        spares.trim(asked + IDLE - Duration::from_nanos(1));
        let buffer = spares.take(asked, 1).expect("a second has not passed");
        spares.give(buffer);
        spares.trim(asked + IDLE);
        assert_eq!(spares.take(asked, 1), None);
    }
}
