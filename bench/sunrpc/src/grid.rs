//! Runs everything, in turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farcall_bench_method::Pin;
use indicatif::{ProgressBar, ProgressStyle};

use crate::ends::{Ends, Place};
use crate::figures::{Cell, Figures, Times};
use crate::local::Body;
use crate::profile;
use crate::side::Run;
use crate::ways::{Language, Size, Way};

/// How many calls a run has, as in the paper.
const CALLS: u32 = 1_000;

/// The iterations of table 2.
pub const ITERATIONS: [u32; 3] = [100_000, 1_000_000, 10_000_000];

/// The ways of tables 4a, 4b and 5, and farcall's beside them.
const PROFILED: [Way; 6] = [
    Way::Custom { language: Language::C, tcp: false, polls: false },
    Way::Custom { language: Language::Rust, tcp: false, polls: false },
    Way::Custom { language: Language::C, tcp: false, polls: true },
    Way::Custom { language: Language::Rust, tcp: false, polls: true },
    Way::Tirpc,
    Way::Farcall,
];

/// What to run.
#[derive(Clone, Copy)]
pub struct Grid {
    /// How many runs each cell of table 3 has.
    pub runs: u32,
    /// How many runs table 1 has.
    pub repeats: u32,
    /// How many times each loop of table 2 is executed.
    pub loops: u32,
    /// After this time, no further runs of a table are begun.
    pub limit: Duration,
    /// For how long each way is profiled.
    pub profile_seconds: u32,
    pub pin: Pin,
}

impl Grid {
    /// Runs everything.
    ///
    /// # Errors
    /// Two processes on this machine cannot call one another.
    pub fn run(&self) -> Result<Figures> {
        let mut figures = Figures::default();
        let mut places = BTreeMap::from([(Place::Local, Ends::start(Place::Local, self.pin)?)]);
        match Ends::start(Place::Remote, self.pin) {
            Ok(ends) => _ = places.insert(Place::Remote, ends),
            Err(why) => figures.without(Place::Remote, format!("{why:#}")),
        }
        let progress = progress(self.runs + self.repeats + self.loops + 50 * PROFILED.len() as u32);
        self.spread(&mut places, &mut figures, &progress)?;
        self.local(&mut places, &mut figures, &progress);
        self.calls(&mut places, &mut figures, &progress);
        self.profiles(&mut places, &mut figures, &progress);
        progress.finish_and_clear();
        Ok(figures)
    }

    /// Table 1: the same run again and again, of both implementations in turn.
    fn spread(
        &self,
        places: &mut BTreeMap<Place, Ends>,
        figures: &mut Figures,
        progress: &ProgressBar,
    ) -> Result<()> {
        progress.set_message("table 1");
        let ends = places.get_mut(&Place::Local).context("there is no local server")?;
        let start = Instant::now();
        for _ in 0..self.repeats {
            if start.elapsed() > self.limit {
                break;
            }
            for way in [Way::Tirpc, Way::Farcall] {
                if way.missing().is_none() {
                    let run = ends.run(way, Size::None, CALLS)?;
                    figures.repeated.entry(way).or_default().push(times(run));
                }
            }
            progress.inc(1);
        }
        Ok(())
    }

    /// Table 2: loops around local calls.
    fn local(&self, places: &mut BTreeMap<Place, Ends>, figures: &mut Figures, progress: &ProgressBar) {
        progress.set_message("table 2");
        let start = Instant::now();
        for _ in 0..self.loops {
            if start.elapsed() > self.limit {
                break;
            }
            for iterations in ITERATIONS {
                for (language, body) in loops() {
                    let Some(ends) = places.get_mut(&Place::Local) else { return };
                    if let Ok(run) = ends.local(language, body, iterations) {
                        let key = (language, body, iterations);
                        figures.local.entry(key).or_default().push(times(run).1);
                    }
                }
            }
            progress.inc(1);
        }
    }

    /// Table 3: all cells are neighbours in time. Every second time they are run in the opposite order, so
    /// that a machine that gets slower harms no cell more than the others.
    fn calls(&self, places: &mut BTreeMap<Place, Ends>, figures: &mut Figures, progress: &ProgressBar) {
        progress.set_message("table 3");
        let mut cells: Vec<Cell> = places.keys().flat_map(|&place| cells_of(place)).collect();
        let start = Instant::now();
        for _ in 0..self.runs {
            if start.elapsed() > self.limit {
                break;
            }
            cells.retain(|&(place, way, size)| {
                let Some(ends) = places.get_mut(&place) else { return false };
                match ends.run(way, size, CALLS) {
                    Ok(run) => {
                        let cell = figures.calls.entry((place, way, size)).or_default();
                        cell.push(times(run));
                        true
                    }
                    Err(why) => {
                        figures.failed.insert((place, way, size), format!("{why:#}"));
                        // A late answer of these processes would be taken for the answer to the next order.
                        match Ends::start(place, self.pin) {
                            Ok(fresh) => *ends = fresh,
                            Err(why) => {
                                places.remove(&place);
                                figures.without(place, format!("{why:#}"));
                            }
                        }
                        false
                    }
                }
            });
            cells.reverse();
            progress.inc(1);
        }
    }

    /// Tables 4 and 5: where the processor time goes.
    fn profiles(&self, places: &mut BTreeMap<Place, Ends>, figures: &mut Figures, progress: &ProgressBar) {
        let Some(ends) = places.get_mut(&Place::Local) else { return };
        for way in PROFILED {
            progress.set_message("tables 4 and 5");
            let profile = match way.missing() {
                Some(why) => Err(why.to_owned()),
                None => profile::profile(ends, way, self.profile_seconds).map_err(|why| format!("{why:#}")),
            };
            figures.profiles.insert(way, profile);
            progress.inc(50);
        }
    }
}

/// Returns the cells of table 3 at a place: those of one size one after another.
fn cells_of(place: Place) -> Vec<Cell> {
    let ways: Vec<Way> = Way::all().into_iter().filter(|way| way.missing().is_none()).collect();
    Size::ALL.iter().flat_map(|&size| ways.iter().map(move |&way| (place, way, size))).collect()
}

fn loops() -> impl Iterator<Item = (Language, Body)> {
    Body::ALL.into_iter().flat_map(|body| [(Language::C, body), (Language::Rust, body)])
}

/// Returns the microseconds of one call.
fn times(run: Run) -> Times {
    let micros = |seconds: f64| seconds * 1e6 / f64::from(run.calls);
    (micros(run.seconds), micros(run.processor))
}

/// Returns a bar on standard error, if that is a terminal.
fn progress(steps: u32) -> ProgressBar {
    let bar = ProgressBar::new(steps.into());
    let style = ProgressStyle::with_template("{wide_bar} {elapsed} of {duration} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
