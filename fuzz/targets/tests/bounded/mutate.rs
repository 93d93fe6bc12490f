//! Simple mutations of seeds, from a seeded generator, so that a run can be repeated exactly.

/// SplitMix64 (Steele, Lea & Flood 2014): enough to choose mutations.
pub struct Dice(u64);

/// What lengths, counts and tags go wrong at.
const INTERESTING: [u64; 14] = [
    0,
    1,
    2,
    3,
    4,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffc,
    0xffff_ffff_ffff_ffff,
];

/// The longest input.
const LONGEST: usize = 1 << 16;

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.next().checked_rem(bound as u64).unwrap_or(0) as usize
    }

    /// One of the corpus with a few mutations, mostly one or two.
    pub fn mutant(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut data = corpus[self.below(corpus.len())].clone();
        for _ in 0..1 + self.below(4) * self.below(3) {
            self.mutate(&mut data, corpus);
        }
        data.truncate(LONGEST);
        data
    }

    fn mutate(&mut self, data: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(data.len());
        match self.below(8) {
            0 if !data.is_empty() => data[at] ^= 1 << self.below(8),
            1 if !data.is_empty() => data[at] = self.next() as u8,
            2 => data.truncate(at),
            3 => {
                let end = at + self.below((data.len() - at).min(64));
                data.drain(at..end);
            }
            4 => {
                let end = at + self.below((data.len() - at).min(256));
                let copy = data[at..end].to_vec();
                let to = self.below(data.len());
                data.splice(to..to, copy);
            }
            5 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len());
                data.splice(at.., other[from..].iter().copied());
            }
            _ => self.number(data, at),
        }
    }

    /// Writes an interesting integer of 1, 2, 4 or 8 bytes over what is there, or between it; aligned
    /// to four bytes as often as not.
    fn number(&mut self, data: &mut Vec<u8>, at: usize) {
        let width = 1 << self.below(4);
        let number = INTERESTING[self.below(INTERESTING.len())];
        let bytes = &number.to_be_bytes()[8 - width..];
        let at = if self.below(2) == 0 { at & !3 } else { at };
        let over = if self.below(3) == 0 { at } else { (at + width).min(data.len()) };
        data.splice(at..over, bytes.iter().copied());
    }
}
