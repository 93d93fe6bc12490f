//! `farcall multi`: calls every instance of a type at once, and prints the replies as they arrive.

use std::time::{Duration, Instant};

use clap::Args;
use farcall::dynamic::{Encoded, Instances};
use farcall::multi::{Gathered, Next, Reply, Rest};
use farcall::{CallFailed, Error, Kind, Ran, multi};
use farcall_idl::{Interface, Procedure};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::commands::call::{decoded, encoded, procedure};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say, say_json};
use crate::remote::{left_of, runtime_within, seconds};
use crate::text::{duration, printable, rounded};

/// Call a procedure of every instance of a type at once, with JSON
///
/// Prints a line for each reply as it arrives: the member, the time, and the result; with --json an object
/// per line. The exit code is 0 if every member gave a result, or if as many did as --quorum or --first ask
/// for. Otherwise it is the greatest exit code of a member.
#[derive(Debug, Args)]
pub struct Multi {
    /// The type whose instances are called
    name: String,

    /// The procedure
    procedure: String,

    /// The arguments, the same for all members: an object with their names, an array, or the value of a
    /// single argument; - reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    arguments: String,

    /// Stop when N members have given a result, or when N results are no longer possible; the other calls are
    /// left to finish
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    quorum: Option<u32>,

    /// Stop at the first result; the other calls are cancelled
    #[arg(long, conflicts_with = "quorum")]
    first: bool,

    /// Wait this many seconds for replies [default: wait while the members answer probes]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    within: Option<Duration>,
}

impl Multi {
    pub fn run(&self, output: &Output) -> Outcome {
        let runtime = runtime_within(self.within)?;
        let instances = match self.within {
            Some(within) => Instances::import_within(&runtime, &self.name, left_of(within))?,
            None => Instances::import(&runtime, &self.name)?,
        };
        let interface = instances.interface();
        let procedure = procedure(interface, &self.procedure)?;
        if procedure.has_streams() {
            return Err(Failure::usage(
                "a procedure with streams is called at one server, by `farcall call`",
            ));
        }
        let arguments = encoded(interface, None, procedure, &self.arguments)?;
        let mut calls = instances.multi(procedure, &arguments);
        if let Some(within) = self.within {
            calls = calls.within(left_of(within));
        }
        if self.quorum.is_some() {
            calls = calls.rest(Rest::Finish);
        }
        let members = instances.members();
        let wanted = match (self.first, self.quorum) {
            (true, _) => Some(1),
            (false, quorum) => quorum.map(|quorum| quorum as usize),
        };
        if let Some(wanted) = wanted.filter(|&wanted| wanted > members.len()) {
            let there = members.len();
            let why =
                format!("{wanted} members are needed, but there are only {there}; no member was called");
            return Err(CallFailed::new(Kind::Other, Ran::No).because(why).into());
        }
        let width =
            members.iter().map(|member| member.name().chars().count()).max().unwrap_or(0).min(MAX_NAME_WIDTH);
        let bar = output.progress(members.len() as u64, "{pos} of {len} have answered, {elapsed} {wide_bar}");
        bar.enable_steady_tick(REDRAW_INTERVAL);
        let mut table = Table {
            output,
            interface,
            procedure,
            width,
            began: Instant::now(),
            bar,
            members: members.len(),
            wanted,
            results: 0,
            missed: 0,
            worst: None,
            broken: None,
        };
        let gathered = calls.each(|reply| table.take(reply));
        table.finish(&gathered)
    }
}

/// The interval at which the progress bar is drawn while no reply arrives.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The most characters of the column of members' names. A longer name shifts the columns after it.
const MAX_NAME_WIDTH: usize = 40;

