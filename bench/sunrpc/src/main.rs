//! Elliott and Nutt's measurements of Sun RPC (1989) again: their tables 1 to 5, the old figures beside the
//! new ones.
//!
//! ```text
//! local    program 1: local calls      ways     programs 2 to 4: all ways to call, and their servers
//! custom   programs 3 and 4 in Rust    ffi      the C programs
//! side     the two processes           ends     where they are, and orders to them
//! grid     all runs, in turn           figures  what was measured
//! profile  where processor time goes   parts    what a function is part of
//! paper    the old figures             tables   old and new figures
//! ```

mod custom;
mod ends;
#[cfg(c)]
mod ffi;
mod figures;
mod grid;
mod local;
mod paper;
mod parts;
mod profile;
mod side;
mod tables;
mod ways;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, Subcommand};
use farcall_bench_method::Pin;
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::process::exit_code;

use grid::Grid;
use side::Side;

/// Measures Sun RPC as Elliott and Nutt did in 1989, and prints their tables 1 to 5 with both their figures
/// and the new ones. bench/README.md says how to read them.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    side: Option<Sides>,
    #[command(flatten)]
    sun: Sun,
}

#[derive(Subcommand)]
enum Sides {
    #[command(hide = true)]
    Side(Side),
}

#[derive(clap::Args)]
struct Sun {
    /// Few runs: a first impression.
    #[arg(long)]
    quick: bool,
    /// The cores of client and server, such as `0,1`, or `none`. [default: the first two, if there are two]
    #[arg(long)]
    pin: Option<Pin>,
    /// Also write the tables to this file, as `paper` reads them.
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Command { side, sun } = Command::parse();
    let ran = match side {
        Some(Sides::Side(side)) => side::side(&side),
        None => run(&sun),
    };
    exit_code("farcall-bench-sunrpc", ran)
}

fn run(sun: &Sun) -> Result<()> {
    let pin = sun.pin.unwrap_or_else(Pin::first_two);
    let grid = match sun.quick {
        true => {
            Grid { runs: 7, repeats: 25, loops: 3, limit: Duration::from_secs(20), profile_seconds: 2, pin }
        }
        false => {
            let limit = Duration::from_secs(110);
            Grid { runs: 31, repeats: 100, loops: 15, limit, profile_seconds: 8, pin }
        }
    };
    let start = Instant::now();
    let figures = grid.run()?;
    let mut conditions = conditions_on("loopback and a veth cable", &versions());
    conditions.push(format!(
        "runs of 1,000 calls: {} for table 1, {} for each cell of table 3; each loop of table 2 {} times; \
         profiles of {} s; pin {pin}; took {:.0} s",
        most(figures.repeated.values()),
        most(figures.calls.values()),
        most(figures.local.values()),
        grid.profile_seconds,
        start.elapsed().as_secs_f64()
    ));
    let items = tables::items(&figures, &conditions);
    tables::print(&items);
    println!("{}", conditions.join("\n"));
    sun.tables.as_deref().map_or(Ok(()), |path| farcall_bench_method::paper::write(path, items))
}

/// Returns how many runs the cells of a table have.
fn most<'a, T: 'a>(cells: impl Iterator<Item = &'a Vec<T>>) -> usize {
    cells.map(Vec::len).max().unwrap_or(0)
}

/// Returns the versions of what is measured.
fn versions() -> Vec<String> {
    let libtirpc = option_env!("LIBTIRPC_VERSION").map(|version| format!("libtirpc {version}"));
    let compiler = option_env!("C_COMPILER").map(str::to_owned);
    libtirpc.into_iter().chain(compiler).collect()
}
