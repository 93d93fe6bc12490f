//! Tickets and binding: how a conversation gets the right to call, and learns which procedures are exported
//! (docs/protocol.md, "Binding").
//!
//! A ticket shows that the server has admitted the conversation; the client keeps it, and the server need
//! not. An incarnation is one run of a server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::evidence::{self, LastWord, Verdict};
use super::{Bound, Conversation, Event};
use crate::scheme::Scheme;
#[cfg(feature = "secure")]
use crate::secure::Level;
use crate::ticket::{self, Holder};
#[cfg(not(feature = "secure"))]
use crate::wire::Handshake;
use crate::wire::{
    self, Bind, Ended, Frame, Frames, Stale, StaleReason, Target, Ticket, UserProof, VERSION, Welcome, Writer,
};
use crate::{BASE_DATAGRAM, Failure, Fingerprint, Kind, Ran, Rule, Time, nanos};

/// The maximum number of procedures of one export that a binding collects.
const MAX_PROCEDURES: usize = 65_536;

/// The maximum number of pages in which an answer comes. A full page has more than 50 procedures.
const MAX_PAGES: u32 = 2048;

/// The most questions of one conversation that are under way. A registry can list any number of names at one
/// server, and the client looks at all questions under way for each answer and each timer.
const MAX_UNDER_WAY: usize = 128;

/// The ticket that the conversation has from its server, and its questions to the server that are not
/// answered yet.
#[derive(Debug)]
pub(super) struct Session {
    client: u64,
    pub granted: Option<Granted>,
    requests: Vec<Request>,
    /// Further questions, if there are any.
    later: Option<Box<Later>>,
    /// When all open questions are given up because the server's port refuses datagrams (ICMP), if it does.
    pub expires: Option<Time>,
    nonce: u64,
    /// Whether the server has asked for a proof of the user, so that further questions show the ticket that
    /// the proof has brought.
    shows_user: bool,
    /// Whether the first question leads to secrets, with which the others are then asked.
    one_by_one: bool,
    /// The random bytes by which the client resumes the conversation.
    #[cfg(feature = "secure")]
    pub random: Option<[u8; 32]>,
}

/// A ticket, and what came with it.
#[derive(Debug)]
pub(super) struct Granted {
    /// The server's identifier of the conversation.
    pub conversation: u64,
    pub ticket: Ticket<'static>,
    /// The client's address, as the server saw it.
    address: SocketAddr,
    /// Whether the server has answered in this conversation. Until then every datagram shows the ticket.
    pub known: bool,
    pub last_word: LastWord,
}

/// An open question to the server.
#[derive(Debug, Default)]
pub(super) struct Request {
    nonce: u64,
    name: String,
    /// The token of the user who asked, or `None` if only a ticket is wanted.
    token: Option<u64>,
    /// The conversation whose ticket is to be renewed.
    renew: Option<u64>,
    /// The export that was found, and its procedures in the pages so far.
    export: u64,
    procedures: Vec<Fingerprint>,
    pages: u32,
    /// When the first page came.
    paging: Time,
    began: Time,
    /// When the question was first sent under this nonce, and when it was last sent.
    asked: Option<Time>,
    sent: Option<Time>,
    /// Whether the question was sent only once, so that its answer times a round trip.
    timed: bool,
    due: Time,
    pub interval: Duration,
    pub unanswered: u32,
    /// The answer to the server's challenge to prove the user, and how often the server has challenged.
    user: Option<Box<UserAnswer>>,
    challenges: u32,
    /// How long the server made the client wait.
    #[cfg(feature = "secure")]
    waited: Duration,
    /// How often the handshake has begun.
    #[cfg(feature = "secure")]
    pub hellos: u32,
    #[cfg(feature = "secure")]
    pub agreement: super::agreement::Agreement,
}

/// A question that waits until there are fewer than [`MAX_UNDER_WAY`].
#[derive(Debug)]
struct Waiting {
    name: String,
    token: u64,
    began: Time,
    interval: Duration,
}

/// The questions that wait, in the order in which they were asked.
#[derive(Debug)]
struct Later {
    questions: VecDeque<Waiting>,
    /// When the server last answered a question, or when the first of these began to wait.
    answered: Time,
}

