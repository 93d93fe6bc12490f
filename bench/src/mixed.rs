//! Short calls among slow ones: an open loop, and the effect of 1 % of calls that sleep, or of one call that
//! is stuck, on the latency of the others.
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use farcall_bench_method::stats::{estimate, quantile};
use farcall_bench_method::{Carry, Cell, Latencies, Load, Mode, Options, Pair, Row, STUCK, Setup, chart};

use indicatif::ProgressBar;

use crate::field::{Contender, Field};
use crate::peers::{self, FARCALL, RAW};
use crate::rates::capacity;

/// The number of outstanding calls with which the capacity is measured.
const OUTSTANDING: usize = 256;
/// The shortest block whose 99th percentile is meaningful.
const FEWEST: usize = 1_000;
/// The number of activities next to one that is stuck.
const ACTIVITIES: usize = 1_000;
/// How long calls are measured while one call is stuck.
const BESIDE_STUCK: Duration = Duration::from_secs(4);

#[derive(Debug, clap::Args)]
pub struct Mixed {
    #[command(flatten)]
    options: Options,
    /// The payloads of the call and of its result, in bytes.
    #[arg(long, default_value_t = 32)]
    bytes: usize,
    /// The calls begun per second, as a fraction of the peer's capacity with 256 outstanding calls.
    #[arg(long, default_value_t = 0.3)]
    share: f64,
    /// Instead of 1 % of calls that sleep: one call that sleeps for 5 s beside 1,000 activities.
    #[arg(long)]
    stuck: bool,
}

/// A row, and its curve in the picture with its name.
struct Measured {
    row: Row,
    name: String,
    latencies: Latencies,
}

/// Measures all peers, one after the other, and shows them.
pub fn run(mixed: &Mixed) -> Result<()> {
    let options = &mixed.options;
    let pins = options.pinned();
    let mut names = peers::names(&[FARCALL, RAW], options);
    names.retain(|name| !mixed.stuck || peers::is_ours(name));
    let mut field = Field::new(&names, pins.len() * names.len() * groups(mixed))?;
    let mut measured = Vec::new();
    for pin in pins {
        let setup =
            Setup { bytes: mixed.bytes, carry: Carry::Both, mode: Mode::Block, outstanding: OUTSTANDING };
        let cell = Cell { setup, pin };
        for mut contender in field.contenders(&cell)? {
            match measure(&mut contender, mixed, &field.progress) {
                Ok(two) => measured.extend(two),
                Err(why) => field.leave_out(&contender.name, why)?,
            }
        }
    }
    let rows = measured.iter().map(|one| one.row.clone()).collect();
    let (_, conditions) = field.show(rows, method(mixed), &[], options)?;
    let tails: Vec<_> = measured.into_iter().map(|one| (one.name, one.latencies.tail())).collect();
    let title = match mixed.stuck {
        false => "Short calls, alone and among 1 % that sleep 10 ms",
        true => "Short calls, alone and beside one that sleeps 5 s",
    };
    options.svg.as_ref().map_or(Ok(()), |path| chart::tails(path, title, &tails, &conditions))
}

/// Measures groups of four blocks, or of four periods of some seconds.
fn groups(mixed: &Mixed) -> usize {
    match (mixed.stuck, mixed.options.quick) {
        (false, _) => mixed.options.groups(),
        (true, true) => 2,
        (true, false) => 10,
    }
}

fn method(mixed: &Mixed) -> String {
    let (pairs, length) = (2 * groups(mixed), block(&mixed.options).as_millis());
    let (other, pairs) = match mixed.stuck {
        false => ("slow calls", format!("{pairs} pairs of blocks of about {length} ms")),
        true => {
            let time = BESIDE_STUCK.as_secs();
            (
                "a stuck call",
                format!("pairs of blocks of about {length} ms in {pairs} pairs of times of {time} s"),
            )
        }
    };
    format!(
        "calls begun at random times, at {} of the capacity with {OUTSTANDING} outstanding; latency from then; each \
         ratio, p99 with {other} to p99 without, the median of {pairs}",
        mixed.share
    )
}

