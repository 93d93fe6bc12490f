//! The processes that the demo's client starts, and what they say.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// A process of the demo; killed when dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it said first.
    pub facts: Value,
}

impl Process {
    /// Starts a process, and waits until it says that it is ready.
    pub fn start(arguments: &[&OsStr]) -> Outcome<Process> {
        let mut command = super::this_program()?;
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

    /// An address that it said it has.
    pub fn address(&self, name: &str) -> Outcome<SocketAddr> {
        let said = self.facts[name].as_str().and_then(|address| address.parse().ok());
        said.ok_or_else(|| Failure::new(format!("no {name} in {}", self.facts)))
    }

    /// What it says next. Blocks until it does.
    pub fn line(&mut self) -> Outcome<String> {
        match self.lines.next() {
            Some(line) => Ok(line?),
            // It has said on standard error why.
            None => Err(Failure::new("a process of the demo ended too early")),
        }
    }

    /// Ends it without warning (SIGKILL where there are signals).
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