/// A client's answer to a server's challenge to prove that it is a process of the server's user.
#[derive(Debug)]
struct UserAnswer {
    /// The ticket that is the challenge, and its conversation.
    challenge: (u64, Ticket<'static>),
    proofs: Vec<UserProof>,
}

/// The maximum number of challenges of one question that a client answers. The server may begin anew between
/// two of them.
const MAX_CHALLENGES: u32 = 4;

/// The longest time that a client waits with a question because the server says so, in all. Anybody on the
/// path can say so.
#[cfg(feature = "secure")]
const MAX_WAITED: Duration = Duration::from_secs(600);

impl Request {
    /// Returns the name that is asked for.
    #[cfg(feature = "secure")]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Session {
    pub fn new(client: u64, one_by_one: bool) -> Session {
        Session {
            client,
            granted: None,
            requests: Vec::new(),
            later: None,
            expires: None,
            nonce: client,
            shows_user: false,
            one_by_one,
            #[cfg(feature = "secure")]
            random: None,
        }
    }

    /// Returns the questions that may be sent now.
    fn current(&mut self) -> &mut [Request] {
        let waits = self.one_by_one && self.granted.is_none();
        let until = if waits { self.requests.len().min(1) } else { self.requests.len() };
        &mut self.requests[..until]
    }

