//! Loads: how the calls of a block are made, one after the other, many at once, or each at a given time.
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::peer::Laps;

/// One call in this many of an open loop is slow.
const SLOW_EVERY: usize = 100;
/// The time for which a slow call sleeps in the server.
pub const SLOW: Duration = Duration::from_millis(10);
/// The time for which a stuck call sleeps in the server.
pub const STUCK: Duration = Duration::from_secs(5);

/// The order to a client. `Display` and `FromStr` convert it to and from the words of the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// One call outstanding; each is timed, or each [lap](crate::Peer::calls_per_lap) of several.
    Laps {
        /// The number of laps.
        calls: usize,
    },
    /// Many outstanding calls, made by one thread of the client.
    Window {
        /// The number of outstanding calls.
        outstanding: usize,
        /// The number of calls.
        calls: usize,
    },
    /// Many outstanding calls, which one thread of the client begins and ends in the same way as calls of an
    /// open loop.
    Polled {
        /// The number of outstanding calls.
        outstanding: usize,
        /// The number of calls.
        calls: usize,
    },
    /// Threads that each make one call after the other, and block in it.
    Threads {
        /// The number of threads.
        threads: usize,
        /// The number of calls.
        calls: usize,
    },
    /// Calls of 32 bytes, one outstanding; each is timed.
    Short {
        /// The least number of calls.
        calls: usize,
        /// Whether a long call is under way meanwhile.
        beside: bool,
    },
    /// No calls: the thread keeps its core busy in place of a client.
    Burn {
        /// The duration in microseconds.
        calls: usize,
    },
    /// Calls at random times, independent of when earlier calls end: a Poisson process.
    Open {
        /// The mean number of calls per second.
        per_second: u32,
        /// Whether one call in a hundred sleeps for 10 ms.
        slow: bool,
        /// The number of calls.
        calls: usize,
    },
}

impl Load {
    /// Returns the number of calls.
    pub fn calls(self) -> usize {
        match self {
            Load::Laps { calls }
            | Load::Window { calls, .. }
            | Load::Polled { calls, .. }
            | Load::Threads { calls, .. }
            | Load::Short { calls, .. }
            | Load::Burn { calls }
            | Load::Open { calls, .. } => calls,
        }
    }

    /// Returns this load with another number of calls.
    #[must_use]
    pub fn of(mut self, number: usize) -> Load {
        match &mut self {
            Load::Laps { calls }
            | Load::Window { calls, .. }
            | Load::Polled { calls, .. }
            | Load::Threads { calls, .. }
            | Load::Short { calls, .. }
            | Load::Burn { calls }
            | Load::Open { calls, .. } => *calls = number,
        }
        self
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Load::Laps { calls } => write!(f, "laps {calls}"),
            Load::Window { outstanding, calls } => write!(f, "window {outstanding} {calls}"),
            Load::Polled { outstanding, calls } => write!(f, "polled {outstanding} {calls}"),
            Load::Threads { threads, calls } => write!(f, "threads {threads} {calls}"),
            Load::Short { calls, beside } => write!(f, "short {} {calls}", u8::from(beside)),
            Load::Burn { calls } => write!(f, "burn {calls}"),
            Load::Open { per_second, slow, calls } => {
                write!(f, "open {per_second} {} {calls}", u8::from(slow))
            }
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| format!("no number: {word:?}"));
        Ok(match *words {
            ["laps", calls] => Load::Laps { calls: number(calls)? },
            ["window", outstanding, calls] => {
                Load::Window { outstanding: number(outstanding)?.max(1), calls: number(calls)? }
            }
            ["polled", outstanding, calls] => {
                Load::Polled { outstanding: number(outstanding)?.max(1), calls: number(calls)? }
            }
            ["threads", threads, calls] => {
                Load::Threads { threads: number(threads)?.max(1), calls: number(calls)? }
            }
            ["short", beside, calls] => Load::Short { beside: beside == "1", calls: number(calls)? },
            ["burn", calls] => Load::Burn { calls: number(calls)? },
            ["open", per_second, slow, calls] => {
                let per_second = per_second.parse().map_err(|_| format!("no rate: {per_second:?}"))?;
                Load::Open { per_second, slow: slow == "1", calls: number(calls)? }
            }
            _ => return Err(format!("no load: {text:?}")),
        })
    }
}

