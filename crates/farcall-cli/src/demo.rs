//! `farcall demo`: shows farcall at work, between real processes, on the user's own files.
//!
//! ```text
//! farcall demo ── supervises ── farcall __demo client ── calls ──▶ __demo server (files, counting, …)
//!   makes and removes the         the demonstration        │         also by threads that lose packets
//!   registry's directory                                   │         and repeat them
//!                                                          └──────▶ __demo server ×2 (one is killed)
//! ```
//!
//! Each process ends when its standard input ends. So it does not outlive the process that started it,
//! however that ended.

mod client;
#[cfg(feature = "etcd")]
mod etcd;
mod files;
mod forward;
mod interface;
#[cfg(feature = "secure")]
mod keys;
mod killed;
mod latency;
mod lossy;
mod pin;
mod process;
mod report;
#[cfg(feature = "secure")]
mod secure;
mod server;
mod signal;

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// The hidden subcommand that is a process of the demo.
pub const ROLE: &str = "__demo";

/// The exit code of a process whose parent has ended: that of an interrupted process in a shell.
const INTERRUPTED: i32 = 130;

/// Demonstrate farcall on your own files, in less than 20 seconds
///
/// Starts servers and calls them; answers what a server asks in the middle of a call; reads the files of DIR
/// through calls and compares them with the disk; loses and repeats packets; kills a server in the middle of
/// a call; and measures a call beside a bare UDP exchange.
/// Nothing is left behind. The exit code is 0 if everything was as expected.
#[derive(Debug, Args)]
pub struct Demo {
    /// The directory whose files are read, at most 256 MB of them
    #[arg(default_value = ".")]
    dir: PathBuf,

    /// Repeat the losses of an earlier run [default: a random number]
    #[arg(long)]
    seed: Option<u64>,

    /// Do all this with keys, which are made for it: show also what becomes of a changed datagram, of a
    /// stranger, of a call that the policy does not allow, and of a key that is taken away
    #[cfg(feature = "secure")]
    #[arg(long)]
    secure: bool,

    /// Show names in etcd instead: kill its leader, and then a server, while calls are made
    #[cfg(feature = "etcd")]
    #[arg(long, conflicts_with_all = ["dir", "seed"])]
    #[cfg_attr(feature = "secure", arg(conflicts_with = "secure"))]
    etcd: bool,
}

/// Runs one of the demo's processes.
#[derive(Debug, Args)]
pub struct Role {
    #[command(subcommand)]
    process: Process,
}

#[derive(Debug, Subcommand)]
enum Process {
    Client(client::Client),
    Server(server::Server),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Client),
    #[cfg(feature = "etcd")]
    Member(etcd::Member),
}

impl Demo {
    /// Runs the demonstration in a process with a registry of its own, and removes the registry afterwards.
    pub fn run(&self, output: &Output) -> Outcome {
        let scratch = tempfile::Builder::new().prefix("farcall-demo-").tempdir()?;
        let mut command = this_program()?;
        self.set_client(&mut command, scratch.path())?;
        command.args(output.is_json().then_some("--json"));
        let interruption = Interruption::expect()?;
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        interruption.ends(child.stdin.take());
        let status = child.wait();
        // It is removed here, so that a failure can be reported.
        scratch.close()?;
        match status?.code() {
            Some(0) => Ok(()),
            Some(code) if code != INTERRUPTED => Err(Failure::told(code)),
            _ => Err(Failure::new("interrupted")),
        }
    }

    /// Adds the arguments of the demonstration's client to a command, and names the registry that it uses.
    fn set_client(&self, command: &mut Command, scratch: &Path) -> Outcome {
        #[cfg(feature = "etcd")]
        if self.etcd {
            return etcd::set_client(command, scratch);
        }
        command.arg("client").arg(&self.dir).arg("--seed").arg(self.seed().to_string());
        // The registry creates its own directory, which only this user can enter.
        command.env("FARCALL_REGISTRY", scratch.join("registry"));
        #[cfg(feature = "secure")]
        if self.secure {
            keys::set_keys(command, scratch)?;
        }
        Ok(())
    }

    fn seed(&self) -> u64 {
        // The name is short, because users type it.
        self.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000))
    }
}

/// An interruption closes the child's standard input, which ends the child. (An interruption from the
/// terminal reaches the child anyway.) This process continues, to clean up.
#[derive(Clone, Default)]
struct Interruption(Arc<Mutex<Interrupted>>);

#[derive(Default)]
struct Interrupted {
    /// Whether an interruption has occurred.
    yes: bool,
    stdin: Option<ChildStdin>,
}

impl Interruption {
    /// Installs the handler, so that an interruption does not end this process.
    fn expect() -> Outcome<Interruption> {
        let interruption = Interruption::default();
        let ours = interruption.clone();
        let close = move || *ours.lock() = Interrupted { yes: true, stdin: None };
        ctrlc::set_handler(close).map_err(|why| Failure::new(why.to_string()))?;
        Ok(interruption)
    }

    /// Sets the input of a child, which is closed at an interruption, or at once if one has occurred.
    fn ends(&self, stdin: Option<ChildStdin>) {
        let mut interrupted = self.lock();
        if !interrupted.yes {
            interrupted.stdin = stdin;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Interrupted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the command for another process of the demo, without the user's settings.
fn this_program() -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ROLE);
    let is_setting = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("FARCALL_"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name) && name != "FARCALL_REGISTRY") {
        command.env_remove(name);
    }
    Ok(command)
}

impl Role {
    pub fn run(&self, output: &Output) -> Outcome {
        match &self.process {
            Process::Client(client) => client.run(output),
            Process::Server(server) => server.run(),
            #[cfg(feature = "etcd")]
            Process::Etcd(client) => client.run(output),
            #[cfg(feature = "etcd")]
            Process::Member(member) => member.run(),
        }
    }
}

/// Ends this process when its parent has ended, or wants it to end.
fn end_with_parent() {
    std::thread::spawn(|| {
        wait_for_end();
        std::process::exit(INTERRUPTED);
    });
}

/// Blocks until the parent process closes this process's standard input, or ends.
fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
