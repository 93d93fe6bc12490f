//! Strangers who have proven their addresses ask a server with keys for handshakes without end, while honest
//! clients join. Steps are counted, not time: how many handshakes of others are computed before that of an honest
//! client, and how often it is told to wait.
//!
//! First one message comes again and again under other nonces. Then a thousand hosts of one network ask, while
//! newcomers of other networks join, and clients that have been here before, at the hosts of the flood. At last a
//! crowd of honest clients comes at once, while strangers from everywhere ask.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use farcall_base::Principal;
use farcall_crypto::public_key;
use farcall_proto::client::{Conversation, Event};
use farcall_proto::secure::{Accepted, Trust};
use farcall_proto::server::{Computed, Export, Server};
use farcall_proto::{ClientConfig, Fingerprint, Mutant, ServerConfig, Time};
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

use crate::names::NAME;
use crate::net::{MICROS, MILLIS, Nanos, SECS};
use crate::rng::Rng;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Strangers {
    /// How many datagrams the strangers send in a second of virtual time.
    pub rate: u64,
    /// The seed of identifiers and addresses.
    pub seed: u64,
    /// The fault of the server, if it has one.
    pub mutant: Mutant,
}

/// What a run led to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Handshakes that were computed.
    pub computed: u64,
    /// Those that were computed beyond one for each proof.
    pub again: u64,
    /// How often the server looked at what a client shows that had not proven its key.
    pub looked: u64,
    /// Honest clients that joined.
    pub joined: u64,
    /// Honest clients that did not join in time.
    pub failed: u64,
    /// The most handshakes of others that were computed while a newcomer waited.
    pub before_newcomers: u64,
    /// The same for clients that had been here before.
    pub before_known: u64,
    /// The most often that a client of the crowd was told to wait.
    pub waits: u64,
    /// The thousandths of a processor that handshakes took while they were short.
    pub share: u64,
}

const SERVER: [u8; 32] = [4; 32];
const HONEST: [u8; 32] = [3; 32];
/// What a handshake takes, and how finely time passes.
const COST: Nanos = 250 * MICROS;
const TICK: Nanos = 50 * MICROS;
/// How many hosts of one network the strangers have.
const HOSTS: u64 = 1_000;
/// How many clients the crowd has.
const CROWD: u64 = 600;
/// The longest time that an honest client may take to join.
const PATIENCE: Nanos = 10 * SECS;

/// Bytes of a BIND and of a WELCOME: the client's identifier, the nonce, the proof, and the kind of the step in
/// a WELCOME whose ticket has no rest.
const CLIENT: usize = 24;
const NONCE: usize = 32;
const PROOF: std::ops::Range<usize> = 52..104;
const SHOWN: std::ops::Range<usize> = 32..84;
const STEP: usize = 24 + 16 + 44 + 16 + 20 + 16 + 16;
const WAIT: u8 = 4;

impl Asked {
    /// Returns whether the server computed nothing twice, looked at nothing too early and took no more than its
    /// share, and whether every honest client joined in its turn.
    pub fn is_fair(&self) -> bool {
        let is_bounded = self.again + self.looked + self.failed == 0 && self.share <= 460;
        is_bounded
            && self.joined > CROWD
            && self.before_newcomers <= 16
            && self.before_known <= 8
            && self.waits <= 1
    }
}

impl Strangers {
    /// Lets the strangers and the honest clients ask, and returns what it led to.
    pub fn run(&self) -> Asked {
        let mut world = World::new(*self);
        let known = world.acquaint(40);
        world.repeat();
        world.network(known);
        world.crowd();
        world.asked.computed = world.computed;
        world.asked.looked = world.gate.looked.load(Relaxed).saturating_sub(world.opened);
        world.asked
    }
}

/// The keys of an end. The server accepts the honest clients' key.
#[derive(Debug)]
struct Gate {
    private: [u8; 32],
    looked: AtomicU64,
    rng: Mutex<Rng>,
}

