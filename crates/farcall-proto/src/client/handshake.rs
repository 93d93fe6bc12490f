//! Handshakes at the client, by which it gets a conversation's secrets (docs/protocol.md, section 11.2). A
//! client that has keys accepts only sealed datagrams, and hints (CHALLENGE and STALE).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::Principal;
use farcall_crypto::{End, Initiator, Level, Place, Resumption, Secrets, Suite};
use zeroize::Zeroizing;

use super::agreement::{Agreement, Stage};
use super::names::BoundNames;
use super::session::Request;
use super::{Conversation, Event, slots};
use crate::key_log::line_of;
use crate::phases::Phases;
use crate::scheme::Scheme;
use crate::secure::{self, Cipher, MAX_WAIT, Opened, Trust};
use crate::wire::{self, Frame, Frames, Header, Prologue, Step, VERSION, Welcome};
use crate::{Failure, Kind, Mutant, Ran, Route, Rule, Time, route};

/// The keys of the conversation, and who its server is.
#[derive(Debug)]
pub(super) struct Kept {
    phases: Phases,
    /// The server's public key (X25519), and who it is.
    server: ([u8; 32], Arc<Principal>),
    /// The names for which the server was accepted.
    names: BoundNames,
}

impl Kept {
    fn new(secrets: &Secrets, server: ([u8; 32], Arc<Principal>), names: BoundNames) -> Box<Kept> {
        let cipher = secrets.cipher(End::Client, None);
        let mut kept = Box::new(Kept { phases: Phases::new(End::Client, Some(cipher)), server, names });
        kept.phases.hold(secrets);
        kept
    }

    /// Returns the conversation's secrets.
    pub fn secrets(&self) -> &Place {
        self.phases.secrets()
    }

    /// Returns who the server is, as it has shown for an export.
    pub fn server_of(&self, export: u64) -> Option<&Arc<Principal>> {
        self.names.server_of(export)
    }

    /// Opens a sealed datagram of the conversation, which has this identifier.
    #[inline(never)]
    fn open(&self, id: u64, datagram: &mut [u8]) -> Option<Opened> {
        if !secure::is_sealed(datagram) || route(datagram) != Some(Route::Conversation(id)) {
            return None;
        }
        secure::open(self.phases.expanded()?, datagram)
    }

    /// Notes that the datagram of this number has been opened. Returns false if it had come before.
    #[inline]
    pub fn take(&mut self, number: u64, opened: Opened, mutant: Mutant) -> bool {
        self.phases.take(number, opened, mutant.breaks(Rule::AnswersReplayed))
    }
}

/// The maximum number of times that a client begins the handshake of one question.
const MAX_HELLOS: u32 = 64;

/// The secrets that a handshake has led to, and the server that they are shared with.
pub(super) type Outcome = (Secrets, ([u8; 32], Arc<Principal>));

/// A WELCOME that opened.
enum Authentic {
    /// It counts. The secrets under which it opened, if they are new.
    Good(Option<Outcome>),
    /// The server of the conversation may not answer for the name, for this reason.
    Forbidden(String),
}

impl Conversation {
    /// Returns the cipher by which the server's sealed datagrams open.
    #[inline]
    pub fn cipher(&self) -> Option<Arc<Cipher>> {
        self.kept.as_ref()?.phases.expanded().cloned()
    }

    /// Opens a sealed datagram of this conversation in place. Returns `None` if it does not open, and changes
    /// nothing if it is not sealed, or is of another conversation.
    #[inline(always)]
    pub fn open(&self, datagram: &mut [u8]) -> Option<Opened> {
        self.kept.as_ref()?.open(self.id, datagram)
    }

    /// Seals a datagram of this conversation in place.
    #[inline(never)]
    pub(super) fn seal(&mut self, datagram: &mut [u8]) {
        if let Some(kept) = &mut self.kept {
            secure::seal(kept.phases.sealing(self.config.mutant), datagram);
            if kept.phases.is_spent() && !self.config.mutant.breaks(Rule::PhaseUnlimited) {
                self.spend();
            }
        }
    }

    /// Writes no more datagrams in the conversation: no more may be sealed by its keys.
    #[cold]
    fn spend(&mut self) {
        self.is_spent = true;
        self.session.granted = None;
        self.transfers.notices.clear();
        self.timers.check = Time::default();
    }

