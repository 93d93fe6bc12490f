//! Tests of failed calls over real sockets: which failures callers get, and that other calls are served.

use crate::common;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{builder, runtime};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};

#[farcall::interface]
pub trait Gate {
    /// Waits until the gate is opened, then returns how many calls have passed.
    #[blocking]
    fn pass(&self) -> farcall::Result<u64>;
    /// Does what `pass` does, without `#[blocking]`.
    fn pass_unmarked(&self, wait: bool) -> farcall::Result<u64>;
    fn open(&self) -> farcall::Result<()>;
    fn ping(&self) -> farcall::Result<u64>;
    fn panic(&self, text: &str) -> farcall::Result<()>;
    /// Waits until its caller gives it up.
    #[blocking]
    fn until_cancelled(&self) -> farcall::Result<()>;
    fn cancelled(&self) -> farcall::Result<u64>;
    /// Returns how long the caller will wait, in milliseconds, or 0 if there is no deadline.
    fn remaining(&self) -> farcall::Result<u64>;
    /// Calls `remaining` of the gate with this name.
    fn remaining_there(&self, name: &str) -> farcall::Result<u64>;
    /// Calls itself, `depth` calls deep.
    fn nest(&self, depth: u32) -> farcall::Result<u32>;
    /// Calls `panic` of this server.
    fn pass_on(&self) -> farcall::Result<()>;
}

#[derive(Default)]
struct Server {
    own: Mutex<Option<GateClient>>,
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicU64,
    passed: AtomicU64,
    pings: AtomicU64,
    cancelled: AtomicU64,
}

impl Server {
    fn own(&self) -> GateClient {
        self.own.lock().unwrap().clone().unwrap()
    }
}

