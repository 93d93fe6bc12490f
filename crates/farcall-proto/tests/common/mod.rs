//! Helpers for packet traces: one client conversation and one server, with every datagram in the test's
//! hands.
#![allow(dead_code)]

#[cfg(feature = "secure")]
pub mod trust;

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use farcall_proto::client::{Call, CallId, Conversation, Event, Outcome};
#[allow(unused_imports, reason = "each test program uses a part")]
pub use farcall_proto::fuzzing::kinds::{
    ACK, BIND, CALL, CANCEL, CHALLENGE, MTU_PROBE, PADDING, PROBE, RESULT, SELECT, STALE, STATE,
};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, Kind, Mutant, Ran, ServerConfig, Time};

pub const EXPORT: u64 = 77;

/// The credit with which each direction of an exchange begins, in bytes.
pub const FIRST_CREDIT: u32 = 12_000;

/// Checks that the first tries came at such `times` in milliseconds that each came later than the one before
/// by half to the whole of an interval, and a little for looking at timers together.
pub fn assert_spread(times: &[u128], intervals: &[u128]) {
    let mut before = 0;
    for (time, interval) in times.iter().zip(intervals) {
        let between = time - before;
        assert!(interval / 2 <= between && between <= interval + 2, "{between} of {interval} ms: {times:?}");
        before = *time;
    }
    assert!(times.len() > intervals.len(), "{times:?}");
}

/// The outcome that a caller was told.
#[derive(Debug, PartialEq)]
pub enum Told {
    Result(Vec<u8>),
    Exception(Vec<u8>),
    Failed(Kind, Ran),
    Bound(u64),
    NotBound(Kind),
}

thread_local! {
    /// The fault that the ends have, if their configurations say nothing of one.
    pub static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::NONE) };
}

pub struct Pair {
    pub now: Time,
    pub client: Conversation,
    pub server: Server,
    pub from: SocketAddr,
    pub told: Vec<(u64, Told)>,
    pub asked: Vec<(CallKey, Vec<u8>)>,
    pub cancelled: Vec<CallKey>,
    pub posted: Vec<(u64, Vec<u8>)>,
    /// The result with which `carry` answers calls. If it is `None`, each call returns its own arguments.
    pub answer: Option<Vec<u8>>,
}

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Server,
    Client,
}

pub type Datagram = Vec<u8>;

impl Pair {
    pub fn new() -> Pair {
        Pair::with(ClientConfig::default(), ServerConfig::default())
    }

    pub fn with(mut client: ClientConfig, mut server: ServerConfig) -> Pair {
        let mutant = MUTANT.get();
        if mutant != Mutant::NONE {
            (client.mutant, server.mutant) = (mutant, mutant);
        }
        let now = Time::from_nanos(1_000_000_000);
        let mut pair = Pair {
            now,
            client: Conversation::new(client, 0xc11e),
            server: Server::new(server, now, [7; 32]),
            from: "10.0.0.1:1000".parse().unwrap(),
            told: Vec::new(),
            asked: Vec::new(),
            cancelled: Vec::new(),
            posted: Vec::new(),
            answer: None,
        };
        pair.export();
        pair
    }

    pub fn export(&mut self) {
        self.server.export(Export {
            id: EXPORT,
            type_name: "Store".into(),
            instance: "one".into(),
            procedures: vec![fingerprint(1, 11), fingerprint(2, 22)],
        });
    }

    pub fn restart_server(&mut self, secret: u8) {
        self.server = Server::new(ServerConfig::default(), self.now, [secret; 32]);
        self.export();
    }

    pub fn pass(&mut self, d: Duration) {
        self.now = self.now + d;
    }