    /// Ends a conversation whose keys must seal no more. Its server was not heard in the last phase, so
    /// nobody knows what became of the calls that were sent. The others go to the next conversation.
    pub(super) fn end_spent(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        if !std::mem::take(&mut self.is_spent) {
            return;
        }
        self.end_calls(Kind::Unreachable, sink, |slot| slot.timing.first_sent.map(|_| Ran::Maybe));
        if self.slots.outstanding > 0 {
            self.session.greet(now, self.config.min_retransmit);
        }
    }

    /// Returns who the server is, in a scheme with secrets.
    pub fn principal(&self) -> Option<Arc<Principal>> {
        self.kept.as_ref().map(|kept| kept.server.1.clone())
    }

    /// Returns who the server is, as it has shown for an export that was bound in this conversation. Returns
    /// `None` if it may not answer for the export.
    pub fn server_of(&self, export: u64) -> Option<&Arc<Principal>> {
        self.kept.as_ref()?.server_of(export)
    }

    /// Returns who the server is, as it has shown for a name that was bound in this conversation.
    pub fn server_for(&self, name: &str) -> Option<&Arc<Principal>> {
        self.kept.as_ref()?.names.server_for(name)
    }

    /// Returns how much the conversation's seals protect and by which algorithm, in a scheme with secrets.
    pub fn protection(&self) -> Option<(Level, Suite)> {
        let secrets = self.kept.as_ref()?.phases.secrets();
        Some((secrets.level(), secrets.suite()))
    }

    /// Handles a datagram that is not sealed with the conversation's keys. The datagram can be a hint, or a
    /// step of a handshake. Everything else is ignored.
    pub(super) fn handle_unopened(&mut self, now: Time, datagram: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let Some((header, frames)) =
            wire::peek(datagram).ok().filter(|(header, _)| [0, self.id].contains(&header.conversation))
        else {
            return self.reject();
        };
        let open = header.scheme == Scheme::Open;
        // In the open scheme, the checksum shows that no accident has changed the datagram.
        let sound = open
            && (self.config.mutant.breaks(Rule::ChecksumIgnored) || header.scheme.checks(datagram, false));
        match Frames::first(frames) {
            Some(Frame::Challenge(conversation)) if sound => self.on_challenge(conversation),
            Some(Frame::Stale(stale)) if sound => self.on_stale(now, &stale, sink),
            Some(Frame::Welcome(w)) if header.conversation == self.id && (sound || !open) => {
                self.on_step(now, header, datagram, &w, sink);
            }
            _ => self.reject(),
        }
    }

    /// Acts on a WELCOME in a handshake.
    fn on_step(
        &mut self,
        now: Time,
        header: Header,
        datagram: &[u8],
        w: &Welcome<'_>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        self.end_spent(now, sink);
        if self.session.asked(w.nonce).is_none() {
            self.stats.duplicates += 1;
            return;
        }
        if header.scheme.has_secrets() {
            let Some(authentic) = self.authenticate(header, datagram, w) else { return self.reject() };
            self.stats.received += 1;
            match authentic {
                Authentic::Good(secrets) => {
                    if let (Some((secrets, _)), Some(trust)) = (&secrets, &self.config.trust) {
                        trust.agreed(&|| line_of(self.id, w.conversation, secrets));
                    }
                    self.agreed = secrets;
                    self.on_welcome(now, w, sink);
                    self.agreed = None;
                }
                Authentic::Forbidden(why) => {
                    self.session.heard(now);
                    self.refuse(now, w.nonce, (Kind::NotPermitted, &why), sink);
                }
            }
            return;
        }
        self.stats.received += 1;
        if self.config.mutant.breaks(Rule::UnsealedBelieved) && w.export != 0 {
            return self.on_welcome(now, w, sink);
        }
        if w.refused != 0 {
            // A server that has secrets for an answer gives every other reason under their seal.
            let why =
                "the server has no keys, and this client speaks only with servers that have; give it keys";
            let why = (Kind::Mismatch, why);
            return self.refuse(now, w.nonce, why, sink);
        }
        match Step::read(&w.handshake) {
            Ok(Some(Step::Hello(suite, shown))) => self.on_hello(now, w, (suite, shown), sink),
            Ok(Some(Step::Wait(millis))) => self.wait(now, w.nonce, millis),
            _ => self.reject(),
        }
    }

