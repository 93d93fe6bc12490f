//! Members that compute: m and r for each distribution of their times, as in the paper's tables VIII to X.
use anyhow::Result;
use farcall_bench_group::{Kind, Order, Way, Work};
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Pin, Row};

use super::cast::Cast;
use super::null::unless_lost;
use super::{Multi, Named, order, row};
use crate::field::Field;

/// Returns the computations that the options select.
pub fn works(multi: &Multi) -> Vec<Work> {
    let times = || multi.computation.iter().copied().filter(|&milliseconds| milliseconds > 0);
    let works = |&distribution| times().map(move |milliseconds| Work { milliseconds, distribution });
    multi.distribution.iter().flat_map(works).collect()
}

/// Returns a row for each peer, computation and number of members.
pub fn measure(
    multi: &Multi,
    works: &[Work],
    field: &mut Field,
    casts: &mut [Named],
    pin: Pin,
) -> Result<Vec<Row>> {
    let trials = multi.trials.unwrap_or(if multi.options.quick { 3 } else { 10 });
    let mut rows = Vec::new();
    for &work in works {
        for &members in &multi.members {
            for (name, cast) in casts.iter_mut() {
                let Work { milliseconds, distribution } = work;
                field.progress.set_message(format!(
                    "{name}, {} {milliseconds} ms, {members} members",
                    distribution.name()
                ));
                rows.push(enter(row(name, members, pin), cast, work, trials)?);
                field.progress.inc(1);
            }
        }
    }
    Ok(rows)
}

fn enter(mut row: Row, cast: &mut Cast, work: Work, trials: usize) -> Result<Row> {
    let members = row.members.unwrap_or(1);
    let once = |way| order(way, Kind::Work(work), members, 1);
    let (mut multi, mut iterative) = (Vec::new(), Vec::new());
    unless_lost(cast.time(once(Way::Multi)))?;
    for _ in 0..trials {
        let both = milliseconds(cast, once(Way::Multi))
            .and_then(|all| Ok((all, milliseconds(cast, once(Way::Iterative))?)));
        if let Some((all, each)) = unless_lost(both)? {
            multi.extend(all);
            iterative.extend(each);
        }
    }
    row.computation_ms = Some(work.milliseconds);
    row.distribution = Some(work.distribution.name().into());
    (row.multi_ms, row.multi_deviation_ms) = moments(&multi);
    (row.iterative_ms, row.iterative_deviation_ms) = moments(&iterative);
    (row.multi_median_ms, row.iterative_median_ms) = (median(&multi), median(&iterative));
    let ratios = iterative.iter().zip(&multi).map(|(r, m)| r / m).collect();
    estimate(ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
    Ok(row)
}

fn milliseconds(cast: &mut Cast, order: Order) -> Result<Vec<f64>> {
    Ok(cast.time(order)?.into_iter().map(|ns| ns as f64 / 1e6).collect())
}

fn median(values: &[f64]) -> Option<f64> {
    rounded(estimate(values.to_vec())?.median)
}

fn rounded(value: f64) -> Option<f64> {
    Some((value * 1e4).round() / 1e4)
}

/// Returns mean and standard deviation.
pub fn moments(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = if n > 1.0 { rounded((squares / (n - 1.0)).sqrt()) } else { None };
    (rounded(mean), deviation)
}
