//! A system that refuses threads for a while.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{block_on, builder};
use crate::threads::Threads;
use farcall::{CallFailed, Kind, Ran};

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
    let env = Threads::named("farcall-service");
    env.refuse(1);
    let runtime = builder().env(env).build().unwrap();
    let _export = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap();
    let gate = runtime.import::<dyn Gate>("Gate").unwrap();
    let why = CallFailed::from(block_on(gate.start().open()).unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
    block_on(gate.start().open()).unwrap();
}

#[test]
fn a_server_that_gets_no_thread_receives_again_when_it_does() {
    let env = Threads::named("farcall-worker");
    let runtime = builder().env(env.clone()).build().unwrap();
    let _export = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap();
    let gate = runtime.import::<dyn Gate>("Gate").unwrap();
    env.refuse(3);
    // This call blocks the only worker, and no thread is there to receive the call that ends it.
    let blocked = gate.start().pass();
    gate.within(Duration::from_secs(1000)).open().unwrap();
    blocked.wait().unwrap();
}
