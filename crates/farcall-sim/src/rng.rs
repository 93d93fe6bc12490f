//! The one source of random choices: a small generator whose sequence is the same on every platform.

/// The generator SplitMix64 (Steele, Lea & Flood 2014). It has 64 bits of state and uses no floating point,
/// so a seed gives the same run on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Applies the finalizer of SplitMix64 to `x`: every bit of `x` influences every bit of the result.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// Makes the generator of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ 0x6661_7263_616c_6c21))
    }

    /// Returns the next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a new generator, independent of this one from here on.
    pub fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    /// Returns a number from 0 to `bound - 1`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, including both.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns an index into something of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with a chance of `per_million` in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns a number from `low` to `high` (each at least 1). Every power of two between them is equally
    /// likely to be its magnitude, so most numbers are small and some are very large.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(low).max(1));
        let bits = self.within(u64::from(low.ilog2()), u64::from(high.ilog2()));
        let base = 1u64 << bits;
        (base + self.below(base)).clamp(low, high)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_fixed_and_bounds_hold() {
        let mut rng = Rng::new(1);
        let first = [rng.next(), rng.next()];
        assert_eq!(first, [FIRST, SECOND]);
        for _ in 0..10_000 {
            assert!((5..=9).contains(&rng.within(5, 9)));
            assert!((100..=70_000).contains(&rng.spread(100, 70_000)));
            assert!(rng.index(3) < 3);
        }
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0));
        assert!(rng.chance(1_000_000));
    }

    const FIRST: u64 = 0x0eb1_98eb_baf2_577a;
    const SECOND: u64 = 0x6205_0546_6174_f9fa;
}
