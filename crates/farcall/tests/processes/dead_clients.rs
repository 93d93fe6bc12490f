//! A server learns that a client is gone, and gives its calls up: real processes, really killed.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::builder;
use farcall::{Export, Kind, Ran, Runtime};

const URL: &str = "FARCALL_TEST_URL";
const MEMORY: &str = "FARCALL_TEST_MEMORY";
/// The test fails after this time. Nothing here takes that long.
const GUARD: Duration = Duration::from_secs(60);
/// The clients' patience.
const PATIENCE: Duration = Duration::from_millis(500);

#[farcall::interface]
pub trait Job {
    /// Waits until its caller gives it up, and reports that.
    #[blocking]
    fn wait(&self, number: u64) -> farcall::Result<()>;
    /// Waits until its caller gives it up, or for three times the patience, and reports which.
    #[blocking]
    fn detached(&self) -> farcall::Result<()>;
}

#[derive(Debug, PartialEq, Eq)]
enum Did {
    Begin(u64),
    Told(u64),
    WentOn,
}

struct Server(Mutex<Sender<Did>>);

impl Server {
    fn note(&self, did: Did) {
        let _ = self.0.lock().unwrap().send(did);
    }
}

impl Job for Server {
    fn wait(&self, number: u64) -> farcall::Result<()> {
        self.note(Did::Begin(number));
        if farcall::context().cancelled().wait(GUARD) {
            self.note(Did::Told(number));
        }
        Ok(())
    }

    fn detached(&self) -> farcall::Result<()> {
        let cancelled = farcall::context().cancelled();
        self.note(Did::Begin(0));
        self.note(if cancelled.wait(3 * PATIENCE) { Did::Told(0) } else { Did::WentOn });
        Ok(())
    }
}

/// Not a test by itself: the processes that the tests start call, and wait until they are killed.
#[test]
fn a_process_that_the_test_starts() {
    let (Ok(url), Ok(memory)) = (env::var(URL), env::var(MEMORY)) else { return };
    let runtime = builder().shared_memory(memory == "true").patience(PATIENCE).build().unwrap();
    let job = runtime.import::<dyn Job>(&url).unwrap();
    job.start().detached().detach();
    let pending: Vec<_> = (1..4).map(|number| job.start().wait(number)).collect();
    println!("ready");
    for (number, call) in (1..).zip(pending) {
        let outcome = call.wait();
        println!("{number} {:?}", outcome.map_err(|why| farcall::CallFailed::from(why).kind()));
    }
}

struct Setting {
    did: Receiver<Did>,
    child: Child,
    says: BufReader<std::process::ChildStdout>,
    _export: Export,
    _runtime: Runtime,
}

impl Setting {
    /// Makes a server in this process, and a client in another process, whose calls are executed.
    fn new(memory: bool) -> Setting {
        let (send, did) = channel();
        let runtime = builder().shared_memory(memory).workers(16).build().unwrap();
        let export = runtime.export::<dyn Job>("Job", Arc::new(Server(Mutex::new(send)))).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "dead_clients::a_process_that_the_test_starts", "--nocapture"]);
        command.env(URL, export.url()).env(MEMORY, memory.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut setting = Setting { did, child, says, _export: export, _runtime: runtime };
        setting.until("ready");
        let mut begun: Vec<Did> = (0..4).map(|_| setting.did()).collect();
        begun.sort_by_key(|did| if let Did::Begin(number) = did { *number } else { u64::MAX });
        assert_eq!(begun, [Did::Begin(0), Did::Begin(1), Did::Begin(2), Did::Begin(3)]);
        setting
    }

    fn did(&self) -> Did {
        self.did.recv_timeout(GUARD).unwrap()
    }

    fn until(&mut self, said: &str) {
        let mut line = String::new();
        while !line.contains(said) {
            line.clear();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "the process ended too early");
        }
    }

    /// Asserts that the server gives up all calls that were waited for, and that the detached one goes on.
    fn ends(&self) {
        let mut all: Vec<Did> = (0..4).map(|_| self.did()).collect();
        all.sort_by_key(|did| if let Did::Told(number) = did { *number } else { 0 });
        assert_eq!(all, [Did::WentOn, Did::Told(1), Did::Told(2), Did::Told(3)]);
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_calls_of_a_client_that_is_killed_are_given_up_but_for_what_it_detached() {
    for memory in [false, cfg!(target_os = "linux")] {
        let mut s = Setting::new(memory);
        s.child.kill().unwrap();
        s.child.wait().unwrap();
        s.ends();
    }
}

/// A process that is stopped sends nothing, and is there again later.
#[test]
fn a_client_that_was_stopped_for_too_long_hears_that_its_calls_were_cancelled() {
    let mut s = Setting::new(false);
    let signal = |name: &str| {
        let status = Command::new("kill").arg(name).arg(s.child.id().to_string()).status().unwrap();
        assert!(status.success());
    };
    signal("-STOP");
    s.ends();
    signal("-CONT");
    for number in 1..4 {
        s.until(&format!("{number} Err({:?})", Kind::Cancelled));
    }
}

/// A client that waits keeps its call, however long that takes.
#[test]
fn a_client_that_waits_is_not_given_up() {
    let (send, did) = channel();
    let runtime = builder().shared_memory(false).build().unwrap();
    let export = runtime.export::<dyn Job>("Job", Arc::new(Server(Mutex::new(send)))).unwrap();
    let client = builder().shared_memory(false).patience(PATIENCE).build().unwrap();
    let job = client.import::<dyn Job>(&export.url()).unwrap();
    // This call takes three times the patience.
    job.detached().unwrap();
    assert_eq!((did.recv().unwrap(), did.recv().unwrap()), (Did::Begin(0), Did::WentOn));
    let why = farcall::CallFailed::from(job.within(2 * PATIENCE).wait(7).unwrap_err());
    assert_eq!(why.kind(), Kind::Deadline);
    assert_ne!(why.ran(), Ran::No);
}
