//! The latency of an access compared with a raw UDP round trip, a null call, or a copy of the same bytes.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Carry, Cell, Mode, Options, Pin, Row, Setup};

use super::{Carrier, Memory, paper};
use crate::field::Field;
use crate::laps::{self, faults, laps};
use crate::latency::RAW_INSTRUCTIONS;
use crate::peers::{CONTROL, RAW};
use crate::rates::Measured;

/// One comparison: the bytes of an access, and the anchor, its control and the other peers.
const CELLS: [(usize, &[&str]); 4] = [
    (
        32,
        &[
            RAW,
            CONTROL,
            "farcall-null",
            "memory-read",
            "memory-write",
            "memory-cas",
            "memory-notify",
            "memory-read-16",
            "memory-read-64",
        ],
    ),
    (4096, &[RAW, CONTROL, "memory-read", "memory-read-64", "memory-read-into-64", "memory-write-64"]),
    (32, &["copy", "copy-control", "mapped-read", "mapped-read-bytes", "mapped-write", "mapped-cas"]),
    (
        4096,
        &[
            "copy",
            "copy-control",
            "mapped-read",
            "mapped-read-bytes",
            "mapped-read-64",
            "mapped-read-into-64",
            "mapped-write",
            "mapped-write-bytes",
        ],
    ),
];

/// All rows, and why some are void.
#[derive(Default)]
pub struct Table {
    measured: Vec<Measured>,
    pub void: Vec<String>,
}

/// Measures accesses, and shows them.
pub fn run(memory: &Memory) -> Result<()> {
    let options = &memory.options;
    let carrier = |names: &[&str]| if names.first() == Some(&RAW) { Carrier::Udp } else { Carrier::Mapped };
    let cells = || CELLS.iter().filter(|(_, names)| memory.transport.contains(&carrier(names)));
    let mut names: Vec<String> = Vec::new();
    for name in cells().flat_map(|cell| cell.1).filter(|name| super::is_wanted(name, options)) {
        if !names.iter().any(|known| known == name) {
            names.push((*name).to_owned());
        }
    }
    let pins = options.pinned();
    let mut field = Field::new(&names, pins.len() * cells().count() * options.groups())?;
    let mut table = Table::default();
    for pin in pins {
        for (bytes, names) in cells() {
            table.measure(&mut field, *bytes, names, pin, options)?;
        }
    }
    let mut rows = table.rows();
    rows.extend(super::others::rows(memory, &mut field, options.pinned()[0])?);
    field.show(rows, method(options), &table.void, options)?;
    if options.json.as_deref() != Some(Path::new("-")) {
        table.beside();
        table.bars();
    }
    Ok(())
}

fn method(options: &Options) -> String {
    format!(
        "{}; over UDP the ratio is to a raw round trip, mapped to a copy within the client. notify: from the call until a thread \
         of the exporter's has been told. read-64, write-64: 64 under way; read-into-64: deposited in a segment of the client's. UCX and libfabric are measured by their own tools, one after the other",
        laps::method(options)
    )
}