impl Gate for Server {
    fn pass(&self) -> farcall::Result<u64> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
        Ok(self.passed.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn pass_unmarked(&self, wait: bool) -> farcall::Result<u64> {
        if wait { self.pass() } else { Ok(0) }
    }

    fn open(&self) -> farcall::Result<()> {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
        Ok(())
    }

    fn ping(&self) -> farcall::Result<u64> {
        Ok(self.pings.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn panic(&self, text: &str) -> farcall::Result<()> {
        std::panic::resume_unwind(Box::new(text.to_owned()))
    }

    fn until_cancelled(&self) -> farcall::Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !farcall::context().is_cancelled() {
            std::thread::yield_now();
        }
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn cancelled(&self) -> farcall::Result<u64> {
        Ok(self.cancelled.load(Ordering::SeqCst))
    }

    fn remaining(&self) -> farcall::Result<u64> {
        Ok(farcall::context().remaining().map_or(0, |left| left.as_millis() as u64))
    }

    fn remaining_there(&self, name: &str) -> farcall::Result<u64> {
        farcall::import::<dyn Gate>(name)?.remaining()
    }

    fn nest(&self, depth: u32) -> farcall::Result<u32> {
        if depth == 0 { Ok(0) } else { Ok(self.own().nest(depth - 1)? + 1) }
    }

    fn pass_on(&self) -> farcall::Result<()> {
        self.own().panic("inner")
    }
}

struct Setting {
    runtime: Runtime,
    server: Arc<Server>,
    export: Option<farcall::Export>,
    gate: GateClient,
}

fn setting(runtime: Runtime) -> Setting {
    let server = Arc::new(Server::default());
    let export = runtime.export::<dyn Gate>("Gate", server.clone()).unwrap();
    let gate = runtime.import::<dyn Gate>("Gate").unwrap();
    *server.own.lock().unwrap() = Some(gate.clone());
    Setting { runtime, server, export: Some(export), gate }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // The server holds a stub, which holds the runtime.
        *self.server.own.lock().unwrap() = None;
        self.server.open().unwrap();
    }
}

impl Setting {
    /// Waits until this many calls have begun to wait in their procedures.
    fn until_waiting(&self, calls: u64) {
        while self.server.waiting.load(Ordering::SeqCst) < calls {
            std::thread::yield_now();
        }
    }
}

fn failed<T: std::fmt::Debug>(result: farcall::Result<T>) -> CallFailed {
    result.unwrap_err().into()
}

fn told<T: std::fmt::Debug>(result: farcall::Result<T>) -> (Kind, Ran) {
    let why = failed(result);
    (why.kind(), why.ran())
}

#[test]
fn a_panic_fails_only_its_own_call_and_the_server_goes_on() {
    let s = setting(runtime());
    for _ in 0..20 {
        let why = failed(s.gate.panic("ouch"));
        assert_eq!((why.kind(), why.ran()), (Kind::Panicked, Ran::Yes));
        assert!(why.detail().contains("ouch"), "{why}");
    }
    s.gate.ping().unwrap();
}

#[test]
fn a_failure_that_a_procedure_passes_on_becomes_nested() {
    let s = setting(runtime());
    assert_eq!(told(s.gate.pass_on()), (Kind::Nested, Ran::Yes));
}

#[test]
fn a_slow_procedure_delays_no_other_call() {
    let s = setting(runtime());
    let slow = s.gate.start().pass();
    s.until_waiting(1);
    for _ in 0..20 {
        s.gate.ping().unwrap();
    }
    s.gate.open().unwrap();
    assert_eq!(slow.wait().unwrap(), 1);
}

#[test]
fn a_quick_procedure_that_begins_to_block_delays_no_other_call() {
    let s = setting(runtime());
    for _ in 0..1000 {
        s.gate.pass_unmarked(false).unwrap();
    }
    let slow: Vec<_> = (0..3).map(|_| s.gate.start().pass_unmarked(true)).collect();
    s.until_waiting(3);
    s.gate.ping().unwrap();
    s.gate.open().unwrap();
    for call in slow {
        call.wait().unwrap();
    }
}

#[test]
fn nested_calls_are_served_beyond_the_limit_of_workers() {
    let s = setting(builder().workers(1).build().unwrap());
    assert_eq!(s.gate.nest(40).unwrap(), 40);
    // Nested calls are also served once the procedure is known as quick.
    for _ in 0..20 {
        assert_eq!(s.gate.nest(2).unwrap(), 2);
    }
    assert_eq!(s.gate.nest(40).unwrap(), 40);
}

#[test]
fn when_all_threads_block_calls_are_refused() {
    let s = setting(builder().workers(2).threads(3).queue(3).build().unwrap());
    let blocked: Vec<_> = (0..2).map(|_| s.gate.start().pass()).collect();
    s.until_waiting(2);
    let queued: Vec<_> = (0..3).map(|_| s.gate.start().pass()).collect();
    for _ in 0..5 {
        assert_eq!(told(s.gate.pass()), (Kind::Overloaded, Ran::No));
    }
    s.server.open().unwrap();
    for call in blocked.into_iter().chain(queued) {
        call.wait().unwrap();
    }
    assert_eq!(s.server.passed.load(Ordering::SeqCst), 5, "the refused calls never ran");
}

#[test]
fn a_flood_of_calls_from_one_caller_does_not_shut_out_others() {
    // This uses UDP, because through shared memory a process is one caller, whatever its runtimes are.
    let s = setting(builder().shared_memory(false).workers(1).threads(2).queue(3).build().unwrap());
    let url = s.export.as_ref().unwrap().url();
    let blocked = s.gate.start().pass();
    s.until_waiting(1);
    let mut flood: Vec<_> = (0..10).map(|_| s.gate.start().pass()).collect();
    // The calls beyond the queue are refused at once. The queue is then full of this caller's calls.
    for call in flood.split_off(3) {
        assert_eq!(told(call.wait()), (Kind::Overloaded, Ran::No));
    }
    let other = builder().shared_memory(false).build().unwrap();
    let modest = other.import::<dyn Gate>(&url).unwrap();
    let call = modest.start().pass();
    assert_eq!(told(flood.pop().unwrap().wait()), (Kind::Overloaded, Ran::No));
    s.server.open().unwrap();
    assert_eq!(call.wait().unwrap(), 3, "the other caller's call runs after one call of the flood");
    blocked.wait().unwrap();
    for call in flood {
        call.wait().unwrap();
    }
}

/// Asserts that a begun call which its caller has cancelled fails as cancelled, however fast its procedure
/// stops.
fn assert_given_up(outcome: farcall::Result<()>) {
    let (kind, ran) = told(outcome);
    assert_eq!(kind, Kind::Cancelled);
    assert_ne!(ran, Ran::No);
}

#[test]
fn a_cancelled_call_ends_at_both_ends() {
    let s = setting(runtime());
    let mut call = s.gate.start().until_cancelled();
    s.until_waiting(1);
    call.cancel();
    assert_given_up(call.wait());
    while s.gate.cancelled().unwrap() < 1 {}
}

#[test]
fn a_call_that_was_started_without_a_binding_can_be_cancelled() {
    let mut s = setting(runtime());
    drop(s.export.take());
    failed(s.gate.ping());
    s.export = Some(s.runtime.export::<dyn Gate>("Gate", s.server.clone()).unwrap());
    let mut call = s.gate.start().until_cancelled();
    s.until_waiting(1);
    call.cancel();
    assert_given_up(call.wait());
    while s.gate.cancelled().unwrap() < 1 {}
}

#[test]
fn dropping_a_started_call_cancels_it() {
    let s = setting(runtime());
    let call = s.gate.start().until_cancelled();
    s.until_waiting(1);
    drop(call);
    while s.gate.cancelled().unwrap() < 1 {}
}

#[test]
fn a_queued_call_that_is_cancelled_never_runs() {
    let s = setting(builder().workers(1).threads(2).build().unwrap());
    let blocked = s.gate.start().pass();
    s.until_waiting(1);
    let mut queued = s.gate.start().pass();
    queued.cancel();
    assert_eq!(told(queued.wait()), (Kind::Cancelled, Ran::No));
    s.server.open().unwrap();
    assert_eq!(blocked.wait().unwrap(), 1);
    assert_eq!(s.server.waiting.load(Ordering::SeqCst), 1);
}

#[test]
fn a_deadline_ends_the_wait_and_the_call() {
    let s = setting(runtime());
    // On a busy machine the deadline may pass before the call begins. Then the call never runs, and the test
    // tries the next one.
    let mut ended = (Kind::Deadline, Ran::No);
    while ended == (Kind::Deadline, Ran::No) {
        ended = told(s.gate.within(Duration::from_millis(20)).pass());
    }
    assert_eq!(ended, (Kind::Deadline, Ran::Maybe));
    // The server may notice the deadline as quickly as the caller.
    while s.gate.cancelled().unwrap() < 1 {
        let _ = s.gate.within(Duration::from_millis(20)).until_cancelled();
    }
}

#[test]
fn a_deadline_is_inherited() {
    let s = setting(runtime());
    assert_eq!(s.gate.remaining().unwrap(), 0);
    let url = s.export.as_ref().unwrap().url();
    assert_eq!(s.gate.remaining_there(&url).unwrap(), 0);
    let inherited = s.gate.within(Duration::from_secs(1000)).remaining_there(&url).unwrap();
    assert!((1..=1_000_000).contains(&inherited), "{inherited}");
}

#[farcall::interface]
trait Front {
    /// Calls `remaining` of a gate.
    fn remaining(&self) -> farcall::Result<u64>;
}

/// Calls a group of one member, as quickly as that is possible.
struct Caller(farcall::Group<GateClient, farcall::multi::Fixed>);

impl Front for Caller {
    fn remaining(&self) -> farcall::Result<u64> {
        let all = self.0.multi().remaining().all();
        Ok(all.results().map(|(_, left)| *left).next().expect("the gate is there"))
    }
}

#[test]
fn the_quickest_calls_inherit_a_deadline_too() {
    let s = setting(runtime());
    let url = s.export.as_ref().unwrap().url();
    let group = || s.runtime.import_each::<dyn Gate>(&[&url]).unwrap();
    let near = farcall::stub::local::<dyn Front>(Arc::new(Caller(group())));
    let time = Duration::from_secs(1000);
    let timed = near.within(time);
    assert_eq!(near.remaining().unwrap(), 0);
    for left in [timed.remaining(), timed.start().remaining().wait()] {
        assert!((1..=1_000_000).contains(&left.unwrap()));
    }
    // So do all calls of a piece of program that has one time; the shorter time counts.
    let caller = Caller(group());
    assert_eq!(caller.remaining().unwrap(), 0);
    let left = s.runtime.within(time, || s.runtime.within(10 * time, || caller.remaining()));
    assert!((1..=1_000_000).contains(&left.unwrap()));
    assert_eq!(caller.remaining().unwrap(), 0);
}

#[test]
fn a_draining_export_finishes_its_running_calls() {
    let mut s = setting(runtime());
    let slow = s.gate.start().pass();
    s.until_waiting(1);
    let export = s.export.take().unwrap();
    let draining = std::thread::spawn(move || export.drain(Duration::from_secs(600)));
    // Calls are served until the export is withdrawn; then no process exports the name.
    let why = loop {
        if let Err(why) = s.gate.ping() {
            break CallFailed::from(why);
        }
    };
    assert_eq!((why.kind(), why.ran()), (Kind::Draining, Ran::No), "{why}");
    s.server.open().unwrap();
    assert!(draining.join().unwrap());
    assert_eq!(slow.wait().unwrap(), 1);
}

#[test]
fn a_draining_runtime_refuses_new_calls_and_finishes_running_ones() {
    let s = setting(runtime());
    let slow = s.gate.start().pass();
    s.until_waiting(1);
    assert!(!s.runtime.drain(Duration::ZERO), "one call is still running");
    assert_eq!(told(s.gate.ping()), (Kind::Draining, Ran::No));
    s.server.open().unwrap();
    assert!(s.runtime.drain(Duration::from_secs(600)));
    assert_eq!(slow.wait().unwrap(), 1);
    assert_eq!(s.server.pings.load(Ordering::SeqCst), 0);
}

#[test]
fn a_call_whose_arguments_do_not_decode_did_not_run() {
    let s = setting(runtime());
    let gate = farcall::dynamic::Dynamic::import(&s.runtime, "Gate").unwrap();
    let ping = gate.interface().by_name("ping").unwrap();
    let panic = gate.interface().by_name("panic").unwrap();
    let wrong: [(_, &[u8]); 4] = [
        (ping, &[0; 4]),                                // the procedure has no arguments
        (panic, &[]),                                   // the string is missing
        (panic, &[0, 0, 0, 9, b'a', 0, 0, 0]),          // the string is shorter than its length of 9
        (panic, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]), // the string's length is the greatest possible
    ];
    for (procedure, arguments) in wrong {
        let why = gate.call(procedure, arguments).unwrap_err();
        let why = why.call_failed().unwrap();
        assert_eq!((why.kind(), why.ran()), (Kind::BadArguments, Ran::No), "{why}");
    }
    assert_eq!(s.server.pings.load(Ordering::SeqCst), 0);
}

#[test]
fn a_failure_names_a_registry_that_cannot_be_read() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("farcall-registry");
    std::fs::write(&file, "a file where a directory ought to be").unwrap();
    let registry = farcall::names::File::at(&file);
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    let imported = runtime.import::<dyn Gate>("Gate").map(drop);
    let exported = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).map(drop);
    for result in [imported, exported] {
        let why = failed(result);
        assert_eq!((why.kind(), why.ran()), (Kind::Registry, Ran::No));
        assert!(why.detail().contains("farcall-registry"), "{why}");
    }
}

