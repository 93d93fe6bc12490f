//! Look-ups of a name with which other names collide in another clerk's table, in the three ways of section
//! 4.2 of the paper: read on, ask at once, and read once before asking. The crossings are where asking
//! becomes faster.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::Options;

use super::accesses::Table;
use super::paper;
use crate::field::Field;
use crate::laps;
use crate::peers::{CONTROL, RAW};

/// The beginnings of the names of the peers.
const WAYS: [&str; 3] = ["names-read", "names-ask", "names-read-then-ask"];
/// The most collisions.
const MOST: usize = 8;
/// The bytes of a clerk's record.
const RECORD: usize = 128;

/// Measures look-ups, and shows the crossings.
pub fn run(options: &Options) -> Result<()> {
    let mut table = Table::default();
    let anchors = [RAW, CONTROL, "memory-read"].map(str::to_owned);
    let ways = (0..=MOST).flat_map(|count| WAYS.map(|way| format!("{way}-{count}")));
    let peers: Vec<String> = anchors.into_iter().chain(ways).collect();
    let mut field = Field::new(&peers, (MOST + 1) * options.groups())?;
    for count in 0..=MOST {
        let ways = WAYS.map(|way| format!("{way}-{count}"));
        let wanted: Vec<&str> =
            [RAW, CONTROL, "memory-read"].into_iter().chain(ways.iter().map(String::as_str)).collect();
        table.measure(&mut field, RECORD, &wanted, options.pinned()[0], options)?;
    }
    field.show(table.rows(), laps::method(options), &table.void, options)?;
    if options.json.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    let us = |peer: &str| table.row(peer, RECORD).and_then(|row| row.p50_us);
    println!("\n{:<12}{:>10}{:>10}{:>16}   µs", "collisions", "read", "ask", "read, then ask");
    for count in 0..=MOST {
        print!("{count:<12}");
        for (way, width) in WAYS.iter().zip([10, 10, 16]) {
            let time = us(&format!("{way}-{count}"));
            print!("{:>width$}", time.map_or("-".into(), |us| format!("{us:.2}")));
        }
        println!();
    }
    crossing("asking at once beats reading on", |count| {
        us(&format!("names-ask-{count}")) < us(&format!("names-read-{count}"))
    });
    crossing("reading once and then asking beats reading on", |count| {
        us(&format!("names-read-then-ask-{count}")) < us(&format!("names-read-{count}"))
    });
    if let (Some(ask), Some(look_up), Some(read)) = (us("names-ask-0"), us("names-read-0"), us("memory-read"))
    {
        println!(
            "if each collision cost a read of its own, as in the paper: from {:.1} collisions on (the paper: {})",
            (ask - look_up) / read,
            paper::COLLISIONS_TO_ASK
        );
    }
    Ok(())
}

fn crossing(what: &str, beats: impl Fn(usize) -> bool) {
    match (0..=MOST).find(|count| (*count..=MOST).all(&beats)) {
        Some(count) => println!("{what}: from {count} collisions on"),
        None => println!("{what}: never, up to {MOST} collisions"),
    }
}
