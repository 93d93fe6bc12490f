//! One-way calls that a server has received outlive the process that made them. The tests kill real
//! processes.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::builder;

const URL: &str = "FARCALL_TEST_URL";
const MEMORY: &str = "FARCALL_TEST_MEMORY";
/// The test fails after this time. Nothing here takes that long.
const GUARD: Duration = Duration::from_secs(60);
/// The client's patience.
const PATIENCE: Duration = Duration::from_millis(500);
const CALLS: u32 = 100;

#[farcall::interface]
pub trait Notes {
    /// Waits until its caller gives it up, or for three times the patience, and reports which.
    #[oneway]
    #[blocking]
    fn wait(&self) -> farcall::Result<()>;
    #[oneway]
    fn note(&self, number: u32) -> farcall::Result<()>;
}

#[derive(Debug, PartialEq, Eq)]
enum Did {
    Begin,
    WentOn,
    GivenUp,
    Note(u32),
}

struct Server(Mutex<Sender<Did>>);

impl Server {
    fn report(&self, did: Did) {
        let _ = self.0.lock().unwrap().send(did);
    }
}

impl Notes for Server {
    fn wait(&self) -> farcall::Result<()> {
        self.report(Did::Begin);
        let given_up = farcall::context().cancelled().wait(3 * PATIENCE);
        self.report(if given_up { Did::GivenUp } else { Did::WentOn });
        Ok(())
    }

    fn note(&self, number: u32) -> farcall::Result<()> {
        self.report(Did::Note(number));
        Ok(())
    }
}

/// Not a test by itself: the process that the test starts makes calls, and waits until it is killed.
#[test]
fn a_process_that_the_test_starts() {
    let (Ok(url), Ok(memory)) = (env::var(URL), env::var(MEMORY)) else { return };
    let runtime = builder().shared_memory(memory == "true").patience(PATIENCE).build().unwrap();
    let notes = runtime.import::<dyn Notes>(&url).unwrap();
    // While the first batch is under way, the other calls collect in the second.
    notes.wait().unwrap();
    notes.wait().unwrap();
    (0..CALLS).for_each(|number| notes.note(number).unwrap());
    println!("ready");
    let _ = notes.binding().flush();
}

#[test]
fn calls_that_a_server_has_received_are_executed_though_their_caller_is_killed() {
    for memory in [false, cfg!(target_os = "linux")] {
        let (send, did) = channel();
        let runtime = builder().shared_memory(memory).build().unwrap();
        let export = runtime.export::<dyn Notes>("Notes", Arc::new(Server(Mutex::new(send)))).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "oneway::a_process_that_the_test_starts", "--nocapture"]);
        command.env(URL, export.url()).env(MEMORY, memory.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(says.any(|line| line.unwrap().contains("ready")));
        let next = || did.recv_timeout(GUARD).unwrap();
        // The first batch is over, and the second has come.
        assert_eq!([next(), next(), next()], [Did::Begin, Did::WentOn, Did::Begin]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(next(), Did::WentOn, "shared memory: {memory}");
        assert!((0..CALLS).all(|number| next() == Did::Note(number)));
    }
}
