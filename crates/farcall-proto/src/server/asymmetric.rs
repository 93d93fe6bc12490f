//! The asymmetric cryptography of handshakes, which takes about 0.3 ms each (docs/protocol.md, section 11.2).
//!
//! Under the lock of the program that drives this crate, the server only decides whether a handshake may be
//! computed. The program takes a [`Handshake`] out, computes it while it does not hold the lock, and hands
//! the [`Computed`] handshake in. The server then looks at the BIND once more: everything that may have
//! changed meanwhile is decided anew, and only what was computed is taken from before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_crypto::{Answering, Responder, Secrets, Suite};
use zeroize::Zeroizing;

use super::counts::Counts;
use super::hosts::HostName;
use super::proofs::ProofName;
use super::send::Reply;
use super::turns::{self, Turns};
use super::{Server, Transmit};
use crate::scheme::Scheme;
use crate::secure::{MAX_WAIT, Trust};
use crate::wire::{Bind, OwnedBind, Prologue, Step};
use crate::{Mutant, Rule, Time};

/// The share of a processor that handshakes take: `SHARE` parts of `WHOLE`. With the datagrams that ask for
/// them, clients that have not proven themselves take less than two thirds.
const SHARE: u32 = 2;
const WHOLE: u32 = 5;

/// How long handshakes may be computed without a rest when none was computed lately.
const BURST: Duration = Duration::from_millis(40);

/// What a handshake counts for, at the least and at the most. It takes longer than the most if the thread
/// that computes it is interrupted.
const LEAST_COST: Duration = Duration::from_micros(100);
const MOST_COST: Duration = Duration::from_millis(10);

/// What a handshake is expected to take before any was computed.
const USUAL_COST: Duration = Duration::from_micros(250);

/// The maximum number of handshakes of known clients that wait to be computed, and of others.
const MAX_WAITING: usize = 256;

/// The shortest time that a client is told to wait.
const PERIOD: Duration = Duration::from_millis(125);

/// The maximum number of clients that have reserved a turn, and how much earlier or later than that they may
/// come.
const MAX_RESERVED: usize = 16_384;
const EARLY: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(1);

/// A handshake that may be computed. It owns all that this needs, so no lock is held meanwhile.
pub struct Handshake {
    pub(super) from: SocketAddr,
    /// The length of the datagram that the BIND came in.
    pub(super) len: usize,
    pub(super) bind: OwnedBind,
    pub(super) chosen: (Scheme, Suite),
    pub(super) trust: Arc<dyn Trust>,
    pub(super) mutant: Mutant,
    pub(super) proof: ProofName,
    pub(super) class: Class,
    /// The client's identifier in the ticket by which it is known.
    pub(super) shown: Option<u64>,
    /// When it was taken out to be computed.
    pub(super) began: Time,
}

/// Which half of the time a handshake is computed in, if both are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The client shows a ticket of a conversation with this server, which may be too old to be good.
    Known,
    New,
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
        let begun = Responder::begin(&private, &prologue.to_bytes(), message, &entropy);
        if begun.is_none() && self.mutant.breaks(Rule::GrantsBeforeProof) {
            let _ = trust.accept_client(&[0; 32], message);
        }
        // Whether the grants of the client are genuine is looked at only when it has proven its key.
        let responder = begun?;
        let facts = trust.accept_client(&responder.client, &responder.payload).ok();
        let (reply, secrets) = responder.end(&[], scheme.level()?, suite)?;
        let sealed = answering(&secrets, &bind, self.mutant);
        Some(Response { step: Step::Message(suite as u8, &reply).to_bytes(), secrets, sealed, facts })
    }
}