/// A load with the memory that it needs, which must not be allocated while it is timed.
pub(crate) enum Work {
    Laps(Laps),
    Window { outstanding: usize, calls: usize },
    Polled { outstanding: usize, calls: usize },
    Threads { threads: usize, calls: usize },
    Short { laps: Laps, beside: bool },
    Burn(Duration),
    Open(Schedule),
}

impl From<Load> for Work {
    fn from(load: Load) -> Work {
        match load {
            Load::Laps { calls } => Work::Laps(Laps::new(calls)),
            Load::Window { outstanding, calls } => Work::Window { outstanding, calls },
            Load::Polled { outstanding, calls } => Work::Polled { outstanding, calls },
            Load::Threads { threads, calls } => Work::Threads { threads, calls },
            Load::Short { calls, beside } => Work::Short { laps: Laps::new(calls), beside },
            Load::Burn { calls } => Work::Burn(Duration::from_micros(calls as u64)),
            Load::Open { per_second, slow, calls } => Work::Open(Schedule::new(per_second, slow, calls)),
        }
    }
}

/// The calls of an open loop. Each has a time at which it is due, and its latency counts from that time. So a
/// client that is late does not hide how long its user waits.
#[derive(Debug, Default)]
pub struct Schedule {
    arrivals: Vec<Arrival>,
    begun: usize,
    ended: usize,
    start: Option<Instant>,
    latencies: Vec<u32>,
}

/// One call of a [`Schedule`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time after the schedule's start.
    due: Duration,
    /// Whether the call sleeps in the server.
    pub slow: bool,
}

impl Schedule {
    /// Returns a schedule. The same arguments give the same times.
    pub fn new(per_second: u32, slow: bool, calls: usize) -> Schedule {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut due = Duration::ZERO;
        let arrivals = (0..calls).map(|n| {
            due += Duration::from_secs_f64(-random.fraction().ln() / f64::from(per_second.max(1)));
            Arrival { due, slow: slow && n % SLOW_EVERY == SLOW_EVERY / 2 }
        });
        let arrivals = arrivals.collect();
        Schedule { arrivals, begun: 0, ended: 0, start: None, latencies: Vec::with_capacity(calls) }
    }

    /// Returns the next call, if its time has come. The first call of this method is the start.
    #[inline]
    pub fn due(&mut self) -> Option<Arrival> {
        let start = *self.start.get_or_insert_with(Instant::now);
        let arrival = *self.arrivals.get(self.begun)?;
        if start.elapsed() < arrival.due {
            return None;
        }
        self.begun += 1;
        Some(arrival)
    }

    /// Notes that a call has ended with a result or an error. An error counts as an infinite latency.
    #[inline]
    pub fn ended<T, E>(&mut self, arrival: Arrival, result: &Result<T, E>) {
        self.ended += 1;
        if arrival.slow {
            return;
        }
        let since = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        let took = u32::try_from((since - arrival.due).as_nanos()).unwrap_or(u32::MAX);
        self.latencies.push(if result.is_ok() { took } else { u32::MAX });
    }

    /// Returns whether all calls have ended.
    pub fn is_over(&self) -> bool {
        self.ended == self.arrivals.len()
    }

    /// Returns the latencies of the short calls in nanoseconds, in the order in which they ended.
    pub(crate) fn latencies(&self) -> &[u32] {
        &self.latencies
    }
}

/// Splitmix64. The times need to be irregular; nothing else is required.
struct Random(u64);

impl Random {
    /// Returns a number above 0, and at most 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let loads = [
            Load::Laps { calls: 5 },
            Load::Window { outstanding: 64, calls: 100 },
            Load::Polled { outstanding: 32, calls: 200 },
            Load::Threads { threads: 3, calls: 9 },
            Load::Short { calls: 4, beside: true },
            Load::Burn { calls: 6 },
            Load::Open { per_second: 1000, slow: true, calls: 7 },
        ];
        for load in loads {
            assert_eq!(load.to_string().parse(), Ok(load));
            assert_eq!(load.of(1).calls(), 1);
        }
        for text in ["", "laps", "laps x", "window 5", "open 1 1"] {
            assert!(text.parse::<Load>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn arrivals_come_at_the_rate_asked_for_and_one_in_a_hundred_is_slow() {
        let schedule = Schedule::new(10_000, true, 50_000);
        let last = schedule.arrivals.last().unwrap().due.as_secs_f64();
        assert!((4.9..5.1).contains(&last), "{last}");
        assert_eq!(schedule.arrivals.iter().filter(|arrival| arrival.slow).count(), 500);
    }
}