impl Gate {
    fn new(private: [u8; 32], seed: u64) -> Arc<Gate> {
        Arc::new(Gate { private, looked: AtomicU64::new(0), rng: Mutex::new(Rng::new(seed)) })
    }
}

impl Trust for Gate {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.private)
    }

    fn presentation(&self, _: &[u8]) -> Vec<u8> {
        public_key(&self.private).to_vec()
    }

    fn accept_server(&self, _: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let key = presentation.try_into().map_err(|_| "no key of 32 bytes")?;
        Ok(Accepted { key, principal: Arc::new(Principal::new("server", key)) })
    }

    fn accept_client(&self, key: &[u8; 32], _: &[u8]) -> Result<Vec<u8>, String> {
        self.looked.fetch_add(1, Relaxed);
        self.recall(key).map(|_| key.to_vec())
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let key: [u8; 32] = facts.try_into().map_err(|_| "no key of 32 bytes")?;
        let is_honest = key == public_key(&HONEST);
        is_honest.then(|| Arc::new(Principal::new("client", key))).ok_or("a stranger".into())
    }

    fn entropy(&self, out: &mut [u8]) {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(out);
    }
}

struct Honest {
    conversation: Conversation,
    kind: Kind,
    began: Nanos,
    /// How many handshakes had been computed when it asked for one first.
    asked: Option<u64>,
    /// Its last message.
    message: Vec<u8>,
    waits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Newcomer,
    Known,
    Crowd,
}

struct World {
    flood: Strangers,
    rng: Rng,
    server: Server,
    gate: Arc<Gate>,
    now: Nanos,
    /// The handshake that is being computed, and when it ends.
    computing: Option<(Nanos, Computed)>,
    computed: u64,
    busy: Nanos,
    honest: BTreeMap<SocketAddr, Honest>,
    /// What a client sends first, and as a message, without a proof of its own.
    hello: Vec<u8>,
    message: Vec<u8>,
    /// How many proofs there were for messages, and how many of the messages open.
    proofs: u64,
    opened: u64,
    ids: u64,
    /// Whether clients stay when they have joined.
    acquaints: bool,
    out: Vec<u8>,
    asked: Asked,
}

