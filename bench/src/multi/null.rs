//! The null call of every member: m compared with the raw loop's, block by block, and r.
use anyhow::{Context, Result};
use farcall_bench_group::{Kind, Order, Way};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::{estimate, midmean};
use farcall_bench_method::{Lost, Options, Pin, Row};

use super::cast::Cast;
use super::working::moments;
use super::{Multi, Named, order, row};
use crate::field::Field;

/// The most by which the ratio of the raw loop to itself may differ from 1.
const CONTROL_TOLERANCE: f64 = 0.02;

/// How often the pilot may run until one loses nothing.
const PILOTS: usize = 3;

/// Returns the rows, and why some are void. The first of `casts` is raw's, and the second its control.
pub fn measure(
    multi: &Multi,
    field: &mut Field,
    casts: &mut [Named],
    pin: Pin,
) -> Result<(Vec<Row>, Vec<String>)> {
    let (mut rows, mut reasons) = (Vec::new(), Vec::new());
    for &members in &multi.members {
        field.progress.set_message(format!("null, {members} members"));
        let measured = cell(members, &multi.options, field, casts, pin)?;
        let control = measured.get(1).and_then(|row| row.ratio);
        if let Some(ratio) = control.filter(|ratio| (ratio - 1.0).abs() > CONTROL_TOLERANCE) {
            reasons.push(format!("null, {members} members: raw is {ratio:.3} of itself"));
        }
        let void = control.is_some_and(|ratio| (ratio - 1.0).abs() > CONTROL_TOLERANCE).then_some(true);
        rows.extend(measured.into_iter().map(|row| Row { void, ..row }));
    }
    Ok((rows, reasons))
}

/// The results of the blocks of one peer.
#[derive(Default)]
struct Results {
    /// m and r of each block, in nanoseconds.
    multi: Vec<f64>,
    iterative: Vec<f64>,
    /// m divided by the raw loop's in the neighbouring block.
    ratios: Vec<f64>,
}

/// Returns the row of each peer. The first of `casts` is the anchor.
pub fn cell(
    members: usize,
    options: &Options,
    field: &mut Field,
    casts: &mut [Named],
    pin: Pin,
) -> Result<Vec<Row>> {
    let mut orders = Vec::new();
    for (_, cast) in casts.iter_mut() {
        orders.push(sized(cast, members, options)?);
    }
    let mut results: Vec<Results> = casts.iter().map(|_| Results::default()).collect();
    for _ in 0..options.groups() {
        let ([raw, others @ ..], [raws, theirs @ ..]) = (&mut *casts, &mut results[..]) else { break };
        for (n, (other, their)) in others.iter_mut().zip(theirs).enumerate() {
            let raw = || block(&mut raw.1, orders[0], &mut raws.multi);
            let ratios = abba(raw, || block(&mut other.1, orders[n + 1], &mut their.multi));
            their.ratios.extend(unless_lost(ratios)?.into_iter().flatten());
        }
        for (n, ((_, cast), result)) in casts.iter_mut().zip(&mut results).enumerate() {
            unless_lost(block(cast, Order { way: Way::Iterative, ..orders[n] }, &mut result.iterative))?;
        }
        field.progress.inc(1);
    }
    Ok(casts.iter().zip(results).map(|((name, _), result)| enter(row(name, members, pin), result)).collect())
}

fn enter(mut row: Row, results: Results) -> Row {
    let median = |times| estimate(times).map(|time| (time.median / 10.0).round() / 1e5);
    row.computation_ms = Some(0);
    (_, row.multi_deviation_ms) = moments(&results.multi.iter().map(|ns| ns / 1e6).collect::<Vec<_>>());
    (_, row.iterative_deviation_ms) =
        moments(&results.iterative.iter().map(|ns| ns / 1e6).collect::<Vec<_>>());
    row.multi_ms = median(results.multi);
    row.iterative_ms = median(results.iterative);
    estimate(results.ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
    row
}

/// Runs a block, and returns the time of one trial: the mean of the middle half.
fn block(cast: &mut Cast, order: Order, all: &mut Vec<f64>) -> Result<f64> {
    let mut took: Vec<u32> =
        cast.time(order)?.into_iter().map(|ns| ns.try_into().unwrap_or(u32::MAX)).collect();
    let time = midmean(&mut took);
    all.push(time);
    Ok(time)
}

/// Returns what calls gave, or `None` if they are void because a datagram was lost that is not sent again.
pub fn unless_lost<T>(ran: Result<T>) -> Result<Option<T>> {
    match ran {
        Err(why) if why.is::<Lost>() => {
            eprintln!("void: calls of a group: {why}");
            Ok(None)
        }
        ran => ran.map(Some),
    }
}

/// Returns the number of trials that take about half the length of a block.
fn sized(cast: &mut Cast, members: usize, options: &Options) -> Result<Order> {
    let mut pilot = Vec::new();
    let pilot_order = Order { warm: 20, ..order(Way::Multi, Kind::Null, members, 20) };
    // A loop that loses a datagram each time has no figure.
    let mut took = None;
    for _ in 0..PILOTS {
        if took.is_none() {
            took = unless_lost(block(cast, pilot_order, &mut pilot))?;
        }
    }
    let took = took.context("each pilot lost a datagram")?;
    let trials = options.length().as_nanos() as f64 / 2.0 / took.max(1.0);
    let trials = (trials as usize).clamp(8, 1_000);
    Ok(Order { warm: trials.div_ceil(10), ..order(Way::Multi, Kind::Null, members, trials) })
}
