//! Long results or arguments: bytes per second compared with a TCP connection and with batches of UDP
//! segments (GSO), and the latency of short calls meanwhile.
use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::{estimate, quantile};
use farcall_bench_method::{Carry, Cell, Latencies, Load, Mode, Options, Row, Setup, chart};

use crate::field::{Contender, Field};
use crate::peers::{self, FARCALL};
use crate::rates::{Measured, method, rates};

/// The peers that the others are compared with.
const TCP: &str = "raw-tcp";
const GSO: &str = "raw-gso";
/// The peers beside which shared memory is compared: a copy within one processor, and one between two.
const COPIES: [&str; 2] = ["raw-memcpy", "raw-copies"];
const MEMORY: &str = "farcall-shm";

/// The least number of short calls in a block.
const SHORT: usize = 10_000;
/// The number of calls of which a 99th percentile is taken. A block's figure is the median of these
/// percentiles, so that interruptions by other programs, or by the host of this virtual machine, affect few
/// of them.
const OF_P99: usize = 1_000;
/// How long the cores are kept busy for such a block.
const BURNING: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct Bulk {
    #[command(flatten)]
    options: Options,
    /// The sizes of the payload in bytes, or 0 for none.
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 16 << 20])]
    bytes: Vec<usize>,
    /// The direction of the payload. In the other direction goes only its length.
    #[arg(long, value_enum, default_value_t = Carry::Result)]
    direction: Carry,
    /// The number of outstanding calls, which one thread of the client makes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    outstanding: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block])]
    mode: Vec<Mode>,
    /// The size of the payload beside which short calls are made, in bytes, or 0 for none.
    #[arg(long, default_value_t = 1 << 30)]
    beside: usize,
}

/// Measures all cells that the options select, and shows them.
pub fn run(bulk: &Bulk) -> Result<()> {
    let (options, carry) = (&bulk.options, bulk.direction);
    let mut cells = Vec::new();
    for pin in options.pinned() {
        for &mode in &bulk.mode {
            let setup = |&bytes| Setup { bytes, carry, mode, outstanding: 1 };
            let bytes = bulk.bytes.iter().filter(|&&bytes| bytes > 0);
            cells.extend(bytes.map(setup).map(|setup| Cell { setup, pin }));
        }
    }
    let mut names = peers::names(&[FARCALL, TCP, GSO], options);
    names.retain(|name| carry != Carry::Argument || peers::is_ours(name) || peers::is_raw(name));
    let mut field = Field::new(&names, cells.len() * bulk.outstanding.len() * options.groups())?;
    let (mut rows, mut copies) = (Vec::new(), Vec::new());
    for cell in &cells {
        for &outstanding in &bulk.outstanding {
            let load = Load::Window { outstanding, calls: 0 };
            let measured = rates("bulk", &mut field, cell, load, options)?;
            copies.extend(beside_copies(&measured));
            rows.extend(enter(measured));
        }
    }
    if bulk.beside > 0 {
        rows.extend(short(bulk, &mut field)?);
    }
    let method =
        format!("each ratio, to raw TCP and to raw UDP in batches, {}{}", method(options), copies.concat());
    let (rows, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => chart::ratios(path, "Long results", "ratio to raw TCP", &rows, &conditions),
        None => Ok(()),
    }
}

fn enter(measured: Vec<Measured>) -> Vec<Row> {
    let ratios = |name: &str| {
        let found = measured.iter().find(|one| one.row.peer == name);
        found.map(|one| one.ratios.clone()).unwrap_or_default()
    };
    let (tcp, gso) = (ratios(TCP), ratios(GSO));
    let rows = measured.into_iter().map(|mut one| {
        estimate(one.beside(&tcp)).into_iter().for_each(|ratio| one.row.set_ratio(ratio));
        estimate(one.beside(&gso)).into_iter().for_each(|ratio| one.row.set_ratio_gso(ratio));
        let bits = one.row.bytes.unwrap_or(0) as f64 * 8.0;
        one.row.gbit_per_second = one.row.per_second.map(|rate| rate * bits / 1e9);
        one.row
    });
    rows.collect()
}

/// Returns the conditions of shared memory and of the copies, if they take part.
fn beside_copies(measured: &[Measured]) -> Vec<String> {
    let find = |name: &str| measured.iter().find(|one| one.row.peer == name);
    let Some(ours) = find(MEMORY) else { return Vec::new() };
    let (bytes, calls) = (ours.row.bytes.unwrap_or(0), ours.row.outstanding.unwrap_or(1));
    let of = |copy: &Measured| {
        let ratio = estimate(ours.beside(&copy.ratios))?;
        let (name, low, high) = (&copy.row.peer, ratio.low, ratio.high);
        Some(format!(
            "\n{MEMORY}, {bytes} bytes, {calls} outstanding: {:.3} [{low:.3}, {high:.3}] of {name}",
            ratio.median
        ))
    };
    COPIES.iter().filter_map(|name| find(name)).filter_map(of).collect()
}

/// Measures the latencies of short calls, alone and during a long call of the same conversation.
fn short(bulk: &Bulk, field: &mut Field) -> Result<Vec<Row>> {
    let pin = bulk.options.pinned()[0];
    let setup = Setup { bytes: bulk.beside, carry: bulk.direction, mode: Mode::Block, outstanding: 2 };
    let mut rows = Vec::new();
    for mut contender in field.contenders(&Cell { setup, pin })? {
        match beside(&mut contender, if bulk.options.quick { 5 } else { 20 }) {
            Ok(parts) => rows.extend(parts),
            Err(why) => field.leave_out(&contender.name, why)?,
        }
    }
    Ok(rows)
}

/// What happens next to short calls: nothing; a busy process on each core; the long call.
const PARTS: [&str; 3] = ["small-quiet", "small-burning", "small-beside"];

/// Returns the rows. Each ratio is p99 to p99 alone, in neighbouring blocks.
fn beside(contender: &mut Contender, groups: usize) -> Result<Vec<Row>> {
    let state = RefCell::new((&mut *contender, PARTS.map(|_| Latencies::default())));
    let p99 = |part: usize| {
        let (contender, latencies) = &mut *state.borrow_mut();
        let short = |calls, beside| Load::Short { calls, beside };
        let mut block = match PARTS[part] {
            "small-burning" => contender.pair()?.latencies_beside_burning(BURNING, short(SHORT, false))?,
            name => {
                contender.pair()?.latencies(short(SHORT / 10, false), short(SHORT, name == "small-beside"))?
            }
        };
        latencies[part].add(&block);
        let p99s = block.chunks_exact_mut(OF_P99).map(|calls| quantile(calls, 0.99)).collect();
        estimate(p99s).map(|p99| p99.median).context("too few calls")
    };
    let mut ratios = PARTS.map(|_| Vec::new());
    for _ in 0..groups {
        for part in [1, 2] {
            ratios[part].extend(abba(|| p99(0), || p99(part))?);
        }
    }
    let (contender, latencies) = state.into_inner();
    let cell = contender.cell;
    let pair = contender.pair()?;
    let row = |part: &str| Row { part: Some(part.into()), ..pair.row("bulk", &cell) };
    let rows = PARTS.iter().zip(&latencies).zip(ratios).map(|((part, latencies), ratios)| {
        let mut row = row(part);
        latencies.enter(&mut row);
        estimate(ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
        row
    });
    Ok(rows.collect())
}