impl World {
    fn new(flood: Strangers) -> World {
        let gate = Gate::new(SERVER, flood.seed ^ 1);
        let config =
            ServerConfig { trust: Some(gate.clone()), mutant: flood.mutant, ..ServerConfig::default() };
        let mut server = Server::new(config, Time::from_nanos(1), [0x17; 32]);
        let procedures = vec![Fingerprint { number: 1, types: 1, name: 1 }];
        server.export(Export { id: 1, type_name: NAME.into(), instance: String::new(), procedures });
        World {
            rng: Rng::new(flood.seed),
            server,
            gate,
            now: SECS,
            computing: None,
            computed: 0,
            busy: 0,
            honest: BTreeMap::new(),
            hello: Vec::new(),
            message: Vec::new(),
            proofs: 0,
            opened: 0,
            ids: 0,
            acquaints: false,
            out: vec![0; 1 << 16],
            asked: Asked::default(),
            flood,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn conversation(&mut self) -> Conversation {
        self.ids += 1;
        let trust = Gate::new(HONEST, self.flood.seed ^ self.ids << 8);
        let config = ClientConfig { trust: Some(trust), ..ClientConfig::default() };
        Conversation::new(config, 0xc11e_0000 + self.ids)
    }

    /// Has a client ask for the export's name.
    fn join(&mut self, mut conversation: Conversation, at: SocketAddr, kind: Kind) {
        conversation.bind(self.time(), NAME, 0);
        let honest =
            Honest { conversation, kind, began: self.now, asked: None, message: Vec::new(), waits: 0 };
        self.honest.insert(at, honest);
    }

    /// Makes clients known, until their tickets are too old to be opened.
    fn acquaint(&mut self, count: u64) -> Vec<Conversation> {
        self.acquaints = true;
        for nth in 0..count {
            let conversation = self.conversation();
            self.join(conversation, at_v4(nth), Kind::Known);
        }
        self.pass(SECS, &mut |_| {});
        self.acquaints = false;
        let known = std::mem::take(&mut self.honest).into_values().map(|honest| honest.conversation);
        let known = known.collect();
        for _ in 0..4 {
            self.now += 601 * SECS;
            self.server.handle_timeout(self.time());
        }
        (self.asked, self.computed, self.busy) = (Asked::default(), 0, 0);
        (self.proofs, self.opened) = (0, self.gate.looked.load(Relaxed));
        known
    }

    /// One message with one proof comes again and again, each time with another nonce.
    fn repeat(&mut self) {
        let at = at_v6(0);
        let message = self.proven(at);
        let mut nonce = 0;
        let each = SECS / self.flood.rate;
        self.pass(SECS / 5, &mut |world| {
            if world.now % each < TICK {
                nonce += 1;
                let mut again = message.clone();
                again[NONCE..NONCE + 8].copy_from_slice(&u64::to_be_bytes(nonce));
                sound(&mut again);
                world.give(at, &again);
            }
        });
        self.asked.again = self.computed.saturating_sub(self.proofs);
    }

    /// Hosts of one network ask. Newcomers and known clients join.
    fn network(&mut self, mut known: Vec<Conversation>) {
        let (began, busy) = (self.now, self.busy);
        let mut next = 0;
        self.pass(SECS, &mut |world| {
            world.flood_from(at_v6);
            if world.now >= began + next * 25 * MILLIS {
                next += 1;
                let newcomer = world.conversation();
                world.join(newcomer, at_v4(next), Kind::Newcomer);
                if let Some(conversation) = known.pop() {
                    world.join(conversation, at_v6(next), Kind::Known);
                }
            }
        });
        self.asked.share = (self.busy - busy) * 1_000 / (self.now - began);
        self.pass(SECS, &mut |_| {});
    }

    /// Many honest clients of as many networks come at once, while strangers of other networks ask.
    fn crowd(&mut self) {
        for nth in 0..CROWD {
            let conversation = self.conversation();
            self.join(conversation, at_v4(256 + nth), Kind::Crowd);
        }
        self.pass(SECS, &mut |world| world.flood_from(|nth| at_v4(5_000 + nth)));
        self.pass(PATIENCE, &mut |_| {});
        self.asked.failed += self.honest.len() as u64;
    }

    /// Has strangers at these addresses ask for handshakes under proofs of their own.
    fn flood_from(&mut self, at: fn(u64) -> SocketAddr) {
        let each = SECS / self.flood.rate;
        for _ in 0..(TICK / each).max(u64::from(self.now % each < TICK)) {
            let at = at(self.rng.within(0, HOSTS - 1));
            let message = self.proven(at);
            self.give(at, &message);
        }
    }

    /// Returns a message of a stranger at this address, with a proof of its own. It does not open.
    fn proven(&mut self, at: SocketAddr) -> Vec<u8> {
        let id = (self.rng.next() | 1 << 63).to_be_bytes();
        let mut hello = self.hello.clone();
        hello[CLIENT..CLIENT + 8].copy_from_slice(&id);
        sound(&mut hello);
        self.server.receive(self.time(), at, &hello, &mut |_| {});
        let mut message = self.message.clone();
        while let Some(sent) = self.server.transmit(self.time(), &mut self.out) {
            if sent.to == at {
                message[PROOF].copy_from_slice(&self.out[SHOWN]);
            }
        }
        message[CLIENT..CLIENT + 8].copy_from_slice(&id);
        sound(&mut message);
        self.proofs += 1;
        message
    }

    fn give(&mut self, from: SocketAddr, datagram: &[u8]) {
        let now = self.time();
        self.server.receive(now, from, datagram, &mut |_| {});
        while let Some(sent) = self.server.transmit(now, &mut self.out) {
            let datagram = sent.gather(&self.out);
            self.hear(sent.to, datagram);
        }
    }

    /// Lets time pass. `act` acts in each tick.
    fn pass(&mut self, time: Nanos, act: &mut dyn FnMut(&mut World)) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            act(self);
            self.compute();
            let due: Vec<SocketAddr> = self.honest.keys().copied().collect();
            due.into_iter().for_each(|at| self.tick(at));
        }
    }

