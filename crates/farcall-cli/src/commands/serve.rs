//! `farcall serve`: serves a directory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Args;
use farcall::Runtime;
use farcall_file_access::{Directory, FileAccess};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Serve a directory to `farcall ls`, `cat` and `get`, and to `put` if it is writable
///
/// Exports FileAccess for DIR until it is interrupted; then it finishes the calls that have begun. No path
/// leads out of DIR, also not by symbolic links. A line on standard output says when the server is ready.
#[derive(Debug, Args)]
pub struct Serve {
    /// The directory to serve
    dir: PathBuf,

    /// The name to export: TYPE or TYPE/INSTANCE
    #[arg(long, value_name = "NAME", default_value = "FileAccess")]
    name: String,

    /// The address to listen on [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,

    /// Let clients store files
    #[arg(long)]
    writable: bool,

    /// The most bytes of a stored file [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "writable")]
    quota: Option<u64>,

    /// Let every user and every machine that can reach the address call, without keys
    #[arg(long)]
    open: bool,
}

/// The longest time that running calls may take after an interruption.
const MAX_DRAIN: Duration = Duration::from_secs(5);

impl Serve {
    pub fn run(&self, output: &Output) -> Outcome {
        let mut directory =
            Directory::open(&self.dir).map_err(|why| Failure::from(why).about(self.dir.display()))?;
        if self.writable {
            directory = directory.writable(self.quota.unwrap_or(u64::MAX));
        }
        let (interrupted, interruption) = mpsc::channel();
        // Sending fails only if the receiver is gone, and then the command is ending anyway.
        let handler = move || interrupted.send(()).unwrap_or_default();
        ctrlc::set_handler(handler).map_err(|why| Failure::new(why.to_string()))?;

        let mut builder = Runtime::builder();
        if let Some(address) = self.address {
            builder = builder.address(address);
        }
        if self.open {
            builder = builder.open();
        }
        let export = builder
            .build()
            .and_then(|runtime| runtime.export::<dyn FileAccess>(&self.name, Arc::new(directory)));
        let export = export.map_err(|why| Failure::no_call(why.into()))?;
        output.line(
            || json!({ "serving": self.dir, "name": export.name(), "url": export.url(), "pid": std::process::id() }),
            || format!("serving {} as {} at {}", self.dir.display(), export.name(), export.url()),
        )?;
        // Receiving fails only if the handler is dropped, which never happens.
        let _ = interruption.recv();
        match export.drain(MAX_DRAIN) {
            true => Ok(()),
            false => Err(Failure::new("interrupted; some calls did not end within 5 s")),
        }
    }
}
