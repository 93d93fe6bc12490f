//! The two processes of a place: the server of all ways, and the client that makes the calls.
//!
//! Both execute orders, each a line of JSON on standard input, and answer with a line of JSON. They end when
//! their standard input ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcall_bench_method::process::{self, Answer};
use serde::{Deserialize, Serialize};

use crate::local::{self, Body};
use crate::ways::{self, Addresses, Caller, Language, Serving, Size, Way};

/// How many calls of one size a profiled client makes before it goes on to the next, as the paper's loops.
const LOOP: u32 = 1_000;

/// Runs one side, for the process that this program has started.
#[derive(Debug, clap::Args)]
pub struct Side {
    /// The core on which to stay.
    #[arg(long)]
    core: Option<usize>,
}

/// What a side can be told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Serve at this address.
    Serve(Ipv4Addr),
    /// The servers are there.
    Connect(Addresses),
    /// Make so many calls.
    Run(Way, Size, u32),
    /// Make calls of all sizes, for so many milliseconds.
    Repeat(Way, u64),
    /// Execute a loop of local calls.
    Local(Language, Body, u32),
    /// Say how much processor time the process has taken.
    Spent,
}

/// How calls went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// How many calls were made.
    pub calls: u32,
    /// The elapsed seconds.
    pub seconds: f64,
    /// The processor time of the client's process, in seconds.
    pub processor: f64,
}

/// What a side says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It does what it was told.
    Ready,
    /// The servers' addresses.
    Serves(Addresses),
    /// How the calls went.
    Ran(Run),
    /// The processor time of the process so far, in seconds.
    Spent(f64),
    /// The order could not be executed.
    Failed(String),
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// Executes orders until there are no more.
pub fn side(side: &Side) -> Result<()> {
    let mut state = State::default();
    process::obey(side.core, &Said::Ready, Said::Failed, |order| state.execute(order))
}

#[derive(Default)]
struct State {
    serving: Option<Serving>,
    addresses: Option<Addresses>,
    callers: BTreeMap<Way, Box<dyn Caller>>,
}

impl State {
    fn execute(&mut self, order: &str) -> Result<Said> {
        match serde_json::from_str(order).with_context(|| format!("{order} is no order"))? {
            Order::Serve(at) => Ok(Said::Serves(self.serving.insert(Serving::start(at)?).addresses)),
            Order::Connect(addresses) => {
                self.addresses = Some(addresses);
                Ok(Said::Ready)
            }
            Order::Run(way, size, calls) => {
                let caller = self.caller(way)?;
                measured(|| caller.call(size, calls).map(|()| calls))
            }
            Order::Repeat(way, milliseconds) => {
                let caller = self.caller(way)?;
                measured(|| repeat(caller, Duration::from_millis(milliseconds)))
            }
            Order::Local(language, body, iterations) => {
                measured(|| local::execute(language, body, iterations).map(|()| iterations))
            }
            Order::Spent => Ok(Said::Spent(processor_seconds())),
        }
    }

    /// Returns the caller of this way, which is kept.
    fn caller(&mut self, way: Way) -> Result<&mut dyn Caller> {
        let addresses = self.addresses.as_ref().context("the servers' addresses are not known yet")?;
        match self.callers.entry(way) {
            Entry::Occupied(caller) => Ok(&mut **caller.into_mut()),
            Entry::Vacant(place) => Ok(&mut **place.insert(ways::connect(way, addresses)?)),
        }
    }
}

/// Makes calls of all sizes in turn for this long. Returns how many.
fn repeat(caller: &mut dyn Caller, time: Duration) -> Result<u32> {
    let (start, mut calls) = (Instant::now(), 0);
    while start.elapsed() < time {
        for size in Size::ALL {
            caller.call(size, LOOP)?;
            calls += LOOP;
        }
    }
    Ok(calls)
}

/// Measures calls. `make` returns how many it has made.
fn measured(make: impl FnOnce() -> Result<u32>) -> Result<Said> {
    let (processor, start) = (processor_seconds(), Instant::now());
    let calls = make()?;
    let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds() - processor);
    Ok(Said::Ran(Run { calls, seconds, processor }))
}

/// Returns the processor time of this process, in seconds.
fn processor_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
