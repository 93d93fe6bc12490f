//! A system that refuses threads for a while.
#![allow(missing_docs)]

mod common;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{block_on, builder};
use farcall::env::{Env, Event, Socket, SocketOptions, Time};
use farcall::{CallFailed, Kind, Ran, System};

/// The operating system, which refuses so many threads of this name.
struct Short {
    name: &'static str,
    refusals: AtomicUsize,
}

impl Env for Short {
    fn now(&self) -> Time {
        System.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        System.bind(address, options)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let refuse = |left: usize| left.checked_sub(1);
        if name == self.name && self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        System.event()
    }

    fn entropy(&self, out: &mut [u8]) {
        System.entropy(out);
    }
}

#[farcall::interface]
pub trait Gate {
    #[blocking]
    fn pass(&self) -> farcall::Result<()>;
    fn open(&self) -> farcall::Result<()>;
}

#[derive(Default)]
struct Server(Mutex<bool>, Condvar);

impl Gate for Server {
    fn pass(&self) -> farcall::Result<()> {
        let open = self.0.lock().unwrap();
        drop(self.1.wait_while(open, |open| !*open).unwrap());
        Ok(())
    }

    fn open(&self) -> farcall::Result<()> {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
        Ok(())
    }
}

#[test]
fn a_started_call_without_a_service_thread_fails_and_the_next_one_has_it() {
    let env = Arc::new(Short { name: "farcall-service", refusals: AtomicUsize::new(1) });
    let runtime = builder().env(env).build().unwrap();
    let _export = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap();
    let gate = runtime.import::<dyn Gate>("Gate").unwrap();
    let why = CallFailed::from(block_on(gate.start().open()).unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
    block_on(gate.start().open()).unwrap();
}

#[test]
fn a_server_that_gets_no_thread_receives_again_when_it_does() {
    let env = Arc::new(Short { name: "farcall-worker", refusals: AtomicUsize::new(0) });
    let runtime = builder().env(env.clone()).build().unwrap();
    let _export = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap();
    let gate = runtime.import::<dyn Gate>("Gate").unwrap();
    env.refusals.store(3, Ordering::SeqCst);
    // It blocks the only worker, and nobody is there to receive the call that ends it.
    let blocked = gate.start().pass();
    gate.within(Duration::from_secs(1000)).open().unwrap();
    blocked.wait().unwrap();
}
