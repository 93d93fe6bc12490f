//! The common part of subcommands that call a server: the server's address, the deadline of calls, and a way
//! to read a file of the server part by part.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::Args;
use farcall::dynamic::{Dynamic, Pinger};
use farcall::{Bytes, Error, Pending, Runtime};
use farcall_file_access::{Contents, FileAccess, FileAccessClient, FileError};

use crate::failure::{Failure, Outcome};

/// The deadline of calls.
#[derive(Debug, Args)]
pub struct Deadline {
    /// Fail a call after this many seconds [default: wait while the server answers probes]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub within: Option<Duration>,
}

impl Deadline {
    /// Returns the runtime of a command whose calls have this deadline.
    pub fn runtime(&self) -> Outcome<Runtime> {
        runtime_within(self.within)
    }

    /// Returns how much time is left for finding a server and for the first call. The time runs from when
    /// this is first asked for, so it covers names, registries, connections and the call together.
    pub fn left(&self) -> Option<Duration> {
        self.within.map(left_of)
    }

    /// Binds to the exporter of a name, by its own description.
    pub fn import(&self, name: &str) -> Outcome<farcall::Result<Dynamic>> {
        let runtime = self.runtime()?;
        Ok(match self.left() {
            Some(left) => Dynamic::import_within(&runtime, name, left),
            None => Dynamic::import(&runtime, name),
        })
    }

    /// Binds to the exporter of a name, whatever its interface.
    pub fn pinger(&self, name: &str) -> Outcome<farcall::Result<Pinger>> {
        let runtime = self.runtime()?;
        Ok(match self.left() {
            Some(left) => Pinger::import_within(&runtime, name, left),
            None => Pinger::import(&runtime, name),
        })
    }
}

/// The selection of a file server.
#[derive(Debug, Args)]
pub struct From {
    /// The file server: a type, a type and an instance, or an address
    #[arg(long, value_name = "NAME", default_value = "FileAccess")]
    from: String,

    #[command(flatten)]
    deadline: Deadline,
}

impl From {
    /// Binds to the server.
    pub fn files(&self) -> Outcome<FileAccessClient> {
        Ok(bind(&self.from, &self.deadline)?.brief)
    }

    /// Binds to the server, for transfers too.
    pub fn transfers(&self) -> Outcome<Files> {
        bind(&self.from, &self.deadline)
    }
}

/// The selection of a file server that files are stored at.
#[derive(Debug, Args)]
pub struct To {
    /// The file server: a type, a type and an instance, or an address
    #[arg(long, value_name = "NAME", default_value = "FileAccess")]
    to: String,

    #[command(flatten)]
    deadline: Deadline,
}

impl To {
    /// Binds to the server.
    pub fn transfers(&self) -> Outcome<Files> {
        bind(&self.to, &self.deadline)
    }
}

/// A file server.
pub struct Files {
    /// For calls that take no longer than the user's deadline.
    pub brief: FileAccessClient,
    /// For calls that take as long as a file is large.
    pub long: FileAccessClient,
}

fn bind(name: &str, deadline: &Deadline) -> Outcome<Files> {
    let runtime = deadline.runtime()?;
    let bound = match deadline.left() {
        Some(left) => runtime.import_within::<dyn FileAccess>(name, left),
        None => runtime.import::<dyn FileAccess>(name),
    };
    let long = bound.map_err(|why| Failure::from(why).hint("`farcall serve DIR` serves a directory"))?;
    let brief = match deadline.within {
        Some(deadline) => long.within(deadline),
        None => long.clone(),
    };
    Ok(Files { brief, long })
}

/// Returns the runtime of this command.
pub fn runtime() -> Outcome<Runtime> {
    Runtime::current().map_err(|why| Failure::no_call(why.into()))
}

/// Returns the runtime of a command whose calls have this deadline. Finding and binding to the server also
/// takes at most that long.
pub fn runtime_within(within: Option<Duration>) -> Outcome<Runtime> {
    const PATIENCE: Duration = Duration::from_secs(10);
    match within.filter(|within| *within < PATIENCE) {
        Some(within) => {
            Runtime::builder().patience(within).build().map_err(|why| Failure::no_call(why.into()))
        }
        None => runtime(),
    }
}

/// When the command first looked for a server.
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Returns what is left of a time that runs from when the command first looks for a server.
pub fn left_of(within: Duration) -> Duration {
    within.saturating_sub(BEGAN.get_or_init(Instant::now).elapsed())
}

/// Parses a duration in seconds, as an argument of the command line.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string())
}

/// The number of bytes that one call of a [`Stream`] requests.
const PART_BYTES: u32 = 256 << 10;
/// The most calls that a [`Stream`] has outstanding.
const MAX_CALLS_AHEAD: usize = 4;

/// Reads a file from an offset on, part by part. While the caller uses one part, the next parts are already
/// requested.
pub struct Stream<'a> {
    files: &'a FileAccessClient,
    path: &'a str,
    next: u64,
    under_way: VecDeque<Pending<Contents, FileError>>,
    /// The most outstanding calls: one, until the file is known to be longer than a part.
    ahead: usize,
}

impl<'a> Stream<'a> {
    pub fn new(files: &'a FileAccessClient, path: &'a str, offset: u64) -> Stream<'a> {
        Stream { files, path, next: offset, under_way: VecDeque::new(), ahead: 1 }
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Bytes, Error<FileError>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.under_way.len() < self.ahead {
            self.under_way.push_back(self.files.start().read(self.path, self.next, PART_BYTES));
            self.next = self.next.saturating_add(PART_BYTES.into());
        }
        let part = match self.under_way.pop_front()?.wait() {
            Ok(part) => part.0,
            Err(why) => {
                self.end();
                return Some(Err(why));
            }
        };
        match part.len() < PART_BYTES as usize {
            true => self.end(),
            false => self.ahead = MAX_CALLS_AHEAD,
        }
        (!part.is_empty()).then_some(Ok(part))
    }
}

impl Stream<'_> {
    fn end(&mut self) {
        self.ahead = 0;
        self.under_way.clear();
    }
}
