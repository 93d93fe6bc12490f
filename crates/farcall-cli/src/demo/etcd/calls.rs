//! The calls that the client makes in a loop, and who answers them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::demo::interface::{Demo, DemoClient};
use crate::failure::Outcome;

/// A thread that calls one of several servers until it is told to end.
pub struct Calls {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    tally: Mutex<Tally>,
}

/// Calls that have ended.
#[derive(Clone, Default)]
pub struct Tally {
    /// How many calls each server has answered.
    pub answered: BTreeMap<String, u64>,
    pub failed: u64,
    /// Why a call failed, for the last one.
    pub why: Option<String>,
}

impl Calls {
    pub fn start(stub: DemoClient) -> Outcome<Calls> {
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("calls".into()).spawn(move || theirs.call(&stub))?;
        Ok(Calls { shared, thread })
    }

    pub fn so_far(&self) -> Tally {
        self.shared.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the calls, and returns all of them.
    pub fn end(self) -> Tally {
        self.shared.stopped.store(true, Relaxed);
        let _ = self.thread.join();
        self.shared.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn call(&self, stub: &DemoClient) {
        while !self.stopped.load(Relaxed) {
            let result = stub.hello("client");
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(greeting) => *tally.answered.entry(server(&greeting).to_owned()).or_default() += 1,
                Err(why) => {
                    tally.failed += 1;
                    tally.why = Some(why.to_string());
                }
            }
        }
    }
}

impl Tally {
    /// Returns the calls that have ended since an earlier tally.
    pub fn since(&self, earlier: &Tally) -> Tally {
        let new = |(server, calls): (&String, &u64)| {
            let calls = calls - earlier.answered.get(server).copied().unwrap_or(0);
            (server.clone(), calls)
        };
        let failed = self.failed - earlier.failed;
        let answered = self.answered.iter().map(new).filter(|(_, calls)| *calls > 0).collect();
        Tally { answered, failed, why: self.why.clone().filter(|_| failed > 0) }
    }

    /// Returns how many calls have ended.
    pub fn made(&self) -> u64 {
        self.answered.values().sum::<u64>() + self.failed
    }
}

/// Returns the server's name in a greeting.
fn server(greeting: &str) -> &str {
    let name = greeting.split_once("I am ").and_then(|(_, rest)| rest.split(',').next());
    name.unwrap_or("somebody")
}
