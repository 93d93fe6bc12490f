//! The demo's signal: a server asks its caller in the middle of a call, and goes on with the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farcall::{Answer, Runtime};

use super::interface::{Asking, AskingHandler, AskingRaiser};
use crate::failure::Outcome;

/// What both processes saw.
pub struct Signal {
    /// This process, which answers.
    pub here: u32,
    /// The process that asked, as the handler was told.
    pub asker: u32,
    /// The process that executed the call, as its result says.
    pub server: u32,
    /// What the procedure was told by the handler.
    pub told: u32,
    /// How often the handler ran.
    pub times: u32,
    /// The duration of the call.
    pub time: Duration,
}

impl Signal {
    /// Returns whether the procedure went on with the answer of another process, once.
    pub fn is_resumed(&self) -> bool {
        self.asker == self.server && self.server != self.here && self.told == self.here && self.times == 1
    }
}

pub fn run(runtime: &Runtime) -> Outcome<Signal> {
    let seen = Arc::new(Seen::default());
    let asking = runtime.import::<dyn Asking>("Asking")?.catching(Handler(seen.clone()));
    let start = Instant::now();
    let answered = asking.ask()?;
    let time = start.elapsed();
    let (asker, times) = (seen.asker.load(Relaxed), seen.times.load(Relaxed));
    Ok(Signal { here: std::process::id(), asker, server: answered.server, told: answered.told, times, time })
}

#[derive(Default)]
struct Seen {
    asker: AtomicU32,
    times: AtomicU32,
}

/// Answers which process this is.
struct Handler(Arc<Seen>);

impl AskingHandler for Handler {
    fn who(&self, _: AskingRaiser, asker: u32) -> Answer<u32> {
        self.0.asker.store(asker, Relaxed);
        self.0.times.fetch_add(1, Relaxed);
        Answer::Resume(std::process::id())
    }
}
