//! Figure 3: the work of the server's processor for an operation, by the paper's components, in instructions.
//!
//! Accesses that only move data give the cost of moving data: a posted write is received and not answered,
//! and a read is received and answered with a given number of bytes. The procedure is executed in this
//! process. The remainder is control transfer.
use anyhow::{Context, Result};
use farcall_bench_method::chart::{self, Bars};
use farcall_bench_method::counters::What;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup};

use super::Memory;
use super::service::{OPERATIONS, STRUCTURES, chosen, procedure, work};
use crate::field::Field;
use crate::profile::Part;

/// The paper's components, from the bottom of the bars.
const COMPONENTS: [&str; 4] = ["data reception", "control transfer", "procedure", "data reply"];
/// The number of counted operations.
const COUNTED: usize = 3_000;
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

/// The server's cost of moving data, by [`MOVES`]. The kernel's part of reception is that of a posted write.
/// Of the user's instructions, half count as reception and half as reply.
struct Moves([Part; 5]);

impl Moves {
    fn of(&self, name: &str, bytes: usize) -> Part {
        let place = MOVES.iter().position(|one| *one == (name, bytes));
        place.map_or(Part::default(), |place| self.0[place])
    }

    fn reception(&self, bytes: usize) -> Part {
        match bytes {
            SHORT => {
                let (read, post) = (self.of("memory-read", SHORT), self.of("memory-post", SHORT));
                Part { user: read.user / 2.0, kernel: post.kernel.min(read.kernel) }
            }
            _ => self.of("memory-write", bytes).less(self.reply(SHORT)),
        }
    }

    fn reply(&self, bytes: usize) -> Part {
        self.of("memory-read", bytes).less(self.reception(SHORT))
    }
}

/// Counts, and shows figure 3.
pub fn run(memory: &Memory) -> Result<()> {
    let (options, operations) = (&memory.options, chosen(memory, &OPERATIONS));
    let services =
        operations.iter().flat_map(|operation| STRUCTURES.map(|structure| named(structure, operation)));
    let names: Vec<String> =
        services.chain(["memory-post", "memory-read", "memory-write"].map(str::to_owned)).collect();
    let mut field = Field::new(&names, operations.len() + 1)?;
    let mut moves = [Part::default(); 5];
    for ((name, bytes), part) in MOVES.iter().zip(&mut moves) {
        *part = counted(&mut field, name, *bytes, options)?;
    }
    field.progress.inc(1);
    let (moves, mut rows, mut groups) = (Moves(moves), Vec::new(), Vec::new());
    for operation in &operations {
        let mut bars = Vec::new();
        for structure in STRUCTURES {
            let whole = counted(&mut field, &named(structure, operation), 0, options)?;
            let parts = split(&moves, structure, operation, whole)?;
            rows.extend(
                COMPONENTS
                    .iter()
                    .zip(parts)
                    .map(|(name, part)| row(structure, operation, name, part, options)),
            );
            bars.push(parts.map(|part| (part.user + part.kernel) / 1e3).to_vec());
        }
        groups.push((operation.clone(), bars));
        field.progress.inc(1);
    }
    let method = format!(
        "instructions of the server by {COUNTED} operations; reception is a posted write's in the kernel and half a read's user instructions, \
         reply a read's less that, the procedure counted alone, control transfer what is left (of HY also what its answer costs more than a reply)"
    );
    let (_, conditions) = field.show(rows, method, &[], options)?;
    let Some(path) = &options.svg else { return Ok(()) };
    let panel = Bars {
        caption: format!("From below, ever paler: {}", COMPONENTS.join(", ")),
        unit: "thousands of instructions".to_owned(),
        bars: STRUCTURES.map(str::to_owned).to_vec(),
        groups,
    };
    chart::bars(path, "Figure 3: what the server does for an operation, over UDP", &[panel], &conditions)
}

fn named(structure: &str, operation: &str) -> String {
    format!("{}-{operation}", structure.to_lowercase())
}

/// Returns what the server of a peer does for one operation.
fn counted(field: &mut Field, name: &str, bytes: usize, options: &Options) -> Result<Part> {
    let setup = Setup { bytes, carry: Carry::Both, mode: Mode::Block, outstanding: 1 };
    let cell = Cell { setup, pin: options.pinned()[0] };
    let mut contender =
        field.some(&cell, |one| one == name)?.pop().with_context(|| format!("{name} is needed"))?;
    let load = Load::Window { outstanding: 1, calls: COUNTED };
    let [_, server] = contender.pair()?.count_each(What::Instructions, load.of(COUNTED / 10), load)?;
    Part::new(server, COUNTED)
}

/// Returns the paper's components of an operation.
fn split(moves: &Moves, structure: &str, operation: &str, whole: Part) -> Result<[Part; 4]> {
    let (request, reply) = sizes(operation);
    let [accesses, transfers] = work(structure, operation).context("nobody knows what the clerk does")?;
    let sum = |parts: &[Part]| Part {
        user: parts.iter().map(|part| part.user).sum(),
        kernel: parts.iter().map(|part| part.kernel).sum(),
    };
    let times = |part: Part, count: f64| Part { user: part.user * count, kernel: part.kernel * count };
    if accesses < 0.5 {
        // The clerk finds all in its own memory, but for reading its lease now and then.
        return Ok([least(whole), Part::default(), Part::default(), Part::default()]);
    }
    let before = if structure == "DX" { accesses - 1.0 } else { 0.0 };
    let reception = sum(&[moves.reception(request), times(moves.reception(SHORT), before)]);
    if transfers == 0.0 {
        return Ok([reception, Part::default(), Part::default(), least(whole.less(reception))]);
    }
    let reply = sum(&[moves.reply(reply), times(moves.reply(SHORT), before)]);
    let procedure = procedure(operation)?;
    let control = least(whole.less(sum(&[reception, procedure, reply])));
    Ok([reception, control, procedure, reply])
}

/// Subtracts without going below zero, because counts of different processes vary.
fn least(part: Part) -> Part {
    Part { user: part.user.max(0.0), kernel: part.kernel.max(0.0) }
}

fn row(structure: &str, operation: &str, component: &str, part: Part, options: &Options) -> Row {
    Row {
        bench: "memory".into(),
        peer: named(structure, operation),
        transport: Some("udp".into()),
        operation: Some(operation.to_owned()),
        structure: Some(structure.to_owned()),
        part: Some(component.to_owned()),
        pin: Some(options.pinned()[0].to_string()),
        server_user_instructions: Some(part.user.round()),
        server_kernel_instructions: Some(part.kernel.round()),
        ..Row::default()
    }
}