#[test]
fn a_call_of_a_withdrawn_export_did_not_run() {
    let mut s = setting(runtime());
    s.gate.ping().unwrap();
    drop(s.export.take());
    assert_eq!(told(s.gate.ping()), (Kind::NotExported, Ran::No));
    assert_eq!(told(s.gate.start().ping().wait()), (Kind::NoSuchName, Ran::No));
    assert_eq!(s.server.pings.load(Ordering::SeqCst), 1);
}

#[test]
fn the_next_call_binds_a_new_export_of_the_name() {
    let mut s = setting(runtime());
    drop(s.export.take());
    s.export = Some(s.runtime.export::<dyn Gate>("Gate", s.server.clone()).unwrap());
    // The call did not run at the old export, so it runs at the new one.
    assert_eq!(s.gate.ping().unwrap(), 1);
    drop(s.export.take());
    s.export = Some(s.runtime.export::<dyn Gate>("Gate", s.server.clone()).unwrap());
    assert_eq!(s.gate.start().ping().wait().unwrap(), 2);
    drop(s.export.take());
    s.export = Some(s.runtime.export::<dyn Gate>("Gate", s.server.clone()).unwrap());
    assert_eq!(common::block_on(async { s.gate.start().ping().await }).unwrap(), 3);
}

#[test]
fn an_import_that_fails_says_why() {
    let runtime = runtime();
    let kind = |name: &str| match runtime.import::<dyn Gate>(name) {
        Err(Error::CallFailed(why)) => (why.kind(), why.ran()),
        _ => panic!("{name} was bound"),
    };
    assert_eq!(kind("Gate"), (Kind::NoSuchName, Ran::No));
    assert_eq!(kind("Gate/nobody"), (Kind::NoSuchName, Ran::No));
    assert_eq!(kind("not a name"), (Kind::NoSuchName, Ran::No));
    let server = Arc::new(Server::default());
    let export = runtime.export::<dyn Gate>("Gate/a", server).unwrap();
    assert_eq!(kind(&format!("udp://{}/Other", export.address())), (Kind::NotExported, Ran::No));
    assert_eq!(kind(&format!("udp://{}/Gate/b", export.address())), (Kind::NotExported, Ran::No));
}

