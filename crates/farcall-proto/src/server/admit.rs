//! Who may call at all: binding, tickets, challenges, the horizon
//! (docs/protocol.md, "Binding" and "Tickets and horizon").

use std::net::SocketAddr;

use super::Server;
use super::send::{Answer, Reply};
use super::table::Entry;
use crate::ticket::Invalid;
use crate::wire::{Bind, Header, Stale, StaleReason, Ticket, VERSION};
use crate::{BASE_DATAGRAM, Kind, Rule, Time, scheme};

/// How much more than it sent an address hears that has not proven that it is there.
const AMPLIFICATION: usize = 3;

impl Server {
    /// Answers a bind, and remembers nothing of it.
    pub(super) fn on_bind(&mut self, now: Time, from: SocketAddr, len: usize, bind: &Bind<'_>) {
        let (export, refused) = match self.look_up(bind) {
            Ok(export) => (export, 0),
            Err(kind) => (0, kind.code()),
        };
        let mutant = self.config.mutant;
        let renewal = bind.renew.filter(|(conversation, ticket, old)| {
            ticket.client == bind.client && self.issuer.verify(ticket, *conversation, *old, mutant).is_ok()
        });
        let (conversation, ticket) = match renewal {
            Some((conversation, old, _)) => {
                (conversation, self.issuer.renew(now, self.horizon, &old, conversation, from, mutant))
            }
            None => {
                let conversation = self.issuer.conversation();
                (conversation, self.issuer.issue(now, self.horizon, bind.client, conversation, from))
            }
        };
        self.reply(Reply {
            to: from,
            client: bind.client,
            local: false,
            limit: (len * AMPLIFICATION).min(BASE_DATAGRAM),
            answer: Answer::Welcome { nonce: bind.nonce, conversation, ticket, refused, export, from: bind.from },
        });
    }

    fn look_up(&self, bind: &Bind<'_>) -> Result<u64, Kind> {
        let (least, most) = bind.versions;
        let version = u16::from(VERSION);
        if version < least || version > most || bind.schemes & scheme::OFFERED == 0 {
            return Err(Kind::Mismatch);
        }
        if self.draining {
            return Err(Kind::Draining);
        }
        if bind.name.is_empty() {
            return Ok(0);
        }
        self.exports.named(bind.name).ok_or(Kind::NotExported)
    }

    /// A ticket came from an address that its conversation is not known to be at: lets the
    /// conversation in, or says for good why not.
    pub(super) fn admit(&mut self, now: Time, from: SocketAddr, header: Header, ticket: &Ticket) -> Option<usize> {
        let mutant = self.config.mutant;
        let conversation = header.conversation;
        match self.issuer.verify(ticket, conversation, from, mutant) {
            Ok(()) => {}
            Err(Invalid::Incarnation) => {
                let age = now.since(self.issuer.born()).as_nanos() as u64;
                return self.refuse_ticket(from, header, ticket.client, StaleReason::Incarnation, age);
            }
            Err(Invalid::Address) => {
                return self.refuse_ticket(from, header, ticket.client, StaleReason::Address, 0);
            }
        }
        if let Some(place) = self.table.find(conversation) {
            self.table.at_mut(place).move_to(&from);
            return Some(place);
        }
        if ticket.issued <= self.horizon && !mutant.breaks(Rule::HorizonIgnored) {
            let age = now.since(self.forgot).as_nanos() as u64;
            return self.refuse_ticket(from, header, ticket.client, StaleReason::Horizon, age);
        }
        // From here on it is certain that nothing ever ran under this ticket.
        if self.table.len() >= self.config.max_conversations {
            if let Some(victim) = self.table.victim(self.coarse(now)) {
                self.forget(now, victim);
            }
            let full = self.table.len() >= self.config.max_conversations;
            if (full || ticket.issued <= self.horizon) && !mutant.breaks(Rule::HorizonIgnored) {
                if !mutant.breaks(Rule::FullUnrecorded) {
                    self.horizon = self.horizon.max(ticket.issued);
                }
                return self.refuse_ticket(from, header, ticket.client, StaleReason::Full, 0);
            }
        }
        let mut entry = Entry::new(conversation, ticket.client, ticket.issued, from);
        entry.heard = self.coarse(now) | u32::from(header.local);
        Some(self.table.insert(entry))
    }

    fn refuse_ticket(
        &mut self,
        to: SocketAddr,
        header: Header,
        client: u64,
        reason: StaleReason,
        age: u64,
    ) -> Option<usize> {
        self.stats.stale += 1;
        let stale = Stale {
            conversation: header.conversation,
            number: header.number,
            reason,
            incarnation: self.issuer.incarnation(),
            age,
        };
        self.reply(Reply { to, client, local: header.local, limit: BASE_DATAGRAM, answer: Answer::Stale(stale) });
        None
    }

    /// A datagram without a ticket, of a conversation that is not known at this address.
    pub(super) fn challenge(&mut self, to: SocketAddr, header: Header) {
        self.stats.challenges += 1;
        let answer = match self.table.find(header.conversation) {
            Some(_) => Answer::Stale(Stale {
                conversation: header.conversation,
                number: header.number,
                reason: StaleReason::Address,
                incarnation: self.issuer.incarnation(),
                age: 0,
            }),
            None => Answer::Challenge { conversation: header.conversation, number: header.number },
        };
        // We do not know how the client calls the conversation: zero goes by its address.
        self.reply(Reply { to, client: 0, local: header.local, limit: BASE_DATAGRAM, answer });
    }

    /// Forgets a conversation, so that no ticket as old as its own is accepted any more.
    pub(super) fn forget(&mut self, now: Time, place: usize) {
        let entry = self.table.remove(place);
        if !self.config.mutant.breaks(Rule::ForgetsSilently) {
            self.horizon = self.horizon.max(entry.issued);
        }
        self.forgot = now;
        self.stats.evicted += 1;
        if let Some(more) = entry.more {
            self.slots -= more.rest.len();
            self.dissolve(*more);
        }
    }
}
