//! Tests that the next call is served although the user's code has panicked, or blocks, wherever farcall runs
//! it.

use crate::common;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::common::builder;
use crate::explosives::*;
use farcall::intercept::{self, Ended, Interceptor};
use farcall::multi::Next;
use farcall::{Bytes, CallFailed, Error, Export, Kind, Ran, Runtime, Task};

#[farcall::interface(async)]
trait Mine {
    fn ping(&self) -> farcall::Result<u32>;
    fn explode(&self) -> farcall::Result<()>;
    fn give(&self, how: u32) -> farcall::Result<Fragile>;
    fn take(&self, value: Fragile) -> farcall::Result<()>;
    /// Returns bytes that are too long to be copied; their owner's drop panics.
    fn bytes(&self) -> farcall::Result<Bytes>;
    /// Returns bytes that are too long to be copied; their owner's drop waits.
    fn bytes_of_waiting(&self) -> farcall::Result<Bytes>;
    /// Fails with a cause whose drop panics.
    fn fail(&self) -> farcall::Result<()>;
    /// Reports that it has begun, and waits until the test lets it end.
    #[blocking]
    fn hold(&self) -> farcall::Result<()>;
}

/// Owns bytes. Its drop tells the test that it has begun, and waits until the test lets it go on.
struct WaitingOwner(Vec<u8>, Arc<Server>);

impl AsRef<[u8]> for WaitingOwner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for WaitingOwner {
    fn drop(&mut self) {
        self.1.hold();
    }
}

/// The channels between the test and the procedures that wait.
struct Server {
    begun: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
    this: OnceLock<std::sync::Weak<Server>>,
}

impl Server {
    fn new() -> (Arc<Server>, Receiver<()>, Sender<()>) {
        let ((begun, begins), (goes, go)) = (channel(), channel());
        let server = Arc::new(Server { begun: Mutex::new(begun), go: Mutex::new(go), this: OnceLock::new() });
        server.this.set(Arc::downgrade(&server)).unwrap();
        (server, begins, goes)
    }

    fn hold(&self) {
        let _ = self.begun.lock().unwrap().send(());
        let _ = self.go.lock().unwrap().recv();
    }
}

/// The server. Dropping its last reference panics too.
struct Mines(Arc<Server>);

impl Drop for Mines {
    fn drop(&mut self) {
        explode();
    }
}

impl Mine for Mines {
    fn ping(&self) -> farcall::Result<u32> {
        Ok(7)
    }

    fn explode(&self) -> farcall::Result<()> {
        explode();
        Ok(())
    }

    fn give(&self, how: u32) -> farcall::Result<Fragile> {
        Ok(Fragile(how))
    }

    fn take(&self, _: Fragile) -> farcall::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> farcall::Result<Bytes> {
        Ok(Bytes::from_owner(Owner(vec![7; 100_000])))
    }

    fn bytes_of_waiting(&self) -> farcall::Result<Bytes> {
        let server = self.0.this.get().and_then(std::sync::Weak::upgrade).unwrap();
        Ok(Bytes::from_owner(WaitingOwner(vec![7; 100_000], server)))
    }

    fn fail(&self) -> farcall::Result<()> {
        Err(CallFailed::new(Kind::Other, Ran::Yes).caused_by(Cause).into())
    }

    fn hold(&self) -> farcall::Result<()> {
        self.0.hold();
        Ok(())
    }
}

struct AsyncMines(Mines);

impl MineAsync for AsyncMines {
    async fn ping(&self) -> farcall::Result<u32> {
        self.0.ping()
    }

    async fn explode(&self) -> farcall::Result<()> {
        self.0.explode()
    }

    async fn give(&self, how: u32) -> farcall::Result<Fragile> {
        self.0.give(how)
    }

    async fn take(&self, value: Fragile) -> farcall::Result<()> {
        self.0.take(value)
    }

    async fn bytes(&self) -> farcall::Result<Bytes> {
        self.0.bytes()
    }

    async fn bytes_of_waiting(&self) -> farcall::Result<Bytes> {
        self.0.bytes_of_waiting()
    }

    /// Fails with the same cause. The drop of the future panics too.
    async fn fail(&self) -> farcall::Result<()> {
        let _fragile = Fragile(EXPLODES_WHEN_DROPPED);
        self.0.fail()
    }

    async fn hold(&self) -> farcall::Result<()> {
        self.0.hold()
    }
}

/// Panics before each call of `take`, and after each call of `give`.
#[derive(Clone, Copy)]
struct Explosive;

impl Interceptor for Explosive {
    fn before(&self, call: &intercept::Call<'_>) -> Result<(), CallFailed> {
        if call.procedure == "take" {
            explode();
        }
        Ok(())
    }

    fn after(&self, call: &intercept::Call<'_>, _: &Ended<'_>) {
        if call.procedure == "give" {
            explode();
        }
    }
}

/// A carrier of calls.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Datagrams,
    Memory,
}

const CARRIERS: [Carrier; 2] = [Carrier::Datagrams, Carrier::Memory];

