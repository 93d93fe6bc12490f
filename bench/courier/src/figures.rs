//! What was measured: runs and profiles for each network, way and test; and what follows from them.

use std::collections::BTreeMap;

use farcall_bench_method::stats;

use crate::interface::Test;
use crate::network::Network;
use crate::side::{Profile, Run};
use crate::ways::Way;

/// The calls of the paper's measurements, to which all figures are scaled.
pub const PAPER_CALLS: f64 = 2000.0;

/// All that was measured.
pub struct Figures {
    /// How many calls a run has.
    pub calls: u32,
    cells: BTreeMap<(Network, Way, usize), Cell>,
}

/// What was measured of one test.
#[derive(Default)]
pub struct Cell {
    /// The runs, each with the number of calls that the server has not received.
    pub runs: Vec<(Run, u64)>,
    pub profiles: Vec<Profile>,
}

/// Minimum, maximum, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub deviation: f64,
}

/// The processor time of a client in seconds, for 2,000 calls.
#[derive(Clone, Copy)]
pub struct Times {
    pub total: f64,
    pub write: f64,
    pub read: f64,
    pub codec: f64,
}

impl Figures {
    pub fn new(calls: u32) -> Figures {
        Figures { calls, cells: BTreeMap::new() }
    }

    /// Returns the cell of a test, to add to it.
    pub fn enter(&mut self, network: Network, way: Way, test: Test) -> &mut Cell {
        self.cells.entry((network, way, test.row())).or_default()
    }

    /// Returns the cell of a test, if any run of it has ended.
    pub fn cell(&self, network: Network, way: Way, test: Test) -> Option<&Cell> {
        self.cells.get(&(network, way, test.row())).filter(|cell| !cell.runs.is_empty())
    }

    /// Returns whether anything was measured on this network.
    pub fn has(&self, network: Network) -> bool {
        self.cells.keys().any(|key| key.0 == network)
    }

    /// Returns the elapsed seconds for 2,000 calls.
    pub fn elapsed(&self, network: Network, way: Way, test: Test) -> Option<Summary> {
        let cell = self.cell(network, way, test)?;
        Summary::of(cell.runs.iter().map(|(run, _)| run.seconds * self.scale()))
    }

    /// Returns the elapsed seconds for 2,000 calls without the time of waiting for replies that did not come
    /// (the paper's correction), and without the time of the loop (ours).
    pub fn corrected(&self, network: Network, way: Way, test: Test) -> Option<Summary> {
        let cell = self.cell(network, way, test)?;
        let empty = self.elapsed(network, Way::Loop, test).map_or(0.0, |empty| empty.mean);
        let patience = way.patience().as_secs_f64();
        let corrected =
            |(run, _): &(Run, u64)| (run.seconds - f64::from(run.timeouts) * patience) * self.scale() - empty;
        Summary::of(cell.runs.iter().map(corrected).map(|seconds| seconds.max(0.0)))
    }

    /// Returns how many packets were lost in all runs: replies that the client waited for in vain, or, if
    /// calls have no replies, calls that the server has not received.
    pub fn lost(&self, network: Network, way: Way, test: Test) -> Option<u64> {
        let runs = &self.cell(network, way, test)?.runs;
        let one_way = way.is_one_way(test);
        Some(runs.iter().map(|(run, lost)| if one_way { *lost } else { run.timeouts.into() }).sum())
    }

    /// Returns the median of the ratios of the runs of two ways. The runs of one number are neighbours in
    /// time.
    pub fn ratio(&self, network: Network, way: Way, to: Way, test: Test) -> Option<stats::Estimate> {
        let [one, other] = [self.cell(network, way, test)?, self.cell(network, to, test)?];
        let pairs = one.runs.iter().zip(&other.runs);
        stats::estimate(pairs.map(|(one, other)| one.0.seconds / other.0.seconds).collect())
    }

    /// Returns where the processor time of a client goes, for 2,000 calls. The total is that of the runs,
    /// which were not disturbed by clocks.
    pub fn times(&self, network: Network, way: Way, test: Test) -> Option<Times> {
        let cell = self.cell(network, way, test)?;
        let mean = |values: &mut dyn Iterator<Item = f64>| Some(Summary::of(values)?.mean * self.scale());
        let part = |part: fn(&Profile) -> f64| mean(&mut cell.profiles.iter().map(part));
        Some(Times {
            total: mean(&mut cell.runs.iter().map(|(run, _)| run.cpu_seconds))?,
            write: part(|profile| profile.write)?,
            read: part(|profile| profile.read)?,
            codec: part(|profile| profile.codec)?,
        })
    }

    fn scale(&self) -> f64 {
        PAPER_CALLS / f64::from(self.calls)
    }
}

impl Cell {
    /// Returns the mean processor time of the client's process in a run, in seconds.
    pub fn cpu_seconds(&self) -> Option<f64> {
        Some(Summary::of(self.runs.iter().map(|(run, _)| run.cpu_seconds))?.mean)
    }
}

impl Summary {
    /// Returns the summary of some values, with the deviation of a sample; `None` of no values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Summary> {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Summary { min, max, mean, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::TESTS;

    fn run(seconds: f64, timeouts: u32) -> Run {
        Run { seconds, loop_seconds: seconds, cpu_seconds: 0.5, timeouts, made: 1000 }
    }

    #[test]
    fn summaries() {
        let summary = Summary::of([2.0, 4.0, 6.0].into_iter()).unwrap();
        assert_eq!(summary, Summary { min: 2.0, max: 6.0, mean: 4.0, deviation: 2.0 });
        assert_eq!(Summary::of([].into_iter()), None);
    }

    #[test]
    fn figures_are_scaled_and_corrected() {
        let mut figures = Figures::new(1000);
        let (network, test) = (Network::Three, TESTS[1]);
        figures.enter(network, Way::Pcourier, test).runs.extend([(run(25.0, 2), 3), (run(5.0, 0), 0)]);
        figures.enter(network, Way::Loop, test).runs.push((run(0.5, 0), 0));
        assert_eq!(figures.elapsed(network, Way::Pcourier, test).unwrap().mean, 30.0);
        assert_eq!(figures.corrected(network, Way::Pcourier, test).unwrap().mean, 9.0);
        assert_eq!(figures.lost(network, Way::Pcourier, test), Some(2));
        assert!(figures.elapsed(network, Way::Courier, test).is_none());
    }
}
