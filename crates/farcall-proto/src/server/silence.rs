//! Gives up the calls of clients that are not heard any more (docs/protocol.md, section 6.1).
//!
//! Every datagram of a conversation shows that its client still wants all its calls. Calls have no timers of
//! their own. The sweep that frees memory also looks for silent clients, and runs again when the next one
//! could have been silent for too long.

use std::time::Duration;

use super::table::UNIT;
use super::work::{DETACHED, GIVEN_UP, Phase};
use super::{CallKey, Server, key};
use crate::config::{PATIENCE, interval};
use crate::wire::{CallHead, Position, Progress};
use crate::{Failure, Kind, Ran, Rule, Time, nanos};

/// A server that checks this much later than it meant to was stopped or asleep. Datagrams of its clients may
/// wait in the socket, so their silence does not count.
const AWAY: Duration = Duration::from_millis(250);

/// How long a client may be silent while its calls are executed.
pub(super) fn limit(patience: Duration) -> Duration {
    patience.saturating_add(interval(patience))
}

impl Server {
    /// Returns a call that is given up because its client has been silent for too long; treat it as if a
    /// [`super::Request::Cancel`] for it had come. Call this after [`Server::handle_timeout`] until it
    /// returns `None`.
    pub fn next_forsaken(&mut self) -> Option<CallKey> {
        self.sweep.forsaken.pop()
    }

    /// Notes that the server was away when it should have looked.
    pub(super) fn note_absence(&mut self, now: Time) {
        if self.sweep.due.is_some_and(|meant| now.since(meant) > AWAY) {
            self.sweep.awake = now;
        }
    }

    /// Notes the patience and the detached mark that a call carries, if any.
    #[inline]
    pub(super) fn note_meta(&mut self, now: Time, place: usize, head: &CallHead) {
        if head.meta.patience.is_some() || head.meta.detached {
            self.note_unusual(now, place, head);
        }
    }

    #[cold]
    fn note_unusual(&mut self, now: Time, place: usize, head: &CallHead) {
        if head.meta.detached {
            self.note_detached(place, head.position.activity);
        }
        let Some(patience) = head.meta.patience.map(Duration::from_nanos) else { return };
        if let Some(more) = &mut self.table.at_mut(place).more {
            more.client_patience = Some(patience);
        }
        // A margin, because `heard` may be two units late.
        let due = now + limit(patience) + 2 * UNIT;
        self.set_sweep(self.sweep.due.map(|at| at.min(due)));
    }

    /// Nobody waits for the end of the activity's call, and it is to go on.
    pub(super) fn note_detached(&mut self, place: usize, activity: u32) {
        let ignored = self.config.mutant.breaks(Rule::DetachedCancelled);
        if let Some(work) = self.existing_work(place, activity).filter(|_| !ignored) {
            work.marks |= DETACHED;
        }
    }

    /// Gives up the activity's call if its client has been silent for too long. Otherwise, if the call is
    /// executing, returns the time at which that will be so if the client stays silent.
    pub(super) fn look_for_silence(&mut self, now: Time, place: usize, activity: u32) -> Option<Time> {
        let mutant = self.config.mutant;
        let heard = self.heard(now, place).max(self.sweep.awake);
        let entry = self.table.at_mut(place);
        let (conversation, more) = (entry.id, entry.more.as_mut()?);
        let limit = limit(more.client_patience.unwrap_or(PATIENCE));
        let work = more.activities.work_mut(activity).filter(|work| work.phase == Phase::Running)?;
        // A detached call goes on without its client, unless something passes inside: that needs the client.
        let needs_client = || work.inside.as_ref().is_some_and(|inside| inside.needs_other_end());
        let goes_on = work.marks & DETACHED != 0 && !needs_client();
        if goes_on || work.marks & GIVEN_UP != 0 || mutant.breaks(Rule::SilenceIgnored) {
            return None;
        }
        let since = if mutant.breaks(Rule::KeepAliveIgnored) { work.since } else { heard.max(work.since) };
        let due = since + limit;
        if now < due {
            return Some(due);
        }
        work.marks |= GIVEN_UP;
        let position = work.position;
        self.end_inside(place, activity);
        self.sweep.forsaken.push(key(conversation, position));
        None
    }

    /// Returns when a conversation was heard last, or up to two units later.
    fn heard(&self, now: Time, place: usize) -> Time {
        let silent = u64::from(self.coarse(now).wrapping_sub(self.table.at(place).heard()) / 4);
        let least = silent.saturating_sub(1).saturating_mul(nanos(UNIT));
        Time::from_nanos(now.as_nanos().saturating_sub(least))
    }

    /// Answers a client that asks for a call which is executing. A call that was given up because its client
    /// was silent stays given up, though the client is back.
    pub(super) fn reply_at_work(&mut self, place: usize, position: Position) {
        let given_up =
            self.existing_work(place, position.activity).is_some_and(|work| work.marks & GIVEN_UP != 0);
        if given_up {
            let why =
                Failure::new(Kind::Cancelled, Ran::Maybe).with_detail("its client was silent for too long");
            return self.reply_failure(place, position, why);
        }
        self.reply_running(place, position);
    }

    /// Answers that a call is executing. The client had to ask, so the call is slow. It may be waiting for
    /// another call that has no room for its result. To avoid a deadlock, the room reserved for this one's
    /// result is given up.
    pub(super) fn reply_running(&mut self, place: usize, position: Position) {
        self.end_promise(place, position.activity);
        self.reply_state(place, position, Progress::Running);
    }
}