    /// Waits with a question, because the server is there and has no time for the handshake now. The calls
    /// that need the handshake wait too: their servers are not silent.
    fn wait(&mut self, now: Time, nonce: u64, millis: u16) {
        let time = Duration::from_millis(millis.into()).min(MAX_WAIT);
        if !self.session.wait(now, nonce, time) {
            return;
        }
        let patience = self.patience();
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_some() && !matches!(slot.stage, slots::Stage::Cancelling { .. }) {
                slot.restart_timer(now + time, patience);
            }
        }
    }

    /// Acts on the server's word who it is: begins a handshake if the server may answer for the name.
    fn on_hello(
        &mut self,
        now: Time,
        w: &Welcome<'_>,
        (suite, shown): (u8, &[u8]),
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let (Some(trust), offered) = (self.config.trust.clone(), self.offered()) else { return };
        let id = self.id;
        let Some(request) = self.session.asked(w.nonce) else { return };
        // If a handshake was under way, the server refuses the proof, as after a restart, or could not read
        // the message. The handshake begins again, but not for ever.
        request.agreement.stage = Stage::Asking;
        request.hellos += 1;
        if request.hellos > MAX_HELLOS {
            return self.reject();
        }
        let name = request.name().as_bytes().to_vec();
        let accepted = match trust.accept_server(&name, shown) {
            Ok(accepted) => accepted,
            Err(why) => return self.refuse(now, w.nonce, (Kind::NotPermitted, &why), sink),
        };
        let other = self.kept.as_ref().is_some_and(|kept| kept.server.0 != accepted.key);
        if name.is_empty() && other && !self.config.mutant.breaks(Rule::CallsFollow) {
            // Nobody has said that this server may answer for the names of the conversation's exports.
            let why = "another server, with another key, is at the address; bind the name again";
            return self.refuse(now, w.nonce, (Kind::NotPermitted, why), sink);
        }
        let ticket = w.ticket.clone().into_owned();
        let suites = self.config.suites.0;
        let chosen = Suite::of(suite).filter(|suite| suites & 1 << *suite as u8 != 0);
        let prologue = Prologue {
            client: id,
            proof: (w.conversation, &ticket),
            versions: (u16::from(VERSION), u16::from(VERSION)),
            schemes: offered,
            name: &name,
            hello: w.handshake.part,
        }
        .to_bytes();
        let shows = self.shows(&*trust, &name, other);
        let mut entropy = Zeroizing::new([0; 32]);
        trust.entropy(&mut *entropy);
        let private = trust.private_key();
        let begun =
            chosen.and_then(|_| Initiator::begin(&private, &accepted.key, &prologue, &shows, &entropy));
        let Some((initiator, message)) = begun else {
            let why = (Kind::Mismatch, "the server's key or its cipher is unusable");
            return self.refuse(now, w.nonce, why, sink);
        };
        let step = Step::Message(suites, &message).to_bytes();
        let server = (accepted.key, accepted.principal);
        let interval = self.config.min_retransmit;
        let Some(request) = self.session.asked(w.nonce) else { return };
        request.agreement.stage = Stage::Handshaking { initiator, step, server };
        request.agreement.proof = Some((w.conversation, ticket));
        self.session.ask_on(now, w.nonce, interval);
    }

    /// Returns what the client shows in a handshake that a question for `name` has caused. The names that are
    /// bound in the conversation stay bound if the same server answers, so it shows what they need, too.
    fn shows(&self, trust: &dyn Trust, name: &[u8], is_other_server: bool) -> Vec<u8> {
        let kept = self.kept.iter().filter(|_| !is_other_server);
        let bound = kept.flat_map(|kept| kept.names.names()).map(str::as_bytes);
        let all = std::iter::once(name).chain(bound.filter(|bound| *bound != name));
        let mut names: Vec<&[u8]> = all.filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            names.push(b"");
        }
        trust.presentation_for(&names)
    }

    /// Checks that a WELCOME was sealed by a server that may answer for the question's name, as the answer to
    /// the last question.
    fn authenticate(&mut self, header: Header, datagram: &[u8], w: &Welcome<'_>) -> Option<Authentic> {
        let trust = self.config.trust.clone()?;
        let level = header.scheme.level()?;
        let mutant = self.config.mutant;
        let id = self.id;
        let offered = self.offered() & header.scheme.bit() != 0 && w.scheme == header.scheme as u16;
        if !offered {
            return None;
        }
        let (kept, granted) = (self.kept.as_deref(), self.session.granted.as_ref());
        let before = granted.map(|granted| granted.conversation);
        let random = self.session.random;
        let request = self.session.asked(w.nonce)?;
        let name = request.name().as_bytes().to_vec();
        let question = &request.agreement.question;
        let opens = |secrets: &Place| {
            let mut copy = datagram.to_vec();
            let question: &[u8] = if mutant.breaks(Rule::AnswerUnbound) { &[] } else { question };
            secrets.level() == level && secrets.answering(question).open(header.number, &mut copy)
        };
        // The server is the one that the client knows. May it answer for this name too?
        let may = |shown: &[u8], server: &([u8; 32], Arc<Principal>)| match trust.accept_server(&name, shown)
        {
            _ if w.refused != 0 => Ok(None),
            _ if mutant.breaks(Rule::ServerUnchecked) => Ok(Some(server.clone())),
            Ok(other) if other.key == server.0 => Ok(Some((other.key, other.principal))),
            Ok(_) => Err("the server shows another key than its own".to_owned()),
            Err(why) => Err(why),
        };
        let (secrets, server, shown) = match (Step::read(&w.handshake).ok()??, &mut request.agreement.stage) {
            (Step::Known(shown), _) => {
                let kept = kept.filter(|_| before == Some(w.conversation))?;
                (None, kept.server.clone(), Some(shown))
            }
            (Step::Resume(_, theirs, shown), _) => {
                let (kept, random) = (kept?, random?);
                let prologue = wire::resumption(id, before?, w.conversation, &name);
                let resumption = Resumption { client: &random, server: theirs, prologue: &prologue };
                (Some(kept.phases.secrets().resume(&resumption)), kept.server.clone(), Some(shown))
            }
            (Step::Message(suite, message), Stage::Handshaking { initiator, server, .. }) => {
                let (secrets, _) = initiator.end(message, level, Suite::of(suite)?)?;
                (Some(secrets), server.clone(), None)
            }
            _ => return None,
        };
        let is_open = match &secrets {
            Some(secrets) => opens(secrets),
            None => kept.is_some_and(|kept| opens(kept.phases.secrets())),
        };
        if !is_open {
            if secrets.is_some() {
                // Somebody has changed the datagram around the server's message, which cannot be read twice.
                // The handshake begins again.
                let question = std::mem::take(&mut request.agreement.question);
                request.agreement = Agreement { question, ..Agreement::default() };
            }
            return None;
        }
        let answerer = match shown.map_or_else(|| Ok(Some(server.clone())), |shown| may(shown, &server)) {
            Ok(answerer) => answerer,
            Err(why) => return Some(Authentic::Forbidden(why)),
        };
        let stands = |(_, shown): &([u8; 32], Arc<Principal>)| trust.stands(shown);
        if !answerer.as_ref().is_none_or(stands) && !mutant.breaks(Rule::ServerUnchecked) {
            let why = "the server's key was taken away during the handshake".to_owned();
            return Some(Authentic::Forbidden(why));
        }
        request.agreement.answerer = answerer.clone();
        Some(Authentic::Good(secrets.map(|secrets| (secrets, answerer.unwrap_or(server)))))
    }

    /// Ends a question that this server cannot answer.
    fn refuse(&mut self, now: Time, nonce: u64, (kind, why): (Kind, &str), sink: &mut dyn FnMut(Event<'_>)) {
        let Some(token) = self.session.give_up(nonce) else { return };
        if let Some(token) = token {
            let answer = Err(Failure::new(kind, Ran::No).with_detail(why));
            sink(Event::Bound { token, answer });
        }
        if self.session.asks() || self.session.granted.is_some() {
            return;
        }
        if token.is_some() && kind == Kind::NotPermitted && self.slots.outstanding > 0 {
            // The calls that wait may be of another name, for which the server may answer.
            return self.session.greet(now, self.config.min_retransmit);
        }
        self.end_calls(kind, sink, |slot| Some(slot.ran_if_unheard()));
    }

    /// Judges again what the server has shown, because keys have changed or a grant has expired. Names for
    /// which the server is no longer accepted have to be bound again, and their outstanding calls end as
    /// [`Kind::NotPermitted`] at the next [`Conversation::handle_timeout`], which is due at once. Other
    /// names, for which something else was shown, and their calls go on. If no name is left, forgets the
    /// conversation and its secrets. Returns whether a name has to be bound again.
    pub fn recheck_server(&mut self, now: Time) -> bool {
        let (Some(trust), Some(kept)) = (self.config.trust.clone(), &mut self.kept) else { return false };
        let mutant = self.config.mutant;
        let has_fallen =
            !mutant.breaks(Rule::NamesUnchecked) && kept.names.recheck(|shown| trust.stands(shown));
        if !trust.stands(&kept.server.1) {
            match kept.names.any().filter(|_| !mutant.breaks(Rule::NamesFallTogether)) {
                Some(other) => kept.server.1 = other.clone(),
                None => {
                    self.forget_server(now);
                    return true;
                }
            }
        }
        if has_fallen {
            self.permitted = Some(kept.names.exports().collect());
            self.is_distrusted = self.slots.outstanding > 0;
            self.timers.check = now;
        }
        has_fallen
    }

    /// Forgets the conversation with a server that is no longer accepted for any name, and its secrets. No
    /// call that was meant for it is sent any more.
    fn forget_server(&mut self, now: Time) {
        self.kept = None;
        self.session.granted = None;
        self.session.random = None;
        self.transfers.notices.clear();
        self.permitted = Some(BTreeSet::new());
        self.is_distrusted = self.slots.outstanding > 0;
        self.timers.check = now;
    }

    /// Notes that a question was answered with this export. Returns false if the answer does not come from
    /// the server of the conversation, so that the name is not bound in it.
    pub(super) fn note_bound(&mut self, request: &Request, export: u64) -> bool {
        if let Some((key, shown)) = &request.agreement.answerer {
            let Some(kept) = self.kept.as_mut().filter(|kept| kept.server.0 == *key) else { return false };
            let former = kept.names.note(request.name(), export, shown);
            if let (Some(permitted), Some(former)) = (&mut self.permitted, former)
                && kept.names.server_of(former).is_none()
            {
                permitted.remove(&former);
            }
        }
        if let Some(permitted) = &mut self.permitted {
            permitted.insert(export);
        }
        true
    }

    /// Returns whether calls are outstanding whose server is no longer accepted.
    #[inline(always)]
    pub(super) fn is_distrusted(&self) -> bool {
        self.is_distrusted
    }

    /// Ends the calls that were outstanding when the server was no longer accepted for their name.
    #[cold]
    pub(super) fn end_distrusted(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if !std::mem::take(&mut self.is_distrusted) {
            return;
        }
        // A name may have been bound anew meanwhile. Its calls go on.
        let permitted = self.permitted.take().unwrap_or_default();
        self.end_calls(Kind::NotPermitted, sink, |slot| {
            (!permitted.contains(&slot.call.export)).then_some(slot.ran_if_unheard())
        });
        self.permitted = Some(permitted);
    }

    /// Takes the secrets of the conversation that a WELCOME grants, if they are new. The names that were
    /// bound at the server with this key stay bound.
    pub(super) fn take_secrets(&mut self) {
        let is_same = self.is_same_server();
        if !is_same && !self.config.mutant.breaks(Rule::CallsFollow) {
            self.permitted = Some(BTreeSet::new());
        }
        if let Some((secrets, server)) = self.agreed.take() {
            let names = self.kept.take().filter(|_| is_same).map(|kept| kept.names).unwrap_or_default();
            self.kept = Some(Kept::new(&secrets, server, names));
            self.session.random = None;
        }
    }

    /// Returns whether the WELCOME that is being handled comes from the server of the current conversation,
    /// so that its word about that conversation counts.
    pub(super) fn is_same_server(&self) -> bool {
        match (&self.agreed, &self.kept) {
            (Some((_, new)), Some(kept)) => new.0 == kept.server.0,
            _ => true,
        }
    }

    /// Returns the random bytes by which the client resumes its conversation at the server, if it has one.
    pub(super) fn resumption(&mut self) -> Option<[u8; 32]> {
        let trust: &Arc<dyn Trust> = self.config.trust.as_ref()?;
        self.kept.as_ref()?;
        Some(*self.session.random.get_or_insert_with(|| {
            let mut random = [0; 32];
            trust.entropy(&mut random);
            random
        }))
    }
}
