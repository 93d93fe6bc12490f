//! Threads cannot be started now and then. A call that needs one fails at once, and the next call tries
//! again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{block_on, builder};
use farcall::env::Env;
use farcall::{CallFailed, Kind, System};

#[farcall::interface]
trait Echo {
    fn echo(&self, n: u32) -> farcall::Result<u32>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, n: u32) -> farcall::Result<u32> {
        Ok(n)
    }
}

/// The operating system, except that at times it starts no more threads.
#[derive(Default)]
struct Scarce(AtomicBool);

impl Env for Scarce {
    system_does! { now, bind, event, entropy, shares_memory }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => System.spawn(name, run),
        }
    }
}

#[test]
fn an_await_that_finds_no_thread_fails_at_once_and_the_next_one_is_served() {
    for shared_memory in [false, true] {
        let server = builder().shared_memory(shared_memory).build().unwrap();
        let export = server.export::<dyn Echo>("Echo", Arc::new(Server)).unwrap();
        let scarce = Arc::new(Scarce::default());
        let client = builder().env(scarce.clone()).shared_memory(shared_memory).build().unwrap();
        let echo = client.import::<dyn Echo>(&export.url()).unwrap();
        let timed = echo.within(Duration::from_secs(10));
        assert_eq!(echo.echo(1).unwrap(), 1);
        scarce.0.store(true, Ordering::SeqCst);
        for n in 0..3 {
            // A call that has ended already needs no thread.
            let (echo, timed) = (echo.start().echo(n), timed.start().echo(n));
            for outcome in [block_on(echo), block_on(timed)] {
                let Err(why) = outcome else { continue };
                let why = CallFailed::from(why);
                assert_eq!(why.kind(), Kind::Local);
                assert!(why.detail().starts_with("starting a thread: "), "{why}");
            }
        }
        // A blocking call needs no thread.
        assert_eq!(echo.echo(2).unwrap(), 2);
        scarce.0.store(false, Ordering::SeqCst);
        assert_eq!(block_on(async { echo.start().echo(3).await }).unwrap(), 3);
        assert_eq!(block_on(async { timed.start().echo(4).await }).unwrap(), 4);
    }
}
