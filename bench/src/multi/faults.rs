//! The cost of a dead and a hung member: the time in which 98 of 100 have answered, compared with a group of
//! 98.
use anyhow::Result;
use farcall_bench_group::{Distribution, Kind, Order, Way, Work};
use farcall_bench_method::Row;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::{estimate, midmean};

use super::{Cast, Multi, ours, row};
use crate::field::Field;
use crate::peers::FARCALL;

/// The number of members. The first is dead, and the second hangs.
const MEMBERS: usize = 100;
const HEALTHY: usize = MEMBERS - 2;

/// Measures and shows the cost.
pub fn run(multi: &Multi) -> Result<()> {
    let options = &multi.options;
    let kinds: Vec<(u32, Kind)> = multi
        .computation
        .iter()
        .map(|&milliseconds| match milliseconds {
            0 => (0, Kind::Null),
            _ => (milliseconds, Kind::Work(Work { milliseconds, distribution: Distribution::Constant })),
        })
        .collect();
    let field = Field::new(&[FARCALL.into()], kinds.len() * options.groups())?;
    let mut rows = Vec::new();
    for pin in options.pinned() {
        let mut cast = ours((MEMBERS, 1), pin)?;
        // Both members are bound before they fail.
        cast.time(super::order(Way::Multi, Kind::Null, MEMBERS, 1))?;
        cast.kill(0)?;
        cast.stop(1)?;
        for &(milliseconds, kind) in &kinds {
            field.progress.set_message(format!("{milliseconds} ms"));
            let order = |members| Order {
                way: Way::Until(HEALTHY),
                kind,
                members,
                warm: 1,
                trials: 4,
                counted: None,
            };
            let (mut alone, mut all, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..options.groups() {
                let cast = std::cell::RefCell::new(&mut cast);
                let healthy = || block(&mut cast.borrow_mut(), order((2, HEALTHY)), &mut alone);
                ratios
                    .extend(abba(healthy, || block(&mut cast.borrow_mut(), order((0, MEMBERS)), &mut all))?);
                field.progress.inc(1);
            }
            let entered = |members: usize, part: &str, times: Vec<f64>| Row {
                part: Some(part.into()),
                computation_ms: Some(milliseconds),
                multi_ms: estimate(times).map(|time| (time.median / 10.0).round() / 1e5),
                ..row(FARCALL, members, pin)
            };
            rows.push(entered(HEALTHY, "all well", alone));
            let mut faulty = entered(MEMBERS, "one dead, one hung", all);
            estimate(ratios).into_iter().for_each(|ratio| faulty.set_ratio(ratio));
            rows.push(faulty);
        }
    }
    let method = format!(
        "until {HEALTHY} have answered; ratio: with one dead and one hung member called first, to without them"
    );
    field.show(rows, method, &[], options).map(drop)
}

fn block(cast: &mut Cast, order: Order, all: &mut Vec<f64>) -> Result<f64> {
    let mut took: Vec<u32> =
        cast.time(order)?.into_iter().map(|ns| ns.try_into().unwrap_or(u32::MAX)).collect();
    let time = midmean(&mut took);
    all.push(time);
    Ok(time)
}
