//! Bounds how many inquiries from one host, and from one network, the server acts on in a period. Inquiries are frames about earlier
//! calls: PROBE, CANCEL, and a repeated CALL. A datagram can hold thousands of them, and each takes as long
//! as a small call (docs/protocol.md, "Bounds").

use std::net::SocketAddr;
use std::time::Duration;

use super::counts::Counts;
use super::hosts::HostName;
use crate::{Mutant, Time};

/// The maximum number of inquiries from one host that are acted on in each period, besides the first of each
/// datagram.
const MAX_OF_A_HOST: u32 = 2048;
/// The maximum number of inquiries from all hosts of one network that are acted on in each period, besides
/// the first of each datagram.
const MAX_OF_A_NETWORK: u32 = 8 * MAX_OF_A_HOST;
/// The period.
const PERIOD: Duration = Duration::from_millis(125);

#[derive(Debug)]
pub(super) struct Inquiries {
    /// How many inquiries from each host and network were acted on since `began`.
    counts: Counts,
    began: Time,
    /// How many inquiries the datagram that is being read had so far.
    seen: u32,
    /// How many inquiries of that datagram are acted on.
    allowed: u32,
}

impl Inquiries {
    /// Makes empty counts. The secret `key` decides how hosts and networks are hashed.
    pub fn new(key: [u8; 16], mutant: Mutant) -> Inquiries {
        Inquiries { counts: Counts::new(key, mutant), began: Time::default(), seen: 0, allowed: 1 }
    }

    /// Counts one more inquiry in the datagram from `from`, and returns whether to act on it.
    #[inline]
    pub fn take(&mut self, now: Time, from: &SocketAddr) -> bool {
        self.seen = self.seen.saturating_add(1);
        if self.seen == 2 {
            self.look_up(now, from);
        }
        !self.are_spent()
    }

    #[cold]
    fn look_up(&mut self, now: Time, from: &SocketAddr) {
        if now.since(self.began) >= PERIOD {
            self.began = now;
            self.counts.clear();
        }
        let count = self.counts.of(HostName::at(from));
        let of_network = MAX_OF_A_NETWORK.saturating_sub(count.network);
        self.allowed = 1 + MAX_OF_A_HOST.saturating_sub(count.host).min(of_network);
    }

    /// Returns whether an inquiry of this datagram was not acted on.
    #[inline]
    pub fn are_spent(&self) -> bool {
        self.seen > self.allowed
    }

    /// Ends the datagram, and counts its inquiries for its host and network.
    #[inline]
    pub fn end(&mut self, from: &SocketAddr) {
        // The first inquiry of each datagram does not count.
        let counted = self.seen.min(self.allowed).saturating_sub(1);
        if counted > 0 {
            self.counts.add(HostName::at(from), counted);
        }
        (self.seen, self.allowed) = (0, 1);
    }
}
