//! `farcall clerk`: runs the machine's clerk, the name service for segments of memory, in a process of its own.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use clap::Args;
use farcall::Runtime;
use farcall::memory::clerk::{Clerk, Search, Settings};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Run this machine's clerk, the name service for segments of memory, in a process of its own
///
/// Without this command, the first process that exports or imports a segment by name runs the clerk. Runs
/// until it is interrupted. While another process has this machine's clerk, the command stands by, and takes
/// its place when it ends. The new clerk learns from the registry and the exporters what is exported. A line
/// on standard output says when the clerk is ready, and one when the command stands by.
#[derive(Debug, Args)]
pub struct Clerks {
    /// The address to listen on, which other machines use as a hint [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,

    /// The number of slots of the table at first; each name takes one, and the table grows
    #[arg(long, value_name = "NUMBER", default_value = "1024")]
    slots: NonZeroUsize,

    /// How often to check whether the known names are still true, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..))]
    refresh: u64,

    /// Read at most this often in another machine's table, then ask its clerk [default: only read]
    #[arg(long, value_name = "READS")]
    ask_after: Option<u32>,

    /// Let every user and every machine that can reach the address look names up, without keys
    #[arg(long)]
    open: bool,
}

/// How often a command that stands by looks whether the clerk is gone.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);

impl Clerks {
    pub fn run(&self, output: &Output) -> Outcome {
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
        let runtime = builder.build().map_err(|why| Failure::no_call(why.into()))?;
        let Some(clerk) = self.start(&runtime, &interruption, output)? else { return Ok(()) };
        let address = clerk.address();
        output.line(
            || json!({ "clerk": address, "slots": self.slots, "pid": std::process::id() }),
            || format!("this machine's clerk is at {address}"),
        )?;
        // Receiving fails only if the handler is dropped, which never happens.
        let _ = interruption.recv();
        Ok(())
    }

    /// Starts the clerk once no other process has it. Returns `None` if the command is interrupted before.
    fn start(
        &self,
        runtime: &Runtime,
        interruption: &Receiver<()>,
        output: &Output,
    ) -> Outcome<Option<Clerk>> {
        let mut stands_by = None;
        loop {
            let other = Clerk::of_machine(runtime).map_err(Failure::no_call)?;
            let failed = match other {
                Some(_) => None,
                None => match Clerk::start(runtime, self.settings()) {
                    Ok(clerk) => return Ok(Some(clerk)),
                    Err(why) => Some(why),
                },
            };
            // Another process may have been faster.
            let other = other.or(Clerk::of_machine(runtime).map_err(Failure::no_call)?);
            match (other, failed) {
                (None, Some(why)) => return Err(Failure::no_call(why.into())),
                (Some(address), _) if stands_by != other => {
                    stands_by = other;
                    output.line(
                        || json!({ "stands_by_for": address, "pid": std::process::id() }),
                        || format!("standing by: another process has this machine's clerk, at {address}"),
                    )?;
                }
                _ => {}
            }
            match interruption.recv_timeout(STANDBY_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Ok(None),
            }
        }
    }

    fn settings(&self) -> Settings {
        let search = self.ask_after.map_or(Search::Read, |reads| match reads {
            0 => Search::Ask,
            reads => Search::ReadThenAsk(reads),
        });
        Settings::default().places(self.slots.get()).refresh(Duration::from_secs(self.refresh)).search(search)
    }
}
