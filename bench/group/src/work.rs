//! What the bench orders: how a group is called, and how long its servers compute.
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// How computation times are distributed (Satyanarayanan & Siegel 1990, section VI-B3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Always the mean.
    Constant,
    /// With a standard deviation of a tenth of the mean; never below nothing.
    Normal,
    /// Exponential.
    Exponential,
}

/// The number of each on the wire.
const DISTRIBUTIONS: [Distribution; 3] =
    [Distribution::Constant, Distribution::Normal, Distribution::Exponential];

impl Distribution {
    /// As it stands in rows.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Constant => "constant",
            Distribution::Normal => "normal",
            Distribution::Exponential => "exponential",
        }
    }
}

/// What a server does before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// How long it takes in the mean.
    pub milliseconds: u32,
    /// How the times lie about that.
    pub distribution: Distribution,
}

impl Work {
    /// As the arguments of a call.
    pub fn to_wire(self) -> (u32, u32) {
        let number = DISTRIBUTIONS.iter().position(|&one| one == self.distribution).unwrap_or(0);
        (self.milliseconds, number as u32)
    }

    /// From the arguments of a call.
    pub fn from_wire(milliseconds: u32, distribution: u32) -> Work {
        let distribution =
            DISTRIBUTIONS.get(distribution as usize).copied().unwrap_or(Distribution::Constant);
        Work { milliseconds, distribution }
    }
}

/// One server's computation times: the same for the same seed, whatever is measured.
#[derive(Debug)]
pub struct Draws(u64);

impl Draws {
    /// Those of one server.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    /// How long the server computes now.
    pub fn next(&mut self, work: Work) -> Duration {
        let mean = f64::from(work.milliseconds) / 1e3;
        let seconds = match work.distribution {
            Distribution::Constant => mean,
            // Box and Muller 1958.
            Distribution::Normal => {
                let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
                mean + mean / 10.0 * radius * angle.cos()
            }
            Distribution::Exponential => -mean * self.unit().ln(),
        };
        Duration::from_secs_f64(seconds.max(0.0))
    }

    /// Above 0, at most 1. SplitMix64 (Steele, Lea & Flood 2014).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON / 2.0
    }
}

/// How the members are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// One after the other.
    Iterative,
    /// All at once.
    Multi,
    /// All at once, and no longer than until so many have answered.
    Until(usize),
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The null procedure.
    Null,
    /// One that computes.
    Work(Work),
    /// One whose result has so many bytes.
    Fetch(u32),
    /// One whose argument has so many bytes.
    Store(u32),
}

/// Calls of the first members, several times.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// How they are called.
    pub way: Way,
    /// What is called.
    pub kind: Kind,
    /// Beginning with which member, and how many.
    pub members: (usize, usize),
    /// How many times, before any of them is timed and then.
    pub warm: usize,
    /// See `warm`.
    pub trials: usize,
    /// Instead of being timed they are counted.
    pub counted: Option<Counted>,
}

/// What is counted of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// Instructions.
    Instructions,
    /// System calls and allocations.
    Events,
    /// The most bytes that it had allocated beyond those before.
    Bytes,
    /// Datagrams sent again.
    Repeats,
    /// Processor time, in nanoseconds.
    Time,
}

/// What the client says to an order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Unasked: where a server is, or that a client has connected, and the version.
    Ready(Vec<String>, String),
    /// How long each time took, in nanoseconds.
    Took(Vec<u64>),
    /// What all times together were counted to do.
    Counts(farcall_bench_method::counters::Counts),
    /// A number that was asked for.
    Number(u64),
    /// It did not work.
    Failed(String),
}

impl farcall_bench_method::process::Answer for Answer {
    fn checked(self) -> Result<Answer> {
        match self {
            Answer::Failed(why) => bail!(why),
            answer => Ok(answer),
        }
    }
}

/// Servers that run; each has an address.
pub trait Server {
    /// Their addresses.
    fn addresses(&self) -> Vec<String>;
}

/// A client of a group.
pub trait Calls {
    /// Calls one member.
    fn one(&mut self, member: usize, kind: Kind) -> Result<()>;

    /// Calls so many at once, from a first one on, until all have answered or as many as `enough`.
    fn all(&mut self, members: (usize, usize), kind: Kind, enough: Option<usize>) -> Result<()>;

    /// Its version, for the conditions; empty if it has none.
    fn version(&self) -> String {
        String::new()
    }

    /// How many datagrams were sent again so far.
    fn repeats(&self) -> u64 {
        0
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
