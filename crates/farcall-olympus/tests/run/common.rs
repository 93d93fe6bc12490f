//! What the tests of runs share: servers with a registry of their own, and graphs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall::{Export, Runtime};
use farcall_olympus::model::Graph;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Outcome, Run, Settings};
use serde_json::Value;

#[farcall::interface]
pub trait Work {
    /// Returns the text twice.
    fn twice(&self, text: &str) -> farcall::Result<String>;
    /// Adds one, unless the number is odd.
    fn next(&self, number: u64) -> farcall::Result<u64, Odd>;
    /// Returns the number when the gate is open.
    fn slow(&self, number: u64) -> farcall::Result<u64>;
    /// Returns the number when the gate is open. It may run twice.
    #[idempotent]
    fn slow_again(&self, number: u64) -> farcall::Result<u64>;
}

#[derive(Debug, farcall::Xdr)]
pub enum Odd {
    One,
    Other { number: u64 },
}

/// A server whose slow procedures wait for a gate.
#[derive(Default)]
pub struct Worker {
    pub gate: Gate,
    pub running: AtomicUsize,
    pub most: AtomicUsize,
    pub begun: AtomicUsize,
}

impl Work for Worker {
    fn twice(&self, text: &str) -> farcall::Result<String> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(text.repeat(2))
    }

    fn next(&self, number: u64) -> farcall::Result<u64, Odd> {
        match number {
            1 => Err(Odd::One.into()),
            odd if odd % 2 == 1 => Err(Odd::Other { number: odd }.into()),
            even => Ok(even + 1),
        }
    }

    fn slow(&self, number: u64) -> farcall::Result<u64> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(1 + self.running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        self.gate.pass();
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(number)
    }

    fn slow_again(&self, number: u64) -> farcall::Result<u64> {
        self.slow(number)
    }
}

/// A gate that threads wait for.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }
}

/// A registry, a runtime of servers and one of the interpreter.
pub struct World {
    pub servers: Runtime,
    pub caller: Runtime,
}

impl World {
    pub fn new() -> World {
        let registry = Arc::new(farcall::names::Memory::new());
        let runtime = || Runtime::builder().registry(registry.clone()).workers(16).build().unwrap();
        World { servers: runtime(), caller: runtime() }
    }

    pub fn export(&self, name: &str, worker: &Arc<Worker>) -> Export {
        self.servers.export::<dyn Work>(name, worker.clone()).unwrap()
    }

    pub fn procedures(&self) -> Procedures {
        Procedures::new(&self.caller)
    }

    pub fn run(&self, graph: &Value, settings: Settings) -> Run {
        Run::start(model(graph), &self.procedures(), settings).unwrap()
    }
}

pub fn model(graph: &Value) -> Graph {
    serde_json::from_value(graph.clone()).unwrap()
}

/// Returns the tokens of a place, sorted.
pub fn tokens(run: &Run, place: &str) -> Vec<Value> {
    let place = run.graph().place(place).unwrap();
    let mut tokens = run.state().places[place.0 as usize].tokens.clone();
    tokens.sort_by_key(ToString::to_string);
    tokens
}

pub fn is_quiet(run: &Run) {
    let outcome = run.wait_for(Duration::from_secs(60));
    assert_eq!(outcome, Some(Outcome::Quiet), "{:#?}", run.state());
}

/// Waits until a state of the run is as wanted.
pub fn until(run: &Run, what: &str, wanted: impl Fn(&farcall_olympus::run::State) -> bool) {
    let mut number = 0;
    for _ in 0..10_000 {
        if wanted(&run.state()) {
            return;
        }
        number = run.changes(number, Duration::from_secs(10)).number;
    }
    panic!("{what}: {:#?}", run.state());
}
