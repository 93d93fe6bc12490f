//! The file service in its structures: the latency of each operation, its cost at the server, and the
//! mix of table 1a.
use std::path::Path;

use anyhow::Result;
use farcall_bench_method::chart::{self, Bars};
use farcall_bench_method::counters::What;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup};

use super::accesses::{alone, bar, triple};
use super::{Carrier, Memory};
use crate::field::{Contender, Field, begin_group};
use crate::laps::{self, laps};

/// The operations of figure 2, in its order.
pub const OPERATIONS: [&str; 7] = ["getattr", "lookup", "readlink", "read-8k", "read-4k", "readdir", "write"];
/// All operations as often as in table 1a, with the mean sizes of table 1b.
const MIXES: [&str; 1] = ["mix"];
/// The anchor first.
pub const STRUCTURES: [&str; 4] = ["RPC", "HY", "DX", "WR"];
/// The number of counted operations of a mix.
const COUNTED: usize = 30_000;

/// Returns the selected operations, or `default`.
pub fn chosen(memory: &Memory, default: &[&str]) -> Vec<String> {
    match &memory.operation[..] {
        [] => default.iter().map(|&name| name.to_owned()).collect(),
        named => named.to_vec(),
    }
}

/// Returns the number of operations of a block of a mix.
fn block(options: &Options) -> usize {
    3 * options.block().calls
}

/// Measures each operation, and shows figures 2 and 3.
pub fn operations(memory: &Memory) -> Result<()> {
    let (options, operations) = (&memory.options, chosen(memory, &OPERATIONS));
    let (mut field, cell) = (field(memory, &operations)?, cell(options));
    let mut rows = Vec::new();
    for &carrier in &memory.transport {
        for operation in &operations {
            let contenders = field.some(&cell, is_one(operation, carrier))?;
            let measured = laps("memory", contenders, options, || field.progress.inc(1))?;
            rows.extend(measured.into_iter().map(|one| described(one.row, operation, carrier)));
        }
    }
    let method = format!("{}; the ratio is to RPC by the same carrier", laps::method(options));
    let (rows, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => picture(path, memory, &operations, &rows, &conditions),
        None => Ok(()),
    }
}

/// Replays the mix, and shows the server's load.
pub fn mixes(memory: &Memory) -> Result<()> {
    let (options, mixes) = (&memory.options, chosen(memory, &MIXES));
    let (mut field, cell) = (field(memory, &mixes)?, cell(options));
    let (mut rows, mut times) = (Vec::new(), Vec::new());
    for &carrier in &memory.transport {
        for mix in &mixes {
            let contenders = field.some(&cell, is_one(mix, carrier))?;
            for (row, ratios) in replayed(contenders, options, || field.progress.inc(1))? {
                rows.push(described(row, mix, carrier));
                times.push(ratios);
            }
        }
    }
    let method = format!(
        "the ratio is of the server's processor time to that of RPC by the same carrier, the median of {} pairs of blocks of {} \
         operations",
        2 * options.groups(),
        block(options)
    );
    let (rows, _) = field.show(rows, method, &[], options)?;
    if options.json.as_deref() != Some(Path::new("-")) {
        loads(memory, &mixes, &rows, &times);
    }
    Ok(())
}

fn field(memory: &Memory, operations: &[String]) -> Result<Field> {
    let mut names = Vec::new();
    for carrier in &memory.transport {
        for operation in operations {
            let name =
                |structure: &str| format!("{}-{operation}{}", structure.to_lowercase(), carrier.suffix());
            names.extend(STRUCTURES.map(name));
        }
    }
    Field::new(&names, operations.len() * memory.transport.len() * memory.options.groups())
}

fn cell(options: &Options) -> Cell {
    let setup = Setup { bytes: 0, carry: Carry::Both, mode: Mode::Block, outstanding: 1 };
    Cell { setup, pin: options.pinned()[0] }
}

/// Returns whether a peer's name is that of an operation over a carrier, in any structure.
fn is_one(operation: &str, carrier: Carrier) -> impl Fn(&str) -> bool + use<> {
    let wanted = format!("{operation}{}", carrier.suffix());
    move |name| name.split_once('-').is_some_and(|(_, rest)| rest == wanted)
}