impl Carrier {
    fn builder(self) -> farcall::Builder {
        let builder = builder().shared_memory(matches!(self, Carrier::Memory));
        // With so few threads, the loss of one would fail the test.
        builder.workers(1).threads(3).patience(Duration::from_secs(20))
    }

    /// Returns whether this system has the carrier.
    fn is_there(self) -> bool {
        cfg!(target_os = "linux") || matches!(self, Carrier::Datagrams)
    }
}

struct Setting {
    export: Option<Export>,
    mine: MineClient,
    begins: Receiver<()>,
    goes: Sender<()>,
    _runtimes: (Runtime, Runtime),
}

fn setting(carrier: Carrier, serving: impl Fn(farcall::Builder) -> farcall::Builder) -> Setting {
    let (server, begins, goes) = Server::new();
    let runtimes = (serving(carrier.builder()).build().unwrap(), carrier.builder().build().unwrap());
    let export = runtimes.0.export::<dyn Mine>("Mine", Arc::new(Mines(server))).unwrap();
    let mine = runtimes.1.import::<dyn Mine>(&export.url()).unwrap();
    Setting { export: Some(export), mine, begins, goes, _runtimes: runtimes }
}

/// Returns the kind of a call's failure.
fn kind<T>(outcome: farcall::Result<T>) -> Kind {
    match outcome {
        Ok(_) => panic!("the call gave a result"),
        Err(Error::CallFailed(why)) => {
            let kind = why.kind();
            // Within one process, the cause is the server's own value, whose drop panics.
            caught(|| drop(why));
            kind
        }
        Err(Error::Declared(never)) => match never {},
    }
}

/// Makes calls in which each piece of the user's code that a server runs panics. After each, another call
/// must be served.
fn try_all(mine: &MineClient) {
    for _ in 0..4 {
        assert_eq!(kind(mine.explode()), Kind::Panicked);
        assert_eq!(mine.ping().unwrap(), 7);
        assert_eq!(kind(mine.give(EXPLODES_WHEN_ENCODED)), Kind::Panicked);
        assert_eq!(mine.ping().unwrap(), 7);
        // The drop of the value panics. The server drops its value first.
        assert_eq!(kind(mine.give(EXPLODES_WHEN_DROPPED)), Kind::Panicked);
        assert_eq!(mine.ping().unwrap(), 7);
        assert_eq!(kind(mine.take(Fragile(EXPLODES_WHEN_DECODED))), Kind::Panicked);
        assert_eq!(mine.ping().unwrap(), 7);
        let failed = mine.fail();
        assert!(matches!(kind(failed), Kind::Nested | Kind::Panicked));
        assert_eq!(mine.ping().unwrap(), 7);
        // The owner is dropped here, or at the server once the client no longer needs the result.
        match mine.bytes() {
            Ok(bytes) => {
                assert_eq!(bytes.len(), 100_000);
                caught(|| drop(bytes));
            }
            Err(Error::CallFailed(why)) => assert_eq!(why.kind(), Kind::Panicked),
            Err(Error::Declared(never)) => match never {},
        }
        assert_eq!(mine.ping().unwrap(), 7);
    }
}

#[test]
fn whatever_panics_in_a_server_the_next_call_is_served() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder);
        try_all(&s.mine);
    }
}

#[test]
fn whatever_panics_in_an_async_server_the_next_call_is_served() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let (server, ..) = Server::new();
        let runtimes = (carrier.builder().build().unwrap(), carrier.builder().build().unwrap());
        let (sender, tasks) = channel::<Task>();
        // A panic of a task would end this executor.
        let executor = std::thread::spawn(move || {
            while let Ok(task) = tasks.recv() {
                common::block_on(task);
            }
        });
        let calls = Mutex::new((sender, 0));
        let spawn = move |task| {
            let (sender, count) = &mut *calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *count += 1;
            if *count == 1 {
                explode();
            }
            sender.send(task).unwrap();
        };
        let export = runtimes
            .0
            .export_async_on("Mine", MineAsyncServer::new(AsyncMines(Mines(server))), spawn)
            .unwrap();
        let mine = runtimes.1.import::<dyn Mine>(&export.url()).unwrap();
        // `spawn` panics at the first call, and drops its task.
        kind(mine.ping());
        try_all(&mine);
        drop((mine, export, runtimes));
        executor.join().unwrap();
    }
}

#[test]
fn a_server_whose_drop_panics_as_its_last_call_ends_stops_no_other_server() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let mut s = setting(carrier, |builder| builder);
        for _ in 0..5 {
            let (server, begins, goes) = Server::new();
            let other = s._runtimes.0.export::<dyn Mine>("Other", Arc::new(Mines(server))).unwrap();
            let mine = s._runtimes.1.import::<dyn Mine>(&other.url()).unwrap();
            let call = mine.start().hold();
            begins.recv().unwrap();
            drop(other);
            goes.send(()).unwrap();
            call.wait().unwrap();
            assert_eq!(s.mine.ping().unwrap(), 7);
        }
        let export = s.export.take();
        caught(|| drop(export));
    }
}