impl Table {
    /// Measures peers, the first of which is the anchor and the second its control.
    pub fn measure(
        &mut self,
        field: &mut Field,
        bytes: usize,
        names: &[&str],
        pin: Pin,
        options: &Options,
    ) -> Result<()> {
        let cell =
            Cell { setup: Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: 1 }, pin };
        let contenders = field.some(&cell, |name| names.contains(&name))?;
        let mut measured = laps("memory", contenders, options, || field.progress.inc(1))?;
        measured.iter_mut().for_each(|one| describe(&mut one.row));
        let rows: Vec<Row> = measured.iter().map(|one| one.row.clone()).collect();
        let known = match names.first() {
            Some(&RAW) => f64::from(RAW_INSTRUCTIONS),
            // The instructions of a copy are not known in advance.
            _ => rows.first().and_then(|row| row.user_instructions).unwrap_or(1.0),
        };
        let reasons = faults(&cell, &rows, known);
        measured.iter_mut().for_each(|one| one.row.void = (!reasons.is_empty()).then_some(true));
        self.void.extend(reasons);
        self.measured.extend(measured);
        Ok(())
    }

    pub fn rows(&self) -> Vec<Row> {
        self.measured.iter().map(|one| one.row.clone()).collect()
    }

    pub fn of(&self, peer: &str, bytes: usize) -> Option<&Measured> {
        self.measured.iter().find(|one| one.row.peer == peer && one.row.bytes == Some(bytes))
    }

    pub fn row(&self, peer: &str, bytes: usize) -> Option<&Row> {
        self.of(peer, bytes).map(|one| &one.row)
    }

    /// Prints table 2: our figures and the paper's.
    fn beside(&self) {
        println!("\nTable 2{:>42}{:>12}{:>12}", "the paper's", "udp", "mapped");
        let line = |name: &str, unit: &str, paper: f64, ours: [Option<f64>; 2], digits: usize| {
            let show = |one: Option<f64>| one.map_or("-".into(), |one| format!("{one:.digits$}"));
            println!(
                "{:<36}{paper:>13}{:>12}{:>12}",
                format!("{name}, {unit}"),
                show(ours[0]),
                show(ours[1])
            );
        };
        let time = |peer: &str| self.row(peer, 32).and_then(|row| row.p50_us);
        let rate = |peer: &str| Some(4096.0 * 8.0 / self.row(peer, 4096)?.p50_us?);
        line("read", "µs", paper::READ, [time("memory-read"), time("mapped-read")], 3);
        line("write", "µs", paper::WRITE, [time("memory-write"), time("mapped-write")], 3);
        line("compare and swap", "µs", paper::CAS, [time("memory-cas"), time("mapped-cas")], 3);
        let rates = [rate("memory-write-64"), rate("mapped-write-bytes")];
        line("blocks of 4 KiB written", "Mbit/s", paper::THROUGHPUT, rates, 0);
        line(
            "blocks of 4 KiB read",
            "Mbit/s",
            paper::THROUGHPUT,
            [rate("memory-read-64"), rate("mapped-read-bytes")],
            0,
        );
        // The time until the exporter is notified does not contain the second half of the write's round trip.
        let notified = || Some(time("memory-notify")? - time("memory-write")? / 2.0);
        line("notification, beyond the write", "µs", paper::NOTIFICATION, [notified(), None], 3);
    }

    /// Prints the requirements and the results.
    fn bars(&self) {
        println!();
        for operation in ["read", "write", "cas"] {
            let row = self.row(&format!("memory-{operation}"), 32);
            let ratio = row.and_then(|row| Some((row.ratio?, row.ratio_low?, row.ratio_high?)));
            bar(&format!("{operation} over UDP ÷ raw round trip"), ratio, "at most 1.05");
        }
        let user = |peer| self.row(peer, 32).and_then(|row| row.user_instructions);
        let share = user("memory-read").zip(user("farcall-null")).map(|(read, null)| read / null);
        bar("user instructions of a read ÷ a null call, both sides", share.map(alone), "at most 0.6");
        let one = self.of("memory-read", 32);
        let beside = |peer, turned: bool| {
            let (one, other) = (one?, self.of(peer, 32)?);
            triple(if turned { other.beside(&one.ratios) } else { one.beside(&other.ratios) })
        };
        bar("64 reads under way: rate ÷ one at a time", beside("memory-read-64", true), "at least 25");
        for carrier in ["memory", "mapped"] {
            let reads = |kind| self.of(&format!("{carrier}-{kind}-64"), 4096);
            let ratio = reads("read").zip(reads("read-into"));
            let ratio = ratio.and_then(|(bytes, into)| triple(into.beside(&bytes.ratios)));
            let of = if carrier == "memory" { "served" } else { "mapped" };
            let what = format!("{of}: 64 reads of 4 KiB under way, deposits: rate ÷ Bytes");
            bar(&what, ratio, "at least 1.1");
        }
        bar("16 ranges in one read ÷ one read", beside("memory-read-16", false), "at most 1.1");
        let mapped = |peer| self.row(peer, 32).and_then(|row| Some(alone(row.p50_us? * 1e3)));
        bar("mapped: read of 32 bytes, ns", mapped("mapped-read"), "at most 25");
        bar("mapped: compare and swap, ns", mapped("mapped-cas"), "");
        let copied = |peer| self.of(peer, 4096).and_then(|one| triple(one.ratios.clone()));
        bar("mapped: 4 KiB of bytes ÷ a copy", copied("mapped-read-bytes"), "at most 1.2");
        bar("mapped: 4 KiB of words ÷ a copy", copied("mapped-read"), "");
        let server = |row: &Row| Some(row.server_user_instructions? + row.server_kernel_instructions?);
        let mapped = || {
            self.measured.iter().map(|one| &one.row).filter(|row| row.transport.as_deref() == Some("mapped"))
        };
        let most = mapped().filter_map(server).reduce(f64::max);
        bar("mapped: the server's instructions, the most of any access", most.map(alone), "0");
    }
}

pub fn alone(value: f64) -> (f64, f64, f64) {
    (value, value, value)
}

pub fn triple(ratios: Vec<f64>) -> Option<(f64, f64, f64)> {
    estimate(ratios).map(|Estimate { median, low, high }| (median, low, high))
}

/// Prints a figure with its interval and its requirement.
pub fn bar(what: &str, figure: Option<(f64, f64, f64)>, asked: &str) {
    let Some((median, low, high)) = figure else { return };
    let interval = if low < high { format!(" [{low:.3}, {high:.3}]") } else { String::new() };
    println!("{what:<60}{:<26}{asked}", format!("{median:.3}{interval}"));
}

/// Returns what a peer's name says.
fn describe(row: &mut Row) {
    let operation = ["memory-", "mapped-", "names-"].iter().find_map(|prefix| row.peer.strip_prefix(prefix));
    row.operation = operation.map(str::to_owned);
    // The client spins, so as not to disturb the notified thread. For `export` and `revoke`, each lap counts
    // both sides.
    if matches!(row.operation.as_deref(), Some("notify" | "export" | "revoke")) {
        (row.user_instructions, row.kernel_instructions, row.syscalls, row.allocations) =
            (None, None, None, None);
        (row.server_user_instructions, row.server_kernel_instructions, row.server_cpu_us) =
            (None, None, None);
    }
}
