//! Tests that a server which is told to end by a signal drains first, also as the first process of a
//! container.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::File;

#[farcall::interface]
pub trait Slow {
    /// Returns after so many milliseconds.
    fn wait(&self, millis: u64) -> farcall::Result<u64>;
}

struct Server;

impl Slow for Server {
    fn wait(&self, millis: u64) -> farcall::Result<u64> {
        std::thread::sleep(Duration::from_millis(millis));
        Ok(millis)
    }
}

/// The variable that makes this test a server, which registers in the file that it names.
const NAMES: &str = "FARCALL_TEST_ENDED_BY_SIGNALS";

/// The variable that has the server told to end before it waits for that.
const EARLY: &str = "FARCALL_TEST_ENDED_EARLY";

fn runtime(names: &str) -> Runtime {
    Runtime::builder().registry(File::at(names)).build().unwrap()
}

/// Serves, if this process was started for that.
#[test]
fn serve() {
    let Ok(names) = std::env::var(NAMES) else { return };
    if std::env::var_os(EARLY).is_some() {
        return serve_after_a_signal(&names);
    }
    let export = runtime(&names).export::<dyn Slow>("Slow", Arc::new(Server)).unwrap();
    let served = std::thread::spawn(move || export.until_signal());
    // An earlier signal would end this process, or have no effect if it is the first one.
    while !takes_sigterm() {
        std::thread::yield_now();
    }
    println!("serving {}", std::process::id());
    served.join().unwrap().unwrap();
    println!("drained");
}

/// Serves, and is told to end before it waits for that.
fn serve_after_a_signal(names: &str) {
    farcall::take_signals().unwrap();
    let export = runtime(names).export::<dyn Slow>("Slow", Arc::new(Server)).unwrap();
    let own = std::process::id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &own]).status().unwrap().success());
    println!("serving {own}");
    export.until_signal().unwrap();
    println!("drained");
}

/// Returns whether this process has taken SIGTERM and SIGINT over.
fn takes_sigterm() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    // Signal 2 is bit 1, and signal 15 is bit 14.
    caught & 1 << 1 != 0 && caught & 1 << 14 != 0
}

/// A server in a process of its own. `first` makes it the first process of its own pid namespace.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    pid: u32,
}

impl Process {
    /// Returns `None` if this user can have no namespace.
    fn start(names: &str, first: bool) -> Option<Process> {
        Process::start_with(names, first, |command| command)
    }

    fn start_with(
        names: &str,
        first: bool,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Option<Process> {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(if first { "unshare".into() } else { program.clone() });
        if first {
            command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]).arg(program);
        }
        let command = command.args(["serve", "--exact", "--nocapture"]).env(NAMES, names);
        let mut child = change(command).stdout(Stdio::piped()).spawn().ok()?;
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            if output.read_line(&mut line).unwrap() == 0 {
                child.wait().unwrap();
                return None;
            }
        }
        let pid = match first {
            true => {
                assert!(line.ends_with("serving 1\n"), "{line}");
                let children = format!("/proc/{0}/task/{0}/children", child.id());
                std::fs::read_to_string(children).unwrap().trim().parse().unwrap()
            }
            false => child.id(),
        };
        Some(Process { child, output, pid })
    }

    fn tell(&self, signal: &str) {
        let told = Command::new("kill").args(["-s", signal, &self.pid.to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// Waits for the end. Returns whether it drained, and whether it ended well.
    fn end(&mut self) -> (bool, bool) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest.contains("drained"), self.child.wait().unwrap().success())
    }
}

/// Ends the process when a test fails, so that nobody waits for what it keeps open.
impl Drop for Process {
    fn drop(&mut self) {
        // The end of `unshare` ends the first process of its namespace. Both may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drains(signal: &str, first: bool) {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names").to_str().unwrap().to_owned();
    let Some(mut server) = Process::start(&names, first) else {
        return common::skip("a server that is the first process: no pid namespace of its own");
    };
    let client = runtime(&names);
    let slow = client.import::<dyn Slow>("Slow").unwrap();
    let begun = slow.start().wait(300);
    // Once this one has returned, the server has the other one, too.
    assert_eq!(slow.wait(0), Ok(0));
    server.tell(signal);
    assert_eq!(begun.wait(), Ok(300), "a call that has begun is finished");
    let refused = loop {
        if let Err(why) = slow.wait(0) {
            break why;
        }
    };
    assert_eq!(refused.ran(), farcall::Ran::No, "{refused}");
    assert_eq!(server.end(), (true, true));
    assert!(client.import::<dyn Slow>("Slow").is_err(), "the name was withdrawn");
}

#[test]
fn a_server_drains_at_sigterm() {
    drains("TERM", false);
}

#[test]
fn a_server_drains_at_sigint() {
    drains("INT", false);
}

#[test]
fn a_server_that_is_the_first_process_of_a_container_drains_at_sigterm() {
    drains("TERM", true);
}

#[test]
fn a_signal_that_comes_before_a_server_waits_for_one_ends_it_with_a_drain() {
    for first in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let names = folder.path().join("names").to_str().unwrap().to_owned();
        let Some(mut server) = Process::start_with(&names, first, |command| command.env(EARLY, "1")) else {
            return common::skip("a server that is the first process: no pid namespace of its own");
        };
        assert_eq!(server.end(), (true, true));
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names").to_str().unwrap().to_owned();
    let mut server = Process::start(&names, false).unwrap();
    let slow = runtime(&names).import::<dyn Slow>("Slow").unwrap();
    let begun = slow.start().wait(600_000);
    assert_eq!(slow.wait(0), Ok(0));
    server.tell("TERM");
    // The drain has begun once new calls are refused.
    while slow.wait(0).is_ok() {}
    server.tell("TERM");
    assert_eq!(server.end(), (false, false));
    assert!(begun.wait().is_err());
}