    /// Returns whether there are open questions.
    #[inline]
    pub fn asks(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Notes that the server has answered a call that was sent only once, at `sent` if that is known.
    #[inline(always)]
    pub fn answered_call(&mut self, sent: Option<Time>) {
        if let Some(granted) = &mut self.granted {
            granted.known = true;
            granted.last_word.answered(sent);
        }
    }

    /// Notes that a datagram of the server has come.
    #[inline]
    pub fn heard(&mut self, now: Time) {
        if let Some(granted) = &mut self.granted {
            granted.last_word = LastWord::new(now);
        }
    }

    /// Asks for a ticket only, unless an open question brings one.
    pub fn greet(&mut self, now: Time, interval: Duration) {
        if self.requests.is_empty() {
            self.ask(now, String::new(), None, None, interval);
        }
    }

    /// Asks the server whether the conversation's ticket is still good and, if it is not, for another one.
    fn renew(&mut self, now: Time, conversation: u64, interval: Duration) {
        if !self.requests.iter().any(|r| r.renew == Some(conversation)) {
            self.ask(now, String::new(), None, Some(conversation), interval);
        }
    }

    fn ask(&mut self, now: Time, name: String, token: Option<u64>, renew: Option<u64>, interval: Duration) {
        // The nonce differs from those of all other questions. Only somebody who sees the datagrams can know
        // it.
        self.nonce = self.nonce.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ self.client;
        let asked = Request { nonce: self.nonce, name, token, renew, ..Request::default() };
        self.requests.push(Request { began: now, due: now, interval, timed: true, ..asked });
    }

    /// Asks a question when it is its turn.
    fn ask_in_turn(&mut self, question: Waiting) {
        if self.requests.len() >= MAX_UNDER_WAY {
            let first = || Box::new(Later { questions: VecDeque::new(), answered: question.began });
            return self.later.get_or_insert_with(first).questions.push_back(question);
        }
        let Waiting { name, token, began, interval } = question;
        self.ask(began, name, Some(token), None, interval);
    }

    /// Returns the question that has waited longest for its turn, if it began at a time that `is_old`.
    fn take_later(&mut self, is_old: impl Fn(Time) -> bool) -> Option<Waiting> {
        let later = &mut self.later.as_mut()?.questions;
        later.front().filter(|waiting| is_old(waiting.began))?;
        later.pop_front()
    }

    /// Notes that the server has answered the question with this nonce, and returns where it is.
    fn note_answer(&mut self, now: Time, nonce: u64) -> Option<usize> {
        let at = self.requests.iter().position(|request| request.nonce == nonce)?;
        if let Some(later) = &mut self.later {
            later.answered = now;
        }
        Some(at)
    }

    /// Drops the question with this token.
    fn forget(&mut self, token: u64) {
        let before = self.requests.len();
        self.requests.retain(|request| request.token != Some(token));
        if self.requests.len() == before
            && let Some(later) = &mut self.later
            && let Some(at) = later.questions.iter().position(|waiting| waiting.token == token)
        {
            later.questions.remove(at);
        }
        self.after_removal();
    }

    /// Returns the question with this nonce.
    #[cfg(feature = "secure")]
    pub fn asked(&mut self, nonce: u64) -> Option<&mut Request> {
        self.requests.iter_mut().find(|request| request.nonce == nonce)
    }

    /// Asks a question again after a time, because the server says so. Returns whether the client does: each
    /// time that the question was sent it waits once, and not for ever.
    #[cfg(feature = "secure")]
    pub fn wait(&mut self, now: Time, nonce: u64, time: Duration) -> bool {
        let Some(request) = self.asked(nonce) else { return false };
        if request.unanswered == 0 || request.waited >= MAX_WAITED {
            return false;
        }
        request.waited += time;
        (request.due, request.unanswered) = (now + time, 0);
        true
    }

    /// Drops the question with this nonce, and returns its token.
    #[cfg(feature = "secure")]
    pub fn give_up(&mut self, nonce: u64) -> Option<Option<u64>> {
        let at = self.requests.iter().position(|request| request.nonce == nonce)?;
        Some(self.end(at).token)
    }

    /// Removes a question that is over.
    fn end(&mut self, at: usize) -> Request {
        let ended = self.requests.swap_remove(at);
        self.after_removal();
        ended
    }

    /// Asks those questions whose turn it is. Frees the memory of the questions when there are none, so that
    /// an idle conversation keeps none.
    fn after_removal(&mut self) {
        while self.requests.len() < MAX_UNDER_WAY
            && let Some(next) = self.take_later(|_| true)
        {
            self.ask_in_turn(next);
        }
        self.later.take_if(|later| later.questions.is_empty());
        if self.requests.is_empty() {
            self.requests = Vec::new();
        }
    }

    /// Continues a question under a new nonce, so that its next datagram counts as a new question.
    pub fn ask_on(&mut self, now: Time, nonce: u64, interval: Duration) {
        self.nonce = self.nonce.wrapping_add(1);
        let Some(request) = self.requests.iter_mut().find(|request| request.nonce == nonce) else { return };
        request.nonce = self.nonce;
        (request.asked, request.sent, request.timed) = (None, None, true);
        (request.due, request.interval, request.unanswered) = (now, interval, 0);
    }

    /// Brings the next try of one question that waits for an answer forward to `due`.
    pub fn ask_by(&mut self, due: Time) {
        if let Some(request) = self.requests.iter_mut().find(|request| request.sent.is_some()) {
            request.due = request.due.min(due);
        }
    }

    /// Returns when the next question is to be sent, or sent again, or when all are to be given up.
    pub fn due(&self) -> Option<Time> {
        let waits = self.one_by_one && self.granted.is_none();
        let until = if waits { 1 } else { usize::MAX };
        let due = self.requests.iter().take(until).map(|r| r.due).min()?;
        Some(self.expires.map_or(due, |expires| expires.min(due)))
    }
}

impl Conversation {
    /// Asks the server which export answers to `name` (`Type` or `Type/instance`; an empty name asks only
    /// whether the server is there). Ends with [`Event::Bound`]. The question leaves no state at the server.
    pub fn bind(&mut self, now: Time, name: &str, token: u64) {
        let (name, interval) = (name.to_owned(), self.config.min_retransmit);
        self.session.ask_in_turn(Waiting { name, token, began: now, interval });
    }

    /// Drops the question that [`Conversation::bind`] asked with this token. There will be no answer.
    pub fn forget_bind(&mut self, token: u64) {
        self.session.forget(token);
    }

    /// Returns the identity under which the server knows this conversation, and the answer to `question` that
    /// only the server incarnation which issued the ticket can give. Returns `None` without a ticket.
    pub fn expected_proof(&self, question: &[u8]) -> Option<(Holder, [u8; 16])> {
        let (holder, ticket) = self.ticket()?;
        Some((holder, ticket::answer(&ticket.mac, question)))
    }

    /// Returns the conversation's ticket, and its holder.
    pub(super) fn ticket(&self) -> Option<(Holder, &Ticket<'static>)> {
        let Granted { conversation, ticket, address, .. } = self.session.granted.as_ref()?;
        let Ticket { client, issued, .. } = *ticket;
        Some((Holder { client, issued, conversation: *conversation, address: *address }, ticket))
    }

