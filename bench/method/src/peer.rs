//! What a bench asks of a peer: a server, and a client that makes round trips.
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::load::Schedule;

/// How both sides wait for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the kernel, until it wakes them.
    Block,
    /// Asking again and again.
    Spin,
}

impl Mode {
    /// As it stands in rows and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Block => "block",
            Mode::Spin => "spin",
        }
    }
}

/// What a call carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Carry {
    /// The payload goes there and comes back.
    Both,
    /// The payload is the result; the argument says how large it is to be.
    Result,
    /// The payload is the argument; the result says how large it was.
    Argument,
}

impl Carry {
    /// As it stands on command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Carry::Both => "both",
            Carry::Result => "result",
            Carry::Argument => "argument",
        }
    }
}

/// What both sides of one measurement agree on.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Payload; 0 is the null call.
    pub bytes: usize,
    /// Which way it goes.
    pub carry: Carry,
    /// How both sides wait.
    pub mode: Mode,
    /// The most calls that will be outstanding.
    pub outstanding: usize,
}

/// One way to make a call.
pub trait Peer {
    /// What carries it: `udp`, `tcp`, …
    fn transport(&self) -> &'static str;
    /// Its version, for the conditions; empty if it has none.
    fn version(&self) -> String {
        String::new()
    }
    /// Whether the allocator that counts sees all of its allocations.
    fn counts_allocations(&self) -> bool {
        true
    }
    /// Calls in a lap: more than one where a call is too short to be timed by itself.
    fn calls_per_lap(&self) -> usize {
        1
    }
    /// Starts to serve on loopback, in threads of its own, and returns at once.
    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>>;
    /// Connects to what [`Serving::address`] said in the other process.
    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>>;
}

/// A server that runs.
pub trait Serving {
    /// What the client needs to find it; one word.
    fn address(&self) -> String;
    /// Whether it is being measured now. A server that spins spins only while it is: all the other
    /// peers' servers share its core.
    fn active(&mut self, _active: bool) {}
}

/// A client that is connected. The loops are the peer's, so that one with an executor enters it once
/// for a block, not once for a call.
pub trait Calling {
    /// Makes one round trip for each lap, or [as many as the peer says](Peer::calls_per_lap):
    /// `while laps.next() { … }`.
    fn run(&mut self, laps: &mut Laps) -> Result<()>;

    /// Makes `calls` calls, `outstanding` of them at any time, from one thread.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        match outstanding {
            1 => self.run(&mut Laps::new(calls)),
            _ => cannot("one thread has one call outstanding"),
        }
    }

    /// As [`window`](Calling::window), but calls are begun and ended as in [`open`](Calling::open).
    fn polled(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.window(outstanding, calls)
    }

    /// Makes `calls` calls, shared among `threads` threads that block in each. Connections that they
    /// need each are kept for the next time.
    fn threads(&mut self, _threads: usize, _calls: usize) -> Result<()> {
        cannot("no blocking client")
    }

    /// Makes as many calls of 32 bytes, each a lap, and if `beside` for as long as a call with the payload
    /// goes on.
    fn short(&mut self, _laps: &mut Laps, _beside: bool) -> Result<()> {
        cannot("it makes no short calls beside long ones")
    }

    /// Begins each call when it is [due](Schedule::due), until all have ended.
    fn open(&mut self, _schedule: &mut Schedule) -> Result<()> {
        cannot("no open loop")
    }

    /// Begins a call that sleeps for [`STUCK`](crate::STUCK) in the server and returns at once, or else waits
    /// until it has ended.
    fn stick(&mut self, _begin: bool) -> Result<()> {
        cannot("none of its calls gets stuck")
    }
}

/// Why a peer is left out of a measurement: it is not made for it, or not to be had on this machine.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);

/// The error of a peer that is not made for what it is asked.
pub fn cannot<T>(why: &str) -> Result<T> {
    Err(Cannot(why.into()).into())
}

/// Times the laps of one block; allocates only when made.
pub struct Laps {
    nanoseconds: Vec<u32>,
    laps: usize,
    began: Option<Instant>,
}

impl Laps {
    /// `laps` round trips.
    pub fn new(laps: usize) -> Self {
        Laps { nanoseconds: Vec::with_capacity(laps), laps, began: None }
    }

    /// Ends a lap and begins the next; false when all are done. One reading of the clock per lap.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> bool {
        let now = Instant::now();
        if let Some(began) = self.began {
            self.nanoseconds.push(u32::try_from((now - began).as_nanos()).unwrap_or(u32::MAX));
        }
        self.began = Some(now);
        self.nanoseconds.len() < self.laps
    }

    /// Enters a lap that somebody else has timed; false when all are done.
    pub fn enter(&mut self, nanoseconds: u64) -> bool {
        self.nanoseconds.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
        self.nanoseconds.len() < self.laps
    }

    /// The time of each lap in nanoseconds, in order.
    pub fn nanoseconds(&self) -> &[u32] {
        &self.nanoseconds
    }
}
