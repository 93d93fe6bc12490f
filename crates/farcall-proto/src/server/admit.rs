//! Who may call at all: binding, tickets, challenges, the horizon
//! (docs/protocol.md, "Binding" and "Tickets and horizon").

use std::net::SocketAddr;

use super::Server;
use super::hosts::Kept;
use super::send::{Answer, Reply};
use super::table::Entry;
use crate::scheme::{Direction, Scheme, Seal};
use crate::ticket::Invalid;
use crate::wire::{Bind, Header, Stale, StaleReason, Target, Ticket, VERSION};
use crate::{BASE_DATAGRAM, Kind, Rule, Time};

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
            target: target(bind.client, Scheme::Open),
            limit: (len * AMPLIFICATION).min(BASE_DATAGRAM),
            answer: Answer::Welcome { nonce: bind.nonce, conversation, ticket, refused, export, from: bind.from },
        });
    }

    fn look_up(&self, bind: &Bind<'_>) -> Result<u64, Kind> {
        let (least, most) = bind.versions;
        let version = u16::from(VERSION);
        if version < least || version > most || bind.schemes & (Scheme::Open.bit() | Scheme::Local.bit()) == 0 {
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
            self.move_to(place, from);
            return Some(place);
        }
        if ticket.issued <= self.horizon && !mutant.breaks(Rule::HorizonIgnored) {
            let age = now.since(self.forgot).as_nanos() as u64;
            return self.refuse_ticket(from, header, ticket.client, StaleReason::Horizon, age);
        }
        // From here on it is certain that nothing ever ran under this ticket.
        if self.table.len() >= self.config.max_conversations {
            let conversing = &self.conversing;
            let no_share = mutant.breaks(Rule::NoShareOfHosts);
            let of_host = |host| if no_share { 0 } else { conversing.of(host) };
            if let Some(victim) = self.table.victim(self.coarse(now), of_host) {
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
        entry.hear(self.coarse(now), header.scheme);
        self.conversing.add(entry.host());
        Some(self.table.insert(entry))
    }

    /// A conversation is at another address from now on. What is kept for it is kept for that host.
    fn move_to(&mut self, place: usize, to: SocketAddr) {
        let entry = self.table.at_mut(place);
        let from = entry.host();
        entry.move_to(&to);
        let host = entry.host();
        if host == from {
            return;
        }
        self.conversing.remove(from);
        self.conversing.add(host);
        if let Some(more) = &mut entry.more {
            let arriving = more.works_mut().filter(|work| work.incoming.is_some()).map(|work| work.position.activity);
            let arriving: Vec<u32> = arriving.collect();
            arriving.iter().for_each(|activity| self.hosts.end_receiving(more.host, (entry.id, *activity)));
            self.hosts.leave(more.host, &more.kept);
            more.host = self.hosts.enter(host);
            Kept::ALL.into_iter().for_each(|kind| self.hosts.charge(more.host, kind, more.kept(kind)));
            let place = more.host;
            more.works_mut().for_each(|work| self.hosts.list(place, (entry.id, work.position.activity)));
            arriving.iter().for_each(|activity| self.hosts.begin_receiving(more.host, (entry.id, *activity)));
            if !more.rest.is_empty() {
                self.hosts.at_mut(more.host).wide.push_back(entry.id);
            }
        }
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
        let (target, answer) = (target(client, header.scheme), Answer::Stale(stale));
        self.reply(Reply { to, target, limit: BASE_DATAGRAM, answer });
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
        self.reply(Reply { to, target: target(0, header.scheme), limit: BASE_DATAGRAM, answer });
    }

    /// Forgets a conversation, so that no ticket as old as its own is accepted any more.
    pub(super) fn forget(&mut self, now: Time, place: usize) {
        let entry = self.table.remove(place);
        self.conversing.remove(entry.host());
        if !self.config.mutant.breaks(Rule::ForgetsSilently) {
            self.horizon = self.horizon.max(entry.issued);
        }
        self.forgot = now;
        self.stats.evicted += 1;
        if let Some(more) = entry.more {
            self.dissolve(entry.id, *more);
        }
    }
}

/// Whoever has this identifier, whom we have no key in common with: what it hears so is a hint.
fn target(client: u64, scheme: Scheme) -> Target {
    let scheme = if scheme.has_secrets() { Scheme::Open } else { scheme };
    Target { conversation: client, seal: Seal::without_key(scheme, Direction::ToClient) }
}
