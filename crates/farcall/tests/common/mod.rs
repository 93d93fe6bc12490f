//! Helpers for the tests of the drivers.
#![allow(dead_code)]

pub mod lossy;
#[cfg(target_os = "linux")]
pub mod meeting;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use farcall::names::Memory;

/// Returns a runtime with a registry of its own.
pub fn runtime() -> farcall::Runtime {
    builder().build().unwrap()
}

pub fn builder() -> farcall::Builder {
    farcall::Runtime::builder().registry(Memory::new())
}

/// Runs a future on this thread, which sleeps until the future is woken.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Prints why a test is skipped. It does not use `eprintln!`, because the test harness shows that output of
/// failing tests only.
pub fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
