//! Signals of calls that are given up, or whose server is gone.

use std::sync::mpsc;
use std::time::Duration;

use farcall::{Answer, Kind, Ran};

use super::*;

struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64> + Send + Sync + 'static> StoreHandler for Acts<F> {
    fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
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
        raises(store, server, 1);
        pending.cancel();
        let why = pending.wait().unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Cancelled), "{why}");
        unwinds(server, 1);
        let pending = store.catching(Doubles).start().put(2);
        raises(store, server, 2);
        drop(pending);
        unwinds(server, 2);
        assert_eq!(store.quiet().unwrap(), 7);
    });
}

#[test]
fn a_deadline_passes_while_a_handler_runs() {
    everywhere(|store, server| {
        let (done, wait) = mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let begun = Arc::new(AtomicUsize::new(0));
        let begins = begun.clone();
        let slow = Acts(move |_| {
            begins.fetch_add(1, Ordering::SeqCst);
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
                // On a busy machine the deadline may pass before the procedure begins.
                assert!(why.ran() != Ran::No || begun.load(Ordering::SeqCst) == 0, "{why}");
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

#[test]
fn a_panic_of_a_handler_cancels_a_started_call() {
    everywhere(|store, server| {
        let store = store.catching(Acts(|_| panic!("of a handler")));
        let call = store.start().put(1);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.wait())).is_err());
        let call = store.start().put(1);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| common::block_on(call))).is_err());
        unwinds(server, 2);
    });
}

/// Waits until so many calls of `put` have begun, and for another call, in whose time the last one raises its
/// signal.
fn raises(store: &StoreClient, server: &Server, count: usize) {
    while server.begun.load(Ordering::SeqCst) < count {
        std::thread::yield_now();
    }
    assert_eq!(store.quiet().unwrap(), 7);
    assert_eq!(server.unwound.load(Ordering::SeqCst), count - 1, "it waits for the answer");
}

/// Waits until so many procedures have been unwound.
fn unwinds(server: &Server, count: usize) {
    let begun = std::time::Instant::now();
    while server.unwound.load(Ordering::SeqCst) < count {
        assert!(begun.elapsed() < Duration::from_secs(20), "a procedure waits for an answer");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_of_a_call_that_was_detached_is_not_caught() {
    everywhere(|store, server| {
        store.catching(Doubles).start().put(1).detach();
        unwinds(server, 1);
        assert_eq!(store.catching(Doubles).put(3), Ok(3));
    });
}

#[test]
fn the_members_of_a_group_raise_signals() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let exports = ["Store/a", "Store/b", "Store/c"]
        .map(|name| there.export::<dyn Store>(name, Arc::new(Server::default())).unwrap());
    let stubs = ["Store/a", "Store/b", "Store/c"].map(|name| (name, here.import::<dyn Store>(name).unwrap()));
    let group = farcall::Group::of(stubs.clone());
    let quiet = group.multi().quiet().all();
    assert_eq!(quiet.results().count(), 3);
    // Nobody catches it.
    assert_eq!(group.multi().put(1).all().results().count(), 0);
    let catching = farcall::Group::of(stubs.map(|(name, stub)| (name, stub.catching(Doubles))));
    let free = catching.multi().put(4).all();
    assert_eq!(free.results().map(|(_, free)| *free).collect::<Vec<u64>>(), [4, 4, 4]);
    drop(exports);
}

#[test]
fn more_procedures_raise_than_the_server_has_workers() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone());
    let (here, there) = (runtime().build().unwrap(), runtime().workers(1).threads(4).build().unwrap());
    let _export = there.export::<dyn Store>("Store/a", Arc::new(Server::default())).unwrap();
    let store = here.import::<dyn Store>("Store/a").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..20 {
                    match store.catching(Doubles).put(n) {
                        Ok(free) => assert_eq!(free, n),
                        Err(why) => assert_eq!(kind(&why), Some(Kind::Overloaded), "{why}"),
                    }
                }
            });
        }
    });
    assert_eq!(store.catching(Doubles).put(5), Ok(5));
}

#[test]
fn a_handler_of_a_call_that_was_bound_again_starts_such_a_call() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let export = there.export::<dyn Store>("Store/a", Arc::new(Server::default())).unwrap();
    let import = || here.import::<dyn Store>("Store/a").unwrap();
    let (outer, inner) = (import(), import());
    drop(export);
    let elsewhere = runtime();
    let _export = elsewhere.export::<dyn Store>("Store/a", Arc::new(Server::default())).unwrap();
    // A task makes the call again, and answers its signals. The handler waits for another task.
    let handler = Acts(move |needed| {
        let quiet = common::block_on(inner.start().quiet());
        Answer::Resume(needed + u64::from(quiet.unwrap()))
    });
    assert_eq!(common::block_on(outer.catching(handler).start().put(1)), Ok(7));
}

/// Raises a signal when the test says so, and tells the test why it was not caught.
#[farcall::interface]
pub trait Late {
    fn run(&self) -> farcall::Result<()>;
    #[signal]
    fn ask(&self) -> u32;
}

struct Gate {
    begun: mpsc::SyncSender<()>,
    go: std::sync::Mutex<mpsc::Receiver<()>>,
    ended: mpsc::SyncSender<farcall::Kind>,
}

impl Late for Gate {
    fn run(&self) -> farcall::Result<()> {
        self.begun.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        let why = LateSignals::ask().unwrap_err();
        self.ended.send(why.why().kind()).unwrap();
        Err(why.into())
    }
}

#[test]
fn a_procedure_whose_detached_caller_is_gone_does_not_wait_for_an_answer_for_ever() {
    // A caller that is there is never silent for so long, however busy the machine is.
    for (gone, patience) in [(false, Duration::from_secs(60)), (true, Duration::from_millis(300))] {
        let runtime = || {
            let builder = farcall::Runtime::builder().registry(farcall::names::Memory::new());
            builder.patience(patience).shared_memory(false).open().build().unwrap()
        };
        let (here, there) = (runtime(), runtime());
        let (begun, begins) = mpsc::sync_channel(1);
        let (go, goes) = mpsc::sync_channel(1);
        let (ended, ends) = mpsc::sync_channel(1);
        let gate = Gate { begun, go: std::sync::Mutex::new(goes), ended };
        let export = there.export::<dyn Late>("Late/a", Arc::new(gate)).unwrap();
        let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let wire = wire::cut_by(export.address(), cut.clone());
        let late = here.import::<dyn Late>(&format!("udp://{wire}/Late")).unwrap();
        let call = late.start().run();
        begins.recv().unwrap();
        call.detach();
        cut.store(gone, Ordering::SeqCst);
        go.send(()).unwrap();
        let why = ends.recv_timeout(Duration::from_secs(30)).expect("the procedure waits no more");
        assert_eq!(why, if gone { Kind::Cancelled } else { Kind::Unwound });
    }
}
