//! Table I: every procedure in every way, beside bare UDP.

use anyhow::{Context, Result, bail};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::{Estimate, estimate, midmean, quantile};
use farcall_bench_method::{Carry, Cell, Load, Mode, Pair, Pin, Setup};
use indicatif::ProgressBar;

use crate::bare::{Bare, Script};
use crate::capture::Capture;
use crate::interface::Procedure;
use crate::peers::Way;

/// Groups of four blocks, of which each gives two ratios.
const GROUPS: usize = 20;
/// The blocks of a way.
const BLOCKS: u32 = 2 * GROUPS as u32;
/// Calls before each block, which are not timed.
const WARM: usize = 50;
/// The most by which bare UDP may differ from itself, as everywhere in the benches.
const TOLERANCE: f64 = 0.02;

/// What was measured of a procedure.
pub struct Line {
    pub procedure: Procedure,
    /// The datagrams of a call over UDP.
    pub open: Script,
    /// The datagrams of a call over UDP with keys.
    pub sealed: Script,
    /// How many microseconds a call took in each way.
    pub ways: Vec<(Way, Times)>,
    /// What bare UDP took, and in other processes beside itself.
    pub bare: Times,
    pub control: Option<Estimate>,
}

/// How long calls took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub min: f64,
    pub median: f64,
    /// The time ÷ that of bare UDP in neighbouring blocks.
    pub ratio: Option<Estimate>,
}

impl Line {
    /// Returns the times of a way.
    pub fn times(&self, way: Way) -> Option<Times> {
        self.ways.iter().find(|(each, _)| *each == way).map(|(_, times)| *times)
    }

    /// Returns why the line does not count, if it does not.
    pub fn void(&self) -> Option<String> {
        let median = self.control?.median;
        let is_off = (median - 1.0).abs() > TOLERANCE;
        is_off.then(|| format!("{}: bare UDP is {median:.3} of itself", self.procedure.name()))
    }
}

/// Measures all procedures, with `calls` calls of each in each way. The processes are started so many times
/// for each procedure.
///
/// # Errors
/// When a call fails.
pub fn measure(calls: u32, starts: usize, pin: Pin, progress: &ProgressBar) -> Result<Vec<Line>> {
    let [open, sealed] = [Capture::start(Way::Udp)?, Capture::start(Way::UdpKeys)?];
    let block = calls.div_ceil(BLOCKS) as usize;
    let line = |procedure: Procedure| {
        progress.set_message(procedure.name());
        let scripts = [open.datagrams(procedure)?, sealed.datagrams(procedure)?];
        let line = self::line(procedure, scripts, (block, starts), pin).with_context(|| procedure.name())?;
        progress.inc(1);
        Ok(line)
    };
    Procedure::ALL.into_iter().map(line).collect()
}

fn line(
    procedure: Procedure,
    [open, sealed]: [Script; 2],
    (block, starts): (usize, usize),
    pin: Pin,
) -> Result<Line> {
    let bare = format!("{}-{open}", Bare::NAME);
    let others = Way::ALL.map(|way| way.peer(procedure));
    let mut anchor = Measured::new(bare.clone(), pin);
    let mut others: Vec<Measured> =
        others.into_iter().chain([bare]).map(|name| Measured::new(name, pin)).collect();
    for group in 0..GROUPS {
        if group % GROUPS.div_ceil(starts) == 0 {
            anchor.start()?;
            others.iter_mut().try_for_each(Measured::start)?;
        }
        for other in &mut others {
            let ratios = abba(|| anchor.block(block), || other.block(block))?;
            other.ratios.extend(ratios);
        }
    }
    let control = others.pop().and_then(|control| estimate(control.ratios));
    let ways = Way::ALL.into_iter().zip(others).map(|(way, measured)| (way, measured.times())).collect();
    Ok(Line { procedure, open, sealed, ways, bare: anchor.times(), control })
}

/// A peer, and the times of its calls.
struct Measured {
    name: String,
    cell: Cell,
    pair: Option<Pair>,
    nanoseconds: Vec<u32>,
    ratios: Vec<f64>,
}

impl Measured {
    fn new(name: String, pin: Pin) -> Measured {
        let setup = Setup { bytes: 0, carry: Carry::Both, mode: Mode::Block, outstanding: 1 };
        Measured { name, cell: Cell { setup, pin }, pair: None, nanoseconds: Vec::new(), ratios: Vec::new() }
    }

    fn start(&mut self) -> Result<()> {
        self.pair = None;
        self.pair = Some(Pair::start(&std::env::current_exe()?, &self.name, &self.cell)?);
        Ok(())
    }

    /// Runs a block, and returns the nanoseconds of a lap.
    fn block(&mut self, calls: usize) -> Result<f64> {
        let Some(pair) = &mut self.pair else { bail!("{} was not started", self.name) };
        let mut laps = pair.latencies(Load::Laps { calls: WARM }, Load::Laps { calls })?;
        self.nanoseconds.extend_from_slice(&laps);
        Ok(midmean(&mut laps))
    }

    fn times(mut self) -> Times {
        let calls = self.pair.map_or(1, |pair| pair.calls_per_lap()) as f64;
        let [min, median] = [0.0, 0.5].map(|at| quantile(&mut self.nanoseconds, at) / calls / 1e3);
        Times { min, median, ratio: estimate(self.ratios) }
    }
}
