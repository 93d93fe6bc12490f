//! What the server keeps of a conversation that is not idle, besides its entry in the table.

use std::time::Duration;

use super::activities::Activities;
use super::hosts::{Amounts, Hosts, Kept};
use super::work::Work;
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
    /// How many calls the user has and has not finished.
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

    /// Whether a call is being executed, so that it must not be forgotten.
    pub fn is_busy(&self) -> bool {
        self.running > 0
    }

    /// Adds `amount` to what is kept for the conversation.
    #[inline(always)]
    pub fn charge(&mut self, hosts: &mut Hosts, kind: Kept, amount: usize) {
        self.kept[kind as usize] += amount;
        hosts.charge(self.host, kind, amount);
    }

    /// Subtracts `amount` from what is kept for the conversation.
    #[inline(always)]
    pub fn credit(&mut self, hosts: &mut Hosts, kind: Kept, amount: usize) {
        self.kept[kind as usize] -= amount;
        hosts.credit(self.host, kind, amount);
    }

    /// How much is kept for it.
    #[inline]
    pub fn kept(&self, kind: Kept) -> usize {
        self.kept[kind as usize]
    }

    /// An activity's work.
    #[inline]
    pub fn find(&self, activity: u32) -> Option<&Work> {
        self.activities.work(activity)
    }

    /// An activity's work, mutably.
    #[inline]
    pub fn find_mut(&mut self, activity: u32) -> Option<&mut Work> {
        self.activities.work_mut(activity)
    }

    /// Returns the next activity after `activity` that may have been used, or 0 if there is none.
    pub fn activity_behind(&self, activity: u32) -> u32 {
        self.activities.next(activity + 1).unwrap_or(0)
    }
}