    /// Ends the handshake that is being computed, and begins the next one.
    fn compute(&mut self) {
        let now = self.time();
        if let Some((_, computed)) = self.computing.take_if(|(until, _)| *until <= self.now) {
            self.busy += COST;
            if let Some(sent) = self.server.finish_handshake(now, computed, &mut self.out) {
                let datagram = sent.gather(&self.out);
                self.hear(sent.to, datagram);
            }
        }
        if self.computing.is_none()
            && let Some(handshake) = self.server.next_handshake(now)
        {
            self.computed += 1;
            self.computing = Some((self.now + COST, handshake.compute()));
        }
    }

    /// Lets an honest client act on its timers, and send.
    fn tick(&mut self, at: SocketAddr) {
        let now = self.time();
        let mut sent = Vec::new();
        let Some(honest) = self.honest.get_mut(&at) else { return };
        honest.conversation.handle_timeout(now, &mut |_| {});
        while let Some(len) = honest.conversation.transmit(now, &mut self.out) {
            let datagram = self.out[..len].to_vec();
            // A BIND that shows a proof has a first message.
            let (is_bind, has_proof) = (datagram[1] == 0 && datagram[20] == 1, datagram[21] & 2 != 0);
            if is_bind && has_proof && honest.message != datagram[CLIENT..datagram.len() - 8] {
                honest.message = datagram[CLIENT..datagram.len() - 8].to_vec();
                honest.asked.get_or_insert(self.computed);
                (self.proofs, self.opened) = (self.proofs + 1, self.opened + 1);
            }
            if is_bind && datagram[21] & 1 == 0 {
                let template = if has_proof { &mut self.message } else { &mut self.hello };
                template.clone_from(&datagram);
            }
            sent.push(datagram);
        }
        sent.into_iter().for_each(|datagram| self.give(at, &datagram));
    }

    fn hear(&mut self, to: SocketAddr, mut datagram: Vec<u8>) {
        let now = self.time();
        let Some(honest) = self.honest.get_mut(&to) else { return };
        honest.waits += u64::from(datagram[1] == 0 && datagram.get(STEP) == Some(&WAIT));
        let mut bound = None;
        honest.conversation.receive_any(now, &mut datagram, &mut |event| {
            if let Event::Bound { answer, .. } = event {
                bound = Some(answer.is_ok());
            }
        });
        let Some(is_bound) = bound else { return };
        let (kind, waits) = (honest.kind, honest.waits);
        let before = self.computed - honest.asked.unwrap_or(self.computed);
        let in_time = self.now - honest.began <= PATIENCE;
        (self.asked.joined, self.asked.failed) =
            (self.asked.joined + 1, self.asked.failed + u64::from(!is_bound || !in_time));
        match kind {
            Kind::Newcomer => self.asked.before_newcomers = self.asked.before_newcomers.max(before),
            Kind::Known => self.asked.before_known = self.asked.before_known.max(before),
            Kind::Crowd => self.asked.waits = self.asked.waits.max(waits),
        }
        if !self.acquaints {
            self.honest.remove(&to);
        }
    }
}

/// Returns the address of a host of its own network (an IPv4 /16).
fn at_v4(nth: u64) -> SocketAddr {
    let ip = Ipv4Addr::from(0x0b00_0001 + ((nth as u32) << 16));
    SocketAddr::new(IpAddr::V4(ip), 9_000)
}

/// Returns the address of a host of one IPv6 /48.
fn at_v6(nth: u64) -> SocketAddr {
    let ip = Ipv6Addr::from(0x2001_0db8_0007_u128 << 80 | u128::from(nth) << 64 | 1);
    SocketAddr::new(IpAddr::V6(ip), 9_000)
}

/// Writes a right checksum.
fn sound(datagram: &mut [u8]) {
    if let Some((body, tag)) = datagram.split_last_chunk_mut::<8>() {
        *tag = xxh3_64(body).to_be_bytes();
    }
}
