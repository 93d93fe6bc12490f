//! Shows the rows of `multi` together with the paper's and RPC2's, as a table and as pictures.
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use farcall_bench_group::{Distribution, paper};
use farcall_bench_method::chart::{self, Curve, Panel};
use farcall_bench_method::{Options, Row};

use super::Multi;
use crate::field::Field;
use crate::peers::{FARCALL, RAW};

/// Writes rows and pictures to where the options say.
pub fn show(multi: &Multi, field: Field, rows: Vec<Row>, void: &[String]) -> Result<()> {
    let options = &multi.options;
    let method = format!(
        "null: ratio is m to the raw loop's, the median of {} pairs of blocks; else r/m, the median of the trials. Servers are \
         processes that share one core; those that compute sleep, by times drawn there from one seed for each",
        2 * options.groups()
    );
    let (rows, conditions) = field.show(rows, method, void, options)?;
    if options.json.as_deref() != Some(Path::new("-")) {
        beside(&rows);
        beyond(&rows);
    }
    match &options.svg {
        Some(path) => picture(path, &rows, options, &conditions),
        None => Ok(()),
    }
}

/// Prints farcall's rows next to the measurements of others.
fn beside(rows: &[Row]) {
    println!("\n{:>41} | {:^28} | {:^28}", "farcall", "the paper's, 1990", "RPC2 2.38");
    let head = format!("{:>9} {:>9} {:>7}", "m ms", "r ms", "r/m");
    println!("{:>7} {:>12} {head} | {head} | {head}", "members", "computation");
    let mut last = None;
    for row in rows.iter().filter(|row| row.peer == FARCALL) {
        let (Some(members), Some(milliseconds)) = (row.members, row.computation_ms) else { continue };
        let (Some(multi), Some(iterative)) = (row.multi_ms, row.iterative_ms) else { continue };
        if last.replace(row.distribution.clone()).is_none_or(|last| last != row.distribution) {
            println!("{}", row.distribution.as_deref().unwrap_or("null"));
        }
        let paper = match milliseconds {
            0 => Some(paper::NULL).filter(|_| members == 1),
            _ => paper::working(members, milliseconds, distribution(row)),
        };
        let others = [
            Some((multi, iterative)),
            paper.map(|figure| (figure.multi, figure.iterative)),
            paper::rpc2(members, milliseconds, distribution(row)),
        ];
        let figures = others.map(|figure| match figure {
            Some((multi, iterative)) => {
                format!("{multi:>9.3} {iterative:>9.3} {:>7.2}", iterative / multi)
            }
            None => " ".repeat(27),
        });
        println!("{members:>7} {milliseconds:>9} ms {}", figures.join(" | ").trim_end());
    }
}

/// Prints how much longer than one member the largest group took, if all members compute equally long,
/// compared with a null call of the raw loop.
fn beyond(rows: &[Row]) {
    let constant = |row: &&Row| row.computation_ms > Some(0) && distribution(row) == Distribution::Constant;
    let most = rows.iter().filter_map(|row| row.members).max();
    let mut first = true;
    for row in rows.iter().filter(constant).filter(|row| row.members == most) {
        let of_one = |one: &&Row| {
            constant(one)
                && one.members == Some(1)
                && (&one.peer, &one.pin, one.computation_ms) == (&row.peer, &row.pin, row.computation_ms)
        };
        let null = |null: &&Row| {
            null.computation_ms == Some(0)
                && null.peer == RAW
                && (null.members, &null.pin) == (row.members, &row.pin)
        };
        let (Some(members @ 2..), Some(milliseconds)) = (row.members, row.computation_ms) else { continue };
        let single = rows.iter().find(of_one).and_then(|row| row.iterative_median_ms);
        let (Some(multi), Some(single)) = (row.multi_median_ms, single) else { continue };
        let Some(lap) = rows.iter().find(null).and_then(|row| row.multi_ms) else { continue };
        if std::mem::take(&mut first) {
            println!("\nmore than a call of one, medians (and in null calls of the raw loop)");
        }
        let more = multi - single;
        println!("{members:>7} {milliseconds:>9} ms {:>10} {more:>8.3} ms ({:.2})", row.peer, more / lap);
    }
}

