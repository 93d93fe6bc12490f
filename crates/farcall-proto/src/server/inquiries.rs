//! Words about calls that have come before (PROBE, CANCEL, the CALL again): how many of one host are acted
//! upon in a time. A datagram may have thousands, each of which takes as long as a small call
//! (docs/protocol.md, "Bounds").

use std::net::SocketAddr;
use std::time::Duration;

use super::counts::Counts;
use super::hosts::HostName;
use crate::Time;

/// So many of a host are acted upon in that time, besides the first of each datagram.
const MOST: u32 = 2048;
const TIME: Duration = Duration::from_millis(125);

#[derive(Debug)]
pub(super) struct Inquiries {
    /// How many each host had since then.
    counts: Counts,
    began: Time,
    /// Of the datagram that is being read: how many there were, and how many more there may be.
    seen: u32,
    left: u32,
    used: u32,
}

impl Inquiries {
    /// None yet; counts are kept by a secret key.
    pub fn new(key: [u8; 16]) -> Inquiries {
        Inquiries { counts: Counts::new(key), began: Time::default(), seen: 0, left: 0, used: 0 }
    }

    /// Whether another one, in a datagram that has come from there, is acted upon.
    #[inline]
    pub fn take(&mut self, now: Time, from: &SocketAddr) -> bool {
        self.seen = self.seen.saturating_add(1);
        if self.seen == 1 {
            return true;
        }
        if self.seen == 2 {
            self.look_up(now, from);
        }
        let more = u32::from(self.left > 0);
        self.left -= more;
        self.used += more;
        more > 0
    }

    #[cold]
    fn look_up(&mut self, now: Time, from: &SocketAddr) {
        if now.since(self.began) >= TIME {
            self.began = now;
            self.counts.clear();
        }
        self.left = MOST.saturating_sub(self.counts.of(HostName::at(from)));
    }

    /// Whether one was not acted upon.
    #[inline]
    pub fn are_spent(&self) -> bool {
        self.seen > 1 + self.used
    }

    /// The datagram is read.
    #[inline]
    pub fn end(&mut self, from: &SocketAddr) {
        if self.used > 0 {
            self.counts.add_many(HostName::at(from), self.used);
        }
        (self.seen, self.left, self.used) = (0, 0, 0);
    }
}