/// The counts of the replies so far. Each reply is printed when it arrives.
struct Table<'a> {
    output: &'a Output,
    interface: &'a Interface,
    procedure: &'a Procedure,
    /// The width of the column of members' names, in characters.
    width: usize,
    began: Instant,
    /// Shows the number of replies beneath the lines, if the output is a terminal.
    bar: ProgressBar,
    members: usize,
    /// The number of results after which the command stops; `None` to wait for all replies.
    wanted: Option<usize>,
    results: usize,
    /// The number of members that gave no result.
    missed: usize,
    /// The failure with the greatest exit code so far.
    worst: Option<Failure>,
    /// The reason why printing failed.
    broken: Option<Failure>,
}

impl Table<'_> {
    fn take(&mut self, reply: Reply<'_, Encoded, Encoded>) -> Next {
        let took = self.began.elapsed();
        if let Err(why) = self.show(&reply, took) {
            self.broken = Some(why);
            return Next::Stop;
        }
        self.bar.inc(1);
        let is_met = self.wanted.is_some_and(|wanted| self.results >= wanted);
        if is_met || self.is_hopeless() { Next::Stop } else { Next::Continue }
    }

    /// Returns whether the wanted number of results can no longer be reached.
    fn is_hopeless(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.members - self.missed < wanted)
    }

    fn show(&mut self, reply: &Reply<'_, Encoded, Encoded>, took: Duration) -> Outcome {
        let types = &self.interface.types;
        match &reply.result {
            Ok(Encoded(result)) => {
                let value = decoded(types, &self.procedure.result, result)?;
                self.results += 1;
                self.line(reply.member, Some(took), "result", value.clone(), &value.to_string())
            }
            Err(Error::Declared(Encoded(exception))) => {
                let value = decoded(types, &self.procedure.exception, exception)?;
                self.missed += 1;
                self.fell_short(Failure::exception());
                self.line(reply.member, Some(took), "exception", value.clone(), &format!("exception {value}"))
            }
            Err(Error::CallFailed(why)) => {
                self.missed += 1;
                self.fell_short(why.clone().into());
                let text = format!("failed: {why}; {}", why.ran());
                self.line(reply.member, Some(took), "failed", failed(why), &text)
            }
        }
    }

    fn line(&self, member: &str, took: Option<Duration>, kind: &str, value: Value, text: &str) -> Outcome {
        if self.output.is_json() {
            let ms = took.map(|took| rounded(took.as_secs_f64() * 1e3, 3));
            return say_json(&json!({ "member": member, "ms": ms, kind: value }));
        }
        let took = took.map(duration).unwrap_or_default();
        let member = printable(member);
        let line = printable(&format!("{member:width$}  {took:>9}  {text}", width = self.width));
        self.bar.suspend(|| say(line))
    }

    fn fell_short(&mut self, why: Failure) {
        self.worst = Some(why.or_worse(self.worst.take()));
    }

    /// Prints the members that have not answered. Fails if fewer members gave a result than were needed.
    fn finish(mut self, gathered: &Gathered<(), ()>) -> Outcome {
        self.bar.finish_and_clear();
        if let Some(why) = self.broken.take() {
            return Err(why);
        }
        for (member, outcome) in gathered.iter() {
            let multi::Outcome::Abandoned(ran) = outcome else { continue };
            let text = match ran {
                Ran::No => "was not called",
                _ => "was not waited for",
            };
            self.line(member, None, "abandoned", ran_word(*ran).into(), text)?;
            // If the command has stopped waiting, members that have not answered are not late.
            if !self.is_hopeless() {
                self.fell_short(CallFailed::new(Kind::Deadline, *ran).into());
            }
        }
        let needed = self.wanted.unwrap_or(gathered.len());
        if self.results >= needed {
            return Ok(());
        }
        let message =
            format!("{} of {} members gave a result, and {needed} were needed", self.results, gathered.len());
        Err(Failure::of_members(message, self.worst))
    }
}

fn failed(why: &CallFailed) -> Value {
    json!({ "message": why.to_string(), "kind": format!("{:?}", why.kind()), "ran": ran_word(why.ran()) })
}

fn ran_word(ran: Ran) -> String {
    format!("{ran:?}")
}
