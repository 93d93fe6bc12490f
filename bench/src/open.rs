//! An open loop: calls come at random times, whether or not earlier ones have ended. A call's latency counts
//! from the time at which it was due.
use std::time::Duration;

use anyhow::Result;
use farcall_bench_method::stats::{estimate, quantile};
use farcall_bench_method::{Carry, Cell, Latencies, Load, Mode, Options, Row, Setup};

use crate::field::{Contender, Field, unless_lost};
use crate::peers::{self, FARCALL};

/// The peers that are measured besides farcall over UDP.
const PEERS: [&str; 3] = ["tarpc", "tonic", "farcall-shm"];
/// The peer beside which the others are compared.
const BESIDE: &str = "tarpc";

#[derive(Debug, clap::Args)]
pub struct Open {
    #[command(flatten)]
    options: Options,
    /// The mean numbers of calls per second.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 20_000, 40_000, 80_000, 120_000, 160_000])]
    rates: Vec<u32>,
    /// The payloads of the call and of its result, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [32])]
    bytes: Vec<usize>,
}

/// Measures all cells that the options select, and shows them.
pub fn run(open: &Open) -> Result<()> {
    let options = &open.options;
    let chosen = Options { peers: Some(options.peers(&PEERS)), ..options.clone() };
    let names = peers::names(&[FARCALL], &chosen);
    let mut field = Field::new(&names, open.rates.len() * open.bytes.len())?;
    let pin = options.pinned()[0];
    let mut rows = Vec::new();
    for &bytes in &open.bytes {
        for &rate in &open.rates {
            let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: 1 };
            let contenders = field.contenders(&Cell { setup, pin })?;
            rows.extend(measure(&mut field, contenders, rate, options)?);
            field.progress.inc(1);
        }
    }
    let method = format!(
        "each ratio, of p99 to that of {BESIDE} in the same round, the median of {} rounds",
        rounds(options)
    );
    field.show(rows, method, &[], options).map(drop)
}

fn rounds(options: &Options) -> usize {
    options.groups() / 2
}

/// Returns the rows of all contenders at one rate.
fn measure(field: &mut Field, contenders: Vec<Contender>, rate: u32, options: &Options) -> Result<Vec<Row>> {
    let length = Duration::from_millis(if options.quick { 100 } else { 250 });
    let calls = (f64::from(rate) * length.as_secs_f64()) as usize;
    let load = Load::Open { per_second: rate, slow: false, calls };
    let block = |contender: &mut Contender| contender.block(|pair| pair.latencies(load.of(calls / 10), load));
    // The first block shows who supports it.
    let mut contenders = field.retain(contenders, |contender| block(contender).map(drop))?;
    let mut latencies: Vec<Latencies> = contenders.iter().map(|_| Latencies::default()).collect();
    let mut tails: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds(options) {
        // A round is measured by all peers or void.
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let took = block(&mut contenders[which]);
            let took = unless_lost(took, &mut [&mut contenders[which]])?;
            tails[which].push(took.clone().map_or(f64::NAN, |mut took| quantile(&mut took, 0.99)));
            took.into_iter().for_each(|took| latencies[which].add(&took));
        }
    }
    let beside = contenders.iter().position(|contender| contender.name == BESIDE);
    let mut rows = Vec::new();
    for (which, contender) in contenders.iter_mut().enumerate() {
        let cell = contender.cell;
        let mut row = Row { per_second: Some(rate.into()), ..contender.pair()?.row("open", &cell) };
        latencies[which].enter(&mut row);
        if let Some(beside) = beside {
            let ratios = tails[which].iter().zip(&tails[beside]).map(|(one, other)| one / other);
            estimate(ratios.filter(|ratio| ratio.is_finite()).collect())
                .into_iter()
                .for_each(|ratio| row.set_ratio(ratio));
        }
        rows.push(row);
    }
    Ok(rows)
}
