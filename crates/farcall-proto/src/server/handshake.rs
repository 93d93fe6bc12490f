//! Handshakes at the server, which lead to a conversation's secrets (docs/protocol.md, section 11.2).
//!
//! The server keeps nothing of a handshake: the secrets, and who the client is, go into the ticket, sealed
//! with a key that only this process has. A client that has not proven its address makes the server compute
//! nothing that takes long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::Principal;
use farcall_crypto::{Answering, End, Resumption, Secrets, Suite, Suites, TicketKeys};
use zeroize::Zeroizing;

use super::asymmetric::{Class, Handshake, Responded, Response, Waiting, answering, hello};
use super::proofs::{Answers, PROOF_LIFE, ProofName, Proofs, Question};
use super::work::Phase;
use super::{CallKey, Server, key};
use crate::config::AMPLIFICATION;
use crate::scheme::{Scheme, keyed_hash};
use crate::secure::{Cipher, Trust};
use crate::wire::{self, Bind, Ended, Frame, Frames, StaleReason, Step, Ticket};
use crate::{Kind, Mutant, Rule, Time};

/// How long a ticket key seals tickets. It opens them for as long again.
const TICKET_KEY_LIFE: Duration = Duration::from_secs(600);

/// What becomes of a handshake in a BIND.
pub(super) enum Next {
    /// It is answered.
    Answer(Box<Agreed>),
    /// It waits to be computed.
    Compute,
    /// It was computed, and is answered once more by this datagram.
    Again(Arc<[u8]>),
}

/// How long after its handshake a conversation may be continued by others that cost no handshake. Whoever has
/// stolen its secrets can read those.
const MAX_RESUMED: Duration = Duration::from_secs(12 * 3600);

impl From<Agreed> for Next {
    fn from(agreed: Agreed) -> Next {
        Next::Answer(Box::new(agreed))
    }
}

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
    /// The BIND that it answers, if its handshake was computed, and when.
    pub computed: Option<(Question, Time)>,
}

/// A BIND with a first message, as it came.
struct Asks {
    from: SocketAddr,
    len: usize,
    scheme: Scheme,
    suites: u8,
    class: Class,
}

/// Where the secrets in a ticket come from.
struct Origin {
    /// When the last handshake ended from which they follow, counted from the beginning of this server.
    agreed: Duration,
    /// The facts about the client, as [`Trust::accept_client`] gave them.
    facts: Vec<u8>,
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
    /// Handshakes that wait to be computed.
    pub waiting: Waiting,
    /// The proofs of those that were computed, and their answers.
    pub proofs: Proofs,
    pub answers: Answers,
    key: [u8; 16],
}

impl Handshakes {
    pub fn new(now: Time, key: [u8; 16]) -> Handshakes {
        let (waiting, proofs) = (Waiting::new(now, key), Proofs::new(now));
        Handshakes { keys: None, since: now, before: 0, waiting, proofs, answers: Answers::default(), key }
    }

    /// Returns when something is to be done: the ticket keys are to be looked at, if there are any, or a
    /// handshake is to be computed, if no thread does so.
    pub fn due(&self) -> Option<Time> {
        self.keys_due().into_iter().chain(self.waiting.due_at_once()).min()
    }

    /// Returns the name of a BIND with a proof.
    fn question(&self, bind: &Bind<'_>) -> Option<Question> {
        let (_, proof) = bind.proof.as_ref()?;
        let body = keyed_hash(&self.key, &[bind.body]).h1;
        Some(Question { proof: ProofName::of(proof), body })
    }

    fn keys_due(&self) -> Option<Time> {
        self.keys.as_ref().map(|_| self.since + TICKET_KEY_LIFE)
    }
}

