//! The asymmetric cryptography of handshakes, which takes about 0.3 ms each (docs/protocol.md, section 11.2).
//!
//! Under the lock of the program that drives this crate, the server only decides whether a handshake may be
//! computed. The program takes a [`Handshake`] out, computes it while it does not hold the lock, and hands
//! the [`Computed`] handshake in. The server then looks at the BIND once more: everything that may have
//! changed meanwhile is decided anew, and only what was computed is taken from before.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_crypto::{Answering, Responder, Secrets, Suite};
use zeroize::Zeroizing;

use super::counts::Counts;
use super::hosts::HostName;
use super::{Server, Transmit};
use crate::scheme::Scheme;
use crate::secure::{MAX_WAIT, Trust};
use crate::wire::{Bind, OwnedBind, Prologue, Step};
use crate::{Mutant, Rule, Time};

/// The maximum number of handshakes that a server begins in a period, and of those of one host. With about
/// 300 µs each, they take two thirds of a processor. As many may wait to be computed.
const MAX_PER_PERIOD: u32 = 280;
const MAX_OF_A_HOST: u32 = 140;

/// The period.
const PERIOD: Duration = Duration::from_millis(125);

/// A handshake that may be computed. It owns all that this needs, so no lock is held meanwhile.
pub struct Handshake {
    pub(super) from: SocketAddr,
    /// The length of the datagram that the BIND came in.
    pub(super) len: usize,
    pub(super) bind: OwnedBind,
    pub(super) chosen: (Scheme, Suite),
    pub(super) trust: Arc<dyn Trust>,
    pub(super) mutant: Mutant,
}

/// A handshake that was computed. Hand it to [`Server::finish_handshake`].
pub struct Computed {
    pub(super) handshake: Handshake,
    pub(super) responded: Responded,
}

/// What computing a handshake leads to.
pub(super) type Responded = Result<Response, Unopened>;

/// The client's message did not open.
#[derive(Debug)]
pub(super) struct Unopened;

/// The server's answer to a client's message that opened.
pub(super) struct Response {
    /// The bytes of the server's step.
    pub step: Vec<u8>,
    pub secrets: Secrets,
    /// What the answer is sealed with.
    pub sealed: Answering,
    /// The facts about the client, if it was accepted.
    pub facts: Option<Vec<u8>>,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("from", &self.from).finish_non_exhaustive()
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("handshake", &self.handshake).finish_non_exhaustive()
    }
}

impl Handshake {
    /// Computes the handshake, and finds out whether the client's key is accepted. This takes about 0.3 ms.
    pub fn compute(self) -> Computed {
        let responded = self.respond().ok_or(Unopened);
        Computed { handshake: self, responded }
    }

    fn respond(&self) -> Option<Response> {
        let (bind, trust, (scheme, suite)) = (self.bind.read()?, &*self.trust, self.chosen);
        let Step::Message(_, message) = Step::read(&bind.handshake).ok()?? else { return None };
        let (conversation, proof) = bind.proof.as_ref()?;
        let hello = hello(suite, &trust.presentation(bind.name));
        let prologue = Prologue {
            client: bind.client,
            proof: (*conversation, proof),
            versions: bind.versions,
            schemes: bind.schemes,
            name: bind.name,
            hello: &hello,
        };
        let private = trust.private_key();
        let mut entropy = Zeroizing::new([0; 32]);
        trust.entropy(&mut *entropy);
        let responder = Responder::begin(&private, &prologue.to_bytes(), message, &entropy)?;
        let facts = trust.accept_client(&responder.client, &responder.payload).ok();
        let (reply, secrets) = responder.end(&[], scheme.level()?, suite)?;
        let sealed = answering(&secrets, &bind, self.mutant);
        Some(Response { step: Step::Message(suite as u8, &reply).to_bytes(), secrets, sealed, facts })
    }
}

/// The handshakes that wait to be computed, and what bounds them.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: VecDeque<Handshake>,
    /// The counts of hosts. They are made when they are needed first, with `key`, which decides how hosts are
    /// counted.
    per_host: Option<PerHost>,
    key: [u8; 16],
    /// How many handshakes have begun since `began`, for all hosts.
    all: u32,
    began: Time,
    /// When the last of the clients that were told to wait comes again.
    last_turn: Time,
}

/// What is counted of each host.
#[derive(Debug)]
struct PerHost {
    /// How many handshakes wait.
    waiting: Counts,
    /// How many handshakes have begun in the period.
    begun: Counts,
    /// How many clients were told to wait in the period.
    told: Counts,
}

impl Waiting {
    /// Makes an empty queue. The secret `key` decides how hosts are counted.
    pub fn new(now: Time, key: [u8; 16]) -> Waiting {
        Waiting { queue: VecDeque::new(), per_host: None, key, all: 0, began: now, last_turn: now }
    }

