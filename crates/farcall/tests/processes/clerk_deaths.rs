//! The process that has its machine's clerk is killed: real processes that share a registry.
//!
//! The test program runs itself again as the exporters, and as clerks. The test waits for no time to pass: a
//! process says when it is ready.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::memory::clerk::Clerk;
use farcall::memory::{Memory, Rights, Settings, clerk};
use farcall::{Kind, Runtime, names};
use rustix::process::{Pid, Signal, kill_process};

const NAME: &str = "FARCALL_TEST_NAME";
const REGISTRY: &str = "FARCALL_TEST_NAMES";
const CLERK: &str = "FARCALL_TEST_CLERK";

/// An exporter of one segment, or a clerk, in a process of its own.
struct Exporter {
    child: Child,
    _says: BufReader<ChildStdout>,
}

impl Exporter {
    fn start(registry: &Path, name: &str) -> Exporter {
        Exporter::run("an_exporter_that_the_test_starts", registry, NAME, name)
    }

    /// Starts a clerk, at this address.
    fn start_clerk(registry: &Path, address: SocketAddr) -> Exporter {
        Exporter::run("a_clerk_that_the_test_starts", registry, CLERK, &address.to_string())
    }

    fn run(test: &str, registry: &Path, variable: &str, value: &str) -> Exporter {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", &format!("clerk_deaths::{test}"), "--nocapture"])
            .env(variable, value)
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
fn a_clerk_that_the_test_starts() {
    let (Ok(address), Some(registry)) = (env::var(CLERK), env::var_os(REGISTRY)) else { return };
    let builder = Runtime::builder().registry(names::File::at(registry)).address(address.parse().unwrap());
    let _clerk = Clerk::start(&builder.build().unwrap(), clerk::Settings::default()).unwrap();
    println!("\nready");
    // This waits until the test is over.
    let _ = std::io::stdin().read(&mut [0]);
}

/// The machine's clerk is a process of its own, and is killed amid 10,000 look-ups by several threads. No
/// look-up fails: the importer finds the next clerk, or runs it, and the names are there again.
#[test]
fn a_clerk_that_is_killed_amid_look_ups_fails_none() {
    const ROUNDS: u64 = 4;
    const THREADS: u64 = 4;
    const LOOK_UPS: u64 = 10_000 / ROUNDS / THREADS;
    let scratch = tempfile::tempdir().unwrap();
    let registry = scratch.path().join("registry");
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let mut clerk = Exporter::start_clerk(&registry, anywhere);
    let _exporter = Exporter::start(&registry, "first");
    let kind = |why: farcall::Error| why.call_failed().unwrap().kind();
    for round in 0..ROUNDS {
        let importer = runtime(&registry);
        let done = AtomicU64::new(0);
        let look_up = || {
            for n in 0..LOOK_UPS {
                if n % 10 == 9 {
                    let outcome = importer.import_segment("nothing").map(drop);
                    assert_eq!(outcome.map_err(kind), Err(Kind::NoSuchName));
                } else {
                    let remote = importer.import_segment("first").unwrap_or_else(|why| panic!("{why}"));
                    assert_eq!(remote.load(0).unwrap(), 5);
                }
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|threads| {
            (0..THREADS).for_each(|_| drop(threads.spawn(look_up)));
            // Each round kills at another moment, amid look-ups that are under way.
            while done.load(Ordering::SeqCst) < THREADS * LOOK_UPS * (round + 1) / (ROUNDS + 2) {
                std::thread::yield_now();
            }
            clerk.kill();
        });
        drop(importer); // and with it the clerk that it runs now
        clerk = Exporter::start_clerk(&registry, anywhere);
    }
    clerk.kill();
}

/// Another machine's clerk is killed, and comes back at its address, amid look-ups with that hint. Each ends
/// rightly: with the entry, or with the failure that says that the clerk does not answer.
#[test]
fn another_machines_clerk_is_killed_amid_look_ups() {
    let scratch = tempfile::tempdir().unwrap();
    let (theirs, ours) = (scratch.path().join("theirs"), scratch.path().join("ours"));
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut clerk = Exporter::start_clerk(&theirs, address);
    let _exporter = Exporter::start(&theirs, "first");
    let importer = runtime(&ours);
    let look_up = || importer.import_segment_anew("first", Some(address));
    for _ in 0..3 {
        for _ in 0..100 {
            assert_eq!(look_up().unwrap().load(0).unwrap(), 5);
        }
        clerk.kill();
        let next = std::thread::scope(|threads| {
            let starting = threads.spawn(|| Exporter::start_clerk(&theirs, address));
            while !starting.is_finished() {
                match look_up() {
                    Ok(remote) => assert_eq!(remote.load(0).unwrap(), 5),
                    Err(why) => {
                        let kind = why.call_failed().unwrap().kind();
                        // A clerk that has just begun has not exported its table, or not yet filled it.
                        let rightly = [Kind::Unreachable, Kind::NoSuchName, Kind::NotExported];
                        assert!(rightly.contains(&kind), "{why}");
                    }
                }
            }
            starting.join().unwrap()
        });
        clerk = next;
    }
    assert_eq!(look_up().unwrap().load(0).unwrap(), 5);
    clerk.kill();
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
