//! Compares this build of farcall with an older build of this program: the effect of a change of the code on
//! calls.
use std::path::PathBuf;

use anyhow::{Context, Result};
use farcall_bench_method::callgrind;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Pin, Row, Setup};

use crate::field::Field;
use crate::laps::{self, laps};
use crate::multi;
use crate::peers::{FARCALL, FARCALL_SECURE};
use crate::rates::rates;

/// The largest permitted ratio of times, for the upper end of its interval.
const MAX_RATIO: f64 = 1.02;
/// The widest interval with which times decide. With a wider one, instructions decide.
const MAX_WIDTH: f64 = 0.04;
/// The largest permitted ratio of user instructions in that case.
const MAX_INSTRUCTIONS: f64 = 1.03;

/// The number of servers of the called group.
const MEMBERS: usize = 100;

#[derive(Debug, clap::Args)]
pub struct Older {
    #[command(flatten)]
    options: Options,
    /// The older build of this program. Both builds must have the same orders between a bench and its
    /// processes.
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
    /// Count user instructions by callgrind instead of measuring times. This is slow, but reliable on a busy
    /// machine.
    #[arg(long)]
    callgrind: bool,
    /// The uses of farcall to measure, by the beginning of their names. [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    uses: Vec<String>,
}

/// One use of farcall, measured by both builds.
struct Use {
    name: &'static str,
    peer: &'static str,
    bytes: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Calls, one after the other.
    Laps,
    /// That many outstanding calls.
    Window(usize),
    /// Results of that size, one after the other.
    Result,
    /// Calls of all members of a group.
    Group,
}

const USES: &[Use] = &[
    Use { name: "null call", peer: FARCALL, bytes: 0, kind: Kind::Laps },
    Use { name: "sealed null call", peer: FARCALL_SECURE, bytes: 0, kind: Kind::Laps },
    Use { name: "call of 32 B", peer: FARCALL, bytes: 32, kind: Kind::Laps },
    Use { name: "call of 4000 B", peer: FARCALL, bytes: 4000, kind: Kind::Laps },
    Use { name: "64 outstanding", peer: FARCALL, bytes: 32, kind: Kind::Window(64) },
    Use { name: "256 outstanding", peer: FARCALL, bytes: 32, kind: Kind::Window(256) },
    Use { name: "64 outstanding of 4000 B", peer: FARCALL, bytes: 4000, kind: Kind::Window(64) },
    Use { name: "result of 1 MiB", peer: FARCALL, bytes: 1 << 20, kind: Kind::Result },
    Use { name: "group", peer: FARCALL, bytes: 0, kind: Kind::Group },
    Use { name: "memory read", peer: "memory-read", bytes: 32, kind: Kind::Laps },
    Use { name: "memory cas", peer: "memory-cas", bytes: 32, kind: Kind::Laps },
    Use { name: "shared memory null call", peer: "farcall-shm", bytes: 0, kind: Kind::Laps },
    Use { name: "shared memory call of 8 KiB", peer: "farcall-shm", bytes: 8192, kind: Kind::Laps },
    Use { name: "onc udp null call", peer: "farcall-onc-udp", bytes: 0, kind: Kind::Laps },
    Use { name: "onc tcp null call", peer: "farcall-onc-tcp", bytes: 0, kind: Kind::Laps },
    Use { name: "onc tcp 64 outstanding", peer: "farcall-onc-tcp", bytes: 32, kind: Kind::Window(64) },
];

/// Measures each use by both builds, alternately, and reports which uses became slower than permitted.
pub fn run(older: &Older) -> Result<()> {
    let options = &older.options;
    let wanted =
        |one: &&Use| older.uses.is_empty() || older.uses.iter().any(|name| one.name.starts_with(&**name));
    let uses: Vec<&Use> = USES.iter().filter(wanted).collect();
    let current = std::env::current_exe().context("cannot find this program")?;
    let steps = uses.len() * options.groups();
    let mut field = Field::of([(FARCALL.into(), older.program.clone()), (FARCALL.into(), current)], steps);
    let (mut rows, mut dearer) = (Vec::new(), Vec::new());
    for one in uses {
        let pair = match older.callgrind {
            true => one.count(&mut field, options)?,
            false => one.measure(&mut field, options)?,
        };
        dearer.extend(one.judge(&pair));
        rows.extend(pair);
    }
    let method = format!("each ratio of the new build to the old one, {}", laps::method(options));
    field.show(rows, method, &[], options)?;
    if dearer.is_empty() {
        println!("no use became dearer than {MAX_RATIO} in time or {MAX_INSTRUCTIONS} in user instructions");
    }
    dearer.iter().for_each(|what| println!("dearer: {what}"));
    Ok(())
}

