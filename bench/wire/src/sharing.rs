//! A bottleneck: what a flow gets of it alone and beside another, and many short calls through it.
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use farcall_bench_method::Row;
use farcall_bench_method::stats::estimate;

use super::kinds::Peer;
use super::link::Link;
use super::measure::row;
use super::path::{Counts, Shape};
use super::side::{Order, Said};

/// The bytes of IP's and UDP's headers, which each short call needs at the least.
const HEADERS: usize = 28;

/// How long a flow runs, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Flows<'a> {
    pub shape: Shape,
    pub time: Duration,
    pub repetitions: usize,
    pub files: &'a Path,
}

/// What flows through a wire with a bottleneck counted.
struct Counted {
    /// The counter of each flow, for each second.
    rates: Vec<f64>,
    counts: [Counts; 2],
}

impl Flows<'_> {
    /// Measures each flow alone, and each but the first beside the first.
    pub fn shares(&self, peers: &[Peer]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let Some(&first) = peers.first() else { return Ok(rows) };
        for &peer in peers {
            rows.extend(self.share(peer, None)?);
        }
        for &peer in peers {
            rows.extend(self.share(peer, Some(first))?);
        }
        if let [_, ours, bbr] = *peers {
            rows.extend(self.share(ours, Some(bbr))?);
        }
        Ok(rows)
    }

    /// Measures a flow alone or beside another one. The ratio is its share of what both move.
    fn share(&self, peer: Peer, beside: Option<Peer>) -> Result<Option<Row>> {
        let flows: Vec<Peer> = [peer].into_iter().chain(beside).collect();
        let name = beside.map_or("alone".into(), |beside| format!("beside {}", beside.name()));
        let mut row = row(self.shape, peer, &format!("flow {name}"));
        let (mut used, mut shares, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        for repetition in 0..self.repetitions {
            let order = |places| Order::Share { flows: flows.clone(), time: self.time, places };
            let Some(Counted { rates, counts }) = self.run(repetition, order)? else {
                row.unfinished = Some(row.unfinished.unwrap_or(0) + 1);
                continue;
            };
            used.push(rates[0] * 8.0 / self.shape.rate.unwrap_or(f64::INFINITY));
            shares.push(rates[0] / rates.iter().sum::<f64>());
            dropped.push(percent(counts[0].dropped, counts[0].packets));
        }
        row.link_used = median(used);
        row.share = median(shares).filter(|_| beside.is_some());
        row.dropped_percent = median(dropped);
        Ok(Some(row))
    }

    /// Measures this many outstanding echoes of this many bytes. A call is useful if it ends; the bottleneck
    /// would carry as many as datagrams with nothing but the payload fit into it.
    pub fn crowd(&self, peer: Peer, (outstanding, bytes): (usize, usize)) -> Result<Row> {
        let mut row = row(self.shape, peer, "crowd");
        (row.bytes, row.outstanding) = (Some(bytes), Some(outstanding));
        let (mut rates, mut used, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        for repetition in 0..self.repetitions {
            let order = |places| Order::Crowd { peer, outstanding, bytes, time: self.time, places };
            let Some(Counted { rates: ended, counts }) = self.run(repetition, order)? else {
                row.unfinished = Some(row.unfinished.unwrap_or(0) + 1);
                continue;
            };
            let bits = (bytes + HEADERS) as f64 * 8.0;
            rates.push(ended[0]);
            used.push(ended[0] * bits / self.shape.rate.unwrap_or(f64::INFINITY));
            let both = |of: fn(&Counts) -> u64| counts.iter().map(of).sum();
            dropped.push(percent(both(|counts| counts.dropped), both(|counts| counts.packets)));
        }
        row.per_second = median(rates);
        row.link_used = median(used);
        row.dropped_percent = median(dropped);
        Ok(row)
    }

    /// Runs it over a wire of its own. Returns `None` if it does not end.
    fn run(
        &self,
        repetition: usize,
        order: impl Fn(super::side::Places) -> Order,
    ) -> Result<Option<Counted>> {
        let mut link = Link::start(self.shape, 1 + repetition as u64, 0, self.files)?;
        let (order, before) = (order(link.places.clone()), link.counts());
        let said = link.run(&order, self.time)?;
        let after = link.counts();
        let counts = [0, 1].map(|n| after[n].since(before[n]));
        match said {
            Some(Said::Counted { each, time }) => {
                let rates = each.iter().map(|&counted| counted as f64 / time.as_secs_f64()).collect();
                Ok(Some(Counted { rates, counts }))
            }
            None => Ok(None),
            other => bail!("expected counts, not {other:?}"),
        }
    }
}

fn median(values: Vec<f64>) -> Option<f64> {
    estimate(values).map(|value| (value.median * 1e4).round() / 1e4)
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}
