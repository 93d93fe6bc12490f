//! Larus' measurements of Courier (1983) again: his tables 1 to 11, the old figures beside the new ones.
//!
//! ```text
//! interface  the measured procedures      ways     how they are called, and the bounds
//! side       the two processes            network  namespaces, and orders to the processes
//! grid       all runs, in turn            figures  what was measured, and what follows from it
//! clock      processor time               codec    the codec alone
//! paper      the old figures              tables   old and new figures, printed
//! rows       figures for `--json`
//! ```

mod clock;
mod codec;
mod figures;
mod grid;
mod interface;
mod network;
mod paper;
mod rows;
mod side;
mod tables;
mod ways;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use farcall_bench_method::Pin;
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::process::exit_code;

use grid::{Grid, Measured};
use network::Network;
use side::Side;
use ways::Way;

/// Measures Courier as Larus did in 1983, and prints his tables 1 to 11 with both his figures and the new
/// ones. bench/README.md says how to read them.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    side: Option<Sides>,
    #[command(flatten)]
    courier: Courier,
}

#[derive(Subcommand)]
enum Sides {
    #[command(hide = true)]
    Side(Side),
}

#[derive(clap::Args)]
struct Courier {
    /// How many calls a run has.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// How many runs are made of each test, in each way, on each network.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How many times the client's processor time is profiled, in runs of their own; at most as many as runs.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    profiles: u32,
    /// The networks. Those of 3 and 10 Mbit/s need root.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Network::ALL)]
    networks: Vec<Network>,
    /// The ways to call. [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// The cores of client and server, such as `0,1`, or `none`. [default: the first two, if there are two]
    #[arg(long)]
    pin: Option<Pin>,
    /// Also write all figures to this file, or for `-` to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the tables to this file, as `paper` reads them.
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Command { side, courier } = Command::parse();
    let ran = match side {
        Some(Sides::Side(side)) => side::side(&side),
        None => run(&courier),
    };
    exit_code("farcall-bench-courier", ran)
}

fn run(courier: &Courier) -> Result<()> {
    let pin = courier.pin.unwrap_or_else(Pin::first_two);
    let mut ways = courier.ways.clone();
    if ways.is_empty() {
        ways.extend(Way::value_variants());
    }
    let grid = Grid {
        calls: courier.calls,
        runs: courier.runs,
        profiles: courier.profiles,
        networks: courier.networks.clone(),
        ways,
        pin,
    };
    let Measured { figures, skipped, took } = grid.run()?;
    let networks: Vec<&str> =
        Network::ALL.into_iter().filter(|network| figures.has(*network)).map(Network::name).collect();
    let mut conditions = conditions_on(&networks.join(", "), &[]);
    conditions.push(format!(
        "{} calls, {} runs, pin {pin}; {}",
        courier.calls,
        courier.runs,
        took.join(", ")
    ));
    conditions.extend(skipped.into_iter().map(|why| format!("skipped: {why}")));
    if courier.json.as_deref() != Some(Path::new("-")) {
        tables::print(&figures);
        println!("{}", conditions.join("\n"));
    }
    if let Some(path) = &courier.tables {
        farcall_bench_method::paper::write(path, tables::items(&figures, &conditions))?;
    }
    courier.json.as_deref().map_or(Ok(()), |path| rows::write(path, &figures, &conditions))
}
