//! What the network reports of a link's datagrams: which reports count, and what follows.

use std::io::{self, ErrorKind};

use farcall::env::{self, MAX_REPORTS_IN_A_ROW, is_network_report};
use farcall::{Kind, Ran};

use super::{Link, Reception};
use crate::client::carrier::Wait;
use crate::client::incoming::OwnCall;
use crate::client::refusals::{Next, Refusals};
use crate::client::table::TransportError;

impl Link {
    /// Receives a datagram that has arrived, after a report of the network. Returns the report if nothing has
    /// arrived and the report is about a call that is under way.
    #[cold]
    pub(super) fn receive_after(
        &self,
        why: io::Error,
        buffer: &mut [u8],
        own: Option<&OwnCall>,
    ) -> io::Result<usize> {
        let mut counts = self.is_ours(&why, own).then_some(why);
        // More may be forged at any time, so the thread looks at its timers then.
        for _ in 0..MAX_REPORTS_IN_A_ROW {
            match self.carrier.receive(buffer, Wait::No) {
                Err(why) if is_network_report(&why) => {
                    counts = counts.or(self.is_ours(&why, own).then_some(why))
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(counts.unwrap_or(why)),
                Ok(len) => return Ok(len),
            }
        }
        env::rest(&*self.env);
        Err(counts.unwrap_or_else(|| ErrorKind::WouldBlock.into()))
    }

    /// Returns whether a report of the network may be about a call that is under way. Some systems quote
    /// nothing.
    fn is_ours(&self, why: &io::Error, own: Option<&OwnCall>) -> bool {
        let Some(quoted) = env::quoted(why) else { return true };
        let Some(xid) = quoted.first_chunk().map(|xid| u32::from_be_bytes(*xid)) else { return false };
        own.is_some_and(|own| own.xid == xid) || self.lock().expects(xid)
    }

    /// Handles a report of the system that the server's port is refused. Brings the next try forward, or ends
    /// all calls after several refusals.
    #[cold]
    pub(super) fn refused(&self, why: &io::Error, refusals: &mut Refusals) -> Reception {
        let next = match is_network_report(why) {
            true => refusals.refused(self.env.now()),
            false => Next::GiveUp,
        };
        match next {
            Next::Retry(at) => Reception::Refused(at),
            Next::FirstRetry(at) => {
                self.lock().bring_forward(at);
                self.wake_service();
                Reception::Refused(at)
            }
            Next::GiveUp => {
                let error = TransportError::new(Kind::Unreachable, Ran::Maybe, why.to_string());
                self.fall_silent();
                let watchers = self.lock().end_all(&error);
                watchers.into_iter().for_each(|watcher| watcher.wake(false));
                Reception::GivenUp(error)
            }
        }
    }
}
