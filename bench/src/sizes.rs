//! Many outstanding calls of each size: calls per second, compared with those of the next larger size.
use anyhow::{Result, ensure};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Pin, Row, Setup};

use crate::field::{Contender, Field, begin_group, unless_lost};
use crate::peers::{self, FARCALL};
use crate::rates::{method, sized};

#[derive(Debug, clap::Args)]
pub struct Sizes {
    #[command(flatten)]
    options: Options,
    /// The payloads of the call and of its result, in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [
        32, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1080, 1100, 1200, 1400, 1600, 1800, 2000, 4000,
    ])]
    bytes: Vec<usize>,
    /// The number of outstanding calls, which one thread of the client makes.
    #[arg(long, default_value_t = 64)]
    outstanding: usize,
    /// Fail if farcall makes less than this part of the calls of the next larger size.
    #[arg(long, value_name = "RATIO")]
    least: Option<f64>,
}

/// Measures all sizes, shows them, and fails if one is slower than permitted.
pub fn run(sizes: &Sizes) -> Result<()> {
    let options = &sizes.options;
    let mut bytes = sizes.bytes.clone();
    bytes.sort_unstable();
    bytes.dedup();
    let chosen = Options { peers: Some(options.peers(&["farcall-shm"])), ..options.clone() };
    let names = peers::names(&[FARCALL], &chosen);
    let mut field = Field::new(&names, names.len() * bytes.len())?;
    let pin = options.pinned()[0];
    let mut rows = Vec::new();
    for name in &names {
        for (n, &size) in bytes.iter().enumerate() {
            let larger = bytes.get(n + 1).copied();
            rows.extend(measure(sizes, &mut field, (name, pin), size, larger)?);
            field.progress.inc(1);
        }
    }
    let ours = rows.iter().filter(|row| row.peer == FARCALL);
    let slow = ours.filter(|row| sizes.least.zip(row.ratio_low).is_some_and(|(least, low)| low < least));
    let slow: Vec<String> = slow
        .map(|row| format!("{} bytes at {:.3}", row.bytes.unwrap_or(0), row.ratio_low.unwrap_or(0.0)))
        .collect();
    let method = format!("each ratio, to the next larger size, {}", method(options));
    field.show(rows, method, &[], options)?;
    ensure!(slow.is_empty(), "slower than permitted beside the next larger size: {}", slow.join(", "));
    Ok(())
}

/// Returns the row of a size. Its ratio is of calls per second, to those of the next larger size.
fn measure(
    sizes: &Sizes,
    field: &mut Field,
    (name, pin): (&str, Pin),
    bytes: usize,
    larger: Option<usize>,
) -> Result<Option<Row>> {
    let options = &sizes.options;
    let load = Load::Window { outstanding: sizes.outstanding, calls: 0 };
    let mut start = |bytes| -> Result<Option<(Contender, Load)>> {
        let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: sizes.outstanding };
        let Some(mut contender) = field.some(&Cell { setup, pin }, |one| one == name)?.pop() else {
            return Ok(None);
        };
        let load = sized(&mut contender, load, options)?;
        Ok(Some((contender, load)))
    };
    let Some((contender, load)) = start(bytes)? else { return Ok(None) };
    let next = larger.map(&mut start).transpose()?.flatten();
    let (mut both, mut loads) = (vec![contender], vec![load]);
    if let Some((contender, load)) = next {
        both.push(contender);
        loads.push(load);
    }
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut both);
        match &mut both[..] {
            [one, next] => {
                let other = || block(next, loads[1]);
                let ratio = abba(other, || block(one, loads[0]).inspect(|rate| rates.push(*rate)));
                ratios.extend(unless_lost(ratio, &mut [one, next])?.into_iter().flatten());
            }
            all => rates.extend(all.iter_mut().map(|one| block(one, loads[0])).collect::<Result<Vec<_>>>()?),
        }
    }
    let cell = both[0].cell;
    let mut row = both[0].pair()?.row("sizes", &cell);
    row.outstanding = Some(sizes.outstanding);
    row.per_second = estimate(rates).map(|rate| rate.median.round());
    estimate(ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
    Ok(Some(row))
}

/// Runs a block, and returns its calls per second.
fn block(contender: &mut Contender, load: Load) -> Result<f64> {
    let warm = load.of(load.calls().div_ceil(10));
    Ok(contender.block(|pair| pair.rate(warm, load))?.0)
}