impl Server {
    /// Answers the handshake in a BIND that came from `from` in a datagram of `len` bytes, or queues it to be
    /// computed. `computed` is what came of that. `asked` is what is to be said about the ticket that the
    /// client wants to renew.
    pub(super) fn agree(
        &mut self,
        now: Time,
        (from, len): (SocketAddr, usize),
        (bind, scheme): (&Bind<'_>, Scheme),
        asked: &Option<Result<(u64, &Ticket<'_>), Ended>>,
        computed: Option<Responded>,
    ) -> Option<Next> {
        let trust = self.config.trust.clone()?;
        let step = Step::read(&bind.handshake).ok()??;
        self.replace_ticket_keys(now, &*trust);
        if let Some(Ok((conversation, ticket))) = *asked
            && let Some((secrets, _)) = self.secrets_of(&*trust, conversation, ticket)
        {
            let known = Step::Known(&trust.presentation(bind.name)).to_bytes();
            let ticket = self.admission.issuer.dated_as(ticket, conversation, from, ticket.rest.to_vec());
            let sealed = Some(answering(&secrets, bind, self.config.mutant));
            return Some(
                Agreed { conversation, ticket, step: known, sealed, refused: None, computed: None }.into(),
            );
        }
        let agreed = match (step, computed) {
            (Step::Resume(suites, random, _), _) => self
                .resume(now, from, (bind, random), &*trust, asked)
                .or_else(|| self.greet(now, from, (bind, suites, scheme), &*trust)),
            (Step::Message(..), Some(Ok(response))) if self.proves(now, from, bind) => {
                Some(self.answer_message(now, from, bind, &*trust, response))
            }
            (Step::Message(suites, _), None) if self.proves(now, from, bind) => {
                let asks = Asks { from, len, scheme, suites, class: class_of(bind, asked) };
                return self.consider(now, asks, bind, trust);
            }
            // Perhaps the client has read a changed answer, or has waited for too long. It begins again when
            // it is told who this is.
            (Step::Message(suites, _) | Step::Hello(suites, _), _) => {
                self.greet(now, from, (bind, suites, scheme), &*trust)
            }
            (Step::Wait(_) | Step::Known(_), _) => None,
        };
        agreed.map(Next::from)
    }

    /// Shows a client who the server is, and gives it a ticket that only proves its address.
    fn greet(
        &mut self,
        now: Time,
        from: SocketAddr,
        (bind, suites, scheme): (&Bind<'_>, u8, Scheme),
        trust: &dyn Trust,
    ) -> Option<Agreed> {
        let step = hello(self.suite(suites, scheme)?, &trust.presentation(bind.name));
        let (conversation, ticket) = self.give_ticket(now, bind.client, from, |_| Vec::new());
        Some(Agreed { conversation, ticket, step, sealed: None, refused: None, computed: None })
    }

    /// Returns the best of the suites that a client offers and this server has, for a scheme.
    fn suite(&self, offered: u8, scheme: Scheme) -> Option<Suite> {
        Suites(offered).and(self.config.suites).best(scheme.level()?)
    }

    /// Decides what becomes of a handshake whose client has proven its address: one proof leads to one
    /// computed handshake.
    fn consider(&mut self, now: Time, asks: Asks, bind: &Bind<'_>, trust: Arc<dyn Trust>) -> Option<Next> {
        let Asks { from, len, scheme, suites, class } = asks;
        let (_, proof) = bind.proof.as_ref()?;
        let question = self.handshakes.question(bind)?;
        if self.handshakes.waiting.has(question.proof) {
            return Some(Next::Compute);
        }
        if self.handshakes.proofs.is_used(proof) && !self.config.mutant.breaks(Rule::ComputedAgain) {
            return match self.handshakes.answers.find(now, &from, question) {
                Some(answer) if answer.len() <= AMPLIFICATION * len => Some(Next::Again(answer.clone())),
                // The client begins again, with another proof.
                _ => self.greet(now, from, (bind, suites, scheme), &*trust).map(Next::from),
            };
        }
        let (chosen, mutant) = ((scheme, self.suite(suites, scheme)?), self.config.mutant);
        let class = if mutant.breaks(Rule::KnownUnshared) { Class::New } else { class };
        let shown = bind.renew.as_ref().filter(|_| class == Class::Known);
        let shown = shown.map(|(_, ticket, _)| ticket.client);
        let (bind, proof) = (bind.to_owned(), question.proof);
        let handshake = Handshake { from, len, bind, chosen, trust, mutant, proof, class, shown, began: now };
        let Some(out) = self.handshakes.waiting.push(now, handshake) else { return Some(Next::Compute) };
        let agreed = self.wait(now, &out)?;
        if out.proof == proof {
            return Some(agreed.into());
        }
        // Another one makes way, and is told so.
        if let Some(bind) = out.bind.read()
            && let Some(reply) = self.answer_agreed((out.from, out.len), &bind, (scheme, 0, 0), None, agreed)
        {
            self.reply(reply);
        }
        Some(Next::Compute)
    }

    /// Tells a client whose address is proven that the server has no time for its handshake now.
    fn wait(&mut self, now: Time, handshake: &Handshake) -> Option<Agreed> {
        let Handshake { from, proof, bind, .. } = handshake;
        let (conversation, ticket) = self.give_ticket(now, bind.read()?.client, *from, |_| Vec::new());
        let time = self.handshakes.waiting.turn(now, from, *proof);
        let step = Step::Wait(time.as_millis() as u16).to_bytes();
        Some(Agreed { conversation, ticket, step, sealed: None, refused: None, computed: None })
    }

    /// Returns whether the ticket that a BIND shows as proof shows that the client is at its address.
    fn proves(&self, now: Time, from: SocketAddr, bind: &Bind<'_>) -> bool {
        let Some((conversation, proof)) = &bind.proof else { return false };
        let issuer = &self.admission.issuer;
        let verified = issuer.verify(proof, *conversation, from, Mutant::NONE).is_ok();
        let unchecked = self.config.mutant.breaks(Rule::ProofUnchecked);
        unchecked || verified && proof.client == bind.client && issuer.age(now, proof) <= PROOF_LIFE
    }

    /// Ends a handshake that was computed. Only now it is sure whether the client is accepted.
    fn answer_message(
        &mut self,
        now: Time,
        from: SocketAddr,
        bind: &Bind<'_>,
        trust: &dyn Trust,
        response: Response,
    ) -> Agreed {
        let Response { step, secrets, sealed, facts } = response;
        let unchecked = self.config.mutant.breaks(Rule::ComputedUnchecked);
        // A client that is refused gets a ticket without secrets, which admits no conversation.
        let ((conversation, ticket), refused) = match facts {
            Some(facts) if unchecked || self.recall(trust, &facts).is_some() => {
                let origin = Origin { agreed: self.age(now), facts };
                let ticket = self.give_ticket(now, bind.client, from, |(server, conversation, issued)| {
                    server.seal_secrets((bind.client, conversation, issued), &secrets, &origin)
                });
                (ticket, None)
            }
            _ => (self.give_ticket(now, bind.client, from, |_| Vec::new()), Some(Kind::NotPermitted)),
        };
        let computed = self.handshakes.question(bind).map(|question| (question, now));
        Agreed { conversation, ticket, step, sealed: Some(sealed), refused, computed }
    }

    /// Begins a conversation that continues one which the server has forgotten. Its keys follow from those of
    /// the forgotten one and from new random bytes of both ends. Returns `None` if the ticket does not hold
    /// the former secrets any more, the client is not accepted any more, or their last handshake is long ago.
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
        let (former, origin) = self.open_ticket(*before, ticket)?;
        self.recall(trust, &origin.facts)?;
        let is_old = self.age(now).saturating_sub(origin.agreed) > MAX_RESUMED;
        if is_old && !self.config.mutant.breaks(Rule::ResumedForEver) {
            return None;
        }
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
            let rest = server.seal_secrets((client, conversation, issued), &resumed, &origin);
            secrets = Some(resumed);
            rest
        });
        let secrets = secrets?;
        let sealed = Some(answering(&secrets, bind, self.config.mutant));
        let step = Step::Resume(0, &ours, &trust.presentation(name)).to_bytes();
        Some(Agreed { conversation, ticket, step, sealed, refused: None, computed: None })
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

    /// Returns how long ago this server began.
    fn age(&self, now: Time) -> Duration {
        now.since(self.admission.issuer.born)
    }

    fn seal_secrets(&mut self, of: (u64, u64, u64), secrets: &Secrets, origin: &Origin) -> Vec<u8> {
        let Some(keys) = &mut self.handshakes.keys else { return Vec::new() };
        let agreed = (origin.agreed.as_secs() as u32).to_be_bytes();
        let plain = Zeroizing::new([&secrets.to_bytes()[..], &agreed, &origin.facts].concat());
        keys.seal(&context(of), &plain)
    }

    /// Returns the secrets in a ticket, and where they come from.
    fn open_ticket(&self, conversation: u64, ticket: &Ticket<'_>) -> Option<(Secrets, Origin)> {
        let context = context((ticket.client, conversation, ticket.issued));
        let plain = self.handshakes.keys.as_ref()?.open(&context, &ticket.rest)?;
        let (secrets, origin) = plain.split_at_checked(Secrets::BYTES)?;
        let (agreed, facts) = origin.split_first_chunk()?;
        let agreed = Duration::from_secs(u32::from_be_bytes(*agreed).into());
        let mut secrets = Secrets::from_bytes(secrets)?;
        let later = Duration::from_nanos(ticket.issued).saturating_sub(agreed).as_secs();
        secrets.note_resumed_after(later.try_into().unwrap_or(u16::MAX));
        Some((secrets, Origin { agreed, facts: facts.to_vec() }))
    }

    /// Returns the secrets of a conversation that is known, or whose ticket is good, and who its client is.
    /// Returns `None` if there are none, or the client is not accepted any more.
    pub(super) fn secrets_of(
        &self,
        trust: &dyn Trust,
        conversation: u64,
        ticket: &Ticket<'_>,
    ) -> Option<(Secrets, Arc<Principal>)> {
        if let Some(secrets) = self.seals.secrets.secrets(conversation) {
            return Some((secrets.copy(), self.seals.secrets.principal(conversation)?));
        }
        let (secrets, origin) = self.open_ticket(conversation, ticket)?;
        Some((secrets, self.recall(trust, &origin.facts)?))
    }

    /// Returns who the client of a ticket is, if it is still accepted.
    fn recall(&self, trust: &dyn Trust, facts: &[u8]) -> Option<Arc<Principal>> {
        match trust.recall(facts) {
            Err(_) if self.config.mutant.breaks(Rule::RevocationIgnored) => {
                Some(Arc::new(Principal::new("anybody", [0; 32])))
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
        let Some(trust) = &self.config.trust else { return Ok(None) };
        let (secrets, principal) = self.secrets_of(&**trust, conversation, ticket).ok_or(NotAdmitted)?;
        if scheme.level() != Some(secrets.level()) {
            return Err(NotAdmitted);
        }
        Ok(Some((secrets, principal)))
    }

    /// Notes that the client of a conversation that begins has proven itself.
    pub(super) fn note_proven(&self, client: &Arc<Principal>) {
        if let Some(trust) = &self.config.trust {
            trust.proven(client);
        }
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
        let cipher = secrets.cipher(End::Server, None);
        self.seals.secrets.keep_expanded(conversation, &cipher);
        Some(cipher)
    }

    /// Notes that a datagram did not open by the cipher of its conversation.
    pub fn note_unopened(&mut self, now: Time, datagram: &[u8]) {
        self.stats.dropped += 1;
        self.seals.secrets.forget_expanded();
        let Ok((header, _)) = wire::peek(datagram) else { return };
        if self.seals.secrets.note_failure(header.conversation)
            && let Some(place) = self.table.find(header.conversation)
        {
            // As many failures as AES-GCM and ChaCha20-Poly1305 allow under one key (RFC 9001, section 6.6).
            self.forget_at_work(now, place);
        }
    }

    /// Returns the clients of all conversations, each once for each evidence that it has shown.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        self.seals.secrets.principals()
    }

    /// Returns the running calls of clients that are no longer accepted. [`Server::finish_early`] tells such a
    /// client why its call ends, as long as its conversation is not [forgotten](Server::forget_revoked).
    pub fn revoked_calls(&self, accepted: impl Fn(&Principal) -> bool) -> Vec<CallKey> {
        let places = self.seals.secrets.of_others(accepted).into_iter();
        places
            .filter_map(|conversation| self.table.find(conversation))
            .flat_map(|place| self.running(place))
            .collect()
    }

    /// Returns the calls of a conversation that the user executes.
    fn running(&self, place: usize) -> Vec<CallKey> {
        let entry = self.table.at(place);
        let works = entry.more.iter().flat_map(|more| more.activities.works());
        works.filter(|work| work.phase == Phase::Running).map(|work| key(entry.id, work.position)).collect()
    }

    /// Forgets the conversations whose clients are no longer accepted. Call this after the keys have changed.
    /// [`Server::next_forsaken`] then returns their unfinished calls, which are to be cancelled.
    pub fn forget_revoked(&mut self, now: Time, accepted: impl Fn(&Principal) -> bool) {
        for conversation in self.seals.secrets.of_others(accepted) {
            if let Some(place) = self.table.find(conversation) {
                self.forget_at_work(now, place);
            }
        }
    }

    /// Forgets the conversations by whose keys no more may be sealed. Their clients were not heard in the
    /// last phase.
    #[cold]
    pub(super) fn forget_spent(&mut self, now: Time) {
        for conversation in self.seals.secrets.take_spent() {
            if let Some(place) = self.table.find(conversation) {
                self.forget_at_work(now, place);
            }
        }
    }

    /// Forgets a conversation. [`Server::next_forsaken`] then returns its unfinished calls.
    fn forget_at_work(&mut self, now: Time, place: usize) {
        for call in self.running(place) {
            self.end_inside(place, call.activity);
            self.sweep.forsaken.push(call);
        }
        self.forget(now, place);
        if !self.sweep.forsaken.is_empty() {
            // The user asks for them when the timer is due.
            self.set_sweep(Some(now));
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
        self.handshakes.answers.clear();
        self.handshakes.since = now;
        self.handshakes.before = self.admission.issuer.last_date();
        self.set_timer();
    }

    /// Replaces or erases old ticket keys, also while no client asks. A server whose current key has sealed
    /// nothing keeps no key at all, and no timer.
    pub(super) fn look_at_ticket_keys(&mut self, now: Time) {
        if self.handshakes.keys_due().is_none_or(|due| now < due) {
            return;
        }
        if self.config.mutant.breaks(Rule::TicketKeysKept) {
            self.handshakes.since = now;
            return self.set_timer();
        }
        if self.handshakes.keys.as_ref().is_some_and(TicketKeys::is_unused) {
            self.handshakes.keys = None;
            self.handshakes.answers.clear();
            self.refuse_tickets_until(now, self.handshakes.before);
            return self.set_timer();
        }
        if let Some(trust) = self.config.trust.clone() {
            self.replace_ticket_keys(now, &*trust);
        }
    }

    /// Refuses the tickets up to a date from now on, because the key that sealed them is erased.
    fn refuse_tickets_until(&mut self, now: Time, date: u64) {
        self.seals.secrets.forget_expanded();
        self.admission.horizon = self.admission.horizon.max(date);
        self.admission.forgotten = self.admission.forgotten.max(date);
        self.admission.forgot_at = now;
    }
}

/// Returns the class of a client. It is known if it shows a ticket that was given to it in a handshake with
/// this server, good or not: a ticket that only proves an address has no rest.
fn class_of(bind: &Bind<'_>, asked: &Option<Result<(u64, &Ticket<'_>), Ended>>) -> Class {
    let had_secrets = bind.renew.as_ref().is_some_and(|(_, ticket, _)| !ticket.rest.is_empty());
    let is_genuine = match asked {
        Some(Ok(_)) => true,
        Some(Err(ended)) => matches!(ended.reason, StaleReason::Horizon | StaleReason::Full),
        None => false,
    };
    if had_secrets && is_genuine { Class::Known } else { Class::New }
}

/// Returns what a ticket's sealed part is bound to: the client, the conversation, and the date.
fn context((client, conversation, issued): (u64, u64, u64)) -> [u8; 24] {
    let mut context = [0; 24];
    let words = [client, conversation, issued].map(u64::to_be_bytes);
    context.copy_from_slice(words.as_flattened());
    context
}
