//! Birrell and Nelson's measurements of Cedar RPC (1984) again: table I, and bulk by parallel calls.
//!
//! ```text
//! interface  the measured procedures      peers    the ways to call them     bare  the same datagrams alone
//! capture    the datagrams of a call      table1   all calls, in turn
//! bulk       transfers on a slow cable    side     their two processes
//! paper      the old figures              tables   old and new figures
//! ```

mod bare;
mod bulk;
mod capture;
mod interface;
mod paper;
mod peers;
mod side;
mod table1;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use farcall_bench_method::Pin;
use farcall_bench_method::agent::{self, Agent};
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::paper::Item;
use farcall_bench_method::process::exit_code;
use indicatif::{ProgressBar, ProgressStyle};

use side::Side;
use tables::Found;

/// Measures calls as Birrell and Nelson did in 1984, and prints their table I with both their figures and the
/// new ones. bench/README.md says how to read them.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    process: Option<Process>,
    #[command(flatten)]
    cedar: Cedar,
}

#[derive(Subcommand)]
enum Process {
    #[command(hide = true)]
    Agent(Agent),
    #[command(hide = true)]
    Side(Side),
}

#[derive(clap::Args)]
struct Cedar {
    /// How many calls are made of each procedure, in each way. [default: 12000, or 4000 if quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    calls: Option<u32>,
    /// The cores of client and server, such as `0,1`, or `none`. [default: the first two, if there are two]
    #[arg(long)]
    pin: Option<Pin>,
    /// Few calls and short transfers: a first impression, with wide intervals.
    #[arg(long)]
    quick: bool,
    /// Also write the tables to this file, as `paper` reads them.
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Command { process, cedar } = Command::parse();
    let ran = match process {
        Some(Process::Agent(agent)) => agent::main(&agent, peers::peer(agent.peer())),
        Some(Process::Side(side)) => side::side(&side),
        None => run(&cedar),
    };
    exit_code("farcall-bench-cedar", ran)
}

fn run(cedar: &Cedar) -> Result<()> {
    let start = Instant::now();
    let pin = cedar.pin.unwrap_or_else(Pin::first_two);
    let calls = cedar.calls.unwrap_or(if cedar.quick { 4_000 } else { 12_000 });
    // Placement in memory is luck, drawn at each start.
    let starts = if cedar.quick { 1 } else { 4 };
    let (groups, bytes) = if cedar.quick { (2, 128 << 10) } else { (5, 256 << 10) };
    let progress = progress(interface::Procedure::ALL.len() as u64 + u64::from(groups));
    let lines = table1::measure(calls, starts, pin, &progress)?;
    let rates = bulk::measure(groups, bytes, pin, &progress).map_err(|why| format!("{why:#}"));
    progress.finish_and_clear();
    let mut conditions = conditions_on("loopback, and a cable of 3 Mbit/s between network namespaces", &[]);
    let took = start.elapsed().as_secs_f64();
    conditions.push(format!("{calls} calls, transfers of {} KiB, pin {pin}; took {took:.0} s", bytes >> 10));
    let found = Found { lines, rates, calls, conditions };
    let items = found.items();
    print(&items);
    cedar.tables.as_deref().map_or(Ok(()), |path| farcall_bench_method::paper::write(path, items))
}

fn print(items: &[Item]) {
    for item in items {
        if let Item::Table(table) = item {
            println!("{table}");
        }
        item.about().void.iter().for_each(|why| println!("void: {why}"));
    }
    items.iter().take(1).flat_map(|item| &item.about().conditions).for_each(|line| println!("{line}"));
}

/// Returns a bar on standard error, if that is a terminal.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {elapsed} of {duration} {msg}");
    let bar = ProgressBar::new(steps);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
