//! Lets a server that spins do so only while it is measured.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;

use crate::peer::{Mode, Serving, Setup};

/// The serving thread's side: asked before each try to receive.
#[derive(Clone)]
pub struct Gate {
    spins: bool,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// Closed.
    pub fn new(setup: &Setup) -> Gate {
        Gate { spins: setup.mode == Mode::Spin, open: Arc::default() }
    }

    /// Waits until the server is measured, if it spins; one that blocks costs nothing anyway.
    #[inline]
    pub fn pass(&self) {
        while self.spins && !self.open.load(Relaxed) {
            std::thread::park();
        }
    }

    /// Opens or closes it. A thread that waits at it must be unparked.
    pub fn open(&self, open: bool) {
        self.open.store(open, Relaxed);
    }
}

/// The order-taking side.
pub struct Gated {
    /// Where the server is.
    pub address: String,
    /// What its thread passes.
    pub gate: Gate,
    /// That thread.
    pub thread: Thread,
}

impl Serving for Gated {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn active(&mut self, active: bool) {
        self.gate.open(active);
        self.thread.unpark();
    }
}