    pub fn start(&mut self, token: u64, args: &[u8]) -> CallId {
        let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token };
        self.client.start(|| self.now, &call, &mut args.to_vec()).expect("room for a call")
    }

    /// Returns whether a call that was just started may wait for others.
    pub fn may_wait(&mut self, id: CallId, clocked: bool) -> bool {
        self.client.may_wait(|| self.now, id, clocked)
    }

    /// Returns the datagrams that the client has to send now.
    pub fn sent(&mut self) -> Vec<Datagram> {
        let mut out = vec![0; 65_536];
        std::iter::from_fn(|| self.client.transmit(self.now, &mut out).map(|n| out[..n].to_vec())).collect()
    }

    pub fn receive(&mut self, datagrams: &[Datagram]) {
        for d in datagrams {
            self.server.receive_any(self.now, self.from, &mut d.clone(), &mut |request| match request {
                Request::Call(call) => self.asked.push((call.key, call.args.to_vec())),
                Request::Post(export, bytes, _) => self.posted.push((export, bytes.to_vec())),
                Request::Cancel(key) => self.cancelled.push(key),
            });
        }
    }

    pub fn answered(&mut self) -> Vec<Datagram> {
        let mut out = vec![0; 65_536];
        std::iter::from_fn(|| self.server.transmit(self.now, &mut out).map(|t| t.gather(&out))).collect()
    }

    pub fn finish(&mut self, key: CallKey, finish: Finish, payload: &[u8]) -> Vec<Datagram> {
        let mut out = vec![0; 65_536];
        let sent = self.server.finish(self.now, key, finish, &mut payload.to_vec(), &mut out);
        let mut all: Vec<Datagram> = sent.into_iter().map(|t| t.gather(&out)).collect();
        all.extend(self.answered());
        all
    }

    pub fn hear(&mut self, datagrams: &[Datagram]) {
        for d in datagrams {
            let told = &mut self.told;
            self.client.receive_any(self.now, &mut d.clone(), &mut |e| told.push(note(e)));
        }
    }

    pub fn tick(&mut self) {
        let told = &mut self.told;
        self.client.handle_timeout(self.now, &mut |e| told.push(note(e)));
        self.server.handle_timeout(self.now);
        self.server.audit();
        self.client.audit();
    }

    /// Exchanges datagrams until both ends are silent. Every call returns its own arguments. Returns the
    /// number of datagrams.
    pub fn settle(&mut self) -> usize {
        let mut datagrams = 0;
        loop {
            let sent = self.sent();
            self.receive(&sent);
            let mut answers = self.answered();
            for (key, args) in std::mem::take(&mut self.asked) {
                answers.extend(self.finish(key, Finish::Result, &args));
            }
            self.hear(&answers);
            datagrams += sent.len() + answers.len();
            if sent.is_empty() && answers.is_empty() {
                return datagrams;
            }
        }
    }

    /// Carries datagrams between the ends, and acts on timers, until `told` has `ends` entries or `limit` is
    /// over. A datagram takes a tenth of a millisecond and arrives if `keep` accepts it. Returns the number
    /// of datagrams.
    pub fn carry(
        &mut self,
        ends: usize,
        limit: Duration,
        mut keep: impl FnMut(Time, &Datagram, To) -> bool,
    ) -> usize {
        let until = self.now + limit;
        let mut datagrams = 0;
        while self.told.len() < ends && self.now < until {
            let sent = self.sent();
            self.pass(Duration::from_micros(100));
            for d in &sent {
                if keep(self.now, d, To::Server) {
                    self.receive(std::slice::from_ref(d));
                }
            }
            let mut answers = self.answered();
            for (key, args) in std::mem::take(&mut self.asked) {
                let payload = self.answer.clone().unwrap_or(args);
                answers.extend(self.finish(key, Finish::Result, &payload));
            }
            self.pass(Duration::from_micros(100));
            for d in &answers {
                if keep(self.now, d, To::Client) {
                    self.hear(std::slice::from_ref(d));
                }
            }
            datagrams += sent.len() + answers.len();
            if sent.is_empty() && answers.is_empty() {
                match [self.client.timeout(), self.server.timeout()].into_iter().flatten().min() {
                    Some(next) => self.now = next.max(self.now),
                    None => break,
                }
            }
            self.tick();
        }
        datagrams
    }

    /// Returns a pair whose conversation is known at both ends.
    pub fn acquainted() -> Pair {
        Pair::acquainted_with(ClientConfig::default(), ServerConfig::default())
    }

    /// Returns a pair with these settings whose conversation is known at both ends.
    pub fn acquainted_with(client: ClientConfig, server: ServerConfig) -> Pair {
        let mut pair = Pair::with(client, server);
        pair.start(0, b"");
        pair.settle();
        pair.told.clear();
        pair
    }

    /// Returns a pair whose server executes a call with these arguments, and the call's names at its caller
    /// and at the server.
    pub fn executing(args: &[u8]) -> (Pair, CallId, CallKey) {
        let mut pair = Pair::acquainted();
        let id = pair.start(1, args);
        let call = pair.sent();
        pair.receive(&call);
        let key = pair.asked[0].0;
        (pair, id, key)
    }

    /// Starts a call and has the server execute it. Returns the server's key of the call.
    pub fn execute(&mut self, token: u64, args: &[u8]) -> CallKey {
        self.start(token, args);
        let call = self.sent();
        self.receive(&call);
        self.asked.pop().expect("the server executes the call").0
    }

    /// Gives a call up for its caller, and delivers the CANCEL to the server.
    pub fn cancel(&mut self, id: CallId) {
        self.client.cancel(self.now, id);
        let cancel = self.sent();
        self.receive(&cancel);
    }

    /// Loses every datagram until the call ends.
    pub fn starve(&mut self) {
        while self.told.is_empty() {
            let next = self.client.timeout().expect("a call is outstanding");
            self.now = next.max(self.now);
            self.tick();
            self.sent();
        }
    }
}