    /// Writes the question that is due, if there is one.
    pub(super) fn transmit_bind(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if !self.session.asks() {
            return None;
        }
        let schemes = self.offered();
        #[cfg(feature = "secure")]
        let random = self.resumption();
        #[cfg(feature = "secure")]
        let suites = self.config.suites;
        let session = &mut self.session;
        let granted = session.granted.as_ref().map(|granted| granted.conversation);
        let one_by_one = session.one_by_one;
        let request = session.current().iter_mut().find(|r| r.due <= now)?;
        if one_by_one && request.renew.is_none() {
            // The server seals its answer with the conversation's secrets.
            request.renew = granted;
        }
        let (nonce, client) = (request.nonce, session.client);
        let request = session.requests.iter_mut().find(|request| request.nonce == nonce)?;
        let renew = match session.granted {
            Some(ref g) if request.renew == Some(g.conversation) => {
                Some((g.conversation, g.ticket.clone(), g.address))
            }
            _ => None,
        };
        request.asked.get_or_insert(now);
        if request.sent.replace(now).is_some() {
            request.timed = false;
            self.stats.retransmitted += 1;
        }
        request.interval = (request.interval * 2).min(self.config.max_retransmit);
        request.due = now.plus(self.spread.within(nanos(request.interval)));
        request.unanswered += 1;
        let let_in = session.granted.as_ref().filter(|_| session.shows_user);
        let proof = match (&request.user, let_in) {
            (Some(answer), _) => Some(answer.challenge.clone()),
            (None, granted) => granted.map(|granted| (granted.conversation, granted.ticket.clone())),
        };
        #[cfg(feature = "secure")]
        let proof = request.agreement.proof.clone().or(proof);
        #[cfg(feature = "secure")]
        let step = if one_by_one { request.agreement.step(suites, random.as_ref()) } else { Vec::new() };
        let bind = Bind {
            client,
            nonce,
            versions: (u16::from(VERSION), u16::from(VERSION)),
            schemes,
            from: request.procedures.len() as u32,
            renew,
            proof,
            name: request.name.as_bytes(),
            #[cfg(feature = "secure")]
            handshake: crate::wire::whole(&step),
            #[cfg(not(feature = "secure"))]
            handshake: Handshake::default(),
            #[cfg(feature = "secure")]
            body: &[],
        };
        // It is not known yet whether the other end is on this machine.
        let mut writer = Writer::new(out, BASE_DATAGRAM, Target::without_secrets(0, Scheme::Open));
        let proofs = request.user.iter().flat_map(|answer| &answer.proofs);
        proofs.for_each(|proof| writer.user_proof(proof));
        writer.bind(&bind);
        // The padding allows a long answer: a server sends at most three times the received bytes to an
        // address that has not proven itself.
        writer.pad(BASE_DATAGRAM);
        #[cfg(feature = "secure")]
        request.agreement.ask(writer.written());
        Some(self.count_sent(writer))
    }

    /// Returns the set of schemes that the client offers.
    pub(super) fn offered(&self) -> u32 {
        #[cfg(feature = "secure")]
        if self.config.trust.is_some() {
            let least = match self.config.level {
                Level::Secure => 0,
                Level::Authenticated => Scheme::Authenticated.bit(),
            };
            return least | Scheme::Secure.bit();
        }
        Scheme::Open.bit() | if self.config.loopback { Scheme::Local.bit() } else { 0 }
    }

