//! Large results: how many bytes a second, beside a TCP connection and beside trains of UDP segments.
use anyhow::Result;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup, chart};

use crate::field::Field;
use crate::peers::{self, FARCALL};
use crate::rates::{Measured, method, rates};

/// The anchors.
const TCP: &str = "raw-tcp";
const GSO: &str = "raw-gso";

#[derive(Debug, clap::Args)]
pub struct Bulk {
    #[command(flatten)]
    options: Options,
    /// Sizes of the result; the argument is small.
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 16 << 20])]
    bytes: Vec<usize>,
    /// How many calls one thread of the client has outstanding.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    outstanding: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block])]
    mode: Vec<Mode>,
}

/// Measures all cells that the options ask for, and shows them.
pub fn run(bulk: &Bulk) -> Result<()> {
    let options = &bulk.options;
    let mut cells = Vec::new();
    for pin in options.pinned() {
        for &mode in &bulk.mode {
            let setup = |&bytes| Setup { bytes, carry: Carry::Result, mode, outstanding: 1 };
            cells.extend(bulk.bytes.iter().map(setup).map(|setup| Cell { setup, pin }));
        }
    }
    let names = peers::names(&[FARCALL, TCP, GSO], options);
    let mut field = Field::new(&names, cells.len() * bulk.outstanding.len() * options.groups())?;
    let mut rows = Vec::new();
    for cell in &cells {
        for &outstanding in &bulk.outstanding {
            let load = Load::Window { outstanding, calls: 0 };
            rows.extend(enter(rates("bulk", &mut field, cell, load, options)?));
        }
    }
    let method = format!("each ratio, to raw TCP and to raw UDP in trains, {}", method(options));
    let (rows, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => chart::ratios(path, "Large results", "ratio to raw TCP", &rows, &conditions),
        None => Ok(()),
    }
}

fn enter(measured: Vec<Measured>) -> Vec<Row> {
    let ratios = |name: &str| {
        let found = measured.iter().find(|one| one.row.peer == name);
        found.map(|one| one.ratios.clone()).unwrap_or_default()
    };
    let (tcp, gso) = (ratios(TCP), ratios(GSO));
    let rows = measured.into_iter().map(|mut one| {
        estimate(one.beside(&tcp)).into_iter().for_each(|ratio| one.row.set_ratio(ratio));
        estimate(one.beside(&gso)).into_iter().for_each(|ratio| one.row.set_ratio_gso(ratio));
        let bits = one.row.bytes.unwrap_or(0) as f64 * 8.0;
        one.row.gbit_per_second = one.row.per_second.map(|rate| rate * bits / 1e9);
        one.row
    });
    rows.collect()
}
