//! Lets a server that spins do so only while it is measured.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;

use crate::peer::{Mode, Serving, Setup};

/// The serving thread's side, which it checks before each attempt to receive.
#[derive(Clone)]
pub struct Gate {
    spins: bool,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new(setup: &Setup) -> Gate {
        Gate { spins: setup.mode == Mode::Spin, open: Arc::default() }
    }

    /// Waits until the server is measured, if it spins. A server that blocks uses no processor time anyway.
    #[inline]
    pub fn pass(&self) {
        while self.spins && !self.open.load(Relaxed) {
            std::thread::park();
        }
    }

    /// Opens or closes the gate. A thread that waits at it must be unparked.
    pub fn open(&self, open: bool) {
        self.open.store(open, Relaxed);
    }
}

/// The side of the thread that takes orders.
pub struct Gated {
    /// The server's address.
    pub address: String,
    /// The gate that the server's thread passes.
    pub gate: Gate,
    /// The server's thread.
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
