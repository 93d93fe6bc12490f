//! Bounds how many frames about earlier calls (PROBE, CANCEL, a repeated CALL) of one host are acted on in a
//! time. A datagram may hold thousands, and each takes as long as a small call (docs/protocol.md, "Bounds").

use std::net::SocketAddr;
use std::time::Duration;

use super::counts::Counts;
use super::hosts::HostName;
use crate::Time;

/// The most such frames of one host that are acted on in each period, besides the first of each datagram.
const MOST: u32 = 2048;
const TIME: Duration = Duration::from_millis(125);

#[derive(Debug)]
pub(super) struct Inquiries {
    /// How many frames of each host were acted on since `began`.
    counts: Counts,
    began: Time,
    /// For the datagram that is being read: how many such frames it had so far, how many more are acted on,
    /// and how many count against its host.
    seen: u32,
    left: u32,
    used: u32,
}

impl Inquiries {
    /// Makes empty counts, kept by a secret key.
    pub fn new(key: [u8; 16]) -> Inquiries {
        Inquiries { counts: Counts::new(key), began: Time::default(), seen: 0, left: 0, used: 0 }
    }

    /// Counts one more such frame in the datagram from `from`, and returns whether it is acted on.
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

    /// Whether a frame of this datagram was not acted on.
    #[inline]
    pub fn are_spent(&self) -> bool {
        self.seen > 1 + self.used
    }

    /// Ends the datagram, and counts its frames for its host.
    #[inline]
    pub fn end(&mut self, from: &SocketAddr) {
        if self.used > 0 {
            self.counts.add_many(HostName::at(from), self.used);
        }
        (self.seen, self.left, self.used) = (0, 0, 0);
    }
}
