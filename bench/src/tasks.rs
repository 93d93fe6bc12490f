//! Calls that tasks of a program on tokio await, on its runtimes of one thread and of many: calls per second,
//! compared with those of farcall with a server of blocking procedures.
use anyhow::Result;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup};

use crate::field::Field;
use crate::rates::{Measured, method, rates_of};

/// Beside which the others are compared: it awaits calls of blocking procedures, over UDP.
const BESIDE: &str = "farcall-tasks";
const PEERS: [&str; 5] =
    ["farcall-tasks-async", "farcall-tasks-shm", "farcall-tasks-async-shm", "tarpc", "tonic"];

#[derive(Debug, clap::Args)]
pub struct Tasks {
    #[command(flatten)]
    options: Options,
    /// The payloads of the call and of its result, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [32, 1024])]
    bytes: Vec<usize>,
    /// The number of the client's tasks, each of which makes one call after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256])]
    tasks: Vec<usize>,
    /// The threads of both sides' runtimes.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Threads::One, Threads::Many])]
    threads: Vec<Threads>,
}

/// The threads of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Threads {
    One,
    /// As many as there are cores.
    Many,
}

/// Measures all cells that the options select, and shows them.
pub fn run(tasks: &Tasks) -> Result<()> {
    let options = &tasks.options;
    let pin = options.pinned()[0];
    let mut rows = Vec::new();
    let peers = options.peers(&PEERS);
    let named = |threads| {
        let end = if threads == Threads::Many { "-threads" } else { "" };
        let all = std::iter::once(BESIDE).chain(peers.iter().map(String::as_str));
        all.map(|peer| format!("{peer}{end}")).collect::<Vec<String>>()
    };
    let names: Vec<String> = tasks.threads.iter().flat_map(|&threads| named(threads)).collect();
    let cells = tasks.threads.len() * tasks.bytes.len() * tasks.tasks.len();
    let mut field = Field::new(&names, cells * options.groups())?;
    for &threads in &tasks.threads {
        for &bytes in &tasks.bytes {
            for &outstanding in &tasks.tasks {
                let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding };
                let load = Load::Window { outstanding, calls: 0 };
                let (named, cell) = (named(threads), Cell { setup, pin });
                let wanted = |name: &str| named.iter().any(|wanted| wanted == name);
                let measured = rates_of("tasks", &mut field, wanted, &cell, load, options)?;
                rows.extend(measured.into_iter().map(row));
            }
        }
    }
    let method = format!("each ratio, of calls per second to those of {BESIDE}, {}", method(options));
    field.show(rows, method, &[], options).map(drop)
}

/// Returns a peer's row, with its ratio.
fn row(mut measured: Measured) -> Row {
    let ratios = measured.ratios.iter().map(|time| time.recip()).collect();
    estimate(ratios).into_iter().for_each(|ratio| measured.row.set_ratio(ratio));
    measured.row
}
