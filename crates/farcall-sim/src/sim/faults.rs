//! The faults of the simulated network, as a test sets them.

use std::time::Duration;

use crate::net::{Nanos, Path};
use crate::rng::Rng;

/// The faults of a path between two processes. Chances are from 0 to 1.
///
/// Datagrams are not corrupted, because UDP's checksum turns a corrupted datagram into a lost one. If a
/// segment of a TCP connection is lost, its bytes come late, or the loss breaks the connection.
///
/// ```
/// use farcall_sim::Faults;
/// use std::time::Duration;
///
/// let faults = Faults { loss: 0.2, delay: Duration::from_millis(20), ..Faults::none() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The chance that a datagram vanishes.
    pub loss: f64,
    /// The chance that a datagram arrives twice.
    pub duplication: f64,
    /// The chance that a datagram is so late that others overtake it: by up to a hundred times the delay.
    pub reordering: f64,
    /// The chance that a copy of a datagram comes seconds to hours later.
    pub late: f64,
    /// The time that every datagram takes.
    pub delay: Duration,
    /// The greatest time that a datagram takes in addition. Each datagram draws a time up to this.
    pub jitter: Duration,
    /// The largest datagram that passes, in bytes; a larger one vanishes.
    pub mtu: usize,
}

impl Faults {
    /// Returns a quiet local network: 100 to 200 µs each way, and no faults.
    pub fn none() -> Faults {
        Faults {
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            late: 0.0,
            delay: Duration::from_micros(100),
            jitter: Duration::from_micros(100),
            mtu: 1472,
        }
    }

    /// Draws faults: anything from a quiet network to one that loses a third of its datagrams.
    pub(super) fn drawn(rng: &mut Rng) -> Faults {
        let mut chance = |most: u64| if rng.chance(300_000) { 0.0 } else { rng.below(most) as f64 / 1e6 };
        let (loss, duplication, reordering, late) =
            (chance(333_000), chance(200_000), chance(200_000), chance(50_000));
        let delay = Duration::from_nanos(rng.spread(10_000, 100_000_000));
        let jitter = Duration::from_nanos(rng.below(2 * nanos(delay)));
        Faults { loss, duplication, reordering, late, delay, jitter, mtu: rng.spread(1200, 65_000) as usize }
    }

    /// Returns a path with these faults. It is cut if `former` was.
    pub(super) fn path(&self, former: Path) -> Path {
        let mut path = Path::clean(nanos(self.delay));
        path.jitter = nanos(self.jitter);
        path.loss = per_million(self.loss);
        path.duplicate = per_million(self.duplication);
        path.reorder = per_million(self.reordering);
        path.late = per_million(self.late);
        path.mtu = self.mtu;
        path.icmp = 500_000;
        path.forged_icmp = 10_000;
        path.cut_until = former.cut_until;
        path
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::none()
    }
}

pub(super) fn per_million(chance: f64) -> u32 {
    (chance.clamp(0.0, 1.0) * 1e6) as u32
}

/// Returns a duration in nanoseconds, or the largest number if it does not fit.
pub(super) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
