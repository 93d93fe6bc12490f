//! What the server keeps of a conversation that is not idle, besides its entry in the table.
//!
//! A conversation's activities are numbered slots; in each, the client makes one call after the other.

use std::time::Duration;

use super::Server;
use super::activities::Activities;
use super::hosts::{Amounts, Hosts, Kept};
use crate::config::{PATIENCE, silence_of};
use crate::path::Path;
use crate::{Rule, Time, nanos};

/// The shortest time to wait for an acknowledgement of DATA before the first repetition.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

/// The longest time after which something counts as lost, and the time while nothing is known of the round
/// trip (RFC 6298 section 2).
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// The part of a conversation that exists only while the conversation is not idle, or after it has used more
/// than one activity.
#[derive(Debug, Default)]
pub(super) struct More {
    /// The place of the conversation's host in [`Hosts`].
    pub host: u32,
    /// When the intervals of all of the conversation's moves to other hosts are over, one after the other.
    pub moves_until: Option<Time>,
    /// What is kept for this conversation.
    pub kept: Amounts,
    pub activities: Activities,
    /// An activity that has had no call refuses calls with numbers up to this one. So a call that was refused
    /// because there were too many activities stays refused, although nothing is kept of its activity.
    pub refused_through: u64,
    /// The number of activities that have work.
    pub works: u32,
    /// The number of calls that the user has and has not finished. While there are any, the conversation must
    /// not be forgotten.
    pub running: u32,
    /// All calls with numbers below this one have ended at the caller. Their results are freed as the
    /// activities are looked at in turn.
    pub released: u64,
    /// The activity to look at next for results that can be freed.
    pub hand: u32,
    /// The largest datagram that reaches the client, as the client has reported, in bytes.
    pub datagram: u32,
    pub path: Path,
    /// The length of the longest arguments that have arrived in fragments. The client may send as many bytes
    /// again at once.
    pub trusted: u32,
    /// When all unacknowledged fragments were last checked for loss.
    pub presumed: Time,
    /// When the client last reported which parts of a result it has.
    pub spoke: Time,
    /// The bytes that results of executing calls are expected to have, if they will be sent in fragments.
    pub promised: usize,
    /// Whether a call waits until `promised` is less.
    pub wanted: bool,
    /// By when the client must fetch the results that are being sent in fragments, if other conversations
    /// lack room.
    pub due: Time,
    /// How long the client may be silent while its calls are executed, if that is not the default.
    pub silence: Option<Duration>,
}

impl More {
    pub fn new(host: u32) -> More {
        More { host, datagram: crate::BASE_DATAGRAM as u32, ..More::default() }
    }

    /// Returns how long the client may be silent while its calls are executed.
    pub fn silence(&self) -> Duration {
        self.silence.unwrap_or_else(|| silence_of(PATIENCE))
    }

    /// Returns the time after which a fragment counts as lost if its receiver still waits for it.
    pub fn patience(&self) -> Duration {
        self.path.round_trip.expected().unwrap_or(MOST_PATIENCE).min(MOST_PATIENCE)
    }

    /// Returns how long to wait for an acknowledgement of DATA before the first repetition, in nanoseconds.
    pub fn data_patience(&self) -> u64 {
        let (round_trip, most) = (&self.path.round_trip, nanos(MOST_PATIENCE));
        round_trip.expected().map_or(most, |_| round_trip.patience(nanos(LEAST_PATIENCE), most))
    }

    /// Corrects the counts of the conversation and of its host after a kept thing has changed from the amount
    /// `from` to the amount `to`.
    #[inline(always)]
    pub fn recount(&mut self, hosts: &mut Hosts, kind: Kept, from: usize, to: usize) {
        // A null call has no result, and seldom needs a further activity.
        if from == to {
            return;
        }
        let kept = &mut self.kept[kind as usize];
        *kept = *kept + to - from;
        hosts.recount(self.host, kind, from, to);
    }

    /// Returns how much is kept for the conversation.
    #[inline]
    pub fn kept(&self, kind: Kept) -> usize {
        self.kept[kind as usize]
    }
}

impl Server {
    /// Bounds the round trip to a client of which none was measured. The client has answered its ticket by
    /// now, so a round trip takes no longer than the ticket is old.
    pub(super) fn bound_round_trip(&mut self, now: Time, place: usize) {
        let entry = self.table.at_mut(place);
        let (issued, mutant) = (self.admission.issuer.born.plus(entry.issued), self.config.mutant);
        if let Some(more) = entry.more.as_deref_mut()
            && more.path.round_trip.expected().is_none()
        {
            more.path.mutant = mutant;
            let age = now.nanos_since(issued);
            more.path.round_trip.at_most(if mutant.breaks(Rule::UnmeasuredIsShort) { 0 } else { age });
        }
    }
}
