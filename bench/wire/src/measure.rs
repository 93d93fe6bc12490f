//! One transfer by each protocol over the same wire: blocks of TCP and of another protocol, interleaved.
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Latencies, Row};

use super::kinds::{Kind, Peer};
use super::link::Link;
use super::path::Shape;
use super::side::{Order, Said};

/// How long each block, and each cell, may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most groups of four blocks.
    pub groups: usize,
    /// The time after which a block is abandoned.
    pub block: Duration,
    /// The time after which no further group begins.
    pub cell: Duration,
}

/// What is measured: a transfer over a wire.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    pub shape: Shape,
    pub kind: Kind,
    pub limits: Limits,
    pub files: &'a Path,
}

/// The first and the further transfers of a new connection or conversation.
const PARTS: [&str; 2] = ["first", "warm"];

/// Measures a cell. The first peer is the anchor. Returns two rows for each, of first and of warm transfers.
pub fn cell(cell: &Cell<'_>, peers: &[Peer], log: impl Fn(String)) -> Result<Vec<Row>> {
    let Some((&anchor, others)) = peers.split_first() else { return Ok(Vec::new()) };
    let mut run = Run { cell, link: None, links: 0, log };
    let mut results: Vec<Results> = peers.iter().map(|_| Results::default()).collect();
    let began = Instant::now();
    for _ in 0..cell.limits.groups {
        for (n, &other) in others.iter().enumerate() {
            let mut took = Vec::new();
            for (which, peer) in [(0, anchor), (n + 1, other), (n + 1, other), (0, anchor)] {
                took.push(run.block(peer, &mut results[which])?);
            }
            for part in 0..PARTS.len() {
                let ratios = [(1, 0), (2, 3)].map(|(b, a)| Some(took[b][part]? / took[a][part]?));
                results[n + 1].ratios[part].extend(ratios.into_iter().flatten());
            }
        }
        if began.elapsed() > cell.limits.cell {
            break;
        }
    }
    let rows = peers.iter().zip(results).flat_map(|(&peer, result)| result.rows(cell, peer));
    Ok(rows.collect())
}

struct Run<'a, L> {
    cell: &'a Cell<'a>,
    /// The wire, which is laid again after a block that was abandoned.
    link: Option<Link>,
    links: u64,
    log: L,
}

impl<L: Fn(String)> Run<'_, L> {
    /// Runs a block. Returns the time of the first transfer and the median of the others, in nanoseconds. A
    /// transfer that has not ended within the block's time counts as if it had ended then.
    fn block(&mut self, peer: Peer, results: &mut Results) -> Result<[Option<f64>; 2]> {
        let Cell { shape, kind, limits, files } = *self.cell;
        let link = match &mut self.link {
            Some(link) => link,
            None => {
                self.links += 1;
                self.link.insert(Link::start(shape, self.links, kind.bytes(), files)?)
            }
        };
        let (times, before) = (times(kind), link.counts());
        let places = link.places.clone();
        let order = Order::Run { peer, kind, times, within: limits.block, places };
        let took = match link.run(&order, limits.block)? {
            Some(Said::Took(took)) => took,
            None => Vec::new(),
            other => bail!("{}: expected times, not {other:?}", peer.name()),
        };
        if took.len() == times {
            let sender = usize::from(kind.is_sent());
            results.sent += link.counts()[sender].since(before[sender]).bytes;
            results.payload += kind.bytes() * times as u64;
        } else {
            results.unfinished += 1;
            self.link = None;
            (self.log)(format!("{kind} by {}: {} of {times} ended in time", peer.name(), took.len()));
        }
        Ok(results.enter(took, times, limits.block))
    }
}

/// Returns how many transfers a block has.
fn times(kind: Kind) -> usize {
    match kind {
        Kind::Null => 31,
        Kind::Get(_) | Kind::Put(_) => 1,
        _ if kind.bytes() > 16 << 20 => 2,
        _ => 4,
    }
}

/// The results of the blocks of one peer.
#[derive(Default)]
struct Results {
    /// The times of first and of warm transfers, in nanoseconds: one for each block.
    times: [Vec<f64>; 2],
    /// Their ratios to the anchor's in neighbouring blocks.
    ratios: [Vec<f64>; 2],
    /// All warm transfers.
    latencies: Latencies,
    unfinished: usize,
    sent: u64,
    payload: u64,
}

impl Results {
    fn enter(&mut self, took: Vec<u64>, times: usize, limit: Duration) -> [Option<f64>; 2] {
        let late = limit.as_nanos() as f64;
        let first = took.first().map_or(late, |&first| first as f64);
        let warm: Vec<u64> = took.into_iter().skip(1).collect();
        let all: Vec<u32> = warm.iter().map(|&time| time.try_into().unwrap_or(u32::MAX)).collect();
        self.latencies.add(&all);
        let median =
            estimate(warm.iter().map(|&time| time as f64).collect()).map_or(late, |time| time.median);
        let parts = [Some(first), (times > 1).then_some(median)];
        self.times.iter_mut().zip(parts).for_each(|(all, one)| all.extend(one));
        parts
    }

    fn rows(self, cell: &Cell<'_>, peer: Peer) -> Vec<Row> {
        let mut rows = Vec::new();
        for (part, (times, ratios)) in PARTS.into_iter().zip(self.times.into_iter().zip(self.ratios)) {
            let Some(time) = estimate(times) else { continue };
            let mut row = Row { part: Some(part.into()), ..row(cell.shape, peer, &cell.kind.to_string()) };
            row.transfer_ms = Some((time.median / 1e3).round() / 1e3);
            row.unfinished = (self.unfinished > 0).then_some(self.unfinished);
            row.sent_ratio = (self.payload > 0).then(|| self.sent as f64 / self.payload as f64);
            if cell.kind == Kind::Null && part == PARTS[1] {
                self.latencies.enter(&mut row);
            }
            estimate(ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
            rows.push(row);
        }
        rows
    }
}

/// Returns a row without figures.
pub fn row(shape: Shape, peer: Peer, operation: &str) -> Row {
    Row {
        bench: "wire".into(),
        peer: peer.name().into(),
        transport: Some(peer.transport().into()),
        operation: Some(operation.into()),
        round_trip_ms: Some(shape.round_trip.as_secs_f64() * 1e3),
        loss_percent: Some((shape.loss * 1e6).round() / 1e4),
        bottleneck_mbit: shape.rate.map(|rate| rate / 1e6),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_counts_as_if_it_had_ended_at_the_limit() {
        let limit = Duration::from_nanos(100);
        let mut results = Results::default();
        assert_eq!(results.enter(vec![10, 3, 1, 2], 4, limit), [Some(10.0), Some(2.0)]);
        assert_eq!(results.enter(vec![90], 4, limit), [Some(90.0), Some(100.0)]);
        assert_eq!(results.enter(vec![], 4, limit), [Some(100.0), Some(100.0)]);
        assert_eq!(results.enter(vec![7], 1, limit), [Some(7.0), None]);
        assert_eq!(results.times, [vec![10.0, 90.0, 100.0, 7.0], vec![2.0, 100.0, 100.0]]);
    }
}