    /// Handles an answer to one of the client's questions.
    pub(super) fn on_welcome(&mut self, now: Time, w: &Welcome<'_>, sink: &mut dyn FnMut(Event<'_>)) {
        let Some(at) = self.session.note_answer(now, w.nonce) else {
            self.stats.duplicates += 1;
            return;
        };
        let request = &mut self.session.requests[at];
        let sent = request.sent.unwrap_or(now);
        let renewed = request.renew;
        let asked = request.asked.unwrap_or(now);
        // If the question was sent again, it is not known which of its datagrams was answered, but the answer
        // came no sooner than a round trip after the first of them. The questions are small, so they are
        // repeated before a round trip is known. What is large is not.
        match request.timed {
            true => self.path.round_trip.sample(now.nanos_since(sent)),
            false if self.config.mutant.breaks(Rule::UnmeasuredIsShort) => {}
            false => self.path.round_trip.at_most(now.nanos_since(asked)),
        }
        if let Some(Ended { reason, age }) = w.ended
            && self.session.granted.as_ref().is_some_and(|granted| renewed == Some(granted.conversation))
        {
            let verdict = Verdict { reason, age: Duration::from_nanos(age), asked };
            let believed = self.is_same_server();
            // Another server's word about the conversation proves nothing.
            self.lose_session(believed.then_some(verdict), now, sink);
        }
        if w.refused == 0 && !self.is_same_server() {
            // The calls were meant for the former server, and this one may not be permitted to have them.
            self.end_calls(Kind::ServerRestarted, sink, |slot| Some(slot.ran_if_unheard()));
        }
        if w.refused == 0 {
            self.take_ticket(now, w, renewed, sink);
        }
        let unproven = match Kind::from_code(w.refused) {
            Kind::NotPermitted => match self.prove_user(now, at, w) {
                Ok(()) => return,
                Err(why) => why,
            },
            _ => String::new(),
        };
        let request = &mut self.session.requests[at];
        request.user = None;
        // If the interface was exported anew meanwhile, the page belongs to another export and does not
        // continue the list. The list begins again.
        let continues = request.procedures.is_empty() || request.export == w.export;
        request.export = w.export;
        if continues {
            request.procedures.extend(w.procedures().take(MAX_PROCEDURES));
        } else {
            request.procedures.clear();
        }
        let missing = (w.total as usize).min(MAX_PROCEDURES).saturating_sub(request.procedures.len());
        if w.refused == 0 && (!continues || (missing > 0 && w.procedures().next().is_some())) {
            if request.pages == 0 {
                request.paging = now;
            }
            request.pages += 1;
            if request.pages >= MAX_PAGES || now.since(request.paging) >= self.config.patience {
                return self.endless(at, sink);
            }
            // The client asks for the next page under a new nonce.
            return self.session.ask_on(now, w.nonce, self.config.min_retransmit);
        }
        let request = self.session.end(at);
        if w.refused != 0 {
            self.without_ticket(now, &request.name, Kind::from_code(w.refused), sink);
        }
        let Some(token) = request.token else { return };
        let is_bound = w.refused != 0 || self.note_bound(&request, w.export);
        let answer = match w.refused {
            _ if !is_bound => Err(Failure::new(Kind::ServerRestarted, Ran::No)),
            0 => Ok(Bound { export: w.export, procedures: request.procedures, round_trip: now.since(sent) }),
            code => {
                let (kind, versions) = (Kind::from_code(code), w.versions);
                let detail = why_refused(kind, versions, &request.name, unproven);
                Err(Failure::new(kind, Ran::No).with_detail(detail))
            }
        };
        sink(Event::Bound { token, answer });
    }

    /// Answers a server's challenge to prove that this is a process of the server's user: asks the question
    /// again, with the proof.
    ///
    /// # Errors
    /// Why there is no further answer. The text is empty if the server wants something else.
    #[cold]
    fn prove_user(&mut self, now: Time, at: usize, w: &Welcome<'_>) -> Result<(), String> {
        if self.config.has_keys() {
            return Err(String::new());
        }
        let hint = |why: &str| {
            format!(
                "the server may be called by processes of its own user only{why}; call as that user, or start \
                 the server with keys, or with `open()` or FARCALL_OPEN=1 to let everybody call"
            )
        };
        let request = &mut self.session.requests[at];
        request.challenges += 1;
        let Some(same_user) = self.config.same_user.as_ref().filter(|_| request.challenges <= MAX_CHALLENGES)
        else {
            return Err(hint(""));
        };
        let challenge = (w.conversation, w.ticket.clone().into_owned());
        let proofs = same_user.prove((challenge.0, &challenge.1), self.config.mutant);
        let proofs = proofs.map_err(|why| hint(&format!(" ({why})")))?;
        request.user = Some(Box::new(UserAnswer { challenge, proofs }));
        self.session.shows_user = true;
        self.session.ask_on(now, w.nonce, self.config.min_retransmit);
        Ok(())
    }

