//! What the server keeps of a conversation that is not idle, besides its entry in the table.

use std::time::Duration;

use super::activities::Activities;
use super::hosts::{Amounts, Hosts, Kept};
use crate::Time;
use crate::path::Path;

/// What an entry of the table points to while there is more to remember than numbers.
#[derive(Debug, Default)]
pub(super) struct More {
    /// Its host's place in [`Hosts`], and what of that is this conversation's.
    pub host: u32,
    pub kept: Amounts,
    pub activities: Activities,
    /// How many activities have work.
    pub works: u32,
    /// How many calls the user has and has not finished. While there are any, the conversation must not be
    /// forgotten.
    pub running: u32,
    /// All calls below `released` have ended at the caller, and their results are released as activities are
    /// looked at; the second field is the activity to look at next.
    pub released: u64,
    pub hand: u32,
    /// The largest datagram that passes, by the caller's word.
    pub datagram: u32,
    pub path: Path,
    /// The longest arguments that came in fragments: what may come at once.
    pub trusted: u32,
    /// When all that was under way was last looked through.
    pub presumed: Time,
    /// When the caller last said what it has of a result.
    pub spoke: Time,
    /// Bytes of the results that calls which are being executed will send in fragments.
    pub promised: usize,
    /// Whether another result waits until `promised` is less.
    pub wanted: bool,
    /// When all that is being sent in fragments is to be fetched at the latest, if there is no room for
    /// others'.
    pub due: Time,
    /// The client's patience, if it is not the usual one.
    pub client_patience: Option<Duration>,
}

impl More {
    pub fn new(host: u32) -> More {
        More { host, datagram: crate::BASE_DATAGRAM as u32, ..More::default() }
    }

    /// What was sent longer ago, while its receiver waited in vain, is lost.
    pub fn patience(&self) -> Duration {
        self.path.round_trip.smoothed().unwrap_or(Duration::from_millis(5))
    }

    /// Counts, for the conversation and for its host, that something which is kept had the amount `from`, and
    /// has the amount `to`.
    #[inline(always)]
    pub fn recount(&mut self, hosts: &mut Hosts, kind: Kept, from: usize, to: usize) {
        let kept = &mut self.kept[kind as usize];
        *kept = *kept + to - from;
        hosts.recount(self.host, kind, from, to);
    }

    /// How much is kept for it.
    #[inline]
    pub fn kept(&self, kind: Kept) -> usize {
        self.kept[kind as usize]
    }
}
