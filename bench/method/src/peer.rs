//! The interface of peers: a server, and a client that makes round trips.
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::load::Schedule;

/// How both sides wait for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By blocking in the kernel.
    Block,
    /// By polling.
    Spin,
}

impl Mode {
    /// Returns the mode's name in rows and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Block => "block",
            Mode::Spin => "spin",
        }
    }
}

/// Which way the payload of a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Carry {
    /// The payload is both argument and result.
    Both,
    /// The payload is the result. The argument is its length.
    Result,
    /// The payload is the argument. The result is its length.
    Argument,
}

impl Carry {
    /// Returns the direction's name on command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Carry::Both => "both",
            Carry::Result => "result",
            Carry::Argument => "argument",
        }
    }
}

/// The settings that both sides of one measurement must have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The bytes of payload; 0 is the null call.
    pub bytes: usize,
    /// Which way the payload goes.
    pub carry: Carry,
    /// How both sides wait.
    pub mode: Mode,
    /// The most calls that will be outstanding.
    pub outstanding: usize,
}

/// One way to make a call.
pub trait Peer {
    /// Returns the transport: `udp`, `tcp`, …
    fn transport(&self) -> &'static str;
    /// Returns the version, for the conditions; empty if there is none.
    fn version(&self) -> String {
        String::new()
    }
    /// Returns whether the counting allocator sees all of the peer's allocations.
    fn counts_allocations(&self) -> bool {
        true
    }
    /// Returns the calls in a lap: more than one if a call is too short to be timed alone.
    fn calls_per_lap(&self) -> usize {
        1
    }
    /// Starts to serve on loopback, in threads of its own, and returns without waiting.
    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>>;
    /// Connects to the server that returned this [`Serving::address`] in the other process.
    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>>;
}

/// A running server.
pub trait Serving {
    /// Returns the address by which the client finds the server; one word.
    fn address(&self) -> String;
    /// Tells the server whether it is being measured. A server spins only while it is measured, because the
    /// servers of all other peers run on the same core.
    fn active(&mut self, _active: bool) {}
}

/// A connected client. It contains the loops, so that a client with an executor enters it once for a block,
/// not once for a call.
pub trait Calling {
    /// Makes one round trip for each lap, or [as many as the peer says](Peer::calls_per_lap):
    /// `while laps.next() { … }`.
    fn run(&mut self, laps: &mut Laps) -> Result<()>;

    /// Makes `calls` calls from one thread, with `outstanding` of them at any time.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        match outstanding {
            1 => self.run(&mut Laps::new(calls)),
            _ => cannot("one thread has one call outstanding"),
        }
    }

    /// Makes calls as [`window`](Calling::window) does, but begins and ends them as [`open`](Calling::open)
    /// does.
    fn polled(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.window(outstanding, calls)
    }

    /// Makes `calls` calls, shared among `threads` threads that block in each. The threads keep their
    /// connections for the next time.
    fn threads(&mut self, _threads: usize, _calls: usize) -> Result<()> {
        cannot("no blocking client")
    }

    /// Makes that many calls of 32 bytes, each a lap. If `beside`, continues for as long as a call with the
    /// payload is under way.
    fn short(&mut self, _laps: &mut Laps, _beside: bool) -> Result<()> {
        cannot("it makes no short calls beside long ones")
    }

    /// Begins each call when it is [due](Schedule::due), until all have ended.
    fn open(&mut self, _schedule: &mut Schedule) -> Result<()> {
        cannot("no open loop")
    }

    /// Begins a call that sleeps for [`STUCK`](crate::STUCK) in the server, and returns at once; or waits
    /// until that call has ended.
    fn stick(&mut self, _begin: bool) -> Result<()> {
        cannot("none of its calls gets stuck")
    }
}

/// Why a peer cannot take part: it does not support the measurement, or is not installed on this machine.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);

/// Why a block is void: a datagram was lost, and a peer that makes bare system calls sends nothing again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

impl Lost {
    /// Returns the error for a datagram that has not come within the time that it may take.
    pub fn in_time() -> Lost {
        Lost("a datagram was lost".into())
    }

    /// Returns what a receive gave. If it timed out, the datagram counts as lost.
    ///
    /// # Errors
    /// The socket's, or that the datagram is lost.
    pub fn unless<T>(received: std::io::Result<T>) -> Result<T> {
        match received {
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => Err(Lost::in_time().into()),
            received => Ok(received?),
        }
    }
}

/// Returns the error of a peer that does not support the measurement.
pub fn cannot<T>(why: &str) -> Result<T> {
    Err(Cannot(why.into()).into())
}

/// Times the laps of one block. Allocates only when it is created.
pub struct Laps {
    nanoseconds: Vec<u32>,
    laps: usize,
    began: Option<Instant>,
}

impl Laps {
    /// Returns laps for `laps` round trips.
    pub fn new(laps: usize) -> Self {
        Laps { nanoseconds: Vec::with_capacity(laps), laps, began: None }
    }

    /// Ends a lap and begins the next. Returns false when all are done. Reads the clock once per lap.
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

    /// Adds a lap that the caller has timed. Returns false when all are done.
    pub fn enter(&mut self, nanoseconds: u64) -> bool {
        self.nanoseconds.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
        self.nanoseconds.len() < self.laps
    }

    /// Returns the time of each lap in nanoseconds, in order.
    pub fn nanoseconds(&self) -> &[u32] {
        &self.nanoseconds
    }
}