/// The handshakes that wait to be computed, and what bounds them.
#[derive(Debug)]
pub(super) struct Waiting {
    /// For each [`Class`], its handshakes, and how long they have taken, compared with the other class.
    queues: [Turns<Handshake>; 2],
    taken: [Duration; 2],
    /// The proofs of these handshakes.
    proofs: BTreeSet<ProofName>,
    /// The identifiers of those clients of these that are known by their tickets.
    shown: BTreeSet<u64>,
    /// The proofs of the handshakes that are being computed.
    computing: VecDeque<ProofName>,
    budget: Budget,
    reserved: Reserved,
    /// Whether handshakes are computed as soon as they may be, by the calls that receive datagrams.
    at_once: bool,
    /// Whether a handshake waits that nobody knows of yet.
    has_news: bool,
}

/// How much time handshakes may take.
#[derive(Debug)]
struct Budget {
    /// What is left of [`BURST`] at a time.
    left: Duration,
    at: Time,
    /// When the next handshake may begin.
    rests_until: Time,
    /// What a handshake takes, on average.
    usual: Duration,
}

/// The maximum number of handshakes that are computed at the same time.
const MAX_COMPUTING: usize = 16;

impl Waiting {
    pub fn new(now: Time, key: [u8; 16]) -> Waiting {
        Waiting {
            queues: Default::default(),
            taken: [Duration::ZERO; 2],
            proofs: BTreeSet::new(),
            shown: BTreeSet::new(),
            computing: VecDeque::new(),
            budget: Budget { left: BURST, at: now, rests_until: now, usual: USUAL_COST },
            reserved: Reserved {
                key,
                counts: None,
                turns: BTreeMap::new(),
                order: VecDeque::new(),
                last: now,
            },
            at_once: false,
            has_news: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.len() == 0)
    }

    /// Returns whether a handshake with this proof waits or is being computed. A client repeats its BIND
    /// meanwhile, and that counts only once.
    pub fn has(&self, proof: ProofName) -> bool {
        self.proofs.contains(&proof) || self.computing.contains(&proof)
    }

    /// Queues a handshake. Returns the one that makes way for it, which may be itself. The tickets of one
    /// client identifier make one client known at a time: whoever has an old one could show it from many
    /// addresses. Counting tickets would not do, because a server gives as many of an identifier as are asked
    /// for without a handshake: one for each new address, and one for each conversation that is resumed.
    pub fn push(&mut self, now: Time, mut handshake: Handshake) -> Option<Handshake> {
        let is_shown = handshake.shown.is_some_and(|client| self.shown.contains(&client));
        if is_shown && !handshake.mutant.breaks(Rule::TicketShared) {
            (handshake.class, handshake.shown) = (Class::New, None);
        }
        let (mutant, class) = (handshake.mutant, handshake.class as usize);
        let path = turns::path(&handshake.from, mutant.breaks(Rule::HostsAlone));
        let has_place = self.reserved.claim(now, handshake.proof) && !mutant.breaks(Rule::WaitWithoutTurn);
        if self.queues[class].len() == 0 {
            self.taken[class] = self.taken[class].max(self.taken[1 - class]);
        }
        self.has_news |= self.is_empty();
        let queue = &mut self.queues[class];
        self.proofs.insert(handshake.proof);
        self.shown.extend(handshake.shown);
        queue.push(&path, handshake, has_place);
        if queue.len() <= MAX_WAITING || mutant.breaks(Rule::HandshakesUnbounded) {
            return None;
        }
        let out = self.queues[class].evict()?;
        self.forget(&out);
        Some(out)
    }

    /// Forgets what a handshake shows that waits no more.
    fn forget(&mut self, out: &Handshake) {
        self.proofs.remove(&out.proof);
        out.shown.inspect(|client| _ = self.shown.remove(client));
    }

    /// Returns how long the client of a handshake waits until it asks again.
    pub fn turn(&mut self, now: Time, from: &SocketAddr, proof: ProofName) -> Duration {
        self.reserved.reserve(now, from, proof, self.budget.usual * WHOLE / SHARE)
    }

    /// Returns when a handshake may be computed, if one waits.
    pub fn due(&self) -> Option<Time> {
        (!self.is_empty()).then_some(self.budget.rests_until)
    }

