//! Which of the latest datagrams have come already (RFC 4303, section 3.4.3).

/// The number of datagrams, up to the one with the greatest number, of which is known whether they came.
const WIDTH: u64 = 128;

/// The numbers of the datagrams that have been opened. It takes 24 bytes.
#[derive(Clone, Debug, Default)]
pub struct Window {
    greatest: u64,
    /// The bit of a number is at the number modulo [`WIDTH`].
    came: [u64; WIDTH as usize / 64],
}

impl Window {
    /// Notes that the datagram of this number was opened. Returns false if it came before, or is so old that
    /// this is not known any more.
    pub fn take(&mut self, number: u64) -> bool {
        if number > self.greatest {
            // The bits of the numbers in between belonged to older ones.
            for skipped in self.greatest + 1..number.min(self.greatest.saturating_add(WIDTH + 1)) {
                self.set(skipped, false);
            }
            self.greatest = number;
            self.set(number, true);
            return true;
        }
        let known = self.greatest - number < WIDTH;
        let came = self.came[Self::word(number)] & Self::bit(number) != 0;
        self.set(number, known || came);
        known && !came
    }

    /// Returns whether [`Window::take`] would return true.
    pub fn is_new(&self, number: u64) -> bool {
        let came = self.came[Self::word(number)] & Self::bit(number) != 0;
        number > self.greatest || self.greatest - number < WIDTH && !came
    }

    fn word(number: u64) -> usize {
        (number % WIDTH / 64) as usize
    }

    fn bit(number: u64) -> u64 {
        1 << (number % 64)
    }

    fn set(&mut self, number: u64, came: bool) {
        let word = &mut self.came[Self::word(number)];
        *word = if came { *word | Self::bit(number) } else { *word & !Self::bit(number) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_datagram_is_taken_once() {
        let mut window = Window::default();
        assert!(window.take(5) && !window.take(5));
        assert!(window.take(1) && window.take(3) && !window.take(1));
        assert!(window.take(5 + WIDTH) && !window.take(5), "too old");
        assert!(window.take(6) && !window.take(6));
        assert!(window.take(u64::MAX) && !window.take(u64::MAX) && !window.take(6));
        assert!(window.take(u64::MAX - WIDTH + 1) && !window.take(u64::MAX - WIDTH));
    }

    #[test]
    fn it_agrees_with_a_set_of_all_numbers() {
        let (mut window, mut all, mut greatest) = (Window::default(), HashSet::new(), 0);
        let mut random: u64 = 7;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (greatest + (random >> 40) % 300).saturating_sub((random >> 20) % 400).max(1);
            greatest = number.max(greatest);
            let known = greatest - number < WIDTH;
            assert_eq!(window.is_new(number), known && !all.contains(&number), "{number} of {greatest}");
            assert_eq!(window.take(number), known && all.insert(number), "{number} of {greatest}");
        }
    }
}