    /// Returns whether one more handshake of a host may begin now, and counts it if so.
    pub fn take(&mut self, now: Time, from: &SocketAddr, mutant: Mutant) -> bool {
        let counts = || Counts::new(self.key);
        let per_host = self.per_host.get_or_insert_with(|| PerHost {
            waiting: counts(),
            begun: counts(),
            told: counts(),
        });
        if now.since(self.began) >= PERIOD {
            (self.began, self.all) = (now, 0);
            per_host.begun.clear();
            per_host.told.clear();
        }
        let host = HostName::at(from);
        let of_all = self.all.max(self.queue.len() as u32);
        let of_host = per_host.begun.of(host).max(per_host.waiting.of(host));
        let has_room = of_all < MAX_PER_PERIOD && of_host < MAX_OF_A_HOST;
        if !has_room && !mutant.breaks(Rule::HandshakesUnbounded) {
            return false;
        }
        self.all += 1;
        per_host.begun.add(host, 1);
        true
    }

    /// Returns how long a client that may not begin now waits until it asks again. Clients get turns one
    /// after the other, as fast as handshakes may begin, so that a hundred thousand do not ask ten times a
    /// second. A host cannot lengthen this for others by itself: it gets no more turns than handshakes.
    pub fn turn(&mut self, now: Time, from: &SocketAddr) -> Duration {
        let Some(PerHost { told, .. }) = &mut self.per_host else { return PERIOD };
        let host = HostName::at(from);
        if told.of(host) >= MAX_OF_A_HOST {
            return PERIOD;
        }
        told.add(host, 1);
        self.last_turn = (self.last_turn + PERIOD / MAX_PER_PERIOD).max(now + PERIOD).min(now + MAX_WAIT);
        self.last_turn.since(now)
    }

    /// Returns whether the same BIND waits already. A client repeats its BIND while it waits, and that counts
    /// only once.
    pub fn has(&self, from: &SocketAddr, bind: &OwnedBind) -> bool {
        self.queue.iter().any(|other| other.from == *from && other.bind == *bind)
    }

    /// Queues a handshake.
    pub fn push(&mut self, handshake: Handshake) {
        if let Some(PerHost { waiting, .. }) = &mut self.per_host {
            waiting.add(HostName::at(&handshake.from), 1);
        }
        self.queue.push_back(handshake);
    }

    fn pop(&mut self) -> Option<Handshake> {
        let handshake = self.queue.pop_front()?;
        if let Some(PerHost { waiting, .. }) = &mut self.per_host {
            waiting.remove(HostName::at(&handshake.from));
        }
        Some(handshake)
    }
}

impl Server {
    /// Returns whether a handshake waits to be computed.
    #[inline]
    pub fn has_handshakes(&self) -> bool {
        !self.handshakes.waiting.queue.is_empty()
    }

    /// Takes out the handshake that has waited longest. [`Handshake::compute`] it without the lock under
    /// which the server works, and hand the result to [`Server::finish_handshake`]. One thread that does so
    /// suffices: the number of handshakes that may begin is bounded by what one processor can compute.
    ///
    /// A handshake that is not handed in is lost, as if its BIND had been.
    pub fn next_handshake(&mut self) -> Option<Handshake> {
        self.handshakes.waiting.pop()
    }

    /// Ends a handshake that was computed. Looks anew at everything that it depends on and that may have
    /// changed meanwhile: the proof of the client's address, the ticket that it renews, whether its key is
    /// accepted, the export, and this server's ticket keys and horizon. Writes the answer into `out` (at
    /// least [`BASE_DATAGRAM`](crate::BASE_DATAGRAM) bytes) and returns it.
    pub fn finish_handshake(&mut self, now: Time, computed: Computed, out: &mut [u8]) -> Option<Transmit> {
        let Computed { handshake: Handshake { from, len, bind, .. }, responded } = computed;
        let reply = self.answer_bind(now, (from, len), &bind.read()?, Some(responded))?;
        self.write_replies(&reply, out)
    }

    /// Computes the handshakes that wait, at once, and queues their answers.
    pub(super) fn compute_handshakes(&mut self, now: Time) {
        while let Some(handshake) = self.next_handshake() {
            let Computed { handshake: Handshake { from, len, bind, .. }, responded } = handshake.compute();
            self.expect_answers(len);
            if let Some(bind) = bind.read()
                && let Some(reply) = self.answer_bind(now, (from, len), &bind, Some(responded))
            {
                self.reply(reply);
            }
        }
    }
}

/// Returns the bytes of the step by which a server shows who it is.
pub(super) fn hello(suite: Suite, presentation: &[u8]) -> Vec<u8> {
    Step::Hello(suite as u8, presentation).to_bytes()
}

/// Returns the key that seals the answer to a BIND.
pub(super) fn answering(secrets: &Secrets, bind: &Bind<'_>, mutant: Mutant) -> Answering {
    secrets.answering(if mutant.breaks(Rule::AnswerUnbound) { &[] } else { bind.body })
}
