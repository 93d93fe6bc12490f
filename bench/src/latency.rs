//! One outstanding call: farcall and its peers compared with raw sockets.
use anyhow::Result;
use farcall_bench_method::{Carry, Cell, Mode, Options, Row, Setup, chart};

use crate::field::Field;
use crate::laps::{self, faults, laps};
use crate::peers::{self, CONTROL, FARCALL, RAW};
use crate::profile;

/// The user instructions that a raw blocking round trip is known to take on both sides, including one reading
/// of the clock.
pub const RAW_INSTRUCTIONS: u32 = 413;

#[derive(Debug, clap::Args)]
pub struct Latency {
    #[command(flatten)]
    options: Options,
    /// The payloads of the call and of its result, in bytes; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 32, 400, 4000])]
    bytes: Vec<usize>,
    /// How both sides wait.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Block, Mode::Spin])]
    mode: Vec<Mode>,
    /// The known number of user instructions of a raw blocking round trip, on both sides, including its one
    /// reading of the clock. A run with another number measures something else, and is void.
    #[arg(long, value_name = "COUNT", default_value_t = RAW_INSTRUCTIONS)]
    raw_instructions: u32,
    /// Compare farcall with keys at this level with a ping-pong whose datagrams are sealed, too, and are as
    /// long as farcall's.
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Show the parts of one blocking call of 32 bytes in instructions, instead.
    #[arg(long)]
    profile: bool,
}

/// How much the datagrams of the anchor are protected.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Level {
    Authenticated,
    Secure,
}

impl Level {
    /// Returns the anchor, its control, and what is measured besides.
    fn peers(level: Option<Level>) -> Vec<&'static str> {
        let sealed = |level| {
            let [anchor, control, farcall] = peers::sealed(level);
            vec![anchor, control, RAW, FARCALL, farcall]
        };
        match level {
            None => vec![RAW, CONTROL, FARCALL],
            Some(Level::Authenticated) => sealed(farcall_crypto::Level::Authenticated),
            Some(Level::Secure) => sealed(farcall_crypto::Level::Secure),
        }
    }
}

/// Measures all cells that the options select, and shows them.
pub fn run(latency: &Latency) -> Result<()> {
    if latency.profile {
        return profile::run(&latency.options);
    }
    let cells = cells(latency);
    let names = peers::names(&Level::peers(latency.level), &latency.options);
    let field = Field::new(&names, cells.len() * latency.options.groups())?;
    let mut run = Run { latency, field, rows: Vec::new(), reasons: Vec::new() };
    for cell in &cells {
        run.measure(cell)?;
    }
    run.show()
}

fn cells(latency: &Latency) -> Vec<Cell> {
    let mut cells = Vec::new();
    for pin in latency.options.pins() {
        for &mode in &latency.mode {
            let setup = |&bytes| Setup { bytes, carry: Carry::Both, mode, outstanding: 1 };
            cells.extend(latency.bytes.iter().map(setup).map(|setup| Cell { setup, pin }));
        }
    }
    cells
}

struct Run<'a> {
    latency: &'a Latency,
    field: Field,
    rows: Vec<Row>,
    /// Why rows are void.
    reasons: Vec<String>,
}

impl Run<'_> {
    /// Measures all peers in one cell.
    fn measure(&mut self, cell: &Cell) -> Result<()> {
        let contenders = self.field.contenders(cell)?;
        let measured = laps("latency", contenders, &self.latency.options, || self.field.progress.inc(1))?;
        let mut rows: Vec<Row> = measured.into_iter().map(|one| one.row).collect();
        let known = match (self.latency.level, rows.first()) {
            (None, _) => f64::from(self.latency.raw_instructions),
            // The instructions of a sealed ping-pong depend on its length, and are not known in advance.
            (Some(_), row) => row.and_then(|row| row.user_instructions).unwrap_or(1.0),
        };
        let reasons = faults(cell, &rows, known);
        rows.iter_mut().for_each(|row| row.void = (!reasons.is_empty()).then_some(true));
        self.reasons.extend(reasons);
        self.rows.extend(rows);
        Ok(())
    }

    fn show(self) -> Result<()> {
        let options = &self.latency.options;
        let (rows, conditions) = self.field.show(self.rows, laps::method(options), &self.reasons, options)?;
        match &options.svg {
            Some(path) => {
                chart::ratios(path, "Latency beside a raw UDP round trip", "ratio to raw", &rows, &conditions)
            }
            None => Ok(()),
        }
    }
}
