//! Remembers how long slow procedures usually take, so that most of their calls end before the client probes.

/// The identifier of an export, and the number of one of its procedures.
pub(super) type Callee = (u64, u32);

/// The number of procedures that are remembered.
const MAX_KNOWN: usize = 16;

/// The longest time before the first probe of a call, in nanoseconds, however long its procedure takes. A
/// longer wait would delay the recovery of a lost call.
const MAX_WAIT_NANOS: u64 = 200_000_000;

/// The slow procedures of one conversation.
#[derive(Debug)]
pub(super) struct Usual {
    /// A procedure that takes at least this many nanoseconds counts as slow.
    long: u64,
    /// The longest time before the first probe of a call, in nanoseconds.
    most: u64,
    /// The one that has been known longest stands first.
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    callee: Callee,
    /// The time that the procedure's calls take, in nanoseconds, smoothed as round trips are.
    nanos: u64,
}

impl Usual {
    /// Makes an empty memory. Procedures that take at least `long` nanoseconds are slow. No call waits longer
    /// than `most` nanoseconds before its first probe.
    pub fn new(long: u64, most: u64) -> Usual {
        Usual { long, most: most.min(MAX_WAIT_NANOS), known: Vec::new() }
    }

    /// Notes that a call of `callee` took this many nanoseconds.
    #[inline]
    pub fn took(&mut self, callee: Callee, nanos: u64) {
        if nanos >= self.long || !self.known.is_empty() {
            self.learn(callee, nanos);
        }
    }

    #[cold]
    fn learn(&mut self, callee: Callee, nanos: u64) {
        let Some(at) = self.place(callee) else {
            if nanos < self.long {
                return;
            }
            if self.known.len() == MAX_KNOWN {
                self.known.remove(0);
            }
            // Most clients know one, and each idle client keeps this.
            self.known.reserve_exact(1);
            self.known.push(Known { callee, nanos });
            return;
        };
        let known = &mut self.known[at];
        known.nanos = known.nanos - known.nanos / 8 + nanos / 8;
        if known.nanos < self.long / 2 {
            self.known.remove(at);
        }
    }

    /// Returns how long to wait for a call's answer before the first probe, in nanoseconds. That is
    /// `patience`, or twice what the procedure usually takes if that is longer; the latter is at most `most`.
    #[inline]
    pub fn lengthen(&self, patience: u64, callee: Callee) -> u64 {
        if self.known.is_empty() { patience } else { patience.max(self.patience(callee)) }
    }

    /// Returns the longest time that any call waits before it probes, in nanoseconds.
    pub fn longest(&self) -> u64 {
        self.known.iter().map(|known| known.nanos.saturating_mul(2)).max().unwrap_or(0).min(self.most)
    }

    #[cold]
    fn patience(&self, callee: Callee) -> u64 {
        self.place(callee).map_or(0, |at| (self.known[at].nanos.saturating_mul(2)).min(self.most))
    }

    fn place(&self, callee: Callee) -> Option<usize> {
        self.known.iter().position(|known| known.callee == callee)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 10_000_000;

    fn callee(procedure: u32) -> Callee {
        (1, procedure)
    }

    #[test]
    fn only_what_takes_long_is_remembered() {
        let mut usual = Usual::new(LONG, u64::MAX);
        usual.took(callee(1), LONG - 1);
        assert!(usual.known.is_empty());
        usual.took(callee(2), 50_000_000);
        usual.took(callee(1), LONG - 1);
        assert_eq!((usual.patience(callee(2)), usual.patience(callee(1))), (100_000_000, 0));
        assert_eq!(usual.longest(), 100_000_000);
        assert_eq!([1, 2].map(|procedure| usual.lengthen(7, callee(procedure))), [7, 100_000_000]);
        assert_eq!(usual.lengthen(200_000_000, callee(2)), 200_000_000);
        // Times are smoothed by an eighth. A procedure is forgotten when it takes less than half of `LONG`.
        usual.took(callee(2), 90_000_000);
        usual.took(callee(3), LONG);
        usual.took(callee(3), 0);
        let patience = [2, 3].map(|procedure| usual.lengthen(7, callee(procedure)));
        assert_eq!(patience, [110_000_000, 17_500_000]);
        (0..40).for_each(|_| usual.took(callee(2), 1000));
        (0..40).for_each(|_| usual.took(callee(3), 1000));
        assert!(usual.known.is_empty(), "both procedures have become quick");
        assert_eq!((usual.longest(), usual.lengthen(7, callee(2))), (0, 7));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_so_is_patience() {
        let mut usual = Usual::new(LONG, u64::MAX);
        (0..1000).for_each(|procedure| usual.took(callee(procedure), u64::MAX / 2));
        assert_eq!(usual.known.len(), MAX_KNOWN);
        let mut last = 1000 - MAX_KNOWN as u32..1000;
        assert!(last.all(|procedure| usual.place(callee(procedure)).is_some()), "the last ones are known");
        assert_eq!((usual.patience(callee(999)), usual.longest()), (MAX_WAIT_NANOS, MAX_WAIT_NANOS));
    }
}
