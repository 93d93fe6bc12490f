//! The demo's crash: a server is killed in the middle of a call, and another server takes over.

use std::time::{Duration, Instant};

use farcall::{CallFailed, Error, Runtime};

use super::interface::Demo;
use super::process::Process;
use crate::failure::{Failure, Outcome};

/// What the caller observed.
pub struct Killed {
    /// The error of the call.
    pub why: CallFailed,
    /// The time from the kill to the error.
    pub told: Duration,
    /// The duration of the next call, which another server executed.
    pub next: Duration,
    pub victim: String,
    pub successor: String,
}

pub fn run(runtime: &Runtime) -> Outcome<Killed> {
    let mut servers = [Process::server("Pair/one")?, Process::server("Pair/two")?];
    let pair = runtime.import::<dyn Demo>("Pair")?;
    // The server that answers is the bound one.
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

/// Returns the server's name in a greeting.
fn name(greeting: &str) -> String {
    let name = greeting.split([' ', ',']).find(|word| word.starts_with("Pair/"));
    name.unwrap_or("somebody").to_owned()
}
