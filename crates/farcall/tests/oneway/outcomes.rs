//! What becomes of one-way calls when something fails.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use farcall::intercept::{Call, Ended, Interceptor};
use farcall::{CallFailed, Kind, Ran, Result, Runtime, Unwound};

use super::common::block_on;
use super::{Log, LogClient, Server};

fn runtimes() -> (Runtime, Runtime) {
    let names = farcall::names::Memory::new();
    let runtime = || Runtime::builder().registry(names.clone()).shared_memory(false).build().unwrap();
    (runtime(), runtime())
}

fn flushed(log: &LogClient) -> CallFailed {
    log.binding().flush().expect_err("calls were lost").into()
}

#[test]
fn flush_says_once_why_calls_were_lost() {
    let (here, there) = runtimes();
    let ours = Server::default();
    let export = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let log = here.import_within::<dyn Log>("Log", Duration::from_secs(5)).unwrap();
    log.note("before").unwrap();
    log.binding().flush().unwrap();
    drop(export);
    log.note("nobody executes this").unwrap();
    let why = flushed(&log);
    assert_eq!(why.ran(), Ran::No, "{why}");
    log.binding().flush().unwrap();
    assert_eq!(*ours.lines.lock().unwrap(), ["before"]);
}

#[test]
fn calls_that_did_not_run_go_to_the_server_that_has_the_name_now() {
    let (here, there) = runtimes();
    let (first, second) = (Server::default(), Server::default());
    let export = there.export::<dyn Log>("Log", Arc::new(first.clone())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    log.note("to the first").unwrap();
    log.binding().flush().unwrap();
    drop(export);
    let _export = there.export::<dyn Log>("Log", Arc::new(second.clone())).unwrap();
    (0..100).for_each(|number| log.count(number).unwrap());
    log.binding().flush().unwrap();
    assert_eq!(*first.lines.lock().unwrap(), ["to the first"]);
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(*second.lines.lock().unwrap(), expected);
}

/// An earlier version of the interface, whose second procedure has another type.
#[farcall::interface(name = "Log")]
trait Earlier {
    #[oneway]
    fn note(&self, line: &str) -> Result<()>;
    #[oneway]
    fn count(&self, number: u32) -> Result<()>;
}

impl Earlier for Server {
    fn note(&self, line: &str) -> Result<()> {
        Log::note(self, line)
    }

    fn count(&self, number: u32) -> Result<()> {
        Log::count(self, u64::from(number))
    }
}

#[test]
fn only_calls_of_procedures_that_the_server_has_are_executed() {
    let (here, there) = runtimes();
    let ours = Server::default();
    let _export = there.export::<dyn Earlier>("Log", Arc::new(ours.clone())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    // The first batch leaves at once. The second has calls of both procedures.
    for number in 0..10 {
        log.note("a line").unwrap();
        log.count(number).unwrap();
    }
    let why = flushed(&log);
    assert_eq!((why.kind(), why.ran()), (Kind::NoSuchProcedure, Ran::No), "{why}");
    assert_eq!(*ours.lines.lock().unwrap(), ["a line"; 10]);
}

/// The batch was made for a server that had both procedures.
#[test]
fn a_server_of_another_version_executes_the_calls_that_it_can() {
    let (here, there) = runtimes();
    let export = there.export::<dyn Log>("Log", Arc::new(Server::default())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    log.note("to the first").unwrap();
    log.binding().flush().unwrap();
    drop(export);
    let ours = Server::default();
    let _export = there.export::<dyn Earlier>("Log", Arc::new(ours.clone())).unwrap();
    for number in 0..10 {
        log.note("a line").unwrap();
        log.count(number).unwrap();
    }
    let why = flushed(&log);
    assert_eq!((why.kind(), why.ran()), (Kind::NoSuchProcedure, Ran::No), "{why}");
    assert_eq!(*ours.lines.lock().unwrap(), ["a line"; 10]);
}

/// Makes calls of its own, blocking and one-way, before and after each call.
struct Audits(LogClient);

impl Interceptor for Audits {
    fn before(&self, _: &Call<'_>) -> std::result::Result<(), CallFailed> {
        self.0.lines().map_err(CallFailed::from).map(drop)
    }

    fn after(&self, _: &Call<'_>, _: &Ended<'_>) {
        self.0.note(&"x".repeat(200_000)).expect("it waits until there is room");
    }
}

#[test]
fn interceptors_of_one_way_calls_may_wait_for_calls_of_their_own() {
    for shared_memory in [false, true] {
        let names = farcall::names::Memory::new();
        let builder = || Runtime::builder().registry(names.clone()).shared_memory(shared_memory);
        let (audits, there) = (builder().build().unwrap(), builder().build().unwrap());
        let (audited, ours) = (Server::default(), Server::default());
        let _audit = there.export::<dyn Log>("Log/audit", Arc::new(audited.clone())).unwrap();
        let _export = there.export::<dyn Log>("Log/ours", Arc::new(ours.clone())).unwrap();
        let audits = Audits(audits.import::<dyn Log>("Log/audit").unwrap());
        let here = builder().intercept_calls(audits).build().unwrap();
        let log = here.import::<dyn Log>("Log/ours").unwrap();
        (0..2_000).for_each(|number| log.count(number).unwrap());
        assert_eq!(log.start().lines().wait().unwrap().len(), 2_000);
        log.binding().flush().unwrap();
        assert_eq!(ours.lines.lock().unwrap().len(), 2_000);
    }
}

#[test]
fn a_thread_that_ends_makes_one_way_calls() {
    struct AtTheEnd(LogClient);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.note("at the end").unwrap();
            self.0.binding().flush().unwrap();
        }
    }
    thread_local! {
        static KEPT: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
    }
    let (here, there) = runtimes();
    let ours = Server::default();
    let _export = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    let thread = move || {
        // What is kept first is dropped last, when the buffer of one-way calls is gone.
        KEPT.with_borrow_mut(|kept| *kept = Some(AtTheEnd(log.clone())));
        log.note("before").unwrap();
        log.binding().flush().unwrap();
    };
    std::thread::spawn(thread).join().unwrap();
    assert_eq!(*ours.lines.lock().unwrap(), ["before", "at the end"]);
}

#[test]
fn arguments_that_cannot_be_sent_are_refused_at_the_caller() {
    let (here, there) = runtimes();
    let _export = there.export::<dyn Log>("Log", Arc::new(Server::default())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    log.note("before").unwrap();
    let why = CallFailed::from(log.note(&"x".repeat(16 << 20)).unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No));
    log.note("behind").unwrap();
    assert_eq!(log.lines().unwrap(), ["before", "behind"]);
}

#[test]
fn a_later_call_waits_no_longer_than_its_deadline() {
    let (here, there) = runtimes();
    let ours = Server::default();
    let _export = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    let open = ours.close_gate();
    log.gate().unwrap();
    let why = CallFailed::from(log.within(Duration::from_millis(20)).lines().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    let why = CallFailed::from(log.within(Duration::from_millis(20)).start().lines().wait().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    let (send, ended) = mpsc::channel();
    let awaited = log.within(Duration::from_millis(20));
    std::thread::spawn(move || send.send(block_on(awaited.start().lines())));
    let outcome = ended.recv_timeout(Duration::from_secs(60)).expect("the call ends at its deadline");
    let why = CallFailed::from(outcome.unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    let mut started = log.start().lines();
    started.cancel();
    let why = CallFailed::from(started.wait().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::No), "{why}");
    drop(open);
    assert_eq!(log.lines().unwrap(), ["gate"]);
}

#[farcall::interface]
trait Asking {
    #[oneway]
    fn ask(&self) -> Result<()>;
    #[signal]
    fn which(&self) -> u64;
}

struct Asks(Mutex<mpsc::Sender<std::result::Result<u64, Unwound>>>);

impl Asking for Asks {
    fn ask(&self) -> Result<()> {
        let _ = self.0.lock().unwrap().send(AskingSignals::which());
        Ok(())
    }
}

#[test]
fn nobody_catches_a_signal_in_a_one_way_call() {
    let (here, there) = runtimes();
    let (send, answers) = mpsc::channel();
    let server = Arc::new(Asks(Mutex::new(send)));
    let _export = there.export::<dyn Asking>("Asking", server.clone()).unwrap();
    for asking in [here.import::<dyn Asking>("Asking").unwrap(), farcall::stub::local::<dyn Asking>(server)] {
        asking.ask().unwrap();
        assert!(answers.recv().unwrap().is_err());
        asking.binding().flush().unwrap();
    }
}

#[test]
fn a_one_way_call_waits_for_room_no_longer_than_its_deadline_and_none_is_accepted_after_that() {
    let (here, there) = runtimes();
    let ours = Server::default();
    let _export = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let log = here.import::<dyn Log>("Log").unwrap();
    let late = |why: farcall::Error| {
        let why = CallFailed::from(why);
        assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    };
    late(log.within(Duration::ZERO).note("late").unwrap_err());
    here.within(Duration::ZERO, || late(log.note("late too").unwrap_err()));
    let open = ours.close_gate();
    log.gate().unwrap();
    let hasty = log.within(Duration::from_millis(20));
    // More calls than may wait: one of them finds no room.
    let line = "x".repeat(10_000);
    let accepted = (0..100).take_while(|_| hasty.note(&line).map_err(late).is_ok()).count();
    assert!(accepted < 100, "the gate is closed, so nothing makes room");
    drop(open);
    log.binding().flush().unwrap();
    assert_eq!(ours.lines.lock().unwrap().len(), 1 + accepted);
}

/// A procedure that makes one-way calls does not hand its deadline on to them.
#[test]
fn one_way_calls_outlive_the_call_that_made_them() {
    #[farcall::interface]
    trait Front {
        fn pass(&self, line: &str) -> Result<()>;
    }
    struct Passes(LogClient);
    impl Front for Passes {
        fn pass(&self, line: &str) -> Result<()> {
            self.0.gate()?;
            self.0.note(line)
        }
    }
    let (here, there) = runtimes();
    let ours = Server::default();
    let open = ours.close_gate();
    let _log = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let log = there.import::<dyn Log>("Log").unwrap();
    let front = Arc::new(Passes(log));
    let _front = there.export::<dyn Front>("Front", front.clone()).unwrap();
    here.import::<dyn Front>("Front").unwrap().within(Duration::from_secs(5)).pass("a line").unwrap();
    drop(open);
    front.0.binding().flush().unwrap();
    assert_eq!(*ours.lines.lock().unwrap(), ["gate", "a line"]);
}
