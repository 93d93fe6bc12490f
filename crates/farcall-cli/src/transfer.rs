//! What `get` and `put` share: they go on after a break, show their progress, and tell how far they got.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use farcall::{CallFailed, Error, Kind};
use farcall_file_access::{Digest, FileError};
use indicatif::ProgressBar;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::seconds;
use crate::text::size;

/// What is done when a transfer breaks.
#[derive(Debug, Args)]
pub struct Continuing {
    /// When the transfer breaks, wait for the server, or for another of the name, and go on; fail after so
    /// many seconds without a byte, 60 if none are given
    #[arg(
        long = "continue",
        value_name = "SECONDS",
        value_parser = seconds,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60"
    )]
    stalled: Option<Duration>,
}

/// Why an attempt to transfer a file has ended early.
pub enum Stopped {
    /// The server is gone or does not answer. A later attempt may go on.
    Broken(CallFailed),
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(why: Failure) -> Stopped {
        Stopped::Failed(why)
    }
}

impl From<Error<FileError>> for Stopped {
    fn from(why: Error<FileError>) -> Stopped {
        match why {
            Error::CallFailed(why) if is_passing(why.kind()) => Stopped::Broken(why),
            why => Stopped::Failed(why.into()),
        }
    }
}

impl Stopped {
    /// Puts the subject in front of the message of a failure that is none of the transfer's.
    pub fn about(self, what: &str) -> Stopped {
        match self {
            Stopped::Failed(why) => Stopped::Failed(why.about(what)),
            Stopped::Broken(why) => Stopped::Broken(why),
        }
    }
}

/// Returns whether a call that fails so may succeed at another time.
fn is_passing(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NoSuchName
            | Kind::Unreachable
            | Kind::ServerRestarted
            | Kind::NotExported
            | Kind::Overloaded
            | Kind::Draining
            | Kind::ResultLost
            | Kind::Forgotten
    )
}

const AGAIN: &str = "do it again: it goes on where it was; with --continue it waits for the server by itself";

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

impl Continuing {
    /// Makes attempts until one succeeds, fails, or must not be repeated any more. Returns how often the
    /// transfer broke. `reached` returns how many bytes of the file have been transferred, those of earlier
    /// runs included. `told` adds that number to the last break.
    pub fn run<S>(
        &self,
        state: &mut S,
        attempt: impl Fn(&mut S) -> Result<(), Stopped>,
        reached: impl Fn(&S) -> u64,
        told: impl Fn(u64, Failure) -> Failure,
    ) -> Outcome<u32> {
        let (mut last, mut before, mut breaks) = (Instant::now(), reached(state), 0);
        loop {
            let why = match attempt(state) {
                Ok(()) => return Ok(breaks),
                Err(Stopped::Failed(why)) => return Err(why),
                Err(Stopped::Broken(why)) => why,
            };
            let now = reached(state);
            if now != before {
                (last, before) = (Instant::now(), now);
            }
            if self.stalled.is_none_or(|stalled| last.elapsed() >= stalled) {
                return Err(told(now, why.into()).in_place_of_hint(AGAIN));
            }
            breaks += 1;
            thread::sleep(PAUSE);
        }
    }
}

/// The hint about a file that exists.
pub const FORCE: &str = "--force replaces it";

/// Returns the failure for a file that exists and must not be replaced.
pub fn exists(file: impl Display) -> Failure {
    Failure::new(format!("{file} exists")).hint(FORCE)
}

/// Returns what a failure says of a transfer that broke.
pub fn so_far(bytes: u64, all: u64, place: &str) -> String {
    format!("{} of {} {place}", size(bytes), size(all))
}

/// Returns a progress bar for a file of so many bytes.
pub fn bar(output: &Output, what: &str, bytes: u64) -> ProgressBar {
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    output.progress(bytes, template).with_message(what.to_owned())
}

/// Returns the end of the line about a transfer that did not begin with the first byte.
pub fn resumed(at: u64, place: &str) -> String {
    match at {
        0 => String::new(),
        at => format!(", of which {} were {place} already", size(at)),
    }
}

/// Returns a hash in hexadecimal digits.
pub fn hexadecimal(digest: &Digest) -> String {
    digest.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
}
