//! Prints rows as a table for people.
use std::fmt::Write;

use crate::row::Row;

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("mode", |r| r.mode.map_or(String::new(), |mode| mode.name().into())),
    ("pin", |r| r.pin.clone().unwrap_or_default()),
    ("rtt ms", |r| plain(r.round_trip_ms)),
    ("loss %", |r| plain(r.loss_percent)),
    ("Mbit/s", |r| plain(r.bottleneck_mbit)),
    ("bytes", |r| r.bytes.map_or(String::new(), size)),
    ("direction", |r| r.direction.clone().unwrap_or_default()),
    ("outstanding", |r| count(r.outstanding.filter(|_| r.bench != "latency"))),
    ("beside", |r| count(r.beside)),
    ("threads", |r| count(r.threads)),
    ("members", |r| count(r.members)),
    ("computation ms", |r| count(r.computation_ms)),
    ("distribution", |r| r.distribution.clone().unwrap_or_default()),
    ("operation", |r| r.operation.clone().unwrap_or_default()),
    ("structure", |r| r.structure.clone().unwrap_or_default()),
    ("transport", |r| r.transport.clone().filter(|_| r.operation.is_some()).unwrap_or_default()),
    ("peer", |r| r.peer.clone()),
    ("part", |r| r.part.clone().unwrap_or_default()),
    ("slow %", |r| count(r.slow_percent)),
    ("conversations", |r| count(r.conversations)),
    ("streams", |r| count(r.streams)),
    ("in/s", |r| number(r.datagrams_in, 3)),
    ("out/s", |r| number(r.datagrams_out, 3)),
    ("bytes each", |r| number(r.bytes_each, 1)),
    ("task", |r| count(r.task_bytes)),
    ("worst", |r| number(r.worst_bytes_each, 1)),
    ("at", |r| count(r.worst_at)),
    ("peak", |r| number(r.peak_bytes_each, 1)),
    ("datagrams in 60 min", |r| count(r.idle_datagrams)),
    ("m ms", |r| number(r.multi_ms, 3)),
    ("r ms", |r| number(r.iterative_ms, 3)),
    ("p50 µs", |r| fine(r.p50_us, 2)),
    ("p99", |r| number(r.p99_us, 2)),
    ("p99.9", |r| number(r.p999_us, 2)),
    ("ms", |r| number(r.transfer_ms, 2)),
    ("calls/s", |r| number(r.per_second, 0)),
    ("share", |r| number(r.share, 3)),
    ("Gbit/s", |r| number(r.gbit_per_second, 2)),
    ("client/s", |r| number(r.client_per_second, 0)),
    ("server/s", |r| number(r.server_per_second, 0)),
    ("messages", |r| r.messages.clone().unwrap_or_default()),
    ("flights", |r| count(r.flights)),
    ("kept", |r| count(r.kept_bytes)),
    ("ns", |r| number(r.nanoseconds, 1)),
    ("ratio", |r| fine(r.ratio, 3)),
    ("[low, high]", |r| interval(r.ratio_low, r.ratio_high)),
    ("to gso", |r| number(r.ratio_gso, 3)),
    ("[low, high]", |r| interval(r.ratio_gso_low, r.ratio_gso_high)),
    ("instr. user", |r| number(r.user_instructions, 0)),
    ("kernel", |r| number(r.kernel_instructions, 0)),
    ("syscalls", |r| number(r.syscalls, 2)),
    ("allocs", |r| number(r.allocations, 2)),
    ("accesses", |r| number(r.accesses, 2)),
    ("transfers", |r| number(r.transfers, 2)),
    ("sent", |r| number(r.datagrams, 1)),
    ("sent again", |r| number(r.retransmitted, 1)),
    ("probes", |r| number(r.probes, 1)),
    ("again %", |r| number(r.again_percent, 1)),
    ("client µs", |r| number(r.client_cpu_us, 2)),
    ("server's user", |r| number(r.server_user_instructions.filter(|_| r.operation.is_some()), 0)),
    ("kernel", |r| number(r.server_kernel_instructions.filter(|_| r.operation.is_some()), 0)),
    ("server µs", |r| number(r.server_cpu_us, 2)),
    ("bytes sent", |r| number(r.sent_ratio, 2)),
    ("used", |r| number(r.link_used, 3)),
    ("dropped %", |r| number(r.dropped_percent, 2)),
    ("unfinished", |r| count(r.unfinished)),
    ("", |r| if r.void == Some(true) { "VOID".into() } else { String::new() }),
];

fn size(bytes: usize) -> String {
    if bytes == 0 { "null".into() } else { bytes.to_string() }
}

fn count(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.digits$}"))
}

/// Formats a number with as many digits as it has.
fn plain(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Formats a number with three more digits if it would otherwise have hardly any.
fn fine(value: Option<f64>, digits: usize) -> String {
    number(value, if value.is_some_and(|value| value < 0.1) { digits + 3 } else { digits })
}

fn interval(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(_), Some(_)) => format!("[{}, {}]", fine(low, 3), fine(high, 3)),
        _ => String::new(),
    }
}

/// Returns the table, with the columns in which some row has a value. A blank line separates cells.
pub fn table(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| COLUMNS.iter().map(|(_, show)| show(row)).collect()).collect();
    let mut out = String::new();
    let columns = (0..COLUMNS.len()).filter(|&c| cells.iter().any(|row| !row[c].is_empty()));
    let columns: Vec<(usize, usize)> = columns
        .map(|c| {
            let width = cells.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
            (c, width.max(COLUMNS[c].0.chars().count()))
        })
        .collect();
    let line = |out: &mut String, text: &dyn Fn(usize) -> String| {
        let parts: Vec<String> = columns.iter().map(|&(c, width)| format!("{:>width$}", text(c))).collect();
        let _ = writeln!(out, "{}", parts.join("  ").trim_end());
    };
    line(&mut out, &|c| COLUMNS[c].0.to_owned());
    let mut last = None;
    for (row, texts) in rows.iter().zip(&cells) {
        let cell = (
            row.mode,
            row.pin.clone(),
            row.bytes,
            row.outstanding,
            row.threads,
            row.members,
            row.computation_ms,
        );
        if last.as_ref().is_some_and(|last| *last != cell) {
            out.push('\n');
        }
        line(&mut out, &|c| texts[c].clone());
        last = Some(cell);
    }
    out
}
