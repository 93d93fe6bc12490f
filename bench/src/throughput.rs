//! Many calls outstanding: how many a second, beside the best of the peers.
use anyhow::Result;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Setup, chart};

use crate::field::Field;
use crate::peers::{self, FARCALL, RAW};
use crate::rates::{Measured, method, rates};

#[derive(Debug, clap::Args)]
pub struct Throughput {
    #[command(flatten)]
    options: Options,
    /// Payloads of the call and of its result; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [32, 4000])]
    bytes: Vec<usize>,
    /// How many calls one thread of the client has outstanding.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256])]
    outstanding: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block])]
    mode: Vec<Mode>,
    /// How many threads of the client call and block, or 0 for none.
    #[arg(long, value_delimiter = ',', default_values_t = [256])]
    threads: Vec<usize>,
}

/// Measures all cells that the options ask for, and shows them.
pub fn run(throughput: &Throughput) -> Result<()> {
    let (options, loads) = (&throughput.options, loads(throughput));
    let pins = options.pinned();
    let names = peers::names(&[FARCALL, RAW], options);
    let setups = throughput.mode.iter().flat_map(|&mode| {
        let setup = move |&bytes| Setup { bytes, carry: Carry::Both, mode, outstanding: 1 };
        throughput.bytes.iter().map(setup)
    });
    let setups: Vec<Setup> = setups.collect();
    let steps = pins.len() * setups.len() * loads.len() * options.groups();
    let mut field = Field::new(&names, steps)?;
    let mut rows = Vec::new();
    for pin in pins {
        for &setup in &setups {
            let cell = Cell { setup, pin };
            for &load in &loads {
                let measured = rates("throughput", &mut field, &cell, load, options)?;
                let best = best(&measured).map(|best| best.ratios.clone());
                rows.extend(measured.into_iter().map(|mut measured| {
                    let ratio = best.as_deref().and_then(|best| estimate(measured.beside(best)));
                    ratio.into_iter().for_each(|ratio| measured.row.set_ratio(ratio));
                    measured.row
                }));
            }
        }
    }
    let method = format!("each ratio, to the best peer beside farcall, {}", method(options));
    let (rows, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => chart::ratios(path, "Calls per second", "ratio to the best peer", &rows, &conditions),
        None => Ok(()),
    }
}

fn loads(throughput: &Throughput) -> Vec<Load> {
    let windows = throughput.outstanding.iter().map(|&outstanding| Load::Window { outstanding, calls: 0 });
    let threads = throughput.threads.iter().filter(|&&threads| threads > 0);
    windows.chain(threads.map(|&threads| Load::Threads { threads, calls: 0 })).collect()
}

/// The fastest peer beside farcall; raw sockets are none, unless there is no other.
fn best(measured: &[Measured]) -> Option<&Measured> {
    let fastest = |raw| {
        let others = measured.iter().filter(|one| !peers::is_ours(&one.row.peer));
        let others = others.filter(|one| peers::is_raw(&one.row.peer) == raw);
        others.min_by(|a, b| a.median().total_cmp(&b.median()))
    };
    fastest(false).or_else(|| fastest(true))
}
