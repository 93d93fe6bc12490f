//! Counters and histograms that are always on, and the snapshots that a program takes of them.
//!
//! Other processes can read a server's counters from [its memory](crate::memory::Counters).

pub(crate) mod words;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts durations by their power of two in nanoseconds.
pub(crate) struct Recorder([AtomicU64; BUCKETS]);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder([const { AtomicU64::new(0) }; BUCKETS])
    }
}

/// The number of classes of a histogram. The classes reach up to 2^41 ns, more than half an hour. The last
/// one also counts all longer durations.
pub(crate) const BUCKETS: usize = 42;

impl Recorder {
    #[inline]
    pub(crate) fn record(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanos.leading_zeros()) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        Histogram(self.0.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// A histogram of durations, in classes that end at powers of two of nanoseconds.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// Returns the number of durations recorded.
    pub fn count(&self) -> u64 {
        // Counts that were read from a peer's memory may be any numbers, so the sum must not overflow.
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the duration below which this part of the durations lies: `quantile(0.99)` is the 99th
    /// percentile. The result is a power of two in nanoseconds, or zero if nothing was recorded.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen = u64::saturating_add(seen, *count);
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(1 << bucket);
            }
        }
        Duration::ZERO
    }

    /// Returns the upper bound of each class that is not empty, with the number of durations in it.
    pub fn classes(&self) -> impl Iterator<Item = (Duration, u64)> {
        let class = |(bucket, count): (usize, &u64)| (Duration::from_nanos(1 << bucket), *count);
        self.0.iter().enumerate().map(class).filter(|(_, count)| *count > 0)
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.classes()).finish()
    }
}

/// The counters of a procedure at its server.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) results: AtomicU64,
    pub(crate) exceptions: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) queued: Recorder,
    pub(crate) ran: Recorder,
}

impl Counters {
    pub(crate) fn snapshot(&self, name: &'static str) -> Procedure {
        Procedure {
            name: Cow::Borrowed(name),
            results: self.results.load(Ordering::Relaxed),
            exceptions: self.exceptions.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            queued: self.queued.snapshot(),
            ran: self.ran.snapshot(),
        }
    }
}

/// The counters of a runtime since it was made. They never decrease.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The present exports.
    pub exports: Vec<Export>,
    /// The counters of the server's packet protocol, if the runtime ever exported an interface. They do not
    /// include calls through shared memory; the counters of the exports' procedures do.
    pub server: Option<farcall_proto::server::Stats>,
    /// The servers that the runtime calls.
    pub peers: Vec<Peer>,
    /// The servers that the runtime calls through shared memory.
    pub links: Vec<Link>,
    /// Why calls to or from this runtime go by UDP although the settings allow shared memory: another process
    /// has taken the name of the server's socket for such connections, or the system refused a resource. If
    /// there were several reasons, this is the latest.
    pub no_shared_memory: Option<String>,
    /// The interfaces at which the kernel answers readers of segments, and how (`eth0 (native)`), or why it
    /// does not although the settings ask for it. `None` if they do not.
    pub kernel: Option<Result<String, String>>,
}

/// A server's present state and its counters since it was started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Serving {
    /// The identifier of the server's process.
    pub process: u32,
    /// How long the server has been running.
    pub up: Duration,
    /// Threads that execute calls and do not wait in calls of their own.
    pub executing: u64,
    /// Threads that receive.
    pub receiving: u64,
    /// All threads that serve calls.
    pub threads: u64,
    /// Calls that wait for a thread.
    pub queued: u64,
    /// Conversations that the server remembers.
    pub conversations: u64,
    /// Calls that have not ended. The call that reads this may be among them.
    pub unfinished: u64,
    /// Bytes of results that the server holds, and of arguments that have arrived in part.
    pub held_bytes: u64,
    /// The counters of the packet protocol, without calls through shared memory.
    pub protocol: farcall_proto::server::Stats,
    /// The exports.
    pub exports: Vec<Export>,
    /// The number of further exports, which are left out because the segment of counters had no room.
    pub untold: u64,
}

/// An exported interface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Export {
    /// The export's identifier.
    pub id: u64,
    /// The type and the instance, as in `Store/ebbets`.
    pub name: String,
    /// The procedures of the interface.
    pub procedures: Vec<Procedure>,
    /// Calls that execute or are queued.
    pub running: usize,
    /// Accesses to the export's memory that were served, if it is a segment.
    pub accesses: u64,
    /// Reads of the export's memory that the kernel has answered, if it serves the segment.
    pub answered_by_kernel: Option<u64>,
}

/// A procedure of an export.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Procedure {
    /// The procedure's name.
    pub name: Cow<'static, str>,
    /// Calls that ended with a result, also those whose callers had cancelled them meanwhile.
    pub results: u64,
    /// Calls that ended with a declared exception.
    pub exceptions: u64,
    /// Calls that their callers gave up while they executed: a watch that its client left ends so.
    pub cancelled: u64,
    /// Calls that had begun to execute, and whose callers' deadlines passed before they ended. A cancel in
    /// the last 20 ms before the deadline counts as the deadline, at which clients cancel.
    pub late: u64,
    /// Calls that failed for another reason after they had begun to execute. The success rate is that of
    /// results and exceptions among these three.
    pub failures: u64,
    /// How long calls waited for a worker. Calls that did not wait are not counted.
    pub queued: Histogram,
    /// How long calls ran. For procedures that are known to be quick, one call in 16 is timed.
    pub ran: Histogram,
}

/// A server that the runtime calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The server's address.
    pub address: SocketAddr,
    /// The counters of the conversation with the server.
    pub conversation: farcall_proto::client::Stats,
    /// The smoothed round-trip time; `None` until one was measured.
    pub round_trip: Option<Duration>,
    /// Calls that have not ended.
    pub outstanding: usize,
}

/// A server that the runtime calls through shared memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The server's address.
    pub address: SocketAddr,
    /// Calls made through shared memory.
    pub calls: u64,
    /// Calls that the server has not answered yet.
    pub outstanding: usize,
}

impl Histogram {
    /// Returns the number of durations in each class.
    pub(crate) fn counts(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// Makes a histogram from the number of durations in each class.
    pub(crate) fn from_counts(counts: [u64; BUCKETS]) -> Histogram {
        Histogram(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two() {
        let recorder = Recorder::default();
        for nanos in [0, 1, 1000, 1023, 1024, u64::MAX] {
            recorder.record(Duration::from_nanos(nanos));
        }
        let histogram = recorder.snapshot();
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.quantile(0.5), Duration::from_nanos(1024));
        assert_eq!(histogram.quantile(1.0), Duration::from_nanos(1 << 41));
        assert_eq!(Recorder::default().snapshot().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_sum_of_counts_that_overflows_is_the_greatest_number() {
        let histogram = Histogram::from_counts([u64::MAX; BUCKETS]);
        assert_eq!(histogram.count(), u64::MAX);
        assert_eq!(histogram.quantile(0.99), Duration::from_nanos(1));
    }
}
