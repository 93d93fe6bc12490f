//! The process that has its machine's clerk is killed: real processes that share a registry.
//!
//! The test program runs itself again as the exporters. The test waits for no time to pass: an exporter says
//! when it is ready.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use farcall::memory::{Memory, Rights, Settings};
use farcall::{Kind, Runtime, names};
use rustix::process::{Pid, Signal, kill_process};

const NAME: &str = "FARCALL_TEST_NAME";
const REGISTRY: &str = "FARCALL_TEST_NAMES";

/// An exporter of one segment, in a process of its own.
struct Exporter {
    child: Child,
    _says: BufReader<ChildStdout>,
}

impl Exporter {
    fn start(registry: &Path, name: &str) -> Exporter {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "clerk_deaths::an_exporter_that_the_test_starts", "--nocapture"])
            .env(NAME, name)
            .env(REGISTRY, registry);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            assert_ne!(says.read_line(&mut line).unwrap(), 0, "an exporter ended too early");
        }
        Exporter { child, _says: says }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn runtime(registry: &Path) -> Runtime {
    // The time is short, because an importer waits for a dead process that a clerk still knows. No living
    // process is silent for so long.
    Runtime::builder().registry(names::File::at(registry)).patience(Duration::from_secs(2)).build().unwrap()
}

#[test]
fn an_exporter_that_the_test_starts() {
    let (Ok(name), Some(registry)) = (env::var(NAME), env::var_os(REGISTRY)) else { return };
    let runtime = runtime(registry.as_ref());
    let segment = runtime.export_segment(&name, Settings::new(64).anyone(Rights::READ)).unwrap();
    segment.store(0, name.len() as u64).unwrap();
    println!("\nready");
    // This waits until the test is over.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn whichever_process_is_killed_the_others_are_found() {
    let scratch = tempfile::tempdir().unwrap();
    let registry = scratch.path().join("registry");
    let kind = |outcome: farcall::Result<_>| outcome.map(drop).unwrap_err().call_failed().unwrap().kind();
    let importer = runtime(&registry);
    let find = |name: &str| importer.import_segment(name).unwrap().load(0).unwrap();

    // The first process has the clerk.
    let first = Exporter::start(&registry, "first");
    let second = Exporter::start(&registry, "second");
    assert_eq!((find("first"), find("second")), (5, 6));
    first.kill();
    // The importer has the clerk now, and has found the second process.
    assert_eq!(find("second"), 6);
    assert_eq!(kind(importer.import_segment("first")), Kind::NoSuchName);
    let third = Exporter::start(&registry, "third");
    assert_eq!(find("third"), 5);
    second.kill();
    // A fresh look-up finds out at once, whichever process has the clerk. Before the next refresh, others
    // find out by the import.
    assert_eq!(kind(importer.import_segment_anew("second", None)), Kind::NoSuchName);
    let again = Exporter::start(&registry, "first");
    assert_eq!((find("first"), find("third")), (5, 5));
    third.kill();
    again.kill();
    assert_eq!(kind(importer.import_segment("third")), Kind::NoSuchName);
}

/// No process can take the place of a clerk that is merely stopped. Processes that need the clerk are told,
/// and go on when it does.
#[test]
fn a_clerk_that_is_stopped_is_said_to_be_silent() {
    let scratch = tempfile::tempdir().unwrap();
    let registry = scratch.path().join("registry");
    let first = Exporter::start(&registry, "first");
    let importer = runtime(&registry);
    importer.import_segment("first").unwrap();
    let pid = Pid::from_child(&first.child);
    kill_process(pid, Signal::STOP).unwrap();
    let why = importer.import_segment("first").map(drop).unwrap_err();
    assert_eq!(why.call_failed().unwrap().kind(), Kind::Unreachable, "{why}");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(importer.import_segment("first").unwrap().load(0).unwrap(), 5);
    first.kill();
}
