//! Tests clerks of the structure WR that are stopped and killed: real processes, over both carriers.
//!
//! The test program runs itself again as the clerks. It tells them when to read, and they say what they read.
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use farcall::Runtime;
use farcall::names::Memory as Registry;
use farcall_file_service::{Addresses, Clerk, Server, Shape, Structure};
use rustix::process::{Pid, Signal, kill_process};

const SERVER: &str = "FARCALL_TEST_FILE_SERVER";
const MAPPED: &str = "FARCALL_TEST_MAPPED";

fn runtime(mapped: bool) -> Runtime {
    Runtime::builder().registry(Registry::new()).shared_memory(mapped).build().unwrap()
}

/// A clerk in a process of its own.
struct Process {
    child: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Process {
    fn start(server: &Addresses, mapped: bool) -> Process {
        let Addresses { files, more, memory } = server;
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "stopped_clerks::a_clerk_that_the_test_starts", "--nocapture"])
            .env(SERVER, [&**files, more, memory].join(","))
            .env(MAPPED, mapped.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (asks, says) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Process { child, asks, says };
        while process.line() != "ready" {}
        process
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "a clerk ended too early");
        line.trim().to_owned()
    }

    /// Returns what the clerk reads now: the beginning of the file, and its size.
    fn read(&mut self) -> String {
        writeln!(self.asks, "read").unwrap();
        self.line()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_clerk_that_the_test_starts() {
    let (Ok(server), Ok(mapped)) = (env::var(SERVER), env::var(MAPPED)) else { return };
    let mut parts = server.split(',').map(str::to_owned);
    let mut part = || parts.next().unwrap();
    let server = Addresses { files: part(), more: part(), memory: part() };
    let clerk = Clerk::new(&runtime(mapped == "true"), &server, Structure::Wr).unwrap();
    let file = clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle;
    println!("\nready");
    for _ in std::io::stdin().lines() {
        let bytes = clerk.files.read(file, 0, 5).unwrap().0;
        let size = clerk.files.attributes(file).unwrap().size;
        println!("{} {size}", String::from_utf8_lossy(&bytes));
    }
}

/// A clerk that was stopped while others wrote does not use its memory when it goes on: where the server
/// could not write there, it has given the clerk up, and waited until the clerk's lease was over.
#[test]
fn a_clerk_that_was_stopped_reads_nothing_old() {
    for mapped in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), "first").unwrap();
        let server_runtime = runtime(mapped);
        let server = Server::export(&server_runtime, "files", scratch.path(), Shape::SMALL).unwrap();
        let mut stopped = Process::start(&server.addresses(), mapped);
        let writer = Clerk::new(&runtime(mapped), &server.addresses(), Structure::Wr).unwrap();
        let file = writer.files.look_up(writer.files.root().unwrap(), "file").unwrap().handle;
        for (n, text) in ["other", "third", "again"].into_iter().enumerate() {
            stopped.read();
            stopped.signal(Signal::STOP);
            writer.files.write(file, 0, text.as_bytes()).unwrap();
            writer.files.write(file, 5 + n as u64, b"+").unwrap();
            stopped.signal(Signal::CONT);
            assert_eq!(stopped.read(), format!("{text} {}", 6 + n), "mapped: {mapped}");
        }
        stopped.kill();
    }
}

#[test]
fn a_clerk_that_was_killed_holds_up_no_writer() {
    for mapped in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), "first").unwrap();
        let server_runtime = runtime(mapped);
        let server = Server::export(&server_runtime, "files", scratch.path(), Shape::SMALL).unwrap();
        let mut clerks = [(); 3].map(|()| Process::start(&server.addresses(), mapped));
        assert!(clerks.iter_mut().all(|clerk| clerk.read() == "first 5"));
        let [first, second, mut third] = clerks;
        first.kill();
        second.kill();
        let writer = Clerk::new(&runtime(mapped), &server.addresses(), Structure::Wr).unwrap();
        let file = writer.files.look_up(writer.files.root().unwrap(), "file").unwrap().handle;
        for text in ["other", "third"] {
            writer.files.write(file, 0, text.as_bytes()).unwrap();
            assert_eq!(third.read(), format!("{text} 5"));
        }
        third.kill();
    }
}
