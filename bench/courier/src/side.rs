//! The two processes of a network: the server of all ways, and the client that makes the calls.
//!
//! Both execute orders, each a line on standard input, and answer with a line of JSON. They end when their
//! standard input ends.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use farcall::System;
use farcall::env::Env;
use farcall_bench_method::process::{self, Answer};
use serde::{Deserialize, Serialize};

use crate::clock::{Spent, TimedEnv, process_seconds, reading_seconds};
use crate::codec;
use crate::interface::Test;
use crate::ways::{self, Addresses, Caller, Failed, Serving, Way};

/// After this many lost replies, a run is given up: every one takes ten seconds.
const MAX_TIMEOUTS: u32 = 60;

/// Runs one side of a network, for the process that this program has started.
#[derive(Debug, clap::Args)]
pub struct Side {
    #[arg(value_enum)]
    role: Role,
    /// The core on which to stay.
    #[arg(long)]
    core: Option<usize>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Server,
    Client,
}

/// What a side says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It runs, and has not begun to do anything.
    Ready,
    /// The server serves at these addresses.
    Serves(Addresses),
    /// How many calls the server has executed since it was asked last.
    Executed(u64),
    /// How a run went.
    Ran(Run),
    /// Where the client's processor time goes.
    Profiled(Profile),
    /// The calls cannot be made in this way, and none was executed.
    Refused(String),
    /// The order could not be executed.
    Failed(String),
}

/// How many calls of one test went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The elapsed time of all calls. Calls without a reply end when the server has received the last.
    pub seconds: f64,
    /// The elapsed time until the last call had returned.
    pub loop_seconds: f64,
    /// The processor time of the client's process.
    pub cpu_seconds: f64,
    /// For how many replies the client waited in vain.
    pub timeouts: u32,
    /// How many calls the server has executed if none was lost.
    pub made: u64,
}

/// Where the processor time of the client's calls goes, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Profile {
    pub write: f64,
    /// In reads, and in waits for something to read.
    pub read: f64,
    /// In the codec.
    pub codec: f64,
    /// The bytes that were sent and received, without the headers of TCP, UDP and IP.
    pub sent: u64,
    pub received: u64,
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
    process::obey(side.core, &Said::Ready, Said::Failed, |order| match side.role {
        Role::Server => state.serve(order),
        Role::Client => state.call(order),
    })
}

#[derive(Default)]
struct State {
    serving: Option<Serving>,
    addresses: Addresses,
}

impl State {
    /// `serve ADDRESS`, or `executed`.
    fn serve(&mut self, order: &str) -> Result<Said> {
        match order.split_once(' ') {
            Some(("serve", at)) => {
                let serving = self.serving.insert(Serving::start(at.parse()?)?);
                Ok(Said::Serves(serving.addresses.clone()))
            }
            _ => Ok(Said::Executed(self.serving.as_ref().context("it does not serve yet")?.executed())),
        }
    }

    /// `addresses JSON`, `run WAY PROCEDURE CALLS`, or `profile WAY PROCEDURE CALLS`.
    fn call(&mut self, order: &str) -> Result<Said> {
        let (verb, rest) = order.split_once(' ').context("no order")?;
        if verb == "addresses" {
            self.addresses = serde_json::from_str(rest)?;
            return Ok(Said::Ready);
        }
        let words: Vec<&str> = rest.split(' ').collect();
        let [way, procedure, calls] = words[..] else { bail!("three words are wanted") };
        let way = <Way as ValueEnum>::from_str(way, false).map_err(anyhow::Error::msg)?;
        let test = Test::numbered(procedure.parse()?).context("there is no such test")?;
        let calls = calls.parse()?;
        match verb {
            "run" => self.run(way, test, calls),
            _ => self.profile(way, test, calls),
        }
    }

    fn run(&self, way: Way, test: Test, calls: u32) -> Result<Said> {
        let mut caller = ways::connect(way, test, &self.addresses, System::current())?;
        make(&mut *caller, way, test, calls)
    }

    fn profile(&self, way: Way, test: Test, calls: u32) -> Result<Said> {
        let spent = Arc::new(Spent::default());
        let env: Arc<dyn Env> = Arc::new(TimedEnv::new(System::current(), spent.clone()));
        let mut caller = ways::connect(way, test, &self.addresses, env)?;
        spent.clear();
        if let Said::Refused(why) = make(&mut *caller, way, test, calls)? {
            return Ok(Said::Refused(why));
        }
        let reading = reading_seconds();
        Ok(Said::Profiled(Profile {
            write: spent.write.seconds(reading),
            read: spent.read.seconds(reading),
            codec: codec::seconds(test, calls, way != Way::Farcall)?,
            sent: spent.write.bytes(),
            received: spent.read.bytes(),
        }))
    }
}

/// Makes the calls, and measures them.
fn make(caller: &mut dyn Caller, way: Way, test: Test, calls: u32) -> Result<Said> {
    let mut timeouts = 0;
    let (cpu, start) = (process_seconds(), Instant::now());
    for _ in 0..calls {
        match caller.call() {
            Ok(()) => {}
            Err(Failed::TimedOut) => timeouts += 1,
            Err(Failed::Refused(why)) => return Ok(Said::Refused(why)),
            Err(Failed::Broken(why)) => bail!(why),
        }
        if timeouts > MAX_TIMEOUTS {
            bail!("more than {MAX_TIMEOUTS} replies did not come");
        }
    }
    let (loop_seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), process_seconds() - cpu);
    // A stub made a first call when it was bound.
    let mut made = u64::from(calls) + u64::from(way.is_remote());
    let mut seconds = loop_seconds;
    if way.is_one_way(test) {
        seconds += finish(caller, &mut made)?;
    }
    Ok(Said::Ran(Run { seconds, loop_seconds, cpu_seconds, timeouts, made }))
}

/// Waits until the server has received all calls, by a call with a reply, and returns how long this took. If
/// that call is lost, as packets are, another is made, and the time is that of the last.
fn finish(caller: &mut dyn Caller, made: &mut u64) -> Result<f64> {
    for _ in 0..=MAX_TIMEOUTS {
        *made += 1;
        let start = Instant::now();
        match caller.finish() {
            Ok(()) => return Ok(start.elapsed().as_secs_f64()),
            Err(Failed::TimedOut) => {}
            Err(Failed::Refused(why) | Failed::Broken(why)) => bail!(why),
        }
    }
    bail!("the server does not answer")
}
