//! What a notice costs an exporter that polls a descriptor, beside a bare eventfd.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::Options;

use super::accesses::{Table, alone, bar};
use crate::field::Field;
use crate::laps;

/// One comparison, within one process.
const PEERS: [&str; 4] = ["eventfd", "eventfd-control", "notice", "notice-merged"];

/// Measures notices, and shows them.
pub fn run(options: &Options) -> Result<()> {
    let mut field = Field::new(&PEERS.map(str::to_owned), options.groups())?;
    let mut table = Table::default();
    table.measure(&mut field, 0, &PEERS, options.pinned()[0], options)?;
    field.show(table.rows(), laps::method(options), &table.void, options)?;
    if options.json.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    println!();
    for (what, peer, asked) in [
        ("a notice and its taking ÷ an eventfd's write and read", "notice", "at most 1.15"),
        ("a notice that is merged with one that waits ÷ the same", "notice-merged", ""),
    ] {
        let row = table.row(peer, 0);
        bar(what, row.and_then(|row| Some((row.ratio?, row.ratio_low?, row.ratio_high?))), asked);
        bar("    ns", row.and_then(|row| Some(alone(row.p50_us? * 1e3))), "");
    }
    Ok(())
}
