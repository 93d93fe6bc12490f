//! What was measured. All times are microseconds for one call, or for one iteration.

use std::collections::BTreeMap;

use crate::ends::Place;
use crate::local::Body;
use crate::profile::Profile;
use crate::ways::{Language, Size, Way};

/// A cell of table 3.
pub type Cell = (Place, Way, Size);

/// What a call's time is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The elapsed time.
    Elapsed,
    /// The processor time of the client's process.
    Processor,
}

/// The times of a run: elapsed, and of the client's processor.
pub type Times = (f64, f64);

/// What was measured.
#[derive(Default)]
pub struct Figures {
    /// Table 1: the runs.
    pub repeated: BTreeMap<Way, Vec<Times>>,
    /// Table 2: the loops, by the number of iterations too.
    pub local: BTreeMap<(Language, Body, u32), Vec<f64>>,
    /// Table 3: the runs.
    pub calls: BTreeMap<Cell, Vec<Times>>,
    /// Table 3: why a cell has failed.
    pub failed: BTreeMap<Cell, String>,
    /// Tables 4 and 5, or why they are missing.
    pub profiles: BTreeMap<Way, Result<Profile, String>>,
    /// Why nothing was measured at a place.
    pub absent: BTreeMap<Place, String>,
}

/// A sample's middle and spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
    /// The width of the middle half, divided by the median.
    pub middle: f64,
}

impl Figures {
    /// Says why nothing was measured at a place.
    pub fn without(&mut self, place: Place, why: String) {
        self.absent.insert(place, why);
    }

    /// Returns a cell of table 3, or why it is missing.
    pub fn call(&self, cell: Cell, clock: Clock) -> Result<Summary, String> {
        let (place, way, _) = cell;
        if let Some(why) = self.failed.get(&cell) {
            return Err(why.clone());
        }
        if let Some(summary) = self.calls.get(&cell).and_then(|runs| Summary::of(&clock.of(runs))) {
            return Ok(summary);
        }
        let why = way.missing().map(str::to_owned).or_else(|| self.absent.get(&place).cloned());
        Err(why.unwrap_or_else(|| "it was not run".into()))
    }

    /// Returns a cell of table 2, or why it is missing.
    pub fn local(&self, language: Language, body: Body, iterations: u32) -> Result<Summary, String> {
        let runs = self.local.get(&(language, body, iterations));
        let summary = runs.and_then(|runs| Summary::of(runs));
        summary.ok_or_else(|| "there was no C compiler when this was built".into())
    }

    /// Returns a profile, or why it is missing.
    pub fn profile(&self, way: Way) -> Result<&Profile, String> {
        match self.profiles.get(&way) {
            Some(profile) => profile.as_ref().map_err(Clone::clone),
            None => Err("it was not profiled".into()),
        }
    }
}

impl Clock {
    /// Returns the times by this clock.
    pub fn of(self, runs: &[Times]) -> Vec<f64> {
        let time = |(elapsed, processor): &Times| match self {
            Clock::Elapsed => *elapsed,
            Clock::Processor => *processor,
        };
        runs.iter().map(time).collect()
    }
}

impl Summary {
    /// Summarises values, unless there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let (n, last) = (values.len() as f64, values.len() - 1);
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let median = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
        let middle = (values[last * 3 / 4] - values[last / 4]) / median;
        Some(Summary { median, mean, deviation: (squares / (n - 1.0).max(1.0)).sqrt(), min, max, middle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0, 5.0]).unwrap();
        assert_eq!((summary.median, summary.mean, summary.min, summary.max), (3.0, 3.0, 1.0, 5.0));
        assert!((summary.deviation - 2.5_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Summary::of(&[]), None);
    }
}
