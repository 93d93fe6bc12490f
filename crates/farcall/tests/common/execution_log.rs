//! Helpers for the tests that kill processes: an interface whose executions are logged, random choices, and
//! the processes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::progress::setting;

/// An interface whose calls are logged. The log outlives every process.
#[farcall::interface]
pub trait Numbers {
    /// Writes the number into the log, and returns it.
    fn enter(&self, number: u64) -> farcall::Result<u64>;
}

/// Serves [`Numbers`] with a log.
pub struct Logger(File);

impl Logger {
    pub fn open(log: &Path) -> Arc<Logger> {
        Arc::new(Logger(append_to(log)))
    }
}

impl Numbers for Logger {
    fn enter(&self, number: u64) -> farcall::Result<u64> {
        // This is one write at the end of the file, so either the whole line is there or nothing.
        (&self.0).write_all(format!("{number}\n").as_bytes()).unwrap();
        // The server is killed or stopped at random moments. Some calls sleep, so that some of these moments
        // fall between the line in the log and the result. No assertion depends on how long they sleep.
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(number % 5));
        }
        Ok(number)
    }
}

/// Opens a file to append to it.
pub fn append_to(path: &Path) -> File {
    File::options().append(true).create(true).open(path).unwrap()
}

/// Returns how often each number was entered.
pub fn executions(log: &Path) -> HashMap<u64, u32> {
    let mut executions = HashMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        *executions.entry(line.parse().unwrap()).or_default() += 1;
    }
    executions
}

/// Random choices (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// Returns how many processes are to be killed or stopped (`FARCALL_FAULTS`, by default 1,000), the seed
    /// (`FARCALL_SEED`, by default the time), and the choices that follow from it. Prints both numbers.
    pub fn of_test() -> (u64, u64, Chance) {
        let faults = setting("FARCALL_FAULTS").unwrap_or(1_000);
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = setting("FARCALL_SEED").unwrap_or_else(now);
        println!("{faults} faults, FARCALL_SEED={seed}");
        (faults, seed, Chance(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A process of the test program that the test kills. Dropping this value ends the process.
pub struct Mortal {
    pub child: Child,
    /// The process's output. It stays open as long as the process runs, so that the process can write.
    output: BufReader<ChildStdout>,
}

impl Mortal {
    /// Starts a process by running the test `role` of this program, and waits for a line that begins with
    /// `ready`. Returns the process and the rest of that line.
    pub fn start(role: &str, prepare: impl FnOnce(&mut Command)) -> (Mortal, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (mut process, mut line) = (Mortal { child, output }, String::new());
        while !line.starts_with("ready") {
            line.clear();
            assert_ne!(process.output.read_line(&mut line).unwrap(), 0, "a process ended too early");
        }
        let rest = line["ready".len()..].trim().to_owned();
        (process, rest)
    }

    /// Waits for a line that the process prints.
    pub fn wait_for(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "a process ended too early");
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