pub fn note(event: Event<'_>) -> (u64, Told) {
    match event {
        Event::Ended { token, outcome, .. } => (
            token,
            match outcome {
                Outcome::Result(b) => Told::Result(b.into_owned()),
                Outcome::Exception(b) => Told::Exception(b.into_owned()),
                Outcome::Failed(f) => Told::Failed(f.kind, f.ran),
            },
        ),
        Event::Bound { token, answer } => (
            token,
            match answer {
                Ok(bound) => Told::Bound(bound.export),
                Err(failure) => Told::NotBound(failure.kind),
            },
        ),
    }
}

/// Returns a datagram with these frames and a right tag, as any process could send it.
pub fn forged(conversation: u64, number: u64, frames: &[Vec<u8>]) -> Datagram {
    let mut d = vec![1, 0, 0, 0];
    d.extend(conversation.to_be_bytes());
    d.extend(number.to_be_bytes());
    d.extend(frames.iter().flatten());
    let tag = xxhash_rust::xxh3::xxh3_64(&d);
    d.extend(tag.to_be_bytes());
    d
}

/// Returns a frame of this type, with these flags and 32-bit words.
pub fn frame(kind: u8, flags: u8, words: &[u32]) -> Vec<u8> {
    let mut f = vec![kind, flags];
    f.extend((4 * words.len() as u16).to_be_bytes());
    f.extend(words.iter().flat_map(|w| w.to_be_bytes()));
    f
}

/// Returns a frame about call `sequence` of `activity`.
pub fn frame_about(kind: u8, flags: u8, activity: u32, sequence: u32, more: &[u32]) -> Vec<u8> {
    frame(kind, flags, &[&[activity, 0, 0, sequence], more].concat())
}

/// Returns the conversation that a datagram is sent to, by its receiver's identifier.
pub fn conversation_of(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram[4..12].try_into().unwrap())
}

/// Returns the types of a datagram's frames.
pub fn frames_of(datagram: &[u8]) -> Vec<u8> {
    let (mut at, mut kinds) = (20, Vec::new());
    while at + 8 < datagram.len() {
        kinds.push(datagram[at]);
        at += 4 + usize::from(u16::from_be_bytes([datagram[at + 2], datagram[at + 3]]));
    }
    kinds
}

/// Returns the fingerprint of a procedure, which a binding compares.
pub fn fingerprint(number: u32, types: u64) -> Fingerprint {
    Fingerprint { number, types, name: u64::from(number) << 1 }
}

/// The address of hostile clients; the honest client is at 10.0.0.1.
pub const HARM: [u8; 4] = [10, 6, 6, 6];

/// A client other than the pair's.
#[derive(Clone, Copy)]
pub struct Peer {
    /// The conversation's identifier at the server.
    pub id: u64,
    pub at: SocketAddr,
}

/// Makes a conversation with another client, at this address, known to the server.
pub fn join(pair: &mut Pair, host: [u8; 4], port: u16) -> Peer {
    let at = SocketAddr::from((host, port));
    let other = Conversation::new(ClientConfig::default(), u64::from(port) + 7);
    let honest = std::mem::replace(&mut pair.client, other);
    let (from, told) = (std::mem::replace(&mut pair.from, at), std::mem::take(&mut pair.told));
    pair.start(0, b"");
    pair.settle();
    pair.start(1, b"");
    let id = conversation_of(&pair.sent()[0]);
    (pair.client, pair.from, pair.told) = (honest, from, told);
    Peer { id, at }
}

/// Delivers a datagram with these frames from a peer to the server. Returns its length.
pub fn comes(pair: &mut Pair, peer: Peer, frames: &[Vec<u8>]) -> usize {
    let datagram = forged(peer.id, 1_000_000, frames);
    let from = std::mem::replace(&mut pair.from, peer.at);
    pair.receive(std::slice::from_ref(&datagram));
    pair.from = from;
    datagram.len()
}

/// Returns a fragment of a call's arguments: `len` bytes of them from `offset` on.
pub fn fragment(activity: u32, sequence: u32, total: u32, offset: u32, len: usize) -> Vec<u8> {
    let mut frame = frame_about(CALL, 2, activity, sequence, &[0, EXPORT as u32, 1, total, offset]);
    frame.resize(frame.len() + len, 7);
    let body = (frame.len() - 4) as u16;
    frame[2..4].copy_from_slice(&body.to_be_bytes());
    frame
}
