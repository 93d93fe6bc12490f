//! Decides which clients may call: binding, tickets, challenges, and the horizon, which is the date up to
//! which tickets are refused (docs/protocol.md, "Binding" and "Tickets and horizon").
//!
//! A conversation joins one client endpoint to one server endpoint. A client shows the conversation's ticket,
//! which the server has issued, until the server knows the conversation.

use std::net::SocketAddr;
use std::time::Duration;

use super::Server;
#[cfg(feature = "secure")]
use super::asymmetric::Responded;
use super::counts::Count;
#[cfg(feature = "secure")]
use super::handshake::{Agreed, Next};
use super::send::{Answer, Reply, frames};
use super::table::Entry;
#[cfg(not(feature = "secure"))]
use super::unkeyed::Responded;
use crate::config::AMPLIFICATION;
use crate::scheme::Scheme;
#[cfg(feature = "secure")]
use crate::secure::Level;
#[cfg(feature = "secure")]
use crate::wire;
use crate::wire::{
    Bind, CHALLENGED, Ended, Handshake, Header, Stale, StaleReason, Target, Ticket, UserProof, VERSION,
    Welcome, frames_by,
};
use crate::{BASE_DATAGRAM, Fingerprint, Kind, Rule, Time};

/// How long after it was given a ticket challenges a client to prove its user.
const CHALLENGE_LIFE: Duration = Duration::from_secs(60);

impl Server {
    /// Answers a BIND that came from `from` in a datagram of `len` bytes. Keeps no state of it, except that
    /// some clients are remembered [until they call](super::uncalled).
    /// `computed` is its handshake, if that was computed; a BIND whose handshake is to be computed first
    /// waits for that. `proofs` are the USER-PROOFs of the datagram.
    pub(super) fn answer_bind(
        &mut self,
        now: Time,
        (from, len): (SocketAddr, usize),
        (bind, proofs): (&Bind<'_>, &[UserProof]),
        computed: Option<Responded>,
    ) -> Option<Reply> {
        let asked = bind.renew.as_ref().map(|(conversation, ticket, old)| {
            if ticket.client != bind.client {
                return Err(Ended { reason: StaleReason::Address, age: 0 });
            }
            self.stands(now, *conversation, ticket, *old).map(|()| (*conversation, ticket))
        });
        if let Some(Err(ended)) = &asked {
            self.note_forgotten(now, ended.reason);
        }
        let (chosen, renewed) = (self.choose(bind.schemes, from), matches!(asked, Some(Ok(_))));
        let (export, refused) = match self.look_up(bind, chosen, renewed) {
            Ok(export) => (export, 0),
            Err(kind) => (0, kind.code()),
        };
        let scheme = chosen.unwrap_or_default();
        #[cfg(feature = "secure")]
        if scheme.has_secrets() {
            let answer = (scheme, export, refused);
            return self.answer_with_secrets(now, (from, len), (bind, computed), answer, asked);
        }
        let _ = computed;
        let is_let_in = renewed || self.lets_in(now, from, bind, proofs);
        let (export, refused) = match is_let_in || refused == Kind::Mismatch.code() {
            true => (export, refused),
            false => (0, Kind::NotPermitted.code()),
        };
        let conversation = match asked {
            Some(Ok((conversation, _))) => conversation,
            None | Some(Err(_)) => self.admission.issuer.conversation(bind.client),
        };
        let ticket = match asked {
            _ if !is_let_in => self.challenge_user(now, bind.client, conversation, from),
            Some(Ok((_, old))) if !self.config.mutant.breaks(Rule::RenewalDatedAnew) => {
                self.admission.issuer.dated_as(old, conversation, from, old.rest.to_vec())
            }
            _ => self.admission.issuer.issue(now, self.admission.horizon, bind.client, conversation, from),
        };
        let ended = asked.and_then(Result::err);
        let target = Target::without_secrets(bind.client, Scheme::Open);
        let procedures = self.exports.get(export).map_or(&[][..], |export| &export.procedures);
        let welcome = Welcome {
            nonce: bind.nonce,
            conversation,
            ticket,
            versions: (u16::from(VERSION), u16::from(VERSION)),
            refused,
            scheme: scheme as u16,
            export,
            total: procedures.len() as u32,
            seen: from,
            ended,
            handshake: Handshake::default(),
            procedures: &[],
        };
        let procedures = procedures.get(bind.from as usize..).unwrap_or_default();
        let frames = frames_of(&welcome, procedures, len, Scheme::Open)?;
        if refused == 0 && self.table.find(conversation).is_none() {
            self.uncalled.add(from, conversation, scheme, &welcome.ticket);
        }
        Some(Reply { to: from, target, answer: Answer::Alone(frames) })
    }

    /// Returns whether a client without keys may bind: every client may, or it has shown that it is a process
    /// of this server's user, now or when it was given the ticket that it shows as proof.
    fn lets_in(&mut self, now: Time, from: SocketAddr, bind: &Bind<'_>, proofs: &[UserProof]) -> bool {
        if self.users.is_none() || self.config.has_keys() {
            return true;
        }
        let Some((conversation, ticket)) = &bind.proof else { return false };
        if ticket.client != bind.client {
            return false;
        }
        if ticket.rest != CHALLENGED {
            return self.stands(now, *conversation, ticket, from).is_ok();
        }
        let issuer = &self.admission.issuer;
        let is_challenge = issuer.verify(ticket, *conversation, from, self.config.mutant).is_ok()
            && issuer.age(now, ticket) <= CHALLENGE_LIFE;
        let mutant = self.config.mutant;
        is_challenge
            && self
                .users
                .as_mut()
                .is_some_and(|users| users.have_proven(now, (*conversation, ticket), proofs, mutant))
    }

    /// Returns a ticket that challenges a client to prove that it is a process of this server's user, and
    /// that admits no conversation.
    fn challenge_user(
        &mut self,
        now: Time,
        client: u64,
        conversation: u64,
        from: SocketAddr,
    ) -> Ticket<'static> {
        let issuer = &mut self.admission.issuer;
        let ticket = issuer.issue(now, self.admission.horizon, client, conversation, from);
        issuer.dated_as(&ticket, conversation, from, CHALLENGED.to_vec())
    }