/// Returns the row of a peer, with the parts of its name, and with what its clerk does for an operation.
fn described(mut row: Row, operation: &str, carrier: Carrier) -> Row {
    let structure = row.peer.split('-').next().unwrap_or_default().to_uppercase();
    // The clients of HY, and of WR where it asks the server, poll until the answer has arrived.
    if structure == "HY" || structure == "WR" && matches!(operation, "write" | "mix" | "mix-8k") {
        (row.user_instructions, row.kernel_instructions, row.syscalls) = (None, None, None);
    }
    if let Some([accesses, transfers]) = work(&structure, operation) {
        (row.accesses, row.transfers) = (Some(accesses), Some(transfers));
    }
    let operation = Some(operation.to_owned());
    Row {
        operation,
        structure: Some(structure),
        transport: Some(carrier.name().to_owned()),
        bytes: None,
        ..row
    }
}

#[cfg(unix)]
pub fn work(structure: &str, operation: &str) -> Option<[f64; 2]> {
    crate::peers::files::work(structure, operation).ok()
}

#[cfg(not(unix))]
pub fn work(_: &str, _: &str) -> Option<[f64; 2]> {
    None
}

/// Returns the nanoseconds that the procedure of an operation takes without a call.
#[cfg(unix)]
pub fn procedure(operation: &str) -> Result<f64> {
    crate::peers::files::procedure(operation)
}

#[cfg(not(unix))]
pub fn procedure(_: &str) -> Result<f64> {
    farcall_bench_method::cannot("there is no file service here")
}

/// The results of the blocks of one structure.
#[derive(Default)]
struct Blocks {
    /// The operations per second.
    rates: Vec<f64>,
    /// The server's processor time per operation, in nanoseconds.
    times: Vec<f64>,
    /// That time divided by the first structure's in the neighbouring block.
    ratios: Vec<f64>,
}

/// Returns the row of each structure, and the ratios of the server's processor time to that of the first.
fn replayed(
    mut contenders: Vec<Contender>,
    options: &Options,
    mut progress: impl FnMut(),
) -> Result<Vec<(Row, Vec<f64>)>> {
    let load = Load::Window { outstanding: 1, calls: block(options) };
    let warm = load.of(load.calls().div_ceil(10));
    let mut results: Vec<Blocks> = contenders.iter().map(|_| Blocks::default()).collect();
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut contenders);
        let ([first, others @ ..], [firsts, theirs @ ..]) = (&mut contenders[..], &mut results[..]) else {
            break;
        };
        let time = |contender: &mut Contender, blocks: &mut Blocks| {
            let (rate, time) = contender.block(|pair| pair.rate(warm, load))?;
            blocks.rates.push(rate);
            blocks.times.push(time);
            Ok(time)
        };
        for (other, theirs) in others.iter_mut().zip(theirs) {
            let ratios = abba(|| time(first, firsts), || time(other, theirs))?;
            theirs.ratios.extend(ratios);
        }
        progress();
    }
    let enter = |(mut contender, Blocks { rates, times, ratios }): (Contender, Blocks)| {
        let cell = contender.cell;
        let mut row = contender.pair()?.row("memory", &cell);
        let [client, server] = contender.pair()?.count_each(What::Instructions, load, load.of(COUNTED))?;
        row.set_counts(client.and(server), COUNTED);
        row.set_server_counts(server, COUNTED);
        row.per_second = estimate(rates).map(|rate| rate.median.round());
        row.server_cpu_us = estimate(times).map(|time| time.median.round() / 1e3);
        estimate(ratios.clone()).into_iter().for_each(|ratio| row.set_ratio(ratio));
        Ok((row, ratios))
    };
    contenders.into_iter().zip(results).map(enter).collect()
}