    /// Returns what [`Waiting::due`] does if no thread computes handshakes.
    pub fn due_at_once(&self) -> Option<Time> {
        self.due().filter(|_| self.at_once)
    }

    fn pop(&mut self, now: Time, unbounded: bool) -> Option<Handshake> {
        if now < self.budget.rests_until && !unbounded {
            return None;
        }
        let waits = |class: usize| self.queues[class].len() > 0;
        let known_first = self.taken[0] <= self.taken[1];
        let class = usize::from(!(waits(0) && (known_first || !waits(1))));
        let mut handshake = self.queues[class].pop()?;
        handshake.began = now;
        self.forget(&handshake);
        if self.computing.len() == MAX_COMPUTING {
            // Its user has lost it.
            self.computing.pop_front();
        }
        self.computing.push_back(handshake.proof);
        self.charge(now, class, LEAST_COST);
        Some(handshake)
    }

    /// Notes that a handshake was computed.
    fn end(&mut self, now: Time, handshake: &Handshake) {
        self.computing.retain(|proof| *proof != handshake.proof);
        let took = now.since(handshake.began).clamp(LEAST_COST, MOST_COST);
        self.budget.usual = (7 * self.budget.usual + took) / 8;
        self.charge(now, handshake.class as usize, took - LEAST_COST);
    }

    fn charge(&mut self, now: Time, class: usize, time: Duration) {
        self.taken[class] += time;
        let budget = &mut self.budget;
        budget.left = (budget.left + now.since(budget.at) * SHARE / WHOLE).min(BURST);
        budget.at = budget.at.max(now);
        match budget.left.checked_sub(time) {
            Some(left) => budget.left = left,
            None => {
                // It rests for a little longer, so that it does not rest after each handshake.
                budget.at = budget.at + (time - budget.left + BURST / 16) * WHOLE / SHARE;
                budget.left = BURST / 16;
                budget.rests_until = budget.at;
            }
        }
    }
}

/// The turns of clients that were told to wait. They are spaced as far as handshakes are, and a client that
/// comes in its turn has a place among those of its host.
#[derive(Debug)]
struct Reserved {
    key: [u8; 16],
    /// How many clients of each host and of each network have got a turn in the period that began then, and
    /// how many of each network have got none. The counts are made when they are needed first.
    counts: Option<(Time, [Counts; 2])>,
    turns: BTreeMap<ProofName, Time>,
    /// The turns in their order.
    order: VecDeque<(Time, ProofName)>,
    last: Time,
}

impl Reserved {
    /// Returns whether the client with this proof comes in its turn, which ends thereby.
    fn claim(&mut self, now: Time, proof: ProofName) -> bool {
        let Some(turn) = self.turns.get(&proof).copied() else { return false };
        let is_its = now + EARLY >= turn && now <= turn + LATE;
        if is_its {
            self.turns.remove(&proof);
        }
        is_its
    }

    /// Returns after which time the client with this proof comes again. Reserves it a turn then, unless
    /// others of its host or of its network have many. Clients of a network that get no turn come again over
    /// as long a time as their network's half of the handshakes takes for them: if a crowd came again at
    /// once, the server would do nothing but tell it to wait.
    fn reserve(&mut self, now: Time, from: &SocketAddr, proof: ProofName, each: Duration) -> Duration {
        while let Some((turn, proof)) = self.order.front().copied()
            && now > turn + LATE
        {
            self.order.pop_front();
            // It may have another turn since.
            if self.turns.get(&proof) == Some(&turn) {
                self.turns.remove(&proof);
            }
        }
        if let Some(turn) = self.turns.get(&proof) {
            return turn.since(now).max(EARLY);
        }
        let counts = || [(); 2].map(|()| Counts::new(self.key, Mutant::default()));
        let (since, [having, without]) = self.counts.get_or_insert_with(|| (now, counts()));
        if now.since(*since) >= PERIOD {
            *since = now;
            having.clear();
            without.clear();
        }
        let host = HostName::at(from);
        let turns = having.of(host);
        let most = (PERIOD.as_nanos() / each.as_nanos().max(1)) as u32;
        let turn = (self.last + each).max(now + PERIOD);
        let has_many = turns.host >= most / 4 || turns.network >= most / 2;
        if has_many || turn > now + MAX_WAIT || self.order.len() >= MAX_RESERVED {
            let crowd = PERIOD + each * 2 * without.of(host).network;
            without.add(host, 1);
            return crowd.max(self.last.since(now)).min(MAX_WAIT);
        }
        having.add(host, 1);
        self.last = turn;
        self.turns.insert(proof, turn);
        self.order.push_back((turn, proof));
        turn.since(now)
    }
}

