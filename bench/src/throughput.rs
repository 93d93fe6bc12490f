//! Many outstanding calls: calls per second, compared with the best peer.
use anyhow::Result;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup, chart};

use crate::field::{Contender, Field};
use crate::peers::{self, FARCALL, RAW};
use crate::rates::{Measured, capacity, method, rates};

#[derive(Debug, clap::Args)]
pub struct Throughput {
    #[command(flatten)]
    options: Options,
    /// The payloads of the call and of its result, in bytes; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [32, 4000])]
    bytes: Vec<usize>,
    /// The number of outstanding calls, which one thread of the client makes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256])]
    outstanding: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block])]
    mode: Vec<Mode>,
    /// The number of the client's threads that call and block, or 0 for none.
    #[arg(long, value_delimiter = ',', default_values_t = [256])]
    threads: Vec<usize>,
    /// Measure a client beside another one that has this many outstanding calls, instead; 0 for none.
    #[arg(long, default_value_t = 0)]
    beside: usize,
}

/// Measures all cells that the options select, and shows them.
pub fn run(throughput: &Throughput) -> Result<()> {
    if throughput.beside > 0 {
        return run_beside(throughput);
    }
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

/// Measures a client next to another one with many outstanding calls, and shows its share.
fn run_beside(throughput: &Throughput) -> Result<()> {
    let Throughput { options, bytes, outstanding, beside: many, .. } = throughput;
    let pin = options.pinned()[0];
    let names = peers::names(&[FARCALL], options);
    let mut field = Field::new(&names, bytes.len() * outstanding.len() * names.len())?;
    let mut rows = Vec::new();
    for &bytes in bytes {
        for &few in outstanding {
            let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: few.max(*many) };
            for mut contender in field.contenders(&Cell { setup, pin })? {
                match beside(&mut contender, few, *many, options) {
                    Ok(three) => rows.extend(three),
                    Err(why) => field.leave_out(&contender.name, why)?,
                }
                field.progress.inc(1);
            }
        }
    }
    let method = format!(
        "burning to alone, and beside to burning: each ratio the median of {} pairs of blocks of about {} ms",
        2 * options.groups(),
        options.length().as_millis()
    );
    field.show(rows, method, &[], options).map(drop)
}

/// Returns three rows: the client alone; the client while a busy process takes the second client's part of
/// their core; and the client next to the second client. The ratios are of calls per second in neighbouring
/// blocks: busy to alone, which is the cost of sharing a core, and second client to busy, which is the cost
/// of sharing the server.
fn beside(contender: &mut Contender, few: usize, many: usize, options: &Options) -> Result<[Row; 3]> {
    /// The load meanwhile is meant to last this much longer than a block.
    const LONGER: u32 = 8;
    let [few, many] = [few, many].map(|outstanding| Load::Window { outstanding, calls: 0 });
    let calls = |rate: f64| (rate * options.length().as_secs_f64()) as usize;
    let few = few.of(calls(capacity(contender, few, options)? / 2.0).max(1));
    let many = many.of(calls(capacity(contender, many, options)? * f64::from(LONGER)).max(1));
    let burn = Load::Burn { calls: (options.length() * LONGER).as_micros() as usize };
    let (mut rates, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let mut shares = Vec::new();
    for _ in 0..2 * options.groups() {
        let pair = contender.pair()?;
        let (alone, _) = pair.rate(few, few)?;
        let [burning, _] = pair.rates_beside(few, burn)?;
        let [ours, theirs] = pair.rates_beside(few, many)?;
        rates.iter_mut().zip([alone, burning, ours]).for_each(|(all, one)| all.push(one));
        ratios[1].push(burning / alone);
        ratios[2].push(ours / burning);
        shares.push(ours / (ours + theirs));
    }
    let cell = contender.cell;
    let pair = contender.pair()?;
    let row = |part: &str| Row {
        part: Some(part.into()),
        outstanding: outstanding(few),
        ..pair.row("throughput", &cell)
    };
    let mut rows = ["alone", "burning", "beside"].map(row);
    for ((row, rates), ratios) in rows.iter_mut().zip(rates).zip(ratios) {
        row.per_second = estimate(rates).map(|rate| rate.median.round());
        estimate(ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
    }
    rows[2].beside = outstanding(many);
    rows[2].share = estimate(shares).map(|share| (share.median * 1e3).round() / 1e3);
    Ok(rows)
}

fn outstanding(load: Load) -> Option<usize> {
    if let Load::Window { outstanding, .. } = load { Some(outstanding) } else { None }
}

fn loads(throughput: &Throughput) -> Vec<Load> {
    let windows = throughput.outstanding.iter().map(|&outstanding| Load::Window { outstanding, calls: 0 });
    let threads = throughput.threads.iter().filter(|&&threads| threads > 0);
    windows.chain(threads.map(|&threads| Load::Threads { threads, calls: 0 })).collect()
}

/// Returns the fastest peer besides farcall. Raw sockets count only if there is no other.
fn best(measured: &[Measured]) -> Option<&Measured> {
    let fastest = |raw| {
        let others = measured.iter().filter(|one| !peers::is_ours(&one.row.peer));
        let others = others.filter(|one| peers::is_raw(&one.row.peer) == raw);
        others.min_by(|a, b| a.median().total_cmp(&b.median()))
    };
    fastest(false).or_else(|| fastest(true))
}
