//! `farcall ping`: measures how long a call of an exporter, or of a server of ONC RPC, takes.

use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use farcall::dynamic::Pinger;
use farcall::stub::{InterfaceId, Procedure};
use farcall::{Error, Kind, Never};
use farcall_idl::spell_program;
use farcall_onc::standard;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::onc::{self, Manner};
use crate::output::Output;
use crate::remote::Deadline;
use crate::text::{counted, duration, rounded};
use crate::x_file;

/// Call an exporter several times, and show how long a call takes
///
/// Makes one call after the other. An exporter is called by a procedure without arguments that every exporter
/// has. A server of ONC RPC is called by the null procedure of a program, which most programs have.
#[derive(Debug, Args)]
#[command(override_usage = "farcall ping [OPTIONS] <NAME>
       farcall ping [OPTIONS] <ADDRESS> <PROGRAM>")]
pub struct Ping {
    /// The exporter, by its name; or the server of ONC RPC, by its address
    #[arg(value_hint = ValueHint::Hostname)]
    name: String,

    /// The program of ONC RPC: its number, its name in `farcall list`, or an .x file
    #[arg(value_hint = ValueHint::FilePath)]
    program: Option<String>,

    /// The number of calls
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// Make one call, and succeed if the exporter answers, also if it refuses this end because it does not
    /// know its keys: a probe of a server with keys that needs none
    #[arg(long, conflicts_with_all = ["program", "count"])]
    answers: bool,

    #[command(flatten)]
    deadline: Deadline,

    #[command(flatten)]
    manner: Manner,
}

impl Ping {
    pub fn run(&self, output: &Output) -> Outcome {
        if let Some(program) = &self.program {
            return self.ping_onc(program, output);
        }
        if self.answers {
            return self.hear(output);
        }
        let found = self.deadline.pinger(&self.name)?;
        let mut pinger = found.map_err(|why| onc::unnamed(why, onc::AFTER_ADDRESS))?;
        let mut health = self.first(&pinger).ping()?;
        if let Some(deadline) = self.deadline.within {
            pinger = pinger.within(deadline);
        }
        let [least, median, most] = self.timed(|| {
            health = pinger.ping()?;
            Ok(())
        })?;
        output.line(
            || {
                json!({
                    "name": self.name, "count": self.count, "min_us": us(least), "p50_us": us(median),
                    "max_us": us(most), "up_s": rounded(health.up.as_secs_f64(), 3), "running": health.running,
                })
            },
            || {
                let [least, median, most, up] = [least, median, most, health.up].map(duration);
                let others = health.running.saturating_sub(1);
                format!(
                    "{}: {}, fastest {least}, median {median}, slowest {most}; up {up}, {}",
                    self.name,
                    counted(self.count.into(), "call"),
                    counted(others.into(), "other call"),
                )
            },
        )
    }

    /// Returns the binding for the first call, which has the time that finding the exporter has left.
    fn first(&self, pinger: &Pinger) -> Pinger {
        self.deadline.left().map_or_else(|| pinger.clone(), |left| pinger.within(left))
    }

    /// Succeeds if the exporter answers, whatever it lets this end do.
    fn hear(&self, output: &Output) -> Outcome {
        let found = self.deadline.pinger(&self.name)?;
        let asked = found.and_then(|pinger| self.first(&pinger).ping().map(drop));
        let refused = match asked {
            Ok(()) => false,
            // Only an exporter that answers says that it refuses a peer.
            Err(Error::CallFailed(why)) if matches!(why.kind(), Kind::Mismatch | Kind::NotPermitted) => true,
            Err(why) => return Err(onc::unnamed(why, onc::AFTER_ADDRESS)),
        };
        output.line(
            || json!({ "name": self.name, "answers": true, "refused": refused }),
            || format!("{} answers{}", self.name, if refused { ", and refuses this end" } else { "" }),
        )
    }

    /// Calls the null procedure of a program several times.
    fn ping_onc(&self, program: &str, output: &Output) -> Outcome {
        let (number, version) = self.numbers(program, output)?;
        let client = self.manner.connect(&self.name, number, version, &self.deadline)?;
        let binding = client.program(number, version);
        let ping = |within: Option<Duration>| {
            let binding = within.map_or_else(|| binding.clone(), |within| binding.within(within));
            binding.call::<(), Never>(&NULL, &|_| Ok(())).map_err(onc::failed)
        };
        ping(self.deadline.left())?;
        let [least, median, most] = self.timed(|| ping(self.deadline.within))?;
        output.line(
            || {
                json!({
                    "address": client.address(), "program": number, "version": version, "count": self.count,
                    "min_us": us(least), "p50_us": us(median), "max_us": us(most),
                })
            },
            || {
                let [least, median, most] = [least, median, most].map(duration);
                let at =
                    format!("{}, program {}, version {version}", client.address(), spell_program(number));
                format!("{at}: {} calls, fastest {least}, median {median}, slowest {most}", self.count)
            },
        )
    }

    /// Returns a program's number and version: the version that the user selected, or the latest version.
    fn numbers(&self, program: &str, output: &Output) -> Outcome<(u32, u32)> {
        let hexadecimal = |digits| u32::from_str_radix(digits, 16).ok();
        let number = program.parse().ok().or_else(|| program.strip_prefix("0x").and_then(hexadecimal));
        if let Some(number) = number.or_else(|| standard::program_number(program)) {
            return Ok((number, self.manner.program_version(number, &self.name, &self.deadline)?));
        }
        if !x_file::is_definition(program) {
            let why = format!("{program} is not the number of a program, a known name or an .x file");
            let known = x_file::known();
            let hint = format!(
                "the known names are those in the output of `farcall list`, such as nfs and mountd, and {known}"
            );
            return Err(Failure::usage(why).hint(hint));
        }
        let versions = self.manner.versions(program, output)?;
        versions
            .first()
            .map(|version| (version.program, version.version))
            .ok_or_else(|| Failure::new("the .x file has no program"))
    }

    /// Makes the calls. Returns the shortest, the median and the longest time of a call.
    fn timed(&self, mut call: impl FnMut() -> Outcome) -> Outcome<[Duration; 3]> {
        let mut times = Vec::new();
        for _ in 0..self.count {
            let start = Instant::now();
            call()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok([0, times.len() / 2, times.len() - 1].map(|at| times[at]))
    }
}

/// The null procedure, which by convention every program has (RFC 5531 section 12.1).
static NULL: Procedure = Procedure {
    number: 0,
    name: "null",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

fn us(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e6, 1)
}