fn distribution(row: &Row) -> Distribution {
    let known =
        Distribution::value_variants().iter().find(|one| Some(one.name()) == row.distribution.as_deref());
    known.copied().unwrap_or(Distribution::Constant)
}

/// Draws figures 8 to 14: the model's prediction; prediction and measurement for each computation time; and
/// the measurement for each distribution next to the paper's.
fn picture(path: &Path, rows: &[Row], options: &Options, conditions: &[String]) -> Result<()> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.peer == FARCALL).collect();
    let mut times: Vec<u32> = rows.iter().filter_map(|row| row.computation_ms).filter(|&ms| ms > 0).collect();
    times.sort_unstable();
    times.dedup();
    let measured = |distribution: Distribution, milliseconds: u32| -> Vec<(f64, f64)> {
        let of = |row: &&&Row| {
            row.distribution.as_deref() == Some(distribution.name())
                && row.computation_ms == Some(milliseconds)
        };
        rows.iter()
            .filter(of)
            .filter_map(|row| Some((row.members? as f64, row.iterative_ms? / row.multi_ms?)))
            .collect()
    };
    let curve = |name, points, thin| Curve { name, points, thin };
    let predicted = |milliseconds| predicted(&rows, milliseconds);
    let name = |ms: &u32| format!("{ms} ms");
    let mut panels = vec![Panel {
        caption: "predicted".into(),
        curves: times.iter().map(|ms| curve(name(ms), predicted(*ms), false)).collect(),
    }];
    panels.extend(times.iter().map(|ms| Panel {
        caption: format!("{ms} ms, predicted (thin) and measured"),
        curves: vec![
            curve("measured".into(), measured(Distribution::Constant, *ms), false),
            curve("predicted".into(), predicted(*ms), true),
        ],
    }));
    for &one in Distribution::value_variants() {
        let theirs = |ms: u32| {
            let figure =
                |n: &usize| paper::working(*n, ms, one).map(|its| (*n as f64, its.iterative / its.multi));
            [1, 2, 5, 10, 20, 50, 100].iter().filter_map(figure).collect()
        };
        let curves = times.iter().flat_map(|ms| {
            [curve(name(ms), measured(one, *ms), false), curve(format!("{ms} ms, paper"), theirs(*ms), true)]
        });
        panels.push(Panel {
            caption: format!("{}, beside the paper (thin)", one.name()),
            curves: curves.collect(),
        });
    }
    let pin = options.pinned().first().map_or(String::new(), |pin| pin.to_string());
    let title = format!("One call of n members: how many times as fast as n calls (r/m), pin {pin}");
    chart::curves(path, &title, ("members", "r/m"), &panels, conditions)
}

/// Returns the prediction of the paper's model in its short form (section VI-A): m is one call, plus the
/// additional time of the null call for each further member; r is n calls.
fn predicted(rows: &[&Row], milliseconds: u32) -> Vec<(f64, f64)> {
    let null = || rows.iter().filter(|row| row.computation_ms == Some(0));
    let first = null().find(|row| row.members == Some(1)).and_then(|row| row.multi_ms);
    let last = null().filter_map(|row| Some((row.members?, row.multi_ms?))).max_by_key(|last| last.0);
    let one = rows.iter().find(|row| row.computation_ms == Some(milliseconds) && row.members == Some(1));
    let (Some(first), Some((most, last)), Some(one)) = (first, last, one.and_then(|one| one.iterative_ms))
    else {
        return Vec::new();
    };
    let each = (last - first) / (most.max(2) - 1) as f64;
    let at = |n: usize| (n as f64, n as f64 * one / (one + (n - 1) as f64 * each));
    (1..=most).map(at).collect()
}
