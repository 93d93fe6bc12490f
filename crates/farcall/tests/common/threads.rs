//! The operating system, except that it counts the starts and ends of the threads with one name, and refuses
//! some of them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall::System;
use farcall::env::Env;

pub struct Threads {
    name: &'static str,
    shares_memory: bool,
    started: AtomicUsize,
    refusals: AtomicUsize,
    ended: Arc<(Mutex<usize>, Condvar)>,
}

impl Threads {
    pub fn named(name: &'static str) -> Arc<Threads> {
        Threads::of(name, false)
    }

    /// Counts the threads of one name, in a process that may share memory.
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

    /// Refuses the next `next` threads.
    pub fn refuse(&self, next: usize) {
        self.refusals.store(next, Ordering::SeqCst);
    }

    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    pub fn ended(&self) -> usize {
        *self.ended.0.lock().unwrap()
    }

    /// Waits until `ends` threads have ended, but at most `most`. Returns whether they have.
    pub fn wait_for_ends(&self, ends: usize, most: Duration) -> bool {
        let (ended, changed) = &*self.ended;
        !changed.wait_timeout_while(ended.lock().unwrap(), most, |ended| *ended < ends).unwrap().1.timed_out()
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
