//! Counters and histograms that are always on, and the snapshot that a program takes of them.
//!
//! What a runtime counts as a server others read too, from [its memory](crate::memory::Counters).

pub(crate) mod words;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts durations by their power of two, in nanoseconds.
pub(crate) struct Recorder([AtomicU64; BUCKETS]);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder([const { AtomicU64::new(0) }; BUCKETS])
    }
}

/// Up to 2^41 ns, more than half an hour; what takes longer stands in the last one.
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

/// How often something took how long, to a power of two.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        // What a peer's memory says may be anything.
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The bound below which this part of the durations lies: `quantile(0.99)` for the 99th
    /// percentile. It is a power of two of nanoseconds; zero if nothing was recorded.
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

    /// The upper bound of each class that is not empty, and how many durations fell into it.
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

/// What is counted of a procedure at its server.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) results: AtomicU64,
    pub(crate) exceptions: AtomicU64,
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
            failures: self.failures.load(Ordering::Relaxed),
            queued: self.queued.snapshot(),
            ran: self.ran.snapshot(),
        }
    }
}

/// What a runtime did so far. All counts are ever growing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// What it exports now.
    pub exports: Vec<Export>,
    /// What its server's packet protocol did, if it ever exported anything: calls through shared memory are
    /// not among its counts, but among those of the exports' procedures.
    pub server: Option<farcall_proto::server::Stats>,
    /// The servers that it calls.
    pub peers: Vec<Peer>,
    /// Those of them that it calls through shared memory.
    pub links: Vec<Link>,
    /// Why calls go by UDP although the settings allow shared memory, for its own exports or for a server
    /// that it calls: another process has taken the name where callers would meet the server, or the system
    /// refused something. Of several reasons this is the last one.
    pub no_shared_memory: Option<String>,
}

/// What a runtime does at the moment for those who call it, and has done so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Serving {
    /// The number of its process.
    pub process: u32,
    /// How long it has served.
    pub up: Duration,
    /// Threads that execute calls, and do not wait in calls of their own.
    pub executing: u64,
    /// Threads that receive.
    pub receiving: u64,
    /// Threads, all in all.
    pub threads: u64,
    /// Calls that wait for a thread.
    pub queued: u64,
    /// Conversations that are remembered.
    pub conversations: u64,
    /// Calls that have not ended, perhaps with the one that asks.
    pub unfinished: u64,
    /// Bytes of results that are held, and of arguments that are still coming.
    pub held_bytes: u64,
    /// What the packet protocol did: calls through shared memory are not among its counts.
    pub protocol: farcall_proto::server::Stats,
    /// What is exported.
    pub exports: Vec<Export>,
    /// How many exports there are besides, of which there was no room to tell.
    pub untold: u64,
}

/// An interface that is exported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Export {
    /// Its identifier.
    pub id: u64,
    /// Its type and its instance, as in `Store/ebbets`.
    pub name: String,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
    /// Calls that execute or are queued.
    pub running: usize,
    /// Accesses to its memory that were served, if it is a segment.
    pub accesses: u64,
}

/// A procedure that is exported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Procedure {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Calls that ended with a result.
    pub results: u64,
    /// Calls that ended with a declared exception.
    pub exceptions: u64,
    /// Calls that failed once they were taken up.
    pub failures: u64,
    /// How long calls waited for a worker; those that did not wait are not counted.
    pub queued: Histogram,
    /// How long calls ran. Of procedures that are known to be quick every 16th call is timed.
    pub ran: Histogram,
}

/// A server that is called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What the conversation with it did.
    pub conversation: farcall_proto::client::Stats,
    /// The smoothed round-trip time, once one was measured.
    pub round_trip: Option<Duration>,
    /// Calls that have not ended.
    pub outstanding: usize,
}

/// A server that is called through shared memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// Its address.
    pub address: SocketAddr,
    /// Calls that were handed over.
    pub calls: u64,
    /// Those that were not answered yet.
    pub outstanding: usize,
}

impl Histogram {
    /// How many durations fell into each class.
    pub(crate) fn counts(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// From those.
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
    fn counts_of_which_there_are_too_many_are_as_many_as_there_can_be() {
        let histogram = Histogram::from_counts([u64::MAX; BUCKETS]);
        assert_eq!(histogram.count(), u64::MAX);
        assert_eq!(histogram.quantile(0.99), Duration::from_nanos(1));
    }
}
