//! What a notice costs an exporter that polls a descriptor, beside a bare eventfd.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::Options;

use super::accesses::{Table, alone, bar};
use crate::field::Field;
use crate::laps;

/// The comparisons, within one process. The first peer of each is the anchor, and the second its control.
const CELLS: [&[&str]; 2] = [
    &["eventfd", "eventfd-control", "notice", "notice-merged"],
    &["eventfd-polled", "eventfd-polled-control", "notice-polled"],
];

/// Measures notices, and shows them.
pub fn run(options: &Options) -> Result<()> {
    let names: Vec<String> = CELLS.iter().copied().flatten().map(|&name| name.to_owned()).collect();
    let mut field = Field::new(&names, CELLS.len() * options.groups())?;
    let mut table = Table::default();
    for names in CELLS {
        table.measure(&mut field, 0, names, options.pinned()[0], options)?;
    }
    field.show(table.rows(), laps::method(options), &table.void, options)?;
    if options.json.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    println!();
    for (what, peer, asked) in [
        ("a notice and its taking ÷ an eventfd's write and read", "notice", "at most 1.15"),
        ("the same with a poll between them, both", "notice-polled", "at most 1.15"),
        ("a notice that is merged with one that waits ÷ the first", "notice-merged", ""),
    ] {
        let row = table.row(peer, 0);
        bar(what, row.and_then(|row| Some((row.ratio?, row.ratio_low?, row.ratio_high?))), asked);
        bar("    ns", row.and_then(|row| Some(alone(row.p50_us? * 1e3))), "");
    }
    Ok(())
}