#[test]
fn an_import_from_an_address_without_a_server_fails_as_unreachable() {
    let runtime = builder().patience(Duration::from_millis(50)).build().unwrap();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("udp://{}/Gate", nobody.local_addr().unwrap());
    let why = runtime.import::<dyn Gate>(&name).map(drop).unwrap_err();
    assert_eq!(told::<()>(Err(why)), (Kind::Unreachable, Ran::No));
}

mod later {
    //! A later version of the interface `Gate`.
    #[farcall::interface]
    pub trait Gate {
        #[procedure(4)]
        fn ping(&self) -> farcall::Result<u64>;
        #[procedure(77)]
        fn added(&self) -> farcall::Result<u64>;
    }

    #[farcall::interface]
    pub trait Other {
        #[procedure(4)]
        fn ping(&self, loudly: bool) -> farcall::Result<u64>;
    }
}

#[test]
fn versions_are_compared_by_the_procedures_that_the_importer_knows() {
    use later::{Gate as _, Other as _};
    let s = setting(runtime());
    let gate = s.runtime.import::<dyn later::Gate>("Gate").unwrap();
    assert_eq!(gate.ping().unwrap(), 1);
    assert_eq!(told(gate.added()), (Kind::NoSuchProcedure, Ran::No));
    assert_eq!(told(gate.start().added().wait()), (Kind::NoSuchProcedure, Ran::No));
    let other = s.runtime.import::<dyn later::Other>("Gate").unwrap();
    let why = CallFailed::from(other.ping(true).unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Mismatch, Ran::No));
    assert!(why.detail().contains("ping"), "{why}");
}

