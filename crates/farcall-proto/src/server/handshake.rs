//! Handshakes at the server, which lead to a conversation's secrets (docs/protocol.md, section 11.2).
//!
//! The server keeps nothing of a handshake: the secrets, and who the client is, go into the ticket, sealed
//! with a key that only this process has. A client that has not proven its address makes the server compute
//! nothing that takes long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::Principal;
use farcall_crypto::{Answering, End, Level, Responder, Resumption, Secrets, Suite, Suites, TicketKeys};
use zeroize::Zeroizing;

use super::counts::Counts;
use super::hosts::HostName;
use super::work::Phase;
use super::{Server, key};
use crate::scheme::Scheme;
use crate::secure::{Cipher, Trust};
use crate::wire::{self, Bind, Ended, Frame, Frames, Prologue, StaleReason, Step, Ticket};
use crate::{Kind, Mutant, Rule, Time};

/// How long a ticket key seals tickets. It opens them for as long again.
const TICKET_KEY_LIFE: Duration = Duration::from_secs(600);

/// How long after it was given a ticket proves that its client is at its address.
const PROOF_LIFE: Duration = Duration::from_secs(60);

/// The maximum number of handshakes that a server computes in a period, and of those of one host. With about
/// 300 µs each, they take two thirds of a processor.
const MAX_PER_PERIOD: u32 = 280;
const MAX_OF_A_HOST: u32 = 140;
/// The period.
const PERIOD: Duration = Duration::from_millis(125);

/// A server's answer to a BIND in a scheme with secrets.
pub(super) struct Agreed {
    pub conversation: u64,
    pub ticket: Ticket<'static>,
    /// The bytes of the server's step of the handshake.
    pub step: Vec<u8>,
    /// What the answer is sealed with, if both ends have secrets. Otherwise the answer says nothing about
    /// exports or tickets.
    pub sealed: Option<Answering>,
    /// Why the client is not accepted.
    pub refused: Option<Kind>,
}

/// A ticket does not admit its conversation.
#[derive(Debug)]
pub(super) struct NotAdmitted;

/// What a server needs for handshakes, besides the keys of [`Trust`].
#[derive(Debug)]
pub(super) struct Handshakes {
    keys: Option<TicketKeys>,
    /// When the current ticket key began to be used, and the last date of a ticket before.
    since: Time,
    before: u64,
    /// How many handshakes were computed since `began`, for each host and for all.
    per_host: Option<Counts>,
    all: u32,
    began: Time,
    /// The secret that decides how hosts are counted.
    key: [u8; 16],
}

impl Handshakes {
    pub fn new(now: Time, key: [u8; 16]) -> Handshakes {
        Handshakes { keys: None, since: now, before: 0, per_host: None, all: 0, began: now, key }
    }

    /// Returns when the ticket keys are to be looked at, if there are any.
    pub fn due(&self) -> Option<Time> {
        self.keys.as_ref().map(|_| self.since + TICKET_KEY_LIFE)
    }

    /// Returns whether one more handshake of a host may be computed now.
    fn take(&mut self, now: Time, from: &SocketAddr, mutant: Mutant) -> bool {
        if now.since(self.began) >= PERIOD {
            (self.began, self.all) = (now, 0);
            self.per_host.iter_mut().for_each(Counts::clear);
        }
        let per_host = self.per_host.get_or_insert_with(|| Counts::new(self.key));
        let host = HostName::at(from);
        let has_room = self.all < MAX_PER_PERIOD && per_host.of(host) < MAX_OF_A_HOST;
        if !has_room && !mutant.breaks(Rule::HandshakesUnbounded) {
            return false;
        }
        self.all += 1;
        per_host.add(host, 1);
        true
    }
}

