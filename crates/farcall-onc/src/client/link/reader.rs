//! The buffers into which a link receives: the records of a stream, or datagrams.

use farcall::env::Time;

use crate::client::refusals::Refusals;
use crate::wire::record::{Limits, RecordError, Records};

/// The size of the receive buffer for datagrams, in bytes. No datagram is longer.
const MAX_DATAGRAM_BYTES: usize = 64 << 10;

pub(super) enum Reader {
    Stream(Box<Records>),
    Datagrams(Box<[u8]>, Refusals),
}

impl Reader {
    pub(super) fn new(datagrams: bool, limits: Limits, refusals: Refusals) -> Reader {
        match datagrams {
            true => Reader::Datagrams(vec![0; MAX_DATAGRAM_BYTES].into(), refusals),
            false => Reader::Stream(Box::new(Records::new(limits))),
        }
    }

    /// Returns when the record that is being received will have taken too long.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Reader::Stream(records) => records.patience(),
            Reader::Datagrams(..) => None,
        }
    }

    /// Returns when datagrams are to be sent again after a refusal.
    pub(super) fn next_try(&self, now: Time) -> Option<Time> {
        match self {
            Reader::Stream(_) => None,
            Reader::Datagrams(_, refusals) => refusals.next_try(now),
        }
    }

    /// Returns an error if the record that is being received has taken too long.
    pub(super) fn overdue(&mut self, now: impl FnOnce() -> Time) -> Option<RecordError> {
        match self {
            Reader::Stream(records) if records.is_partial() => records.check(now()).err(),
            Reader::Stream(_) | Reader::Datagrams(..) => None,
        }
    }
}