/// Returns the length of a block, such that a tenth of the sleeping calls are under way at any time.
fn block(options: &Options) -> Duration {
    5 * options.length()
}

/// Returns two rows of a peer, without slow calls and with them. Raw sockets have one row: they do not sleep,
/// so both kinds of blocks are the same, and the ratio shows the error of the method.
fn measure(contender: &mut Contender, mixed: &Mixed, progress: &ProgressBar) -> Result<Vec<Measured>> {
    let options = &mixed.options;
    let capacity = capacity(contender, Load::Polled { outstanding: OUTSTANDING, calls: 0 }, options)?;
    let per_second = (capacity * mixed.share).max(1.0) as u32;
    let calls = ((f64::from(per_second) * block(options).as_secs_f64()) as usize).max(FEWEST);
    let is_raw = peers::is_raw(&contender.name);
    let mut latencies = [Latencies::default(), Latencies::default()];
    let mut p99s = |other: bool| {
        let into = &mut latencies[usize::from(other && !is_raw)];
        let load = Load::Open { per_second, slow: other && !is_raw && !mixed.stuck, calls };
        match mixed.stuck {
            true => beside_stuck(contender.pair()?, load, other, into),
            false => Ok(vec![p99(contender, load.of(calls / 20), load, into)?]),
        }
    };
    let mut ratios = Vec::new();
    for _ in 0..groups(mixed) {
        let [a, b, c, d] = [p99s(false)?, p99s(true)?, p99s(true)?, p99s(false)?];
        let pairs = a.iter().zip(&b).chain(d.iter().zip(&c));
        ratios.extend(pairs.map(|(without, with)| with / without));
        progress.inc(1);
    }
    let mut measured = Vec::new();
    for (other, latencies) in [false, true].into_iter().zip(latencies).take(if is_raw { 1 } else { 2 }) {
        let cell = contender.cell;
        let mut row = Row { per_second: Some(per_second.into()), ..contender.pair()?.row("mixed", &cell) };
        latencies.enter(&mut row);
        let name = match mixed.stuck {
            true => row.part.insert(if other { "stuck" } else { "quiet" }.into()).clone(),
            false => format!("{} % slow", row.slow_percent.insert(usize::from(other))),
        };
        measured.push(Measured { name: format!("{}, {name}", contender.name), row, latencies });
    }
    let ratio = estimate(ratios);
    measured.last_mut().zip(ratio).into_iter().for_each(|(last, ratio)| last.row.set_ratio(ratio));
    Ok(measured)
}

/// Returns the 99th percentile of one block.
fn p99(contender: &mut Contender, warm: Load, load: Load, into: &mut Latencies) -> Result<f64> {
    let mut block = contender.block(|pair| pair.latencies(warm, load))?;
    into.add(&block);
    Ok(quantile(&mut block, 0.99))
}

/// Returns the 99th percentiles of blocks of some seconds, in which one call is stuck or none is. Before each
/// block all activities call once.
fn beside_stuck(pair: &mut Pair, load: Load, stuck: bool, into: &mut Latencies) -> Result<Vec<f64>> {
    let warm = Load::Polled { outstanding: ACTIVITIES, calls: 10 * ACTIVITIES };
    let mut p99s = Vec::new();
    let began = Instant::now();
    if stuck {
        pair.stick(true)?;
    }
    while began.elapsed() < BESIDE_STUCK {
        let mut block = pair.latencies(warm, load)?;
        into.add(&block);
        p99s.push(quantile(&mut block, 0.99));
    }
    if stuck {
        ensure!(began.elapsed() < STUCK, "the call was stuck no longer than its blocks took");
        pair.stick(false)?;
    }
    Ok(p99s)
}
