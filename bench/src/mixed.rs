//! Short calls among slow ones: an open loop, and what 1 % of calls that sleep do to the others' latency.
use std::cell::RefCell;
use std::time::Duration;

use anyhow::Result;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::{estimate, quantile};
use farcall_bench_method::{Carry, Cell, Latencies, Load, Mode, Options, Pair, Row, Setup, chart};

use indicatif::ProgressBar;

use crate::field::{Contender, Field};
use crate::peers::{self, FARCALL};
use crate::rates::capacity;

/// Calls outstanding where the capacity is measured.
const OUTSTANDING: usize = 256;
/// The shortest block of which the 99th percentile says something.
const FEWEST: usize = 1_000;

#[derive(Debug, clap::Args)]
pub struct Mixed {
    #[command(flatten)]
    options: Options,
    /// Payload of the call and of its result.
    #[arg(long, default_value_t = 32)]
    bytes: usize,
    /// Calls begun per second, as a part of what the peer can do with 256 outstanding.
    #[arg(long, default_value_t = 0.3)]
    share: f64,
}

/// A curve of the picture.
type Tail = (String, Vec<(f64, f64)>);

/// Measures all peers, one after the other, and shows them.
pub fn run(mixed: &Mixed) -> Result<()> {
    let options = &mixed.options;
    let pins = options.pinned();
    let names = peers::names(&[FARCALL], options);
    let mut field = Field::new(&names, pins.len() * names.len() * options.groups())?;
    let (mut rows, mut tails) = (Vec::new(), Vec::new());
    for pin in pins {
        let setup = Setup { bytes: mixed.bytes, carry: Carry::Both, mode: Mode::Block, outstanding: OUTSTANDING };
        let cell = Cell { setup, pin };
        for mut contender in field.contenders(&cell)? {
            match measure(&mut contender, mixed, &field.progress) {
                Ok(measured) => measured.into_iter().for_each(|(row, tail)| {
                    rows.push(row);
                    tails.push(tail);
                }),
                Err(why) => field.leave_out(&contender.name, why)?,
            }
        }
    }
    let (pairs, length) = (2 * options.groups(), block(options).as_millis());
    let method = format!(
        "calls begun at random times, at {} of the capacity with {OUTSTANDING} outstanding; latency from then; each \
         ratio, p99 with slow calls to p99 without, the median of {pairs} pairs of blocks of about {length} ms",
        mixed.share
    );
    let (_, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => chart::tails(path, "Short calls, alone and among 1 % that sleep 10 ms", &tails, &conditions),
        None => Ok(()),
    }
}

/// The length of a block: a tenth of the calls that sleep are under way at any time.
fn block(options: &Options) -> Duration {
    5 * options.length()
}

/// Two rows of a peer, without slow calls and with them, and their curves.
fn measure(contender: &mut Contender, mixed: &Mixed, progress: &ProgressBar) -> Result<[(Row, Tail); 2]> {
    let options = &mixed.options;
    let capacity = capacity(contender, Load::Window { outstanding: OUTSTANDING, calls: 0 }, options)?;
    let per_second = (capacity * mixed.share).max(1.0) as u32;
    let calls = ((f64::from(per_second) * block(options).as_secs_f64()) as usize).max(FEWEST);
    let state = RefCell::new((&mut *contender, [Latencies::default(), Latencies::default()]));
    let p99 = |slow: bool| {
        let (contender, latencies) = &mut *state.borrow_mut();
        let load = Load::Open { per_second, slow, calls };
        let mut block = contender.block(|pair| pair.latencies(load.of(calls / 20), load))?;
        latencies[usize::from(slow)].add(&block);
        Ok(quantile(&mut block, 0.99))
    };
    let mut ratios = Vec::new();
    for _ in 0..options.groups() {
        ratios.extend(abba(|| p99(false), || p99(true))?);
        progress.inc(1);
    }
    let (contender, [alone, among]) = state.into_inner();
    let cell = contender.cell;
    let row = |pair: &Pair, slow: usize, latencies: &Latencies| {
        let mut row = pair.row("mixed", &cell);
        (row.slow_percent, row.per_second) = (Some(slow), Some(per_second.into()));
        latencies.enter(&mut row);
        row
    };
    let pair = contender.pair()?;
    let (first, mut second) = (row(pair, 0, &alone), row(pair, 1, &among));
    estimate(ratios).into_iter().for_each(|ratio| second.set_ratio(ratio));
    let name = &contender.name;
    Ok([(first, (name.clone(), alone.tail())), (second, (format!("{name}, slow calls"), among.tail()))])
}
