//! An environment that counts the starts and ends of the threads with one name, and can refuse to start them.
//! In all else it is the operating system.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall::System;
use farcall::env::Env;

/// Counts the threads with one name.
pub struct Threads {
    name: &'static str,
    /// Whether the process may use shared memory.
    shares_memory: bool,
    started: AtomicUsize,
    /// How many of the next threads with this name are refused.
    refusals: AtomicUsize,
    /// The number of threads that have ended, with a condition that is notified when it changes.
    ended: Arc<(Mutex<usize>, Condvar)>,
}

impl Threads {
    /// Counts the threads with this name, in a process that uses no shared memory.
    pub fn named(name: &'static str) -> Arc<Threads> {
        Threads::of(name, false)
    }

    /// Counts the threads with this name, in a process that may use shared memory.
    pub fn sharing_memory(name: &'static str) -> Arc<Threads> {
        Threads::of(name, true)
    }

    fn of(name: &'static str, shares_memory: bool) -> Arc<Threads> {
        Arc::new(Threads {
            name,
            shares_memory,
            started: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            ended: Arc::default(),
        })
    }

    /// Refuses to start the next `count` threads with the counted name.
    pub fn refuse(&self, count: usize) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    /// Returns how many threads were started.
    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Returns how many threads have ended.
    pub fn ended(&self) -> usize {
        *self.ended.0.lock().unwrap()
    }

    /// Waits until `count` threads have ended, for at most `timeout`. Returns false if the time ran out
    /// first.
    pub fn wait_for_ends(&self, count: usize, timeout: Duration) -> bool {
        let (ended, changed) = &*self.ended;
        !changed
            .wait_timeout_while(ended.lock().unwrap(), timeout, |ended| *ended < count)
            .unwrap()
            .1
            .timed_out()
    }
}

impl Env for Threads {
    system_does! { now, bind, event, entropy }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        if name != self.name {
            return System.spawn(name, run);
        }
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        let ended = self.ended.clone();
        let counted = move || {
            run();
            *ended.0.lock().unwrap() += 1;
            ended.1.notify_all();
        };
        System.spawn(name, Box::new(counted))
    }

    fn shares_memory(&self) -> bool {
        self.shares_memory && System.shares_memory()
    }
}
