//! The operating system, except that a process can be stopped for an hour after it has sent a datagram. No
//! test waits for that hour: only the clock moves.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::System;
use farcall::env::{Env, Received, Socket, SocketOptions, Time, Wait};

#[derive(Clone, Default)]
pub struct Stops(Arc<State>);

#[derive(Default)]
struct State {
    armed: AtomicBool,
    /// Every datagram to this address stops the process.
    silent: Mutex<Option<SocketAddr>>,
    /// How long the process was stopped, in nanoseconds.
    stopped: AtomicU64,
}

pub const HOUR: Duration = Duration::from_secs(3600);

impl Stops {
    /// Stops the process when the next datagram has left.
    pub fn stop(&self) {
        self.0.armed.store(true, Ordering::SeqCst);
    }

    /// Stops the process each time a datagram has left for this address.
    pub fn stop_at(&self, address: SocketAddr) {
        *self.0.silent.lock().unwrap() = Some(address);
    }

    pub fn has_stopped(&self) -> bool {
        !self.0.armed.load(Ordering::SeqCst)
    }
}

impl Env for Stops {
    system_does! { spawn, event, entropy }

    fn now(&self) -> Time {
        System.now() + Duration::from_nanos(self.0.stopped.load(Ordering::SeqCst))
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Ok(Arc::new(Stopping(System.bind(address, options)?, self.0.clone())))
    }
}

struct Stopping(Arc<dyn Socket>, Arc<State>);

impl Socket for Stopping {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let sent = self.0.send(to, datagram);
        if self.1.armed.swap(false, Ordering::SeqCst) || *self.1.silent.lock().unwrap() == Some(to) {
            self.1.stopped.fetch_add(HOUR.as_nanos() as u64, Ordering::SeqCst);
        }
        sent
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.0.receive(buffer, wait)
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn local_address(&self) -> SocketAddr {
        self.0.local_address()
    }

    fn receive_buffer(&self) -> usize {
        self.0.receive_buffer()
    }
}
