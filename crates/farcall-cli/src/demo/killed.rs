//! The demo's murder: a server is killed in the middle of a call, and another one takes over.

use std::time::{Duration, Instant};

use farcall::{CallFailed, Error, Runtime};

use super::interface::Demo;
use super::process::Process;
use crate::failure::{Failure, Outcome};

/// What the caller noticed.
pub struct Killed {
    /// What it was told of the call.
    pub why: CallFailed,
    /// How soon after the kill.
    pub told: Duration,
    /// How long the next call took, which another server served.
    pub next: Duration,
    pub victim: String,
    pub successor: String,
}

pub fn run(runtime: &Runtime) -> Outcome<Killed> {
    let mut servers = [Process::server("Pair/one")?, Process::server("Pair/two")?];
    let pair = runtime.import::<dyn Demo>("Pair")?;
    // Whoever answers is the one that is bound.
    let victim = pair.hello("victim")?;
    let which = usize::from(!victim.contains("Pair/one"));
    let call = pair.start().hang();
    let said = servers[which].line()?;
    if said != "hanging" {
        return Err(Failure::new(format!("the server said {said:?}")));
    }
    servers[which].kill()?;
    let kill = Instant::now();
    let why = match call.wait() {
        Err(Error::CallFailed(why)) => why,
        other => return Err(Failure::new(format!("a call of a dead server gave {other:?}"))),
    };
    let told = kill.elapsed();
    let next = Instant::now();
    let successor = pair.hello("successor")?;
    Ok(Killed { why, told, next: next.elapsed(), victim: name(&victim), successor: name(&successor) })
}

/// The name in a greeting.
fn name(greeting: &str) -> String {
    let name = greeting.split([' ', ',']).find(|word| word.starts_with("Pair/"));
    name.unwrap_or("somebody").to_owned()
}