#[test]
fn interceptors_that_panic_stop_no_call() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder.intercept_serving(Explosive));
        for _ in 0..20 {
            assert_eq!(kind(s.mine.take(Fragile(SOUND))), Kind::Panicked);
            assert_eq!(kind(s.mine.give(SOUND)), Kind::Panicked);
            assert_eq!(s.mine.ping().unwrap(), 7);
        }
        let client = carrier.builder().intercept_calls(Explosive).build().unwrap();
        let mine = client.import::<dyn Mine>(&s.export.as_ref().unwrap().url()).unwrap();
        for _ in 0..5 {
            // The caller's interceptors run in its own thread, so it gets their panics.
            caught(|| drop(mine.take(Fragile(SOUND))));
            caught(|| drop(mine.start().give(SOUND).wait()));
            assert_eq!(mine.ping().unwrap(), 7);
            assert_eq!(mine.start().ping().wait().unwrap(), 7);
        }
    }
}

#[test]
fn an_owner_of_a_result_whose_drop_waits_delays_no_other_call() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder.workers(4).threads(8));
        let (mine, go) = (s.mine.clone(), s.goes.clone());
        if let Carrier::Datagrams = carrier {
            // The first result is copied. Then the runtime knows that the procedure's results are long.
            go.send(()).unwrap();
            mine.bytes_of_waiting().unwrap();
            s.begins.recv().unwrap();
        }
        let call = s.mine.start().bytes_of_waiting();
        match carrier {
            // The owner is dropped when the caller has acknowledged the result. The caller's next call does
            // that.
            Carrier::Datagrams => {
                assert_eq!(call.wait().unwrap().len(), 100_000);
                while s.begins.try_recv().is_err() {
                    mine.ping().unwrap();
                }
                for _ in 0..100 {
                    assert_eq!(mine.ping().unwrap(), 7);
                }
                go.send(()).unwrap();
            }
            // The result is copied, and the thread that executes the call drops it.
            Carrier::Memory => {
                s.begins.recv().unwrap();
                for _ in 0..100 {
                    assert_eq!(mine.ping().unwrap(), 7);
                }
                go.send(()).unwrap();
                assert_eq!(call.wait().unwrap().len(), 100_000);
            }
        }
        // The drops of all further owners go on at once.
        drop(s.goes);
    }
}

#[test]
fn wakers_that_panic_stop_no_other_call() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder);
        for _ in 0..5 {
            awaited_with_a_waker_that_panics(|| s.mine.start().ping());
            assert_eq!(common::block_on(async { s.mine.start().ping().await }).unwrap(), 7);
            assert_eq!(s.mine.ping().unwrap(), 7);
        }
    }
}

#[test]
fn a_panic_in_encoding_or_decoding_at_the_caller_reaches_only_that_caller() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder);
        for _ in 0..5 {
            caught(|| drop(s.mine.give(EXPLODES_WHEN_DECODED)));
            assert_eq!(s.mine.ping().unwrap(), 7);
            caught(|| drop(s.mine.start().give(EXPLODES_WHEN_DECODED).wait()));
            caught(|| drop(common::block_on(async { s.mine.start().give(EXPLODES_WHEN_DECODED).await })));
            caught(|| drop(s.mine.take(Fragile(EXPLODES_WHEN_ENCODED))));
            caught(|| drop(s.mine.start().take(Fragile(EXPLODES_WHEN_ENCODED))));
            assert_eq!(s.mine.start().ping().wait().unwrap(), 7);
        }
    }
}

#[test]
fn a_panic_in_the_handler_of_a_group_call_reaches_only_its_caller() {
    for carrier in CARRIERS.into_iter().filter(|carrier| carrier.is_there()) {
        let s = setting(carrier, |builder| builder);
        let url = s.export.as_ref().unwrap().url();
        let group = s._runtimes.1.import_each::<dyn Mine>(&[&url]).unwrap();
        for _ in 0..5 {
            caught(|| {
                let _ = group.multi().ping().each(|_| {
                    explode();
                    Next::Continue
                });
            });
            caught(|| drop(group.multi().give(EXPLODES_WHEN_DECODED).all()));
            assert_eq!(group.multi().ping().all().results().count(), 1);
            assert_eq!(s.mine.ping().unwrap(), 7);
        }
    }
}

#[test]
fn whatever_panics_in_a_server_of_this_process_the_next_call_is_served() {
    let (server, ..) = Server::new();
    let mine = farcall::stub::local::<dyn Mine>(Arc::new(Mines(server)));
    try_all(&mine);
    // These are more calls than the channel has threads.
    for _ in 0..100 {
        awaited_with_a_waker_that_panics(|| mine.start().ping());
    }
    assert_eq!(mine.start().ping().wait().unwrap(), 7);
    assert_eq!(common::block_on(async { mine.start().ping().await }).unwrap(), 7);
    let drops = AssertUnwindSafe(mine);
    caught(move || drop(drops));
    let (server, ..) = Server::new();
    let mine = farcall::stub::local_async(MineAsyncServer::new(AsyncMines(Mines(server))));
    try_all(&mine);
    let drops = AssertUnwindSafe(mine);
    caught(move || drop(drops));
}
