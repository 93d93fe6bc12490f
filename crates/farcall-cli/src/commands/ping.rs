//! `farcall ping`: is an exporter well, and how far away is it?

use std::time::{Duration, Instant};

use clap::Args;
use farcall::dynamic::Pinger;
use serde_json::json;

use crate::failure::Outcome;
use crate::output::{Output, duration, rounded};
use crate::remote::{Deadline, runtime};

/// Ask an exporter whether it is well, and how long a call takes
///
/// Calls the procedure that every exporter has, without arguments, one call after the other.
#[derive(Debug, Args)]
pub struct Ping {
    /// Who is asked
    name: String,

    /// How often
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    #[command(flatten)]
    deadline: Deadline,
}

impl Ping {
    pub fn run(&self, output: &Output) -> Outcome {
        let mut pinger = Pinger::import(&runtime()?, &self.name)?;
        if let Some(deadline) = self.deadline.within {
            pinger = pinger.within(deadline);
        }
        let mut health = pinger.ping()?;
        let mut times = Vec::with_capacity(self.count as usize);
        for _ in 0..self.count {
            let start = Instant::now();
            health = pinger.ping()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let [least, median, most] = [0, times.len() / 2, times.len() - 1].map(|at| times[at]);
        let us = |time: Duration| rounded(time.as_secs_f64() * 1e6, 1);
        output.line(
            || {
                json!({
                    "name": self.name, "count": self.count, "min_us": us(least), "p50_us": us(median),
                    "max_us": us(most), "up_s": rounded(health.up.as_secs_f64(), 3), "running": health.running,
                })
            },
            || {
                let [least, median, most, up] = [least, median, most, health.up].map(duration);
                let others = health.running.saturating_sub(1);
                format!(
                    "{}: {} calls, fastest {least}, median {median}, slowest {most}; up {up}, {others} other calls",
                    self.name, self.count
                )
            },
        )
    }
}
