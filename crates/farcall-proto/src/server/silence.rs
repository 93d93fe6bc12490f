//! Gives up the calls of clients that have fallen silent (docs/protocol.md, section 6.1).
//!
//! Every datagram of a conversation shows that its client still wants all its calls. Calls have no timers of
//! their own. The sweep that frees memory also looks for silent clients. It is due again at the earliest time
//! at which another client could have been silent for too long.

use std::time::Duration;

use super::send::{Answer, frames};
use super::table::UNIT;
use super::work::{DETACHED, GIVEN_UP, Phase};
use super::{CallKey, Server, key};
use crate::config::silence_of;
use crate::wire::{CallHead, Meta, Position, Progress};
use crate::{Failure, Kind, Ran, Rule, Time, nanos};

/// If the server checks this much later than it planned, it was stopped or asleep. Datagrams of its clients
/// may wait in the socket, so their silence does not count.
const AWAY: Duration = Duration::from_millis(250);

/// If a client has not spoken of a call for this long, the server asks whether the call is still wanted. A
/// client probes each call that it waits for more often: every 10 s.
const UNSPOKEN: Duration = Duration::from_secs(12);

impl Server {
    /// Returns a call that is given up because its client has been silent for too long; treat it as if a
    /// [`super::Request::Cancel`] for it had come. Call this after [`Server::handle_timeout`] until it
    /// returns `None`.
    pub fn next_forsaken(&mut self) -> Option<CallKey> {
        self.sweep.forsaken.pop()
    }

    /// Notes if the server was stopped or asleep when it should have looked.
    pub(super) fn note_absence(&mut self, now: Time) {
        if self.sweep.due.is_some_and(|meant| now.since(meant) > AWAY) {
            self.sweep.awake = now;
        }
    }

    /// Notes how long the client may be silent, and the detached mark, if a call carries them.
    #[inline]
    pub(super) fn note_meta(&mut self, now: Time, place: usize, head: &CallHead) {
        let Meta { patience, silence, detached, .. } = head.meta;
        if patience.is_some() || silence.is_some() || detached {
            self.note_unusual(now, place, head);
        }
    }

    #[cold]
    fn note_unusual(&mut self, now: Time, place: usize, head: &CallHead) {
        if head.meta.detached {
            self.note_detached(place, head.position.activity);
        }
        let silence = head.meta.silence.filter(|_| !self.config.mutant.breaks(Rule::SilenceUnheeded));
        let of_patience = head.meta.patience.map(|patience| silence_of(Duration::from_nanos(patience)));
        let Some(silence) = silence.map(Duration::from_nanos).or(of_patience) else { return };
        let silence = silence.min(self.config.max_silence);
        if let Some(more) = &mut self.table.at_mut(place).more {
            more.silence = Some(silence);
        }
        // A margin, because the time that `heard` returns can be two units late.
        let due = now + silence + 2 * UNIT;
        self.set_sweep(self.sweep.due.map(|at| at.min(due)));
    }

    /// Marks the activity's call as detached: nobody waits for its end, but it goes on.
    pub(super) fn note_detached(&mut self, place: usize, activity: u32) {
        let ignored = self.config.mutant.breaks(Rule::DetachedCancelled);
        if let Some(work) = self.existing_work(place, activity).filter(|_| !ignored) {
            work.marks |= DETACHED;
        }
    }

    /// Gives up the activity's call if its client has been silent for too long. Otherwise returns when the
    /// call is to be given up if the client stays silent, or `None` if the call is not executing.
    pub(super) fn look_for_silence(&mut self, now: Time, place: usize, activity: u32) -> Option<Time> {
        let mutant = self.config.mutant;
        let awake = self.sweep.awake;
        let (heard, speaks) = (self.heard(now, place).max(awake), self.speaks(now, place));
        let entry = self.table.at_mut(place);
        let (conversation, more) = (entry.id, entry.more.as_mut()?);
        let limit = more.silence();
        let work = more.activities.work_mut(activity).filter(|work| work.phase == Phase::Running)?;
        // A detached call goes on without its client, unless it has exchanges, which need the client.
        let needs_client = || work.inside.as_ref().is_some_and(|inside| inside.needs_other_end());
        let goes_on = work.marks & DETACHED != 0 && !needs_client();
        if goes_on || work.marks & GIVEN_UP != 0 || mutant.breaks(Rule::SilenceIgnored) {
            return None;
        }
        let since = if mutant.breaks(Rule::KeepAliveIgnored) { work.since } else { heard.max(work.since) };
        let due = since + limit;
        if now < due && !work.sends_in_vain(speaks, limit, mutant) {
            if now.since(work.since.max(work.spoken).max(awake)) >= UNSPOKEN {
                work.spoken = now;
                let position = work.position;
                self.ask_if_wanted(place, position);
            }
            return Some(due);
        }
        work.marks |= GIVEN_UP;
        let position = work.position;
        self.end_inside(place, activity);
        self.sweep.forsaken.push(key(conversation, position));
        None
    }

    /// Asks a client that is there whether a caller still waits for a call that the server executes. The
    /// client may have given the call up while the server was silent, or its CANCEL was lost.
    #[cold]
    fn ask_if_wanted(&mut self, place: usize, position: Position) {
        if self.config.mutant.breaks(Rule::WantedUnasked) {
            return;
        }
        let question = frames(|writer| writer.wanted(position));
        // It answers no datagram. Each call is asked about once in a while, and its client has a ticket.
        self.answers.answer_bytes = self.answers.answer_bytes.max(question.len());
        self.reply_to(place, Answer::Shared(question));
    }

    /// Returns when the conversation's client was heard last. The time can be up to two units too late.
    fn heard(&self, now: Time, place: usize) -> Time {
        let silent = u64::from(self.table.at(place).silent(self.coarse(now)) / 4);
        let least = silent.saturating_sub(1).saturating_mul(nanos(UNIT));
        Time::from_nanos(now.as_nanos().saturating_sub(least))
    }

    /// Returns whether the conversation's client was heard lately.
    pub(super) fn speaks(&self, now: Time, place: usize) -> bool {
        now.since(self.heard(now, place).max(self.sweep.awake)) < UNSPOKEN
    }

    /// Answers a client that asks for a call which is executing. A call that was given up because its client
    /// was silent stays given up, though the client is back.
    pub(super) fn reply_at_work(&mut self, now: Time, place: usize, position: Position) {
        let Some(work) = self.existing_work(place, position.activity) else { return };
        work.spoken = now;
        if work.marks & GIVEN_UP != 0 {
            let why = Failure::new(Kind::Cancelled, Ran::Maybe)
                .with_detail("its client was silent, or unreachable, for too long");
            return self.reply_failure(place, position, why);
        }
        self.reply_running(place, position);
    }

    /// Answers that a call is executing. The client had to ask, so the call is slow. The call may itself be
    /// waiting for another call, for whose result there is no room. To avoid a deadlock, this gives up the
    /// room that was reserved for the result of the slow call.
    pub(super) fn reply_running(&mut self, place: usize, position: Position) {
        self.end_promise(place, position.activity);
        self.reply_state(place, position, Progress::Running);
    }
}
