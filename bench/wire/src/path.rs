//! One direction of the wire: decides for each packet whether and when it arrives.
use std::time::{Duration, Instant};

use super::random::Random;

/// What a wire is like, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The time of a round trip that waits in no queue.
    pub round_trip: Duration,
    /// The fraction of packets that are lost at random, in each direction.
    pub loss: f64,
    /// The rate of the bottleneck in bits per second. Without one, the wire takes what the machine can carry.
    pub rate: Option<f64>,
    /// The bytes that the bottleneck queues. It drops what arrives while its queue is full.
    pub queue: usize,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It arrives at this time.
    Arrives(Instant),
    /// It is lost at random.
    Lost,
    /// It finds the bottleneck's queue full.
    Dropped,
}

/// What has happened in one direction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// The packets that were sent.
    pub packets: u64,
    /// Their bytes, with their headers.
    pub bytes: u64,
    /// The packets that were lost at random.
    pub lost: u64,
    /// The packets that the bottleneck dropped.
    pub dropped: u64,
}

/// One direction of a wire.
pub struct Path {
    shape: Shape,
    random: Random,
    /// When the bottleneck has sent all that it has queued.
    idle_at: Option<Instant>,
    counts: Counts,
}

impl Path {
    /// Returns a path. The same seed loses the same packets.
    pub fn new(shape: Shape, seed: u64) -> Path {
        Path { shape, random: Random::new(seed), idle_at: None, counts: Counts::default() }
    }

    /// Decides what becomes of a packet of this many bytes that is sent now.
    pub fn send(&mut self, now: Instant, bytes: usize) -> Fate {
        self.counts.packets += 1;
        self.counts.bytes += bytes as u64;
        // The fraction is above 0, so nothing is lost without loss.
        if self.random.fraction() <= self.shape.loss {
            self.counts.lost += 1;
            return Fate::Lost;
        }
        let sent = match self.shape.rate {
            None => now,
            Some(rate) => match self.queue(now, bytes, rate) {
                Some(sent) => sent,
                None => {
                    self.counts.dropped += 1;
                    return Fate::Dropped;
                }
            },
        };
        Fate::Arrives(sent + self.shape.round_trip / 2)
    }

    /// Returns when the bottleneck has sent the packet, or `None` if its queue is full.
    fn queue(&mut self, now: Instant, bytes: usize, rate: f64) -> Option<Instant> {
        let start = self.idle_at.map_or(now, |idle| idle.max(now));
        let waiting = (start - now).as_secs_f64() * rate / 8.0;
        if waiting + bytes as f64 > self.shape.queue as f64 {
            return None;
        }
        let sent = start + Duration::from_secs_f64(bytes as f64 * 8.0 / rate);
        self.idle_at = Some(sent);
        Some(sent)
    }

    /// Returns what has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl Counts {
    /// Returns what has happened since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            lost: self.lost - before.lost,
            dropped: self.dropped - before.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: Shape =
        Shape { round_trip: Duration::from_millis(80), loss: 0.0, rate: None, queue: 100_000 };

    #[test]
    fn a_packet_takes_half_a_round_trip() {
        let (mut path, now) = (Path::new(CLEAN, 1), Instant::now());
        assert_eq!(path.send(now, 1500), Fate::Arrives(now + Duration::from_millis(40)));
        assert_eq!(path.counts(), Counts { packets: 1, bytes: 1500, lost: 0, dropped: 0 });
    }

    #[test]
    fn packets_wait_for_the_bottleneck_and_are_dropped_when_its_queue_is_full() {
        // 1,000 bytes take 1 ms.
        let shape = Shape { rate: Some(8e6), queue: 3000, ..CLEAN };
        let (mut path, now) = (Path::new(shape, 1), Instant::now());
        let fates: Vec<Fate> = (0..4).map(|_| path.send(now, 1000)).collect();
        let arrives = |ms| Fate::Arrives(now + Duration::from_millis(ms));
        assert_eq!(fates, [arrives(41), arrives(42), arrives(43), Fate::Dropped]);
        assert_eq!(path.send(now + Duration::from_millis(1), 1000), arrives(44), "one packet has left");
        assert_eq!(path.send(now + Duration::from_millis(100), 1000), arrives(141), "the queue is empty");
        assert_eq!(path.counts().dropped, 1);
    }

    #[test]
    fn a_seed_loses_the_same_packets_again_and_as_many_as_asked_for() {
        let shape = Shape { loss: 0.05, ..CLEAN };
        let now = Instant::now();
        let lost = |seed| {
            let mut path = Path::new(shape, seed);
            (0..100_000).map(|_| path.send(now, 100) == Fate::Lost).collect::<Vec<_>>()
        };
        let (first, again) = (lost(7), lost(7));
        assert_eq!(first, again);
        assert_ne!(first, lost(8));
        let many = first.iter().filter(|lost| **lost).count();
        assert!((4_700..5_300).contains(&many), "{many}");
    }
}
