//! What clients did in a time: how many calls each made, and how long the calls took.
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The steps of durations in each factor of two.
const STEPS: f64 = 32.0;

/// The calls of some clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// The calls of each client.
    calls: Vec<u64>,
    time: Duration,
    /// How many calls took how long, in steps.
    durations: Vec<u64>,
}

impl Tally {
    /// Returns the tally of one client, which makes calls for this long.
    pub fn of_client(time: Duration) -> Tally {
        Tally { calls: vec![0], time, durations: Vec::new() }
    }

    /// Notes a call of a client.
    pub fn note(&mut self, took: Duration) {
        self.calls[0] += 1;
        let step = ((took.as_nanos().max(1) as f64).log2() * STEPS) as usize;
        if step >= self.durations.len() {
            self.durations.resize(step + 1, 0);
        }
        self.durations[step] += 1;
    }

    /// Adds what other clients did at the same time.
    pub fn add(&mut self, other: &Tally) {
        self.calls.extend(&other.calls);
        self.time = self.time.max(other.time);
        if self.durations.len() < other.durations.len() {
            self.durations.resize(other.durations.len(), 0);
        }
        self.durations.iter_mut().zip(&other.durations).for_each(|(all, more)| *all += more);
    }

    /// Returns the calls of all clients per second.
    pub fn rate(&self) -> f64 {
        self.calls.iter().sum::<u64>() as f64 / self.time.as_secs_f64().max(f64::EPSILON)
    }

    /// Returns the fairness between the clients (Jain, Chiu & Hawe 1984): 1 if all make as many calls, and
    /// 1/n if one of n makes all.
    pub fn fairness(&self) -> f64 {
        let sum = self.calls.iter().sum::<u64>() as f64;
        let squares: f64 = self.calls.iter().map(|&calls| (calls as f64).powi(2)).sum();
        if squares == 0.0 { 0.0 } else { sum * sum / (self.calls.len() as f64 * squares) }
    }

    /// Returns the duration in microseconds that this fraction of the calls does not exceed by more than a
    /// step.
    pub fn quantile(&self, at: f64) -> f64 {
        let all: u64 = self.durations.iter().sum();
        let mut left = (all as f64 * at).ceil() as u64;
        for (step, &calls) in self.durations.iter().enumerate() {
            left = left.saturating_sub(calls);
            if left == 0 {
                return (((step + 1) as f64 / STEPS).exp2() / 10.0).round() / 100.0;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_together() {
        let mut all = Tally::default();
        for micros in [[10; 99], [1000; 99]] {
            let mut one = Tally::of_client(Duration::from_secs(2));
            micros.iter().for_each(|&micros| one.note(Duration::from_micros(micros)));
            all.add(&one);
        }
        assert_eq!((all.rate(), all.fairness()), (99.0, 1.0));
        assert!((10.0..10.3).contains(&all.quantile(0.5)), "{}", all.quantile(0.5));
        assert!((1000.0..1030.0).contains(&all.quantile(0.99)), "{}", all.quantile(0.99));
        all.add(&Tally::of_client(Duration::ZERO));
        assert_eq!(all.fairness(), 2.0 / 3.0);
    }
}