    /// Answers a BIND whose client and this server both have keys. Until both ends have the secrets of the
    /// conversation, the answer says nothing about exports and tickets.
    #[cfg(feature = "secure")]
    fn answer_with_secrets(
        &mut self,
        now: Time,
        (from, len): (SocketAddr, usize),
        (bind, computed): (&Bind<'_>, Option<Responded>),
        (scheme, export, refused): (Scheme, u64, u16),
        asked: Option<Result<(u64, &Ticket<'_>), Ended>>,
    ) -> Option<Reply> {
        let agreed = match self.agree(now, (from, len), (bind, scheme), &asked, computed) {
            Some(Next::Answer(agreed)) => *agreed,
            Some(Next::Compute) => return None,
            Some(Next::Again(datagram)) => {
                let target = Target::without_secrets(bind.client, scheme);
                return Some(Reply { to: from, target, answer: Answer::Again(datagram) });
            }
            None => return self.reject(),
        };
        // A ticket can be renewed from an address that nobody has proven to be at.
        let moves = bind.renew.as_ref().is_some_and(|(_, _, address)| *address != from);
        let is_new = self.table.find(agreed.conversation).is_none();
        if agreed.sealed.is_some() && agreed.refused.is_none() && refused == 0 && is_new && !moves {
            self.uncalled.add(from, agreed.conversation, scheme, &agreed.ticket);
        }
        let ended = asked.and_then(Result::err);
        self.answer_agreed((from, len), bind, (scheme, export, refused), ended, agreed)
    }

    /// Returns the answer to a BIND whose client and this server both have keys.
    #[cfg(feature = "secure")]
    pub(super) fn answer_agreed(
        &self,
        (from, len): (SocketAddr, usize),
        bind: &Bind<'_>,
        (scheme, export, refused): (Scheme, u64, u16),
        ended: Option<Ended>,
        agreed: Agreed,
    ) -> Option<Reply> {
        let told = agreed.sealed.is_some();
        let refused = if told { agreed.refused.map_or(refused, |kind| kind.code()) } else { 0 };
        let export = if told && refused == 0 { export } else { 0 };
        let procedures = self.exports.get(export).map_or(&[][..], |export| &export.procedures);
        let welcome = Welcome {
            nonce: bind.nonce,
            conversation: agreed.conversation,
            ticket: agreed.ticket,
            versions: (u16::from(VERSION), u16::from(VERSION)),
            refused,
            scheme: scheme as u16,
            export,
            total: procedures.len() as u32,
            seen: from,
            ended: ended.filter(|_| told),
            handshake: wire::whole(&agreed.step),
            procedures: &[],
        };
        let procedures = procedures.get(bind.from as usize..).unwrap_or_default();
        let frames = frames_of(&welcome, procedures, len, scheme)?;
        let (scheme, answer) = match agreed.sealed {
            Some(answering) => (scheme, Answer::Sealed(frames, Box::new(answering), agreed.computed)),
            None => (Scheme::Open, Answer::Alone(frames)),
        };
        Some(Reply { to: from, target: Target::without_secrets(bind.client, scheme), answer })
    }

    /// Chooses the scheme for a conversation with a client at that address, among those that the client
    /// offers. Returns `None` if the server speaks none of them.
    fn choose(&self, offered: u32, client: SocketAddr) -> Option<Scheme> {
        #[cfg(feature = "secure")]
        if self.config.trust.is_some() {
            let ours = match self.config.level {
                Level::Secure => [Scheme::Secure, Scheme::Secure],
                Level::Authenticated => [Scheme::Authenticated, Scheme::Secure],
            };
            return ours.into_iter().find(|scheme| offered & scheme.bit() != 0);
        }
        let local = client.ip().is_loopback().then_some(Scheme::Local);
        let mut ours = [local, Some(Scheme::Open)].into_iter().flatten();
        ours.find(|scheme| offered & scheme.bit() != 0)
    }

    /// Returns the export that a BIND names, or why the BIND is refused. A server that drains still answers a
    /// BIND that only renews a ticket, because that conversation goes on.
    fn look_up(&self, bind: &Bind<'_>, chosen: Option<Scheme>, renewed: bool) -> Result<u64, Kind> {
        let (least, most) = bind.versions;
        let version = u16::from(VERSION);
        if version < least || version > most || chosen.is_none() {
            return Err(Kind::Mismatch);
        }
        if self.draining.all && !(renewed && bind.name.is_empty()) {
            return Err(Kind::Draining);
        }
        if bind.name.is_empty() {
            return Ok(0);
        }
        self.exports.named(bind.name).ok_or_else(|| self.why_not_named(bind.name))
    }

    /// Checks that a conversation's ticket, which was given to `address`, is good.
    pub(super) fn stands(
        &self,
        now: Time,
        conversation: u64,
        ticket: &Ticket<'_>,
        address: SocketAddr,
    ) -> Result<(), Ended> {
        let mutant = self.config.mutant;
        let is_challenge = !self.config.has_keys() && !ticket.rest.is_empty();
        if is_challenge && !mutant.breaks(Rule::ChallengeAdmits) {
            return Err(Ended { reason: StaleReason::Address, age: 0 });
        }
        let age = |since: Time| now.since(since).as_nanos() as u64;
        self.admission.issuer.verify(ticket, conversation, address, mutant).map_err(|reason| {
            let other = reason == StaleReason::Incarnation;
            Ended { reason, age: if other { age(self.admission.issuer.born) } else { 0 } }
        })?;
        if self.table.find(conversation).is_some() || mutant.breaks(Rule::HorizonIgnored) {
            return Ok(());
        }
        // If a ticket is newer than the tickets of all forgotten conversations, its conversation was never
        // known.
        let unrecorded =
            mutant.breaks(Rule::FullUnrecorded) && self.table.len() >= self.config.max_conversations;
        match ticket.issued > self.admission.horizon && !unrecorded {
            true => Ok(()),
            false if ticket.issued > self.admission.forgotten => {
                Err(Ended { reason: StaleReason::Full, age: 0 })
            }
            false => Err(Ended { reason: StaleReason::Horizon, age: age(self.admission.forgot_at) }),
        }
    }

    /// Handles a ticket from an address at which its conversation is not known. Admits the conversation, or
    /// sends a hint that the ticket is not good.
    pub(super) fn admit(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: Header,
        ticket: &Ticket<'_>,
    ) -> Option<usize> {
        let mutant = self.config.mutant;
        let conversation = header.conversation;
        if let Err(ended) = self.stands(now, conversation, ticket, from)
            && !(mutant.breaks(Rule::FullUnrecorded) && ended.reason == StaleReason::Full)
        {
            self.note_forgotten(now, ended.reason);
            return self.refuse_ticket(from, header, ticket.client, ended.reason);
        }
        #[cfg(feature = "secure")]
        let Ok(admitted) = self.admitted(header.scheme, conversation, ticket) else {
            return self.refuse_ticket(from, header, ticket.client, StaleReason::Address);
        };
        if let Some(place) = self.table.find(conversation) {
            if !self.may_move(now, place, from) {
                return self.reject();
            }
            self.move_to(now, place, from);
            // A client that has moved was heard just now, so its calls are not given up.
            let now = self.coarse(now);
            self.table.at_mut(place).hear(now, header.scheme);
            return Some(place);
        }
        if !self.make_room(now, ticket.issued) {
            return self.refuse_ticket(from, header, ticket.client, StaleReason::Full);
        }
        #[cfg(feature = "secure")]
        if let Some(admitted) = admitted {
            let coarse = self.coarse(now);
            self.note_proven(&admitted.1);
            self.seals.secrets.insert((conversation, Some(header.number)), admitted, coarse, mutant);
        }
        self.uncalled.remove(conversation);
        let entry = Entry::new(conversation, ticket.client, ticket.issued, from);
        Some(self.enter(now, entry, header.scheme))
    }

    /// Makes room for a conversation whose ticket has this date, if the server is full. Returns whether there
    /// is room. If not, tickets of that date are refused from now on.
    pub(super) fn make_room(&mut self, now: Time, issued: u64) -> bool {
        let mutant = self.config.mutant;
        // At this point it is certain that no call ever ran under this ticket.
        if self.table.len() < self.config.max_conversations {
            return true;
        }
        let conversing = &self.admission.conversing;
        let no_share = mutant.breaks(Rule::NoShareOfHosts);
        let count = |host| if no_share { Count::default() } else { conversing.of(host) };
        let stays = |conversation| self.seals.stays(conversation, mutant);
        if let Some(victim) = self.table.victim(self.coarse(now), issued, count, stays) {
            self.forget(now, victim);
        }
        if self.table.len() < self.config.max_conversations || mutant.breaks(Rule::HorizonIgnored) {
            return true;
        }
        if !mutant.breaks(Rule::FullUnrecorded) {
            self.admission.horizon = self.admission.horizon.max(issued);
        }
        false
    }

    /// Adds a conversation to the table, whose client was heard now. Returns its place.
    pub(super) fn enter(&mut self, now: Time, mut entry: Entry, scheme: Scheme) -> usize {
        entry.hear(self.coarse(now), scheme);
        self.admission.conversing.add(entry.host(), 1);
        self.table.insert(entry)
    }

    /// Sends a hint that a ticket is not good.
    pub(super) fn refuse_ticket<T>(
        &mut self,
        to: SocketAddr,
        header: Header,
        client: u64,
        reason: StaleReason,
    ) -> Option<T> {
        self.stats.stale += 1;
        let Header { conversation, number, scheme } = header;
        let stale = Stale { conversation, number, reason };
        let answer = Answer::Alone(frames(|writer| writer.stale(&stale)));
        self.reply(Reply { to, target: target(client, scheme), answer });
        None
    }

    /// Answers a datagram without a ticket, of a conversation that is not known at this address.
    #[cold]
    pub(super) fn challenge(&mut self, to: SocketAddr, header: Header) {
        self.stats.challenges += 1;
        let Header { conversation, number, scheme } = header;
        let stale = Stale { conversation, number, reason: StaleReason::Address };
        let frames = frames(|writer| match self.table.find(conversation) {
            Some(_) => writer.stale(&stale),
            None => writer.challenge(conversation, number),
        });
        // The server does not know the client's identifier of the conversation. At zero, the client looks the
        // conversation up by the server's address.
        self.reply(Reply { to, target: target(0, scheme), answer: Answer::Alone(frames) });
    }

    /// Forgets a conversation. From now on no ticket with its ticket's date or an earlier one is accepted.
    pub(super) fn forget(&mut self, now: Time, place: usize) {
        let entry = self.table.remove(place);
        #[cfg(feature = "secure")]
        self.seals.secrets.remove(entry.id, self.config.mutant);
        self.admission.conversing.remove(entry.host());
        if !self.config.mutant.breaks(Rule::ForgetsSilently) {
            self.admission.horizon = self.admission.horizon.max(entry.issued);
            self.admission.forgotten = self.admission.forgotten.max(entry.issued);
        }
        self.admission.forgot_at = now;
        self.stats.evicted += 1;
        if let Some(more) = entry.more {
            self.dissolve(entry.id, *more);
        }
    }
}

/// Returns the target of a hint to the client with this identifier. The hint is not sealed with a key,
/// because the server need not share one with that client.
fn target(client: u64, scheme: Scheme) -> Target {
    Target::without_secrets(client, if scheme.has_secrets() { Scheme::Open } else { scheme })
}

/// Returns the frames of an answer to a BIND of `len` bytes, or `None` if not even its fixed fields fit.
fn frames_of(
    welcome: &Welcome<'_>,
    procedures: &[Fingerprint],
    len: usize,
    scheme: Scheme,
) -> Option<Vec<u8>> {
    let (mut wrote, limit) = (false, (len * AMPLIFICATION).min(BASE_DATAGRAM));
    let frames = frames_by(limit, scheme, |writer| wrote = writer.welcome(welcome, procedures));
    wrote.then_some(frames)
}
