//! The orders of the bench: how a group is called, and how long its servers compute.
use std::time::Duration;

use anyhow::{Result, bail};
use farcall_bench_method::Lost;
use serde::{Deserialize, Serialize};

/// The distribution of computation times (Satyanarayanan & Siegel 1990, section VI-B3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every time is the mean.
    Constant,
    /// Normal, with a standard deviation of a tenth of the mean, and never below zero.
    Normal,
    /// Exponential.
    Exponential,
}

/// The distributions, in the order of their numbers on the wire.
const DISTRIBUTIONS: [Distribution; 3] =
    [Distribution::Constant, Distribution::Normal, Distribution::Exponential];

impl Distribution {
    /// Returns the distribution's name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Constant => "constant",
            Distribution::Normal => "normal",
            Distribution::Exponential => "exponential",
        }
    }
}

/// The computation of a server before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The mean time in milliseconds.
    pub milliseconds: u32,
    /// The distribution of the times.
    pub distribution: Distribution,
}

impl Work {
    /// Returns the computation as the arguments of a call.
    pub fn to_wire(self) -> (u32, u32) {
        let number = DISTRIBUTIONS.iter().position(|&one| one == self.distribution).unwrap_or(0);
        (self.milliseconds, number as u32)
    }

    /// Returns the computation that the arguments of a call describe.
    pub fn from_wire(milliseconds: u32, distribution: u32) -> Work {
        let distribution =
            DISTRIBUTIONS.get(distribution as usize).copied().unwrap_or(Distribution::Constant);
        Work { milliseconds, distribution }
    }
}

/// The computation times of one server. They depend only on the seed, not on what is measured.
#[derive(Debug)]
pub struct Draws(u64);

impl Draws {
    /// Returns the times of one server.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    /// Returns the time of the next computation.
    pub fn next(&mut self, work: Work) -> Duration {
        let mean = f64::from(work.milliseconds) / 1e3;
        let seconds = match work.distribution {
            Distribution::Constant => mean,
            // The method of Box and Muller 1958.
            Distribution::Normal => {
                let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
                mean + mean / 10.0 * radius * angle.cos()
            }
            Distribution::Exponential => -mean * self.unit().ln(),
        };
        Duration::from_secs_f64(seconds.max(0.0))
    }

    /// Returns a random number above 0, and at most 1, by SplitMix64 (Steele, Lea & Flood 2014).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON / 2.0
    }
}

/// The way in which the members are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// One after the other.
    Iterative,
    /// All at once.
    Multi,
    /// All at once, until this number of members have answered.
    Until(usize),
}

/// The called procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The null procedure.
    Null,
    /// A procedure that computes.
    Work(Work),
    /// A procedure whose result has this number of bytes.
    Fetch(u32),
    /// A procedure whose argument has this number of bytes.
    Store(u32),
}

/// An order to call the first members, several times.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// How they are called.
    pub way: Way,
    /// What is called.
    pub kind: Kind,
    /// The index of the first called member, and the number of members.
    pub members: (usize, usize),
    /// The number of calls before the first one that is timed or counted.
    pub warm: usize,
    /// The number of calls that are timed or counted.
    pub trials: usize,
    /// What to count instead of the time.
    pub counted: Option<Counted>,
}

/// The quantity that is counted at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// Instructions.
    Instructions,
    /// System calls and allocations.
    Events,
    /// The most bytes that were allocated beyond those before the calls.
    Bytes,
    /// What the client has sent, and how long each trial took.
    Sent,
    /// Processor time, in nanoseconds.
    Time,
    /// How long the parts of a call of all take.
    Parts,
}

/// What a client has sent. (RPC2 counts its packets in the same way, retries among all.)
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sent {
    /// All datagrams.
    pub datagrams: u64,
    /// Calls, and parts of calls, that were sent again.
    pub again: u64,
    /// Questions about calls of which the server has said that it executes them.
    pub probes: u64,
}

impl Sent {
    /// Returns what was sent since `before`.
    pub fn since(self, before: Sent) -> Sent {
        Sent {
            datagrams: self.datagrams - before.datagrams,
            again: self.again - before.again,
            probes: self.probes - before.probes,
        }
    }
}

/// How long the parts of a call of all take, in nanoseconds (Satyanarayanan & Siegel 1990, section VI-A).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Parts {
    /// Encoding the arguments, once for all members.
    pub pack: u64,
    /// Encoding the arguments, and sending them to all members.
    pub start: u64,
    /// From then on until the last reply has been handled.
    pub rest: u64,
    /// Decoding the replies of all members, and a handler that does nothing.
    pub unpack: u64,
}

/// The client's answer to an order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The process is ready, and says so without an order: the addresses of its servers, or none for a
    /// client, and the version.
    Ready(Vec<String>, String),
    /// The duration of each trial, in nanoseconds.
    Took(Vec<u64>),
    /// The counts of all trials together.
    Counts(farcall_bench_method::counters::Counts),
    /// A requested number.
    Number(u64),
    /// The duration of each trial, in nanoseconds, and what was sent for all of them.
    Sent(Vec<u64>, Sent),
    /// The parts of each trial.
    Parts(Vec<Parts>),
    /// A datagram was lost, so the trials are void.
    Lost(String),
    /// The order failed, with the reason.
    Failed(String),
}

impl farcall_bench_method::process::Answer for Answer {
    fn checked(self) -> Result<Answer> {
        match self {
            Answer::Lost(why) => Err(Lost(why).into()),
            Answer::Failed(why) => bail!(why),
            answer => Ok(answer),
        }
    }
}

/// Running servers, each with an address.
pub trait Server {
    /// Returns the servers' addresses.
    fn addresses(&self) -> Vec<String>;
}

/// A client of a group.
pub trait Calls {
    /// Calls one member.
    fn one(&mut self, member: usize, kind: Kind) -> Result<()>;

    /// Calls several members at once. `members` is the index of the first one and their number. Waits until
    /// all have answered, or as many as `enough`.
    fn all(&mut self, members: (usize, usize), kind: Kind, enough: Option<usize>) -> Result<()>;

    /// Calls several members at once, and times the parts of the call.
    fn parts(&mut self, _members: (usize, usize)) -> Result<Parts> {
        bail!("the parts of its calls are not timed")
    }

    /// Returns the client's version, for the conditions; empty if it has none.
    fn version(&self) -> String {
        String::new()
    }

    /// Returns what was sent so far.
    fn sent(&self) -> Result<Sent> {
        bail!("what it sends is not counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_mean_and_the_deviation_that_they_should() {
        for (distribution, deviation) in
            [(Distribution::Constant, 0.0), (Distribution::Normal, 1.0), (Distribution::Exponential, 10.0)]
        {
            let mut draws = Draws::new(7);
            let work = Work { milliseconds: 10, distribution };
            assert_eq!(Work::from_wire(work.to_wire().0, work.to_wire().1), work);
            let times: Vec<f64> = (0..100_000).map(|_| draws.next(work).as_secs_f64() * 1e3).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
            assert!((mean - 10.0).abs() < 0.2, "{distribution:?}: {mean}");
            assert!((variance.sqrt() - deviation).abs() < 0.2, "{distribution:?}: {variance}");
        }
    }
}
