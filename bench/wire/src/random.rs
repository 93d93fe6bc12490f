//! Splitmix64: numbers for losses, which need to be irregular and the same again for the same seed.

/// A generator.
pub struct Random(u64);

impl Random {
    /// Returns the generator of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number above 0, and at most 1.
    pub fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
    }
}
