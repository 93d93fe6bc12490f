//! Other processes of a test: the test program itself, run again in a role.
//!
//! Each process runs the test `a_process_that_a_test_starts` of the module that starts it, which finds its
//! role and the URL that it needs in environment variables.
#![allow(dead_code, reason = "each test program uses a part")]

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// The environment variable with the process's role. Without it the process is the test itself.
pub const ROLE: &str = "FARCALL_TEST_ROLE";
/// The environment variable with the URL that the process calls.
pub const URL: &str = "FARCALL_TEST_URL";

/// A process of this program in a role. Dropping this value ends the process.
pub struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a process of the module at this path (`module_path!()`).
    pub fn start(module: &str, role: &str, url: &str) -> Other {
        Other::start_by(Command::new(env::current_exe().unwrap()), module, role, url)
    }

    /// Starts a process by a command that ends in this program's path.
    pub fn start_by(mut command: Command, module: &str, role: &str, url: &str) -> Other {
        let test = "a_process_that_a_test_starts";
        // A test's name is its path within the program.
        let test = module.split_once("::").map_or(test.to_owned(), |(_, inner)| format!("{inner}::{test}"));
        command.args(["--exact", &test, "--nocapture"]).env(ROLE, role).env(URL, url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Other { child, says }
    }

    /// Waits for a line with this mark, and returns the text after the mark.
    pub fn hear(&mut self, mark: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "a process ended too early");
            // The test harness may have begun the line.
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Returns the process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process an empty line.
    pub fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Returns whether the process has not ended yet.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the process's end.
    pub fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Stops the process (SIGSTOP): it lives, and does nothing.
    #[cfg(target_os = "linux")]
    pub fn stop(&self) {
        let status = Command::new("kill").args(["-STOP", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
        // The signal is on its way; a thread may still run on another processor.
        while !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Returns whether every thread of the process is stopped.
    #[cfg(target_os = "linux")]
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.flatten().all(|task| {
            // The state follows the name, which is in parentheses. (A thread that has ended has no file.)
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
        })
    }

    /// Kills the process, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
