//! Runs the grid: all ways and tests on each network, in turn.

use std::time::Instant;

use anyhow::{Context, Result};
use farcall_bench_method::Pin;
use indicatif::{ProgressBar, ProgressStyle};

use crate::figures::Figures;
use crate::interface::{Size, TESTS, Test};
use crate::network::{Ends, Network, Ran};
use crate::ways::Way;

/// What to run.
pub struct Grid {
    pub calls: u32,
    pub runs: u32,
    /// How many profiles are made of each cell.
    pub profiles: u32,
    pub networks: Vec<Network>,
    pub ways: Vec<Way>,
    pub pin: Pin,
}

/// What has come of it.
pub struct Measured {
    pub figures: Figures,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// How long each network took.
    pub took: Vec<String>,
}

impl Grid {
    /// Runs everything. The runs of one number are neighbours in time, and every second time they are made in
    /// the opposite order, so that a machine that gets slower harms no way more than the others.
    pub fn run(&self) -> Result<Measured> {
        let figures = Figures::new(self.calls);
        let mut measured = Measured { figures, skipped: Vec::new(), took: Vec::new() };
        let progress = self.progress();
        for &network in &self.networks {
            let start = Instant::now();
            let mut ends = match Ends::start(network, self.pin) {
                Ok(ends) => ends,
                // Loopback needs no rights, so there is another reason.
                Err(why) if network == Network::Loopback => return Err(why),
                Err(why) => {
                    measured.skipped.push(format!("{}: {why:#}", network.name()));
                    progress.dec_length(u64::from(self.runs) * self.cells().len() as u64);
                    continue;
                }
            };
            let mut left = self.cells();
            for run in 0..self.runs {
                if run % 2 == 1 {
                    left.reverse();
                }
                let mut kept = Vec::new();
                for (test, way) in left {
                    progress.set_message(format!("{} {} {}", network.name(), way.name(), test.bytes()));
                    if self.cell(&mut ends, network, (test, way), run, &mut measured)? {
                        kept.push((test, way));
                    } else {
                        progress.dec_length(u64::from(self.runs - run - 1));
                    }
                    progress.inc(1);
                }
                left = kept;
                if run % 2 == 1 {
                    left.reverse();
                }
            }
            measured.took.push(format!("{} took {:.0} s", network.name(), start.elapsed().as_secs_f64()));
        }
        progress.finish_and_clear();
        Ok(measured)
    }

    /// Returns all tests in all ways: the ways of one test one after another.
    fn cells(&self) -> Vec<(Test, Way)> {
        let all = TESTS.iter().flat_map(|test| self.ways.iter().map(|way| (*test, *way)));
        // PCourier refuses such a call, so there is nothing to bound.
        all.filter(|(test, way)| *way != Way::PcourierBound || test.size != Size::Thousand).collect()
    }

    /// Makes one run of a cell. Returns whether further runs of it make sense.
    fn cell(
        &self,
        ends: &mut Ends,
        network: Network,
        (test, way): (Test, Way),
        run: u32,
        measured: &mut Measured,
    ) -> Result<bool> {
        let result = if test.has_result { "with a result" } else { "without a result" };
        let about = format!("{}, {} bytes {result}, {}", way.name(), test.bytes(), network.name());
        match ends.run(way, test, self.calls).context(about.clone()) {
            Ok(Ran::Ran(ran, lost)) => measured.figures.enter(network, way, test).runs.push((ran, lost)),
            Ok(Ran::Refused(why)) => {
                measured.skipped.push(format!("{about}: refused: {why}"));
                return Ok(false);
            }
            Err(why) => {
                measured.skipped.push(format!("{why:#}"));
                // A late answer of these processes would be taken for the answer to the next order.
                *ends = Ends::start(network, self.pin)?;
                return Ok(false);
            }
        }
        if way.is_remote()
            && run < self.profiles
            && let Some(profile) = ends.profile(way, test, self.calls).context(about)?
        {
            measured.figures.enter(network, way, test).profiles.push(profile);
        }
        Ok(true)
    }

    /// Returns a bar on standard error, if that is a terminal.
    fn progress(&self) -> ProgressBar {
        let steps = self.networks.len() * self.runs as usize * self.cells().len();
        let bar = ProgressBar::new(steps as u64);
        let style =
            ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {elapsed} of {duration} {msg}");
        style.map_or(bar.clone(), |style| bar.with_style(style))
    }
}
