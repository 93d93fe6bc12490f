//! The client's cost of a further member: instructions, system calls, memory; and large arguments and
//! results.
use anyhow::{Context, Result};
use farcall_bench_group::{Counted, Kind, Order, Way};
use farcall_bench_method::{Pin, Row};

use super::{Cast, Multi, order, ours, row};
use crate::field::Field;
use crate::peers::FARCALL;

/// The sizes of the groups whose cost per member is compared, and how often each is called.
const GROUPS: [(usize, usize); 4] = [(10, 2_000), (100, 200), (300, 100), (1_000, 20)];

/// Large calls: the members, the bytes of each, and a description.
const LARGE: [(usize, Kind, &str); 4] = [
    (100, Kind::Fetch(60_000), "results of 60 KB"),
    (20, Kind::Fetch(1 << 20), "results of 1 MiB"),
    (100, Kind::Fetch(1 << 20), "results of 1 MiB"),
    (100, Kind::Store(1 << 20), "argument of 1 MiB"),
];

/// Measures and shows the costs.
pub fn run(multi: &Multi) -> Result<()> {
    let field = Field::new(&[FARCALL.into()], 2 + GROUPS.len() + LARGE.len())?;
    let mut rows = Vec::new();
    for pin in multi.options.pinned() {
        let mut cast = ours((10, 100), pin)?;
        for (part, way) in [("single call", Way::Iterative), ("multi", Way::Multi)] {
            rows.push(count(&mut cast, part, order(way, Kind::Null, 1, 10_000), pin)?);
            field.progress.inc(1);
        }
        for (members, trials) in GROUPS {
            // The first call on new connections allocates buffers that later calls use again.
            let first = ours((members.div_ceil(100), members.min(100)), pin)?
                .number(order(Way::Multi, Kind::Null, members, 1), Counted::Bytes)?;
            let order = order(Way::Multi, Kind::Null, members, trials);
            let mut row = count(&mut cast, "multi, each member", order, pin)?;
            row.bytes_each = Some(cast.number(order, Counted::Bytes)? as f64 / members as f64);
            row.peak_bytes_each = Some(first as f64 / members as f64);
            rows.push(row);
            field.progress.inc(1);
        }
        for (members, kind, part) in LARGE {
            rows.push(large(&mut cast, members, kind, part, pin)?);
            field.progress.inc(1);
        }
    }
    let method =
        "of the client alone, but for the servers' processor time. bytes each: the most that the client had allocated for a member beyond what it had \
                  before, in calls after the first; peak: in the first, which allocates what later ones use again"
            .to_owned();
    field.show(rows, method, &[], &multi.options).map(drop)
}

fn count(cast: &mut Cast, part: &str, order: Order, pin: Pin) -> Result<Row> {
    let order = Order { warm: order.trials / 10, ..order };
    let members = order.members.1;
    let mut row = Row { part: Some(part.into()), ..row(FARCALL, members, pin) };
    for counted in [Counted::Instructions, Counted::Events] {
        row.set_counts(cast.count(order, counted)?, order.trials * members);
    }
    let calls = (order.trials * members) as f64 * 1e3;
    let before = cast.server_time();
    row.client_cpu_us = Some(cast.number(order, Counted::Time)? as f64 / calls);
    // The trials before the first counted one are a tenth.
    let after = before.zip(cast.server_time());
    row.server_cpu_us = after.map(|(before, after)| (after - before) as f64 / calls / 1.1);
    row.user_instructions.context("this machine does not count instructions")?;
    Ok(row)
}

fn large(cast: &mut Cast, members: usize, kind: Kind, part: &str, pin: Pin) -> Result<Row> {
    let order = order(Way::Multi, kind, members, 10);
    let (took, sent) = cast.sent(order)?;
    let mean = took.iter().sum::<u64>() as f64 / 1e6 / took.len() as f64;
    Ok(Row {
        part: Some(part.into()),
        retransmitted: Some(sent.again as f64 / 10.0),
        multi_ms: Some((mean * 1e3).round() / 1e3),
        ..row(FARCALL, members, pin)
    })
}
