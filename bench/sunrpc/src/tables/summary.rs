//! Section 4: the percentages of the conclusions.

use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};

use crate::ends::Place;
use crate::figures::{Cell, Clock, Figures, Summary};
use crate::grid::ITERATIONS;
use crate::local::Body;
use crate::paper;
use crate::parts::Part;
use crate::ways::{Language, Size, Way};

/// The two implementations of program 2, with the programs that are compared with each.
const SIDES: [(&str, Way, Language); 2] = [
    ("now, libtirpc and C", Way::Tirpc, Language::C),
    ("now, farcall-onc and Rust", Way::Farcall, Language::Rust),
];

pub fn item(figures: &Figures) -> Item {
    let about =
        About::new("Section 4", "The conclusions' figures, in per cent unless the line says otherwise");
    let clocks = ["elapsed", "client's processor"];
    let mut table = Table::new(about, &["what"]).with("1989", Whose::Paper, &["as printed"]);
    for (name, ..) in SIDES {
        table = table.with(name, Whose::Now, &clocks);
    }
    for (name, old, figure) in LINES {
        let mut line = vec![Entry::name(*name), Entry::printed(*old)];
        for (_, sun, language) in SIDES {
            for clock in [Clock::Elapsed, Clock::Processor] {
                line.push(super::or_missing(figure(&Now { figures, sun, language, clock })));
            }
        }
        table.line(line);
    }
    Item::Table(table)
}

/// What a figure is computed from.
struct Now<'a> {
    figures: &'a Figures,
    sun: Way,
    language: Language,
    clock: Clock,
}

type Figure = fn(&Now<'_>) -> Result<f64, String>;

/// The lines: what the paper says, and how it is computed now.
const LINES: &[(&str, f64, Figure)] = &[
    ("program 3, blocking, is faster than program 2 by", paper::BETTER_BLOCKING, |now| now.better(false)),
    ("program 3 with select is faster than program 2 by", paper::BETTER_SELECTING, |now| now.better(true)),
    ("XDR at the client, of a call's time", paper::XDR, |now| now.part(Part::Xdr)),
    ("dispatch at the client, of a call's time", paper::DISPATCH, |now| now.part(Part::Dispatch)),
    ("send, receive and select at the client, of a call's time", paper::COMMUNICATION, |now| {
        now.part(Part::Communication)
    }),
    ("remote Sun RPC takes longer than local by", paper::REMOTE, |now| now.remote()),
    ("what select adds to program 3, local, in µs", paper::SELECT_MICROS, |now| now.selecting()),
    ("a local remote call takes as long as so many procedure calls", paper::LOCAL_CALLS, |now| {
        now.local_calls()
    }),
    ("a time of table 1 deviates by up to", paper::UNCERTAIN, |now| now.uncertain()),
];

impl Now<'_> {
    fn custom(&self, polls: bool) -> Way {
        Way::Custom { language: self.language, tcp: false, polls }
    }

    /// Returns the median of what is computed from two cells' runs that were neighbours in time.
    fn paired(&self, cells: [Cell; 2], compute: fn(f64, f64) -> f64) -> Result<f64, String> {
        let [one, other] = cells.map(|cell| self.figures.calls.get(&cell).map(|runs| self.clock.of(runs)));
        let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
        let pairs: Vec<f64> = one.into_iter().zip(other).map(|(one, other)| compute(one, other)).collect();
        match Summary::of(&pairs) {
            Some(summary) => Ok(summary.median),
            None => Err(cells
                .into_iter()
                .find_map(|cell| self.figures.call(cell, self.clock).err())
                .unwrap_or_default()),
        }
    }

    /// Returns by how many per cent program 3 is faster: the mean over places and sizes, as in the paper.
    fn better(&self, polls: bool) -> Result<f64, String> {
        // Without another namespace, the local cells are left.
        let places = Place::ALL.into_iter().filter(|place| !self.figures.absent.contains_key(place));
        let cells = places.flat_map(|place| {
            let cell = move |way| move |size| (place, way, size);
            let (sun, custom) = (cell(self.sun), cell(self.custom(polls)));
            Size::ALL.map(move |size| [custom(size), sun(size)])
        });
        mean(cells.map(|cells| self.paired(cells, |custom, sun| (1.0 - custom / sun) * 100.0)))
    }

    /// Returns the share of a part of program 2 at the client, in per cent of the time of a call.
    fn part(&self, part: Part) -> Result<f64, String> {
        let profile = self.figures.profile(self.sun)?;
        let share = profile.client.of(part) * 100.0;
        match self.clock {
            Clock::Processor => Ok(share),
            Clock::Elapsed => {
                let elapsed = profile.run.seconds * 1e6 / f64::from(profile.run.calls);
                Ok(share * profile.client.micros / elapsed)
            }
        }
    }

    /// Returns by how many per cent remote calls take longer: the mean over sizes.
    fn remote(&self) -> Result<f64, String> {
        let cells = |size| [(Place::Remote, self.sun, size), (Place::Local, self.sun, size)];
        let longer = |remote, local| (remote / local - 1.0) * 100.0;
        mean(Size::ALL.into_iter().map(|size| self.paired(cells(size), longer)))
    }

    /// Returns how many microseconds select adds: the mean over sizes.
    fn selecting(&self) -> Result<f64, String> {
        let cells = |size| [true, false].map(|polls| (Place::Local, self.custom(polls), size));
        mean(Size::ALL.into_iter().map(|size| self.paired(cells(size), |select, block| select - block)))
    }

    fn local_calls(&self) -> Result<f64, String> {
        let local = self.figures.local(self.language, Body::Call(Size::None), ITERATIONS[2])?.median;
        Ok(self.figures.call((Place::Local, self.sun, Size::None), self.clock)?.median / local)
    }

    fn uncertain(&self) -> Result<f64, String> {
        let runs = self.figures.repeated.get(&self.sun);
        let summary = runs.and_then(|runs| Summary::of(&self.clock.of(runs)));
        let summary = summary.ok_or_else(|| self.sun.missing().unwrap_or(MISSING).to_owned())?;
        Ok((summary.max - summary.mean).max(summary.mean - summary.min) / summary.mean * 100.0)
    }
}

/// Returns the mean of figures, or why one of them is missing.
fn mean(figures: impl Iterator<Item = Result<f64, String>>) -> Result<f64, String> {
    let figures = figures.collect::<Result<Vec<f64>, String>>()?;
    Ok(figures.iter().sum::<f64>() / figures.len().max(1) as f64)
}

const MISSING: &str = "it was not run";
