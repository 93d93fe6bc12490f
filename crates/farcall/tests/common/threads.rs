//! The operating system, which counts the threads of one name that it starts, and refuses some of them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall::System;
use farcall::env::{Env, Event, Socket, SocketOptions, Time};

pub struct Threads {
    name: &'static str,
    started: AtomicUsize,
    refusals: AtomicUsize,
}

impl Threads {
    pub fn named(name: &'static str) -> Arc<Threads> {
        Arc::new(Threads { name, started: AtomicUsize::new(0), refusals: AtomicUsize::new(0) })
    }

    /// The next so many are refused.
    pub fn refuse(&self, next: usize) {
        self.refusals.store(next, Ordering::SeqCst);
    }

    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

impl Env for Threads {
    fn now(&self) -> Time {
        System.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        System.bind(address, options)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        if name != self.name {
            return System.spawn(name, run);
        }
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        System.event()
    }

    fn entropy(&self, out: &mut [u8]) {
        System.entropy(out);
    }
}
