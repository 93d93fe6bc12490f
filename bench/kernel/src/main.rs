//! A read that the kernel answers, while the exporter is stopped, beside a UDP round trip over the same veth
//! pair.
//!
//! ```text
//! network    the namespaces, the veth pairs, and orders to the processes in them
//! side       what the processes do
//! ```

mod network;
mod side;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::process::exit_code;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Row, write_json};

use network::Network;

/// Measures a 32-byte read of a segment that the kernel serves, while the exporter's process is stopped, and
/// a UDP round trip between two processes over the same veth pair. bench/README.md says how to read the
/// figures.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    side: Option<Sides>,
    #[command(flatten)]
    kernel: Kernel,
}

#[derive(Subcommand)]
enum Sides {
    #[command(hide = true)]
    Side(side::Side),
}

#[derive(clap::Args)]
struct Kernel {
    /// How often each way is measured.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many round trips a measurement has.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    trips: u32,
    /// How the XDP program is attached.
    #[arg(long, value_delimiter = ',', default_values_t = ["generic".to_owned(), "native".to_owned()])]
    modes: Vec<String>,
    /// Also write the rows as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is measured, in the order of a round, and what it is.
const WAYS: [(&str, &str); 4] = [
    ("plain", "UDP round trip, a veth pair without the program"),
    ("raw", "UDP round trip, the same veth pair"),
    ("served", "read of 32 bytes, answered by the exporter's process"),
    ("kernel", "read of 32 bytes, answered by the kernel, exporter stopped"),
];

fn main() -> ExitCode {
    let Command { side, kernel } = Command::parse();
    let ran = match side {
        Some(Sides::Side(side)) => side::run(&side),
        None => run(&kernel),
    };
    exit_code("farcall-bench-kernel", ran)
}

fn run(kernel: &Kernel) -> Result<()> {
    let mut rows = Vec::new();
    for mode in &kernel.modes {
        rows.extend(measure(kernel, mode)?);
    }
    kernel.json.as_ref().map_or(Ok(()), |path| write_json(path, &rows))
}

/// Measures all ways with the program attached in this mode, shows them, and returns them.
fn measure(kernel: &Kernel, mode: &str) -> Result<Vec<Row>> {
    let mut network = Network::new(mode)?;
    let before = network.stop_exporter()?;
    let mut nanos: [Vec<f64>; WAYS.len()] = Default::default();
    for round in 0..kernel.rounds as usize {
        // Every second round goes the other way, so that no way always follows the same one.
        for turn in 0..WAYS.len() {
            let way = if round % 2 == 0 { turn } else { WAYS.len() - 1 - turn };
            nanos[way].push(network.measure(WAYS[way].0, kernel.trips)?);
        }
    }
    let scheduled = network.scheduled()?;
    ensure!(before == scheduled, "the stopped exporter has run: {before:?}, then {scheduled:?}");
    let answered = network.answered()?;
    let expected = u64::from(kernel.rounds) * u64::from(kernel.trips);
    ensure!(answered >= expected, "the kernel has answered {answered} of {expected} reads");
    let conditions = conditions_on(&format!("veth between two namespaces, XDP {mode}"), &[]);
    println!("{}", conditions.join("\n"));
    println!("{:>8}  {:>16}  {:>8}  {:>16}", "us", "(95 %)", "to plain", "(95 %)");
    let mut rows = Vec::new();
    for ((way, what), times) in WAYS.iter().zip(&nanos) {
        let ratios = times.iter().zip(&nanos[0]).map(|(time, plain)| time / plain).collect();
        let times = times.iter().map(|nanos| nanos / 1e3).collect();
        let (Some(time), Some(ratio)) = (estimate(times), estimate(ratios)) else { continue };
        let between = |of: &Estimate| format!("({:.2} to {:.2})", of.low, of.high);
        println!(
            "{:8.2}  {:>16}  {:8.2}  {:>16}  {what}",
            time.median,
            between(&time),
            ratio.median,
            between(&ratio)
        );
        let mut row = Row {
            bench: "kernel".into(),
            peer: (*way).into(),
            transport: Some(mode.into()),
            p50_us: Some((time.median * 1e3).round() / 1e3),
            conditions: Some(conditions.join("; ")),
            ..Row::default()
        };
        row.set_ratio(ratio);
        rows.push(row);
    }
    println!("the exporter was stopped: scheduled 0 times; the kernel answered {answered} reads\n");
    Ok(rows)
}
