//! What the server keeps of a conversation that is not idle, besides its entry in the table.

use std::collections::VecDeque;
use std::time::Duration;

use super::activities::Activities;
use super::hosts::{Amounts, Hosts, Kept};
use super::work::Work;
use crate::Time;
use crate::path::{Congestion, RoundTrip};

/// What an entry of the table points to while there is more to remember than numbers.
#[derive(Debug, Default)]
pub(super) struct More {
    /// Its host's place in [`Hosts`], and what of that is this conversation's.
    pub host: u32,
    pub kept: Amounts,
    /// The call of activity 0, whose number is in the entry.
    pub first: Option<Box<Work>>,
    /// Activities from 1 on.
    pub rest: Activities,
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
    pub congestion: Congestion,
    pub round_trip: RoundTrip,
    /// Bytes of fragments of results that are under way, of all activities.
    pub in_flight: u32,
    /// How far the client lets results go before it has any, by its word on the last.
    pub granted: u32,
    /// The longest arguments that came in fragments: what may come at once.
    pub trusted: u32,
    /// Activities whose results wait for room in the congestion window. While there is room one of
    /// them is in the queue of those that send, and wakes the next when it has had its turn.
    pub waiting: VecDeque<u32>,
    /// When all that was under way was last looked through.
    pub presumed: Time,
    /// When the caller last said what it has of a result.
    pub spoke: Time,
    /// Bytes of the results that calls which are being executed will send in fragments.
    pub promised: usize,
    /// Whether another result waits until `promised` is less.
    pub wanted: bool,
    /// When all that is being sent in fragments is to be fetched at the latest, if there is no room for others'.
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
        self.round_trip.smoothed().unwrap_or(Duration::from_millis(5))
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
        match activity {
            0 => self.first.as_deref(),
            n => self.rest.get(n)?.work.as_deref(),
        }
    }

    /// An activity's work, mutably.
    #[inline]
    pub fn find_mut(&mut self, activity: u32) -> Option<&mut Work> {
        match activity {
            0 => self.first.as_deref_mut(),
            n => self.rest.get_mut(n)?.work.as_deref_mut(),
        }
    }

    /// The place of the work of an activity whose number is remembered.
    #[inline]
    pub fn home(&mut self, activity: u32) -> Option<&mut Option<Box<Work>>> {
        match activity {
            0 => Some(&mut self.first),
            n => Some(&mut self.rest.get_mut(n)?.work),
        }
    }

    /// Returns the next activity after `activity` that may have been used, or 0 if there is none.
    pub fn activity_behind(&self, activity: u32) -> u32 {
        self.rest.next(activity + 1).unwrap_or(0)
    }

    /// The works of all activities.
    pub fn works_mut(&mut self) -> impl Iterator<Item = &mut Work> {
        self.first.as_deref_mut().into_iter().chain(self.rest.works_mut())
    }

    pub fn into_works(self) -> impl Iterator<Item = Box<Work>> {
        self.first.into_iter().chain(self.rest.into_works())
    }
}
