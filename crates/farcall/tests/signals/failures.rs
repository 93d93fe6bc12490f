//! Signals of calls that are given up, or whose server is gone.

use std::sync::mpsc;
use std::time::Duration;

use farcall::{Answer, Kind, Ran};

use super::*;

struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64> + Send + Sync + 'static> StoreHandler for Acts<F> {
    fn low_space(&self, needed: u64) -> Answer<u64> {
        (self.0)(needed)
    }
}

#[test]
fn a_panic_of_a_handler_ends_the_call_and_unwinds_the_server() {
    everywhere(|store, server| {
        let store = store.catching(Acts(|_| panic!("of a handler")));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.put(1)));
        assert!(panicked.is_err());
        while server.unwound.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(store.quiet().unwrap(), 7);
    });
}

#[test]
fn a_cancel_while_a_signal_is_raised_ends_the_wait_of_the_procedure() {
    everywhere(|store, server| {
        // Nobody waits for the call, so nobody answers.
        let mut pending = store.catching(Doubles).start().put(1);
        pending.cancel();
        let why = pending.wait().unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Cancelled), "{why}");
        drop(store.start().put(2));
        let _ = server;
        assert_eq!(store.quiet().unwrap(), 7);
    });
}

#[test]
fn a_deadline_passes_while_a_handler_runs() {
    everywhere(|store, server| {
        let (done, wait) = mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let slow = Acts(move |_| {
            let _ = wait.lock().unwrap().recv();
            Answer::Resume(0)
        });
        let store = store.within(Duration::from_millis(50)).catching(slow);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| store.persist());
            while server.unwound.load(Ordering::SeqCst) == 0 {
                if call.is_finished() {
                    break;
                }
                std::thread::yield_now();
                if server.is_local {
                    break;
                }
            }
            drop(done);
            let result = call.join().unwrap();
            if !server.is_local {
                let why = result.unwrap_err();
                assert_eq!(kind(&why), Some(Kind::Deadline), "{why}");
                assert_ne!(why.ran(), Ran::No);
            }
        });
    });
}

#[test]
fn a_server_that_is_gone_ends_the_call_though_a_handler_ran() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let export = there.export::<dyn Store>("Store/a", Arc::new(Server::default())).unwrap();
    let store = here.import::<dyn Store>("Store/a").unwrap();
    let gone = std::sync::Mutex::new(Some((export, there)));
    let handler = Acts(move |_| {
        drop(gone.lock().unwrap().take());
        Answer::Resume(1)
    });
    let why = store.within(Duration::from_secs(2)).catching(handler).put(1).unwrap_err();
    assert_ne!(why.ran(), Ran::No, "{why}");
}
