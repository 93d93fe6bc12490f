//! The spread of tries in time, so that clients whose datagrams were lost together do not come together again
//! (docs/protocol.md, "Timers of a caller").
//!
//! When a server starts anew, all its clients call it at one instant, and its socket holds the datagrams of
//! few. With equal times between tries the others would be lost together each time.

/// Shortens the times between tries of one client by changing shares.
#[derive(Debug)]
pub(super) struct Spread(u64);

impl Spread {
    /// Makes the spread of a client. Identifiers of clients are random, so the shares of two clients differ.
    pub fn new(client: u64) -> Spread {
        Spread(client)
    }

    /// Returns a time between half of `interval` and `interval`, in nanoseconds.
    pub fn within(&mut self, interval: u64) -> u64 {
        // The generator of Steele, Lea and Flood's SplitMix (2014): each step adds, and a product mixes.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = (mixed ^ mixed >> 27) >> 32;
        let half = interval / 2;
        half + ((u128::from(interval - half) * u128::from(share)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_spread_evenly_over_the_second_half() {
        let mut tenths = [0; 10];
        for client in 1..=1_000 {
            let mut spread = Spread::new(client);
            for _ in 0..10 {
                let time = spread.within(2_000);
                assert!((1_000..2_000).contains(&time), "{time}");
                tenths[(time as usize - 1_000) / 100] += 1;
            }
        }
        assert!(tenths.iter().all(|count| (900..1_100).contains(count)), "{tenths:?}");
        assert!(Spread::new(1).within(u64::MAX) >= u64::MAX / 2);
    }
}