#[test]
fn random_datagrams_are_dropped_and_callers_are_served() {
    let s = setting(runtime());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for round in 0..2000usize {
        let mut bytes = vec![0; round % 300];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        socket.send_to(&bytes, s.export.as_ref().unwrap().address()).unwrap();
        if round % 100 == 0 {
            s.gate.ping().unwrap();
        }
    }
    assert_eq!(s.gate.ping().unwrap(), 21);
}

#[test]
fn an_address_that_is_not_loopback_needs_permission() {
    let runtime = builder().address("0.0.0.0:0".parse().unwrap()).build().unwrap();
    let why = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap_err();
    assert_eq!(told::<()>(Err(why)), (Kind::NotPermitted, Ran::No));
    let runtime = builder().address("0.0.0.0:0".parse().unwrap()).open().build().unwrap();
    let export = runtime.export::<dyn Gate>("Gate", Arc::new(Server::default())).unwrap();
    let name = format!("udp://127.0.0.1:{}/Gate", export.address().port());
    runtime.import::<dyn Gate>(&name).unwrap().ping().unwrap();
}

#[test]
fn a_runtime_ends_with_its_last_handle() {
    let (export, weak) = {
        let s = setting(runtime());
        s.gate.ping().unwrap();
        let mut s = s;
        (s.export.take(), Arc::downgrade(&s.server))
    };
    drop(export);
    // The runtime's threads release the export when they end.
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}
