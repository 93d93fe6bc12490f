//! Figure 3: the server's processor time for an operation, by the paper's components.
//!
//! Accesses that only move data give the cost of moving data: a posted write is received and not answered,
//! and a read is received and answered with a given number of bytes. The procedure is executed in this
//! process. The remainder is control transfer.
use anyhow::{Context, Result};
use farcall_bench_method::chart::{self, Bars};
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup};

use super::Memory;
use super::service::{OPERATIONS, STRUCTURES, chosen, procedure, work};
use crate::field::{Contender, Field, begin_group};

/// The paper's components, from the bottom of the bars.
const COMPONENTS: [&str; 4] = ["data reception", "control transfer", "procedure", "data reply"];
const SHORT: usize = 32;

/// Accesses that only move data: their kind and their bytes.
const MOVES: [(&str, usize); 5] = [
    ("memory-post", SHORT),
    ("memory-read", SHORT),
    ("memory-read", 4096),
    ("memory-read", 8192),
    ("memory-write", 8192),
];

/// Returns about how many bytes an operation receives and sends.
fn sizes(operation: &str) -> (usize, usize) {
    match operation {
        "read-8k" => (SHORT, 8192),
        "read-4k" | "readdir" => (SHORT, 4096),
        "write" => (8192, SHORT),
        _ => (SHORT, SHORT),
    }
}

/// The server's processor time of moving data, in nanoseconds, by [`MOVES`].
struct Moves<'a>(&'a [f64]);

impl Moves<'_> {
    fn of(&self, name: &str, bytes: usize) -> f64 {
        let place = MOVES.iter().position(|one| *one == (name, bytes));
        place.map_or(0.0, |place| self.0[place])
    }

    fn reception(&self, bytes: usize) -> f64 {
        match bytes {
            SHORT => self.of("memory-post", SHORT).min(self.of("memory-read", SHORT)),
            _ => self.of("memory-write", bytes) - self.reply(SHORT),
        }
    }

    fn reply(&self, bytes: usize) -> f64 {
        self.of("memory-read", bytes) - self.reception(SHORT)
    }
}

/// Measures, and shows figure 3.
pub fn run(memory: &Memory) -> Result<()> {
    let (options, operations) = (&memory.options, chosen(memory, &OPERATIONS));
    let services =
        operations.iter().flat_map(|operation| STRUCTURES.map(|structure| named(structure, operation)));
    let names: Vec<String> =
        services.chain(["memory-post", "memory-read", "memory-write"].map(str::to_owned)).collect();
    let mut field = Field::new(&names, operations.len() * options.groups())?;
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for operation in &operations {
        let mut contenders = Vec::new();
        for (name, bytes) in MOVES {
            contenders.push(contender(&mut field, name, bytes, options)?);
        }
        for structure in STRUCTURES {
            contenders.push(contender(&mut field, &named(structure, operation), 0, options)?);
        }
        let times = times(contenders, options, || field.progress.inc(1))?;
        let (moves, wholes) = times.split_at(MOVES.len());
        let mut bars = Vec::new();
        for (structure, whole) in STRUCTURES.into_iter().zip(wholes) {
            let parts = split(&Moves(moves), structure, operation, *whole)?;
            let parts = COMPONENTS.iter().zip(parts);
            rows.extend(parts.clone().map(|(name, part)| row(structure, operation, name, part, options)));
            bars.push(parts.map(|(_, part)| part / 1e3).collect());
        }
        groups.push((operation.clone(), bars));
    }
    let method = format!(
        "the server's processor time for an operation, the median of {} blocks of {} operations, which take turns with \
         those that only move data: reception is a posted write, reply a read less that, the procedure is timed alone, \
         control transfer is what is left (of HY also what its answer costs more than a reply)",
        options.groups(),
        options.block().calls
    );
    let (_, conditions) = field.show(rows, method, &[], options)?;
    let Some(path) = &options.svg else { return Ok(()) };
    let panel = Bars {
        caption: format!("From below, ever paler: {}", COMPONENTS.join(", ")),
        unit: "µs".to_owned(),
        bars: STRUCTURES.map(str::to_owned).to_vec(),
        groups,
    };
    chart::bars(path, "Figure 3: what the server does for an operation, over UDP", &[panel], &conditions)
}

fn named(structure: &str, operation: &str) -> String {
    format!("{}-{operation}", structure.to_lowercase())
}

fn contender(field: &mut Field, name: &str, bytes: usize, options: &Options) -> Result<Contender> {
    let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: 1 };
    let cell = Cell { setup, pin: options.pinned()[0] };
    field.some(&cell, |one| one == name)?.pop().with_context(|| format!("{name} is needed"))
}

/// Returns the server's processor time for an operation of each, in nanoseconds.
fn times(mut contenders: Vec<Contender>, options: &Options, mut progress: impl FnMut()) -> Result<Vec<f64>> {
    let block = options.block();
    let [warm, load] = [block.warm, block.calls].map(|calls| Load::Window { outstanding: 1, calls });
    let mut blocks: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut contenders);
        for (contender, blocks) in contenders.iter_mut().zip(&mut blocks) {
            blocks.push(contender.block(|pair| pair.rate(warm, load))?.1);
        }
        progress();
    }
    let median = |blocks: Vec<f64>| estimate(blocks).map(|time| time.median).context("no block was measured");
    blocks.into_iter().map(median).collect()
}

/// Returns the paper's components of an operation, in nanoseconds.
fn split(moves: &Moves<'_>, structure: &str, operation: &str, whole: f64) -> Result<[f64; 4]> {
    let (request, reply) = sizes(operation);
    let [accesses, transfers] = work(structure, operation).context("nobody knows what the clerk does")?;
    if accesses < 0.5 && transfers < 0.5 {
        // The clerk finds all in its own memory, but for reading its lease now and then.
        return Ok([whole, 0.0, 0.0, 0.0]);
    }
    let before = if structure == "DX" { accesses - 1.0 } else { 0.0 };
    let reception = moves.reception(request) + moves.reception(SHORT) * before;
    // Differences are not below zero, though the times of different processes vary.
    if transfers == 0.0 {
        return Ok([reception, 0.0, 0.0, (whole - reception).max(0.0)]);
    }
    let reply = moves.reply(reply) + moves.reply(SHORT) * before;
    let procedure = procedure(operation)?;
    Ok([reception, (whole - reception - procedure - reply).max(0.0), procedure, reply])
}

fn row(structure: &str, operation: &str, component: &str, part: f64, options: &Options) -> Row {
    Row {
        bench: "memory".into(),
        peer: named(structure, operation),
        transport: Some("udp".into()),
        operation: Some(operation.to_owned()),
        structure: Some(structure.to_owned()),
        part: Some(component.to_owned()),
        pin: Some(options.pinned()[0].to_string()),
        server_cpu_us: Some((part / 1e3 * 1e4).round() / 1e4),
        ..Row::default()
    }
}
