//! Lets a raw server spin only while it is measured.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;

use farcall_bench_method::{Mode, Serving, Setup};

/// The serving thread's side: asked before each try to receive.
#[derive(Clone)]
pub struct Gate {
    spins: bool,
    open: Arc<AtomicBool>,
}

impl Gate {
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
}

/// The order-taking side.
pub struct Gated {
    pub address: String,
    pub gate: Gate,
    pub thread: Thread,
}

impl Serving for Gated {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn active(&mut self, active: bool) {
        self.gate.open.store(active, Relaxed);
        self.thread.unpark();
    }
}
