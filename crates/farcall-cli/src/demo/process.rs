//! The processes that the demo's client starts, and their output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// A process of the demo, which is killed when this is dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The process's first line.
    pub facts: Value,
}

impl Process {
    /// Starts a process, and waits until it reports that it is ready. It has keys if the demonstration has.
    pub fn start(arguments: &[&OsStr]) -> Outcome<Process> {
        #[cfg(feature = "secure")]
        let setting = super::keys::servers_setting();
        #[cfg(not(feature = "secure"))]
        let setting = None;
        Process::start_with(setting, arguments)
    }

    /// Starts a process with a setting.
    pub fn start_with(setting: Option<(&str, PathBuf)>, arguments: &[&OsStr]) -> Outcome<Process> {
        let mut command = super::this_program()?;
        command.envs(setting);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("a process without output"))?;
        let lines = BufReader::new(stdout).lines();
        let mut process = Process { child, lines, facts: Value::Null };
        let line = process.line()?;
        process.facts =
            serde_json::from_str(&line).map_err(|why| Failure::new(format!("{line:?}: {why}")))?;
        Ok(process)
    }

    /// Starts a demo server that is exported as `name`.
    pub fn server(name: &str) -> Outcome<Process> {
        Process::start(&["server".as_ref(), OsStr::new(name)])
    }

    /// Returns an address from the process's first line.
    pub fn address(&self, name: &str) -> Outcome<SocketAddr> {
        let said = self.facts[name].as_str().and_then(|address| address.parse().ok());
        said.ok_or_else(|| Failure::new(format!("no {name} in {}", self.facts)))
    }

    /// Returns the process's next line. Blocks until there is one.
    pub fn line(&mut self) -> Outcome<String> {
        match self.lines.next() {
            Some(line) => Ok(line?),
            // The process has reported the reason on standard error.
            None => Err(Failure::new("a process of the demo ended too early")),
        }
    }

    /// Closes the process's standard input, upon which it ends, and waits for that.
    #[cfg(feature = "etcd")]
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }

    /// Kills the process (SIGKILL on Unix).
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
