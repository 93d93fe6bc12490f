//! The segment name service: table 3.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::Options;

use super::accesses::{Table, bar, triple};
use super::paper;
use crate::field::Field;
use crate::laps;
use crate::peers::{CONTROL, RAW};

/// One comparison, in which a remote read of a clerk's record takes part.
const PEERS: [&str; 10] = [
    RAW,
    CONTROL,
    "memory-read",
    "names-look-up",
    "names-look-up-asking",
    "names-look-up-cached",
    "names-import",
    "names-import-cached",
    "names-export",
    "names-revoke",
];
/// The bytes of a clerk's record.
const RECORD: usize = 128;

/// Measures requests to clerks, and shows them.
pub fn run(options: &Options) -> Result<()> {
    let mut field = Field::new(&PEERS.map(str::to_owned), options.groups())?;
    let mut table = Table::default();
    table.measure(&mut field, RECORD, &PEERS, options.pinned()[0], options)?;
    field.show(table.rows(), laps::method(options), &table.void, options)?;
    if options.json.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    println!("\nTable 3, µs{:>25}{:>12}", "the paper's", "ours");
    for (name, peer, paper) in [
        ("export", "export", paper::EXPORT),
        ("import, cached", "import-cached", paper::IMPORT_CACHED),
        ("import, uncached", "import", paper::IMPORT),
        ("look-up alone, cached", "look-up-cached", None),
        ("look-up alone, uncached", "look-up", None),
        ("revoke", "revoke", paper::REVOKE),
        ("look-up with notification", "look-up-asking", paper::LOOK_UP_ASKING),
    ] {
        let show =
            |figure: Option<f64>, digits: usize| figure.map_or("-".into(), |us| format!("{us:.digits$}"));
        let ours = table.row(&format!("names-{peer}"), RECORD).and_then(|row| row.p50_us);
        println!("{name:<28}{:>8}{:>12}", show(paper, 0), show(ours, 3));
    }
    println!();
    let read = table.of("memory-read", RECORD);
    let beside = |peer: &str| triple(read?.beside(&table.of(peer, RECORD)?.ratios));
    bar("uncached look-up ÷ one remote read", beside("names-look-up"), "at most 1.3");
    bar("look-up with notification ÷ one remote read", beside("names-look-up-asking"), "");
    Ok(())
}