impl Use {
    /// Returns the rows of the old build and of the new one.
    fn measure(&self, field: &mut Field, options: &Options) -> Result<Vec<Row>> {
        field.rename(self.peer);
        let pin = options.pinned()[0];
        let mut rows = match self.kind {
            Kind::Laps => self.laps(field, pin, options)?,
            Kind::Window(outstanding) => self.rates(field, (outstanding, Carry::Both), pin, options)?,
            Kind::Result => self.rates(field, (1, Carry::Result), pin, options)?,
            Kind::Group => multi::beside(field, MEMBERS, pin, options)?,
        };
        for (row, build) in rows.iter_mut().zip(["old", "new"]) {
            row.part = Some(build.into());
            row.operation = Some(self.name.into());
        }
        Ok(rows)
    }

    /// Returns the same rows with user instructions by callgrind only. Groups have none.
    fn count(&self, field: &mut Field, options: &Options) -> Result<Vec<Row>> {
        let (carry, load) = match self.kind {
            Kind::Laps => (Carry::Both, Load::Laps { calls: 6_400 }),
            Kind::Window(outstanding) => (Carry::Both, Load::Window { outstanding, calls: 64 * outstanding }),
            Kind::Result => (Carry::Result, Load::Window { outstanding: 1, calls: 32 }),
            Kind::Group => return Ok(Vec::new()),
        };
        field.rename(self.peer);
        let cell = self.cell(carry, options.pinned()[0]);
        let mut rows = Vec::new();
        for ((name, program), build) in field.programs().iter().zip(["old", "new"]) {
            let [client, server] = callgrind::count(program, name, &cell, load)?;
            rows.push(Row {
                bench: "older".into(),
                peer: name.clone(),
                bytes: Some(self.bytes),
                part: Some(build.into()),
                operation: Some(self.name.into()),
                user_instructions: Some((client + server).round()),
                server_user_instructions: Some(server.round()),
                ..Row::default()
            });
            field.progress.inc(options.groups() as u64 / 2);
        }
        Ok(rows)
    }

    fn cell(&self, carry: Carry, pin: Pin) -> Cell {
        Cell { setup: Setup { bytes: self.bytes, carry, mode: Mode::Block, outstanding: 1 }, pin }
    }

    fn laps(&self, field: &mut Field, pin: Pin, options: &Options) -> Result<Vec<Row>> {
        let contenders = field.contenders(&self.cell(Carry::Both, pin))?;
        let measured = laps("older", contenders, options, || field.progress.inc(1))?;
        Ok(measured.into_iter().map(|one| one.row).collect())
    }

    fn rates(
        &self,
        field: &mut Field,
        (outstanding, carry): (usize, Carry),
        pin: Pin,
        options: &Options,
    ) -> Result<Vec<Row>> {
        let load = Load::Window { outstanding, calls: 0 };
        let measured = rates("older", field, &self.cell(carry, pin), load, options)?;
        let rows = measured.into_iter().map(|mut one| {
            estimate(one.ratios).into_iter().for_each(|ratio| one.row.set_ratio(ratio));
            one.row
        });
        Ok(rows.collect())
    }

    /// Returns what became slower than permitted, if anything did.
    fn judge(&self, rows: &[Row]) -> Option<String> {
        let [old, new] = rows else { return None };
        let instructions = new.user_instructions.zip(old.user_instructions).map(|(new, old)| new / old);
        let Some((low, high)) = new.ratio_low.zip(new.ratio_high) else {
            let dearer = instructions.filter(|&ratio| ratio > MAX_INSTRUCTIONS)?;
            return Some(format!("{}: user instructions {dearer:.3}", self.name));
        };
        if high <= MAX_RATIO {
            return None;
        }
        let said = instructions.map_or("not counted".into(), |ratio| format!("{ratio:.3}"));
        let excused = high - low > MAX_WIDTH && instructions.is_some_and(|ratio| ratio <= MAX_INSTRUCTIONS);
        (!excused).then(|| format!("{}: time [{low:.3}, {high:.3}], user instructions {said}", self.name))
    }
}