    /// Gives up a question whose answer has too many pages.
    #[cold]
    fn endless(&mut self, at: usize, sink: &mut dyn FnMut(Event<'_>)) {
        let Request { token, pages, .. } = self.session.end(at);
        let Some(token) = token else { return };
        let why = format!("the list of the interface's procedures has not ended after {pages} pages");
        sink(Event::Bound { token, answer: Err(Failure::new(Kind::BadResult, Ran::No).with_detail(why)) });
    }

    /// Acts on a refused question for a name, which brought no ticket. If calls wait for a ticket, asks for a
    /// ticket alone, because other exports may take calls. If that question, which has no name, is the one
    /// refused, the calls fail: none of them was ever sent.
    fn without_ticket(&mut self, now: Time, name: &str, kind: Kind, sink: &mut dyn FnMut(Event<'_>)) {
        let waiting =
            self.session.requests.is_empty() && self.session.granted.is_none() && self.slots.outstanding > 0;
        if !waiting {
            return;
        }
        if matches!(kind, Kind::NotExported | Kind::Draining) && !name.is_empty() {
            return self.session.greet(now, self.config.min_retransmit);
        }
        self.end_calls(kind, sink, |_| Some(Ran::No));
    }

    fn take_ticket(
        &mut self,
        now: Time,
        w: &Welcome<'_>,
        renewed: Option<u64>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let last_word = LastWord::new(now);
        let ticket = w.ticket.clone().into_owned();
        let is_same_server = self.is_same_server();
        let granted =
            Granted { conversation: w.conversation, ticket, address: w.seen, known: false, last_word };
        match &self.session.granted {
            // The ticket is still good: the hint was wrong, or out of date.
            Some(old) if old.ticket == granted.ticket => return self.session.heard(now),
            Some(old)
                if renewed == Some(old.conversation)
                    && w.conversation == old.conversation
                    && is_same_server => {}
            Some(old) if renewed == Some(old.conversation) => self.lose_session(None, now, sink),
            // There is a ticket already, and this question was about something else. But if another
            // incarnation of the server answers, the ticket is no longer of use.
            Some(old) if old.ticket.incarnation == w.ticket.incarnation && is_same_server => {
                return self.session.heard(now);
            }
            Some(_) => self.lose_session(None, now, sink),
            None => {}
        }
        if self.session.granted.as_ref().is_none_or(|old| old.conversation != w.conversation) {
            (self.path.borrowed, self.path.lent) = (0, 0);
        }
        self.session.granted = Some(granted);
        self.scheme = self.scheme_for(w);
        #[cfg(feature = "secure")]
        self.take_secrets();
        self.resend_all();
    }

    /// Returns the scheme of the client's datagrams in the conversation that a WELCOME grants.
    fn scheme_for(&self, w: &Welcome<'_>) -> Scheme {
        #[cfg(feature = "secure")]
        if self.config.trust.is_some() {
            return Scheme::of(w.scheme as u8).unwrap_or_default();
        }
        let echoed = w.scheme == Scheme::Local as u16 || self.config.mutant.breaks(Rule::LocalUnseen);
        if self.config.loopback && echoed { Scheme::Local } else { Scheme::Open }
    }

    /// Returns whether a datagram that names no client is a hint about this conversation: a CHALLENGE or a
    /// STALE.
    pub fn is_hinted_by(&self, datagram: &[u8]) -> bool {
        let Ok((_, frames)) = wire::peek(datagram) else { return false };
        let hinted = match Frames::first(frames) {
            Some(Frame::Challenge(conversation)) => conversation,
            Some(Frame::Stale(stale)) => stale.conversation,
            _ => return false,
        };
        self.session.granted.as_ref().is_some_and(|granted| granted.conversation == hinted)
    }

    /// Handles a hint that the server does not know the conversation: from now on every datagram shows the
    /// ticket again.
    pub(super) fn on_challenge(&mut self, conversation: u64) {
        let Some(granted) = &mut self.session.granted else {
            return;
        };
        if granted.conversation != conversation || !granted.known {
            return;
        }
        granted.known = false;
        self.resend_all();
    }

    /// Handles a hint that the ticket is not accepted. Anybody can send such a hint, and it can be an answer
    /// to an old datagram. So the client asks the server, and only the server's answer counts
    /// (docs/protocol.md, "Stale").
    pub(super) fn on_stale(&mut self, now: Time, stale: &Stale, sink: &mut dyn FnMut(Event<'_>)) {
        if self.session.granted.as_ref().is_none_or(|granted| granted.conversation != stale.conversation) {
            return;
        }
        if self.config.mutant.breaks(Rule::StaleBelieved) {
            let age = Duration::ZERO;
            self.lose_session(Some(Verdict { reason: StaleReason::Full, age, asked: now }), now, sink);
            return self.session.greet(now, self.config.min_retransmit);
        }
        self.session.renew(now, stale.conversation, self.config.min_retransmit);
    }

    /// Ends the conversation, which is over at the server. `verdict` is the server's reason, if it gave one.
    /// Calls that were sent end: those that certainly did not run with `Ran::No`, the others with
    /// `Ran::Maybe`. Calls that were not sent go to the next conversation.
    fn lose_session(&mut self, verdict: Option<Verdict>, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        let kind = match verdict.map(|verdict| verdict.reason) {
            None | Some(StaleReason::Incarnation | StaleReason::Address) => Kind::ServerRestarted,
            Some(StaleReason::Horizon) => Kind::Forgotten,
            Some(StaleReason::Full) => Kind::Overloaded,
        };
        let proof =
            verdict.filter(|verdict| verdict.reason == StaleReason::Full || self.was_silent_before(verdict));
        self.session.granted = None;
        self.transfers.notices.clear();
        let mutant = self.config.mutant;
        let says_no = (kind == Kind::ServerRestarted && mutant.breaks(Rule::RestartSaysNo))
            || (kind == Kind::Forgotten && mutant.breaks(Rule::HorizonSaysNo));
        self.end_calls(kind, sink, |slot| {
            let first = slot.timing.first_sent?;
            if mutant.breaks(Rule::LostSessionResends) {
                slot.timing.first_sent = None;
                return None;
            }
            let certain = proof.is_some_and(|verdict| evidence::did_not_run(slot, first, now, &verdict));
            Some(if certain || says_no { Ran::No } else { Ran::Maybe })
        });
    }

    /// Gives up questions that were asked often and long enough, and questions for a ticket if no call needs
    /// one. If the server's port is `refused`, gives up all questions that were asked.
    pub(super) fn expire_binds(&mut self, now: Time, refused: bool, sink: &mut dyn FnMut(Event<'_>)) {
        self.session.expires = None;
        if self.slots.outstanding == 0 {
            self.session.requests.retain(|r| r.token.is_some());
            self.session.after_removal();
        }
        let (patience, probes) = (self.config.patience, self.config.patience_probes);
        let vain = |r: &Request| r.due <= now && r.unanswered >= probes && now.since(r.began) >= patience;
        let given_up = |r: &Request| vain(r) || refused && r.sent.is_some();
        if !self.session.requests.iter().any(given_up) {
            return;
        }
        // If the server answers nothing, those that wait for their turn would ask in vain too.
        let answered = self.session.later.as_ref().map_or(now, |later| later.answered);
        let is_silent = refused || now.since(answered) >= patience;
        let is_old = |began: Time| is_silent && (refused || now.since(began) >= patience);
        while let Some(Waiting { token, .. }) = self.session.take_later(is_old) {
            let answer = Err(self.silent(Kind::Unreachable, Ran::No));
            sink(Event::Bound { token, answer });
        }
        let mut at = 0;
        while at < self.session.requests.len() {
            if !given_up(&self.session.requests[at]) {
                at += 1;
                continue;
            }
            let request = self.session.end(at);
            if let Some(token) = request.token {
                let answer = Err(self.silent(Kind::Unreachable, Ran::No));
                sink(Event::Bound { token, answer });
            }
        }
        if self.session.requests.is_empty() && self.session.granted.is_none() {
            // Only after the server was forgotten may a call have been sent.
            self.end_calls(Kind::Unreachable, sink, |slot| Some(slot.ran_if_unheard()));
        }
    }
}

/// Returns why a server has refused a question for a name. `unproven` is why the client could not prove its
/// user, or empty.
fn why_refused(kind: Kind, (least, most): (u16, u16), name: &str, unproven: String) -> String {
    match kind {
        Kind::Mismatch if (least..=most).contains(&VERSION.into()) => {
            "the server does not answer clients without keys; give this client keys".to_owned()
        }
        Kind::Mismatch => {
            format!("the server speaks wire versions {least} to {most}, this program {VERSION}")
        }
        Kind::NotPermitted if !unproven.is_empty() => unproven,
        _ => format!("{name:?}"),
    }
}