/// Prints the ratios of the server's load, DX to RPC and WR to DX.
fn loads(memory: &Memory, mixes: &[String], rows: &[Row], times: &[Vec<f64>]) {
    println!();
    for carrier in memory.transport.iter().map(|carrier| carrier.name()) {
        for mix in mixes {
            let of = |structure: &str| {
                rows.iter().zip(times).find(|(row, _)| {
                    let is = |field: &Option<String>, value: &str| field.as_deref() == Some(value);
                    is(&row.operation, mix) && is(&row.structure, structure) && is(&row.transport, carrier)
                })
            };
            let (Some((rpc, _)), Some((dx, times))) = (of("RPC"), of("DX")) else { continue };
            if let Some((wr, _)) = of("WR") {
                let ratio = |figure: fn(&Row) -> Option<f64>| {
                    figure(wr).zip(figure(dx)).map(|(wr, dx)| alone(wr / dx))
                };
                let name = |what: &str| format!("{mix}, {carrier}: server's {what}, WR ÷ DX");
                let asked = if carrier == "udp" { "at most 0.9" } else { "" };
                bar(&name("user instructions"), ratio(|row| row.server_user_instructions), asked);
                bar(&name("kernel instructions"), ratio(|row| row.server_kernel_instructions), "");
                bar(&format!("{mix}, {carrier}: accesses per operation of WR"), wr.accesses.map(alone), "");
            }
            let share = |figure: fn(&Row) -> Option<f64>| {
                figure(dx).zip(figure(rpc)).map(|(dx, rpc)| alone(dx / rpc))
            };
            let asked = |udp, mapped| if carrier == "udp" { udp } else { mapped };
            let name = |what: &str| format!("{mix}, {carrier}: server's {what}, DX ÷ RPC");
            bar(
                &name("user instructions"),
                share(|row| row.server_user_instructions),
                asked("at most 0.5", "at most 0.05"),
            );
            bar(&name("kernel instructions"), share(|row| row.server_kernel_instructions), "");
            bar(&name("processor time"), triple(times.clone()), asked("", "at most 0.05"));
            bar(&format!("{mix}, {carrier}: accesses per operation of DX"), dx.accesses.map(alone), "");
            bar(
                &format!("{mix}, {carrier}: transfers of control per operation of DX"),
                dx.transfers.map(alone),
                "",
            );
        }
    }
}

/// Draws figure 2, latency, and figure 3, the server's work: user and kernel instructions, and processor
/// time.
fn picture(
    path: &Path,
    memory: &Memory,
    operations: &[String],
    rows: &[Row],
    conditions: &[String],
) -> Result<()> {
    let mut panels = Vec::new();
    for carrier in memory.transport.iter().map(|carrier| carrier.name()) {
        let panel = |caption: &str, unit: &str, parts: fn(&Row) -> Vec<f64>| {
            let of = |operation: &str, structure: &str| {
                let is = |field: &Option<String>, value: &str| field.as_deref() == Some(value);
                let row = rows.iter().find(|row| {
                    is(&row.operation, operation)
                        && is(&row.structure, structure)
                        && is(&row.transport, carrier)
                });
                row.map(parts).unwrap_or_default()
            };
            let bars = |operation: &str| STRUCTURES.map(|structure| of(operation, structure)).to_vec();
            Bars {
                caption: format!("{caption}, {carrier}"),
                unit: unit.to_owned(),
                bars: STRUCTURES.map(str::to_owned).to_vec(),
                groups: operations.iter().map(|operation| (operation.clone(), bars(operation))).collect(),
            }
        };
        panels.push(panel("Figure 2: latency", "µs", |row| row.p50_us.into_iter().collect()));
        panels.push(panel(
            "Figure 3: the server's user and (pale) kernel instructions",
            "thousands",
            |row| {
                let both = row.server_user_instructions.into_iter().chain(row.server_kernel_instructions);
                both.map(|count| count / 1e3).collect()
            },
        ));
        panels.push(panel("Figure 3: the server's processor time", "µs", |row| {
            row.server_cpu_us.into_iter().collect()
        }));
    }
    chart::bars(
        path,
        "A file service by reading memory (DX), pushed entries (WR), Hybrid-1 (HY), and calls (RPC)",
        &panels,
        conditions,
    )
}