impl Server {
    /// Answers the handshake in a BIND that came from `from`. `asked` is what is to be said about the ticket
    /// that the client wants to renew.
    pub(super) fn agree(
        &mut self,
        now: Time,
        from: SocketAddr,
        (bind, scheme): (&Bind<'_>, Scheme),
        asked: &Option<Result<(u64, &Ticket<'_>), Ended>>,
    ) -> Option<Agreed> {
        let trust = self.config.trust.clone()?;
        let step = Step::read(&bind.handshake).ok()??;
        self.replace_ticket_keys(now, &*trust);
        if let Some(Ok((conversation, ticket))) = *asked
            && let Some((secrets, _)) = self.secrets_of(&*trust, conversation, ticket)
        {
            let known = Step::Known(&trust.presentation(bind.name)).to_bytes();
            let ticket = self.admission.issuer.dated_as(ticket, conversation, from, ticket.rest.to_vec());
            let sealed = Some(answering(&secrets, bind, self.config.mutant));
            return Some(Agreed { conversation, ticket, step: known, sealed, refused: None });
        }
        match step {
            Step::Resume(suites, random, _) => self
                .resume(now, from, (bind, random), &*trust, asked)
                .or_else(|| self.greet(now, from, (bind, suites), &*trust)),
            Step::Message(suites, message) => {
                if let Some((conversation, proof)) = &bind.proof
                    && self.proves(now, from, bind, *conversation, proof)
                {
                    if !self.handshakes.take(now, &from, self.config.mutant) {
                        return Some(self.wait(now, from, bind));
                    }
                    let prologue = (*conversation, proof, suites);
                    return self.answer_message(now, from, (bind, scheme), &*trust, prologue, message);
                }
                self.greet(now, from, (bind, suites), &*trust)
            }
            Step::Hello(suites, _) => self.greet(now, from, (bind, suites), &*trust),
            Step::Wait(_) | Step::Known(_) => None,
        }
    }

    /// Shows a client who the server is, and gives it a ticket that only proves its address.
    fn greet(
        &mut self,
        now: Time,
        from: SocketAddr,
        (bind, suites): (&Bind<'_>, u8),
        trust: &dyn Trust,
    ) -> Option<Agreed> {
        let step = hello(self.suite(suites)?, &trust.presentation(bind.name));
        let (conversation, ticket) = self.give_ticket(now, bind.client, from, |_| Vec::new());
        Some(Agreed { conversation, ticket, step, sealed: None, refused: None })
    }

    /// Returns the best of the suites that a client offers and this server has.
    fn suite(&self, offered: u8) -> Option<Suite> {
        Suites(offered).and(self.config.suites).best()
    }

    /// Tells a client whose address is proven that the server has no time for its handshake now.
    fn wait(&mut self, now: Time, from: SocketAddr, bind: &Bind<'_>) -> Agreed {
        let (conversation, ticket) = self.give_ticket(now, bind.client, from, |_| Vec::new());
        let step = Step::Wait(PERIOD.as_millis() as u16).to_bytes();
        Agreed { conversation, ticket, step, sealed: None, refused: None }
    }

    /// Returns whether a ticket proves that a client is at its address.
    fn proves(
        &self,
        now: Time,
        from: SocketAddr,
        bind: &Bind<'_>,
        conversation: u64,
        proof: &Ticket<'_>,
    ) -> bool {
        let age = self.admission.issuer.age(now, proof);
        let unchecked = self.config.mutant.breaks(Rule::ProofUnchecked);
        let issuer = &self.admission.issuer;
        let verified = issuer.verify(proof, conversation, from, Mutant::NONE).is_ok();
        unchecked || verified && proof.client == bind.client && age <= PROOF_LIFE
    }

    /// Answers the first message of a handshake.
    fn answer_message(
        &mut self,
        now: Time,
        from: SocketAddr,
        (bind, scheme): (&Bind<'_>, Scheme),
        trust: &dyn Trust,
        (proven, proof, suites): (u64, &Ticket<'_>, u8),
        message: &[u8],
    ) -> Option<Agreed> {
        let suite = self.suite(suites)?;
        let hello = hello(suite, &trust.presentation(bind.name));
        let prologue = Prologue {
            client: bind.client,
            proof: (proven, proof),
            versions: bind.versions,
            schemes: bind.schemes,
            name: bind.name,
            hello: &hello,
        };
        let private = trust.private_key();
        let begun = Responder::begin(&private, &prologue.to_bytes(), message, entropy(trust));
        let Some(responder) = begun else {
            // Perhaps the client has read a changed answer. It begins again when it is told who this is.
            return self.greet(now, from, (bind, suites), trust);
        };
        let accepted = trust.accept_client(&responder.client, &responder.payload);
        let (reply, secrets) = responder.end(&[], level(scheme)?, suite)?;
        let sealed = Some(answering(&secrets, bind, self.config.mutant));
        // A client that is refused gets a ticket without secrets, which admits no conversation.
        let ((conversation, ticket), refused) = match accepted {
            Ok(facts) => (self.give_secret_ticket(now, bind.client, from, &secrets, &facts), None),
            Err(_) => (self.give_ticket(now, bind.client, from, |_| Vec::new()), Some(Kind::NotPermitted)),
        };
        let step = Step::Message(suite as u8, &reply).to_bytes();
        Some(Agreed { conversation, ticket, step, sealed, refused })
    }

    /// Begins a conversation that continues one which the server has forgotten. Its keys follow from those of
    /// the forgotten one and from new random bytes of both ends. Returns `None` if the ticket does not hold
    /// the former secrets any more, or the client is not accepted any more.
    fn resume(
        &mut self,
        now: Time,
        from: SocketAddr,
        (bind, random): (&Bind<'_>, &[u8; 32]),
        trust: &dyn Trust,
        asked: &Option<Result<(u64, &Ticket<'_>), Ended>>,
    ) -> Option<Agreed> {
        let (Some(Err(ended)), Some((before, ticket, _))) = (asked, &bind.renew) else { return None };
        if !matches!(ended.reason, StaleReason::Horizon | StaleReason::Full) {
            return None;
        }
        let (former, facts) = self.open_ticket(*before, ticket)?;
        self.recall(trust, &facts)?;
        let (mut ours, mut secrets) = ([0; 32], None);
        trust.entropy(&mut ours);
        if self.config.mutant.breaks(Rule::ResumptionUnmixed) {
            ours = [0; 32];
        }
        let (client, name) = (bind.client, bind.name);
        let (conversation, ticket) = self.give_ticket(now, client, from, |(server, conversation, issued)| {
            let prologue = wire::resumption(client, *before, conversation, name);
            let resumption = Resumption { client: random, server: &ours, prologue: &prologue };
            let resumed = former.resume(&resumption);
            let rest = server.seal_secrets((client, conversation, issued), &resumed, &facts);
            secrets = Some(resumed);
            rest
        });
        let secrets = secrets?;
        let sealed = Some(answering(&secrets, bind, self.config.mutant));
        let step = Step::Resume(0, &ours, &trust.presentation(name)).to_bytes();
        Some(Agreed { conversation, ticket, step, sealed, refused: None })
    }

    fn give_secret_ticket(
        &mut self,
        now: Time,
        client: u64,
        from: SocketAddr,
        secrets: &Secrets,
        facts: &[u8],
    ) -> (u64, Ticket<'static>) {
        self.give_ticket(now, client, from, |(server, conversation, issued)| {
            server.seal_secrets((client, conversation, issued), secrets, facts)
        })
    }

    /// Issues a ticket of a new conversation. `rest` makes the part that only this server reads.
    fn give_ticket(
        &mut self,
        now: Time,
        client: u64,
        from: SocketAddr,
        rest: impl FnOnce((&mut Server, u64, u64)) -> Vec<u8>,
    ) -> (u64, Ticket<'static>) {
        let conversation = self.admission.issuer.conversation(client);
        let ticket = self.admission.issuer.issue(now, self.admission.horizon, client, conversation, from);
        let rest = rest((self, conversation, ticket.issued));
        (conversation, self.admission.issuer.dated_as(&ticket, conversation, from, rest))
    }

    fn seal_secrets(&mut self, of: (u64, u64, u64), secrets: &Secrets, facts: &[u8]) -> Vec<u8> {
        let Some(keys) = &mut self.handshakes.keys else { return Vec::new() };
        let plain = Zeroizing::new([&secrets.to_bytes()[..], facts].concat());
        keys.seal(&context(of), &plain)
    }

    /// Returns the secrets in a ticket, and the facts about its client.
    fn open_ticket(&self, conversation: u64, ticket: &Ticket<'_>) -> Option<(Secrets, Vec<u8>)> {
        let context = context((ticket.client, conversation, ticket.issued));
        let plain = self.handshakes.keys.as_ref()?.open(&context, &ticket.rest)?;
        let (secrets, facts) = plain.split_at_checked(Secrets::BYTES)?;
        Some((Secrets::from_bytes(secrets)?, facts.to_vec()))
    }

    /// Returns the secrets of a conversation that is known, or whose ticket is good, and who its client is.
    /// Returns `None` if there are none, or the client is not accepted any more.
    fn secrets_of(
        &self,
        trust: &dyn Trust,
        conversation: u64,
        ticket: &Ticket<'_>,
    ) -> Option<(Secrets, Arc<Principal>)> {
        if let Some(secrets) = self.seals.secrets.secrets(conversation) {
            return Some((secrets.copy(), self.seals.secrets.principal(conversation)?));
        }
        let (secrets, facts) = self.open_ticket(conversation, ticket)?;
        Some((secrets, self.recall(trust, &facts)?))
    }

    /// Returns who the client of a ticket is, if it is still accepted.
    fn recall(&self, trust: &dyn Trust, facts: &[u8]) -> Option<Arc<Principal>> {
        match trust.recall(facts) {
            Err(_) if self.config.mutant.breaks(Rule::RevocationIgnored) => {
                Some(Arc::new(Principal { name: "anybody".into(), key: [0; 32] }))
            }
            recalled => recalled.ok(),
        }
    }

    /// Returns the secrets of a conversation that is to be admitted with its ticket, and who its client is.
    /// Returns `Ok(None)` if this server has no keys.
    ///
    /// # Errors
    /// If this server has keys, but the ticket is of a conversation without secrets or in another scheme, or
    /// its client is not accepted any more.
    pub(super) fn admitted(
        &self,
        scheme: Scheme,
        conversation: u64,
        ticket: &Ticket<'_>,
    ) -> Result<Option<(Secrets, Arc<Principal>)>, NotAdmitted> {
        let Some(trust) = &self.config.trust else {
            return if ticket.rest.is_empty() { Ok(None) } else { Err(NotAdmitted) };
        };
        let (secrets, principal) = self.secrets_of(&**trust, conversation, ticket).ok_or(NotAdmitted)?;
        if level(scheme) != Some(secrets.level()) {
            return Err(NotAdmitted);
        }
        Ok(Some((secrets, principal)))
    }

    /// Returns the cipher by which a sealed datagram opens. Returns `None` if there is none; then the client
    /// is sent a hint, or the datagram is dropped.
    pub fn cipher(&mut self, now: Time, from: &SocketAddr, datagram: &[u8]) -> Option<Arc<Cipher>> {
        let Ok((header, frames)) = wire::peek(datagram) else { return self.reject() };
        let conversation = header.conversation;
        if let Some(cipher) = self.seals.secrets.cipher(conversation) {
            return Some(cipher);
        }
        if conversation == 0 || self.table.find(conversation).is_some() {
            return self.reject();
        }
        self.expect_answers(datagram.len());
        let Some(Frame::Ticket(ticket)) = Frames::first(frames) else {
            self.challenge(*from, header);
            return None;
        };
        if let Err(ended) = self.stands(now, conversation, &ticket, *from) {
            return self.refuse_ticket(*from, header, ticket.client, ended.reason);
        }
        let Ok(Some((secrets, _))) = self.admitted(header.scheme, conversation, &ticket) else {
            return self.refuse_ticket(*from, header, ticket.client, StaleReason::Horizon);
        };
        Some(secrets.cipher(End::Server, None))
    }

    /// Notes that a datagram did not open by the cipher of its conversation.
    pub fn note_unopened(&mut self, now: Time, datagram: &[u8]) {
        self.stats.dropped += 1;
        let Ok((header, _)) = wire::peek(datagram) else { return };
        if self.seals.secrets.note_failure(header.conversation)
            && let Some(place) = self.table.find(header.conversation)
        {
            // As many failures as AES-GCM and ChaCha20-Poly1305 allow under one key (RFC 9001, section 6.6).
            self.forget(now, place);
        }
    }

    /// Returns the clients of all conversations, each once.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        self.seals.secrets.principals()
    }

    /// Forgets the conversations whose clients are no longer accepted. Call this after the keys have changed.
    /// [`Server::next_forsaken`] then returns their unfinished calls, which are to be cancelled.
    pub fn forget_revoked(&mut self, now: Time, accepted: impl Fn(&Principal) -> bool) {
        for conversation in self.seals.secrets.of_others(accepted) {
            let Some(place) = self.table.find(conversation) else { continue };
            let works = self.table.at(place).more.iter().flat_map(|more| more.activities.works());
            let running = works.filter(|work| work.phase == Phase::Running).map(|work| work.position);
            for position in running.collect::<Vec<_>>() {
                self.end_inside(place, position.activity);
                self.sweep.forsaken.push(key(conversation, position));
            }
            self.forget(now, place);
        }
    }

    /// Makes a new ticket key when the current one is old. The one before is erased, and the tickets that it
    /// sealed are no longer good.
    fn replace_ticket_keys(&mut self, now: Time, trust: &dyn Trust) {
        let Handshakes { keys, since, before, .. } = &mut self.handshakes;
        let kept = self.config.mutant.breaks(Rule::TicketKeysKept);
        if keys.is_some() && (now.since(*since) < TICKET_KEY_LIFE || kept) {
            return;
        }
        let mut seed = Zeroizing::new([0; 44]);
        trust.entropy(&mut *seed);
        match keys {
            None => *keys = Some(TicketKeys::new(self.config.suites, &seed)),
            Some(keys) => {
                keys.replace(&seed);
                let erased = *before;
                self.refuse_tickets_until(now, erased);
            }
        }
        self.handshakes.since = now;
        self.handshakes.before = self.admission.issuer.last_date();
        self.set_timer();
    }

    /// Replaces or erases old ticket keys, also while no client asks. A server whose current key has sealed
    /// nothing keeps no key at all, and no timer.
    pub(super) fn look_at_ticket_keys(&mut self, now: Time) {
        if self.handshakes.due().is_none_or(|due| now < due) {
            return;
        }
        if self.config.mutant.breaks(Rule::TicketKeysKept) {
            self.handshakes.since = now;
            return self.set_timer();
        }
        if self.handshakes.keys.as_ref().is_some_and(TicketKeys::is_unused) {
            self.handshakes.keys = None;
            self.refuse_tickets_until(now, self.handshakes.before);
            return self.set_timer();
        }
        if let Some(trust) = self.config.trust.clone() {
            self.replace_ticket_keys(now, &*trust);
        }
    }

    /// Refuses the tickets up to a date from now on, because the key that sealed them is erased.
    fn refuse_tickets_until(&mut self, now: Time, date: u64) {
        self.admission.horizon = self.admission.horizon.max(date);
        self.admission.forgotten = self.admission.forgotten.max(date);
        self.admission.forgot_at = now;
    }
}

/// Returns the bytes of the step by which a server shows who it is.
fn hello(suite: Suite, presentation: &[u8]) -> Vec<u8> {
    Step::Hello(suite as u8, presentation).to_bytes()
}

/// Returns the key that seals the answer to a BIND.
fn answering(secrets: &Secrets, bind: &Bind<'_>, mutant: Mutant) -> Answering {
    secrets.answering(if mutant.breaks(Rule::AnswerUnbound) { &[] } else { bind.body })
}

fn level(scheme: Scheme) -> Option<Level> {
    match scheme {
        Scheme::Open | Scheme::Local => None,
        Scheme::Authenticated => Some(Level::Authenticated),
        Scheme::Secure => Some(Level::Secure),
    }
}

/// Returns what a ticket's sealed part is bound to: the client, the conversation, and the date.
fn context((client, conversation, issued): (u64, u64, u64)) -> [u8; 24] {
    let mut context = [0; 24];
    let words = [client, conversation, issued].map(u64::to_be_bytes);
    context.copy_from_slice(words.as_flattened());
    context
}

fn entropy(trust: &dyn Trust) -> [u8; 32] {
    let mut bytes = [0; 32];
    trust.entropy(&mut bytes);
    bytes
}