impl Server {
    /// Returns whether a handshake waits to be computed.
    #[inline]
    pub fn has_handshakes(&self) -> bool {
        !self.handshakes.waiting.is_empty()
    }

    /// Returns whether handshakes wait since the last call, and none waited before. The thread that computes
    /// them is to be woken then.
    #[inline]
    pub fn take_handshake_news(&mut self) -> bool {
        std::mem::take(&mut self.handshakes.waiting.has_news)
    }

    /// Returns when [`Server::next_handshake`] returns the next handshake, if one waits.
    pub fn handshake_due(&self) -> Option<Time> {
        self.handshakes.waiting.due()
    }

    /// Takes out the handshake whose turn it is. Returns `None` if none waits, or if handshakes have taken
    /// their share of a processor lately. [`Handshake::compute`] it without the lock under which the server
    /// works, and hand the result to [`Server::finish_handshake`]. One thread that does so suffices.
    ///
    /// A handshake that is not handed in is lost, as if its BIND had been.
    pub fn next_handshake(&mut self, now: Time) -> Option<Handshake> {
        let mutant = self.config.mutant;
        let handshake = self.handshakes.waiting.pop(now, mutant.breaks(Rule::HandshakesUnbounded))?;
        let last = self.admission.issuer.last_date();
        self.handshakes.proofs.note_use(now, handshake.proof, last);
        Some(handshake)
    }

    /// Ends a handshake that was computed. Looks anew at everything that it depends on and that may have
    /// changed meanwhile: the proof of the client's address, the ticket that it renews, whether its key is
    /// accepted, the export, and this server's ticket keys and horizon. Writes the answer into `out` (at
    /// least [`BASE_DATAGRAM`](crate::BASE_DATAGRAM) bytes) and returns it.
    pub fn finish_handshake(&mut self, now: Time, computed: Computed, out: &mut [u8]) -> Option<Transmit> {
        let reply = self.end_handshake(now, computed)?;
        self.write_replies(&reply, out)
    }

    fn end_handshake(&mut self, now: Time, computed: Computed) -> Option<Reply> {
        let Computed { handshake, responded } = computed;
        self.handshakes.waiting.end(now, &handshake);
        let Handshake { from, len, bind, .. } = handshake;
        self.expect_answers(len);
        self.answer_bind(now, (from, len), (&bind.read()?, &[]), Some(responded))
    }

    /// Computes the handshakes that may be computed now, and queues their answers.
    pub(super) fn compute_handshakes(&mut self, now: Time) {
        self.handshakes.waiting.at_once = true;
        if !self.has_handshakes() {
            return;
        }
        while let Some(handshake) = self.next_handshake(now) {
            if let Some(reply) = self.end_handshake(now, handshake.compute()) {
                self.reply(reply);
            }
        }
        self.set_timer();
    }

    /// Computes the handshakes that may be computed now, if no other thread does.
    pub(super) fn compute_late_handshakes(&mut self, now: Time) {
        if self.handshakes.waiting.due_at_once().is_some_and(|due| due <= now) {
            self.compute_handshakes(now);
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
