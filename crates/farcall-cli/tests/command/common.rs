//! The common part of the tests of the command: a place with its own registry and files, and the real
//! command.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A directory with its own registry. Nothing of the user's is visible in it.
pub struct Place(tempfile::TempDir);

/// The output of a command, and its exit code.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn registry(&self) -> PathBuf {
        self.path("registry")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Returns the command, ready to run in this place.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FARCALL_"))
        {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.0.path()).env("FARCALL_REGISTRY", self.registry());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the command with these bytes on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Said {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The command may have ended its reading before the end.
        let _ = child.stdin.take().unwrap().write_all(input);
        Said::of(child.wait_with_output().unwrap())
    }

    /// Starts a command, and waits for its first line.
    pub fn start(&self, arguments: &[&str]) -> Started {
        self.start_with(arguments, |command| command)
    }

    pub fn start_with(&self, arguments: &[&str], prepare: impl Fn(&mut Command) -> &mut Command) -> Started {
        let mut command = self.command(arguments);
        prepare(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        match lines.next() {
            Some(first) => Started { child, first: first.unwrap(), lines: Some(lines) },
            None => panic!("{arguments:?} said nothing: {:?}", Said::of(child.wait_with_output().unwrap())),
        }
    }

    /// Serves a directory.
    pub fn serve(&self, dir: &str, name: &str) -> Started {
        self.start(&["--json", "serve", dir, "--name", name])
    }
}

impl Said {
    pub fn of(output: std::process::Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the standard output. Asserts that the command succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// Returns the standard output as JSON, one value per line. Asserts that the command succeeded.
    #[track_caller]
    pub fn json(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A running command. It is killed when this is dropped.
pub struct Started {
    child: Child,
    /// The command's first line of output.
    pub first: String,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Started {
    /// Returns a fact from the first line.
    pub fn fact(&self, name: &str) -> String {
        let facts: Value = serde_json::from_str(&self.first).unwrap();
        facts[name].as_str().unwrap_or_else(|| panic!("no {name} in {facts}")).to_owned()
    }

    /// Returns the command's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the command's next line.
    pub fn line(&mut self) -> String {
        self.lines.as_mut().and_then(Iterator::next).expect("it says more").unwrap()
    }

    /// Closes the pipe from the command's standard output.
    pub fn close_output(&mut self) {
        self.lines = None;
    }

    /// Waits until the command has ended, and returns its exit code.
    pub fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Interrupts the command, as Ctrl-C does, and waits until all processes that hold its output have ended.
    #[cfg(unix)]
    pub fn interrupt(mut self) -> Said {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let out = self.lines.take().into_iter().flatten().map(|line| line.unwrap() + "\n").collect();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Said { code: self.child.wait().unwrap().code().unwrap_or(-1), out, err }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the sorted names in a directory.
pub fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
