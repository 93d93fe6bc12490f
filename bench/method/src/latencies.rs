//! The latencies of calls, over all blocks.
use hdrhistogram::Histogram;

use crate::row::Row;

/// Durations from 1 ns to 10 s, to 3 digits.
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Adds the latencies of a block.
    pub fn add(&mut self, nanoseconds: &[u32]) {
        for &nanoseconds in nanoseconds {
            self.0.saturating_record(nanoseconds.into());
        }
    }

    /// Returns the duration in microseconds that this fraction of the calls does not exceed.
    pub fn quantile(&self, at: f64) -> f64 {
        self.0.value_at_quantile(at) as f64 / 1e3
    }

    /// Enters median and tail into the row.
    pub fn enter(&self, row: &mut Row) {
        let at = |quantile| Some(self.quantile(quantile));
        (row.p50_us, row.p99_us, row.p999_us) = (at(0.5), at(0.99), at(0.999));
    }

    /// Returns, for each duration in microseconds, the fraction of the calls that took longer.
    pub fn tail(&self) -> Vec<(f64, f64)> {
        let all = self.0.len().max(1) as f64;
        let mut seen = 0;
        let steps = self.0.iter_recorded().map(|step| {
            seen += step.count_at_value();
            (step.value_iterated_to() as f64 / 1e3, 1.0 - seen as f64 / all)
        });
        steps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_falls_to_nothing() {
        let mut latencies = Latencies::default();
        latencies.add(&[1_000, 2_000, 2_000, 4_000]);
        let parts: Vec<f64> = latencies.tail().iter().map(|step| step.1).collect();
        assert_eq!(parts, [0.75, 0.25, 0.0]);
    }
}
