//! Refused ports: what follows when the network says that nobody listens at the server's port
//! (docs/protocol.md 5.3).
//!
//! Anybody can send an ICMP error, and one may come late. So an error counts only if it quotes a datagram of
//! this conversation, which only those on its path can see, and several errors in a row have to answer
//! probes.

use std::time::Duration;

use super::{Conversation, Event};
use crate::{Kind, Ran, Rule, Time, wire};

/// So many probes in a row must have been refused.
const ENOUGH: u32 = 3;

/// For so long, at least, the server must have been silent.
const SILENCE: Duration = Duration::from_millis(500);

/// A probe follows a refusal no later than that.
const HASTE: Duration = Duration::from_millis(250);

/// Refusals that are further apart are not in a row.
const FAR_APART: Duration = Duration::from_secs(2);

/// Refusals in a row, each of a datagram that was sent when the one before was known.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    since: Time,
    latest: Time,
    /// Datagrams from that number on were sent after the latest.
    next: u64,
    /// So many datagrams had come from the server by then.
    received: u64,
}

impl Conversation {
    /// Handles an ICMP error that says that nobody listens at the server's port. It brings the next probe
    /// forward, and counts if `quoted` is the beginning of a datagram of ours. After several that count in a
    /// row [`Conversation::handle_timeout`] gives the server up.
    pub fn handle_refused(&mut self, now: Time, quoted: &[u8]) {
        self.handle_unreachable(now);
        let forged = self.config.mutant.breaks(Rule::RefusalUnquoted);
        let number = if forged { Some(self.numbers.next()) } else { self.quoted_number(quoted) };
        let Some(number) = number else { return };
        let refusals = &mut self.refusals;
        let in_a_row = self.stats.received == refusals.received && now.since(refusals.latest) <= FAR_APART;
        if refusals.count == 0 || !in_a_row {
            *refusals = Refusals { since: now, received: self.stats.received, ..Refusals::default() };
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
        self.ask_by(now + HASTE);
    }

    /// Whether the server is to be given up.
    pub(super) fn is_refused(&self) -> bool {
        let Refusals { count, since, latest, received, .. } = self.refusals;
        if !self.config.heeds_refusals || count == 0 || received != self.stats.received {
            return false;
        }
        self.config.mutant.breaks(Rule::RefusedAtOnce) || count >= ENOUGH && latest.since(since) >= SILENCE
    }

    /// Gives the server up: ends all calls that were sent.
    pub(super) fn give_up(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        self.refusals = Refusals::default();
        let ran = if self.config.mutant.breaks(Rule::RefusedSaysNo) { Ran::No } else { Ran::Maybe };
        self.end_calls(Kind::Unreachable, sink, |slot| slot.timing.first_sent.map(|_| ran));
    }

    /// The number of the datagram of ours that begins so, if it is one.
    fn quoted_number(&self, quoted: &[u8]) -> Option<u64> {
        let (whose, number) = wire::quoted(quoted)?;
        let ours = match whose {
            Ok(conversation) => self.session.granted.as_ref().is_some_and(|g| g.conversation == conversation),
            Err(client) => client == self.id,
        };
        (ours && number < self.numbers.next()).then_some(number)
    }

    /// Has one call, or question, that waits for an answer ask again by then.
    fn ask_by(&mut self, due: Time) {
        self.session.ask_by(due);
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_some() {
                slot.timing.due = slot.timing.due.min(due);
                self.timers.check = self.timers.check.min(slot.timing.due);
                return;
            }
        }
    }
}
