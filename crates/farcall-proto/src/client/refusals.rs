//! Acts on refused ports: ICMP errors that say that nobody listens at the server's port (docs/protocol.md
//! 5.3).
//!
//! Anybody can send an ICMP error, and an error can come late. So an error counts only if it quotes a
//! datagram of this conversation, which only somebody on its path can see. And the server is given up only
//! after several such errors in a row.

use std::time::Duration;

use farcall_base::Obstacle;

use super::obstacles::Reported;
use super::{Conversation, Event};
use crate::{Kind, Ran, Rule, Time, wire};

/// The number of consecutive datagrams that must have been refused before the server is given up.
const MIN_REFUSALS: u32 = 3;

/// The shortest silence of the server before it is given up.
const MIN_SILENCE: Duration = Duration::from_millis(500);

/// The longest time between a refusal and the next probe.
const MAX_PROBE_DELAY: Duration = Duration::from_millis(250);

/// Refusals that are further apart than this are not consecutive.
const FAR_APART: Duration = Duration::from_secs(2);

/// Consecutive refusals, each of a datagram that was sent after the refusal before it had come, and the
/// latest report of any kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    since: Time,
    latest: Time,
    /// Datagrams from this number on were sent after the latest refusal.
    next: u64,
    /// The number of datagrams that had come from the server by the latest refusal.
    received: u64,
    /// Why the server may be silent, by the latest report. This does not count as a refusal.
    pub(super) reported: Option<Reported>,
}

impl Conversation {
    /// Handles an ICMP error that says that nobody listens at the server's port. Brings the next probe
    /// forward. The error counts if `quoted` is the beginning of a datagram that this client sent. After
    /// several such errors in a row, [`Conversation::handle_timeout`] gives the server up.
    pub fn handle_refused(&mut self, now: Time, quoted: &[u8]) {
        self.handle_unreachable(now);
        self.note_obstacle(Obstacle::NoProgram);
        let forged = self.config.mutant.breaks(Rule::RefusalUnquoted);
        let number = if forged { Some(self.numbers.next()) } else { self.quoted_number(quoted) };
        let Some(number) = number else { return };
        let refusals = self.refusals.get_or_insert_default();
        let in_a_row = self.stats.received == refusals.received && now.since(refusals.latest) <= FAR_APART;
        if refusals.count == 0 || !in_a_row {
            let (received, reported) = (self.stats.received, refusals.reported);
            **refusals = Refusals { since: now, received, reported, ..Refusals::default() };
        }
        if number < refusals.next {
            return;
        }
        refusals.count += 1;
        (refusals.latest, refusals.next) = (now, self.numbers.next());
        if self.is_refused() {
            self.timers.check = now;
            self.session.expires = Some(now);
            return;
        }
        self.ask_by(now + MAX_PROBE_DELAY);
    }

    /// Returns whether the server is to be given up.
    pub(super) fn is_refused(&self) -> bool {
        let Some(Refusals { count, since, latest, received, .. }) = self.refusals.as_deref().copied() else {
            return false;
        };
        if !self.config.heeds_refusals || count == 0 || received != self.stats.received {
            return false;
        }
        self.config.mutant.breaks(Rule::RefusedAtOnce)
            || count >= MIN_REFUSALS && latest.since(since) >= MIN_SILENCE
    }

    /// Gives the server up: ends all calls that were sent.
    pub(super) fn give_up(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if let Some(refusals) = &mut self.refusals {
            refusals.count = 0;
        }
        let ran = if self.config.mutant.breaks(Rule::RefusedSaysNo) { Ran::No } else { Ran::Maybe };
        self.end_calls(Kind::Unreachable, sink, |slot| slot.timing.first_sent.map(|_| ran));
    }

    /// Returns the number of the datagram that begins with `quoted`, if this client sent it.
    fn quoted_number(&self, quoted: &[u8]) -> Option<u64> {
        let (whose, number) = wire::quoted(quoted)?;
        let ours = match whose {
            Ok(conversation) => self.session.granted.as_ref().is_some_and(|g| g.conversation == conversation),
            Err(client) => client == self.id,
        };
        (ours && number < self.numbers.next()).then_some(number)
    }

    /// Brings the next try of one call, or of one question, forward to `due`. Only calls and questions that
    /// wait for an answer count.
    fn ask_by(&mut self, due: Time) {
        self.session.ask_by(due);
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_some() {
                slot.timing.due = slot.timing.due.min(due);
                self.timers.look_by(slot.timing.due);
                return;
            }
        }
    }
}
