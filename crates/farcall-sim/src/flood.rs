//! A flood of forged first packets at a server with keys, in virtual time, while honest clients call.
//!
//! The packets are what a client sends first, taken from conversations with another server that has the same
//! key: the question who answers, a handshake's first message with a proof of another incarnation, a
//! resumption and a sealed call with tickets of another incarnation. Each bears another client's identifier
//! and a right checksum, and comes from another address. Every fourth has another byte changed besides.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::fuzzing::kinds::BIND;
use farcall_proto::secure::audit;
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, Mutant, ServerConfig, Time};
use xxhash_rust::xxh3::xxh3_64;

use crate::keys::{self, Keys};
use crate::names::NAME;
use crate::net::{MICROS, Nanos, Net, SECS, Step, address, host};
use crate::rng::Rng;

/// A flood to send.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// How many forged packets there are.
    pub packets: u64,
    /// How many of them are sent in a second of virtual time.
    pub rate: u64,
    /// The seed of the keys and of the packets.
    pub seed: u64,
    /// The fault of the server, if it has one.
    pub mutant: Mutant,
}

/// What a flood led to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flooded {
    /// How many forged packets arrived at the server.
    pub packets: u64,
    /// Datagrams that the server sent to the addresses from which they seemed to come.
    pub answers: u64,
    /// The X25519 functions that were computed because of forged packets, whether a private and a public key
    /// were put together or a public key was made.
    pub computed: u64,
    /// Bytes that the server keeps for the hosts of the flood, and what it knows of them: conversations that
    /// are not of honest clients, and entries of hosts.
    pub kept: u64,
    /// Calls of honest clients that returned.
    pub calls: u64,
    /// Calls and questions of honest clients that failed, or did not end.
    pub failed: u64,
    /// The longest virtual time that an honest call took.
    pub slowest: Nanos,
}

/// The honest clients. The first one calls before the flood begins; the others join during it.
const CLIENTS: usize = 8;
/// The hosts from which the forged packets seem to come, each at any port.
const HOSTS: usize = 16;
/// The server's address, of host 0.
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 7000);
const DELAY: Nanos = 100 * MICROS;
/// How often packets are made.
const BATCH_EVERY: Nanos = 100 * MICROS;

#[derive(Clone, Copy)]
enum Timer {
    Flood,
    Join(usize),
    Client(usize),
    Server,
}

struct Honest {
    conversation: Conversation,
    at: SocketAddr,
    armed: Nanos,
    /// The export that the name led to.
    export: Option<u64>,
    /// When the present call began.
    began: Nanos,
    calls: u64,
}

struct World {
    flood: Flood,
    net: Net<Timer>,
    rng: Rng,
    server: Server,
    armed: Nanos,
    clients: Vec<Honest>,
    /// What clients of another server have sent first.
    firsts: Vec<Vec<u8>>,
    out: Vec<u8>,
    left: u64,
    /// The X25519 functions that each client's handshake takes, at both ends.
    for_each_client: u64,
    flooded: Flooded,
}

impl Flooded {
    /// Returns whether all of so many forged packets arrived, the server computed and kept nothing because of
    /// them, and honest clients called and none of their calls failed.
    pub fn is_harmless(&self, packets: u64) -> bool {
        let harm = self.computed + self.kept + self.failed;
        self.packets == packets && self.answers > 0 && self.calls > 0 && harm == 0
    }
}

impl Flood {
    /// Sends the flood, while honest clients call the server, and returns what it led to.
    pub fn run(&self) -> Flooded {
        let world = World::new(*self);
        let before = audit::exchange(Some(audit::Audit::new(u32::MAX)));
        let flooded = world.run();
        audit::exchange(before);
        flooded
    }
}

impl World {
    fn new(flood: Flood) -> World {
        let mut rng = Rng::new(flood.seed);
        let keys = Keys::draw(&mut rng, (1, CLIENTS), true);
        let firsts = firsts(&keys);
        let mut net = Net::new(rng.fork(), 1 + CLIENTS + HOSTS, DELAY);
        net.bind(SERVER);
        let client = |index: usize| {
            let config = keys::client_config(&ClientConfig::default(), Some(&keys), 1 + index, 0);
            let conversation = Conversation::new(config, 0xc11e_0000 + index as u64);
            let (at, armed) = (address(1 + index, 40_000), Nanos::MAX);
            Honest { conversation, at, armed, export: None, began: 0, calls: 0 }
        };
        let clients: Vec<Honest> = (0..CLIENTS).map(client).collect();
        clients.iter().for_each(|client| net.bind(client.at));
        let config = ServerConfig { mutant: flood.mutant, ..ServerConfig::default() };
        World {
            server: server(&config, &keys, 0),
            armed: Nanos::MAX,
            clients,
            firsts,
            out: vec![0; 1 << 16],
            left: flood.packets,
            for_each_client: 0,
            flooded: Flooded::default(),
            flood,
            net,
            rng,
        }
    }

    fn run(mut self) -> Flooded {
        self.join(0);
        let lasts =
            (u128::from(self.flood.packets) * u128::from(SECS) / u128::from(self.flood.rate.max(1))) as Nanos;
        let ends = SECS + lasts + 10 * SECS;
        self.net.after(SECS, Timer::Flood);
        for index in 1..CLIENTS {
            self.net.after(SECS + lasts / CLIENTS as u64 * index as u64, Timer::Join(index));
        }
        self.settle();
        while let Some((at, step)) = self.net.step() {
            match step {
                Step::Datagram { from, to, bytes } => self.receive(at, (from, to), bytes),
                Step::Refused { .. } => {}
                Step::Event(timer) => self.act(at, timer),
            }
            self.settle();
            let quiet = self.left == 0 && self.net.now() > SECS + lasts + SECS;
            if quiet && self.clients.iter().all(|client| client.began == 0) || at > ends {
                break;
            }
        }
        self.judge()
    }

    fn act(&mut self, at: Nanos, timer: Timer) {
        let now = Time::from_nanos(at + 1);
        match timer {
            Timer::Flood if self.left == self.flood.packets && self.for_each_client == 0 => {
                // The first client has called before, so all functions so far were computed for it.
                self.for_each_client = audit::counts().asymmetric;
                self.send_batch();
            }
            Timer::Flood => self.send_batch(),
            Timer::Join(index) => self.join(index),
            Timer::Client(index) => {
                self.clients[index].armed = Nanos::MAX;
                self.tell(index, |conversation, sink| conversation.handle_timeout(now, sink));
            }
            Timer::Server => {
                self.armed = Nanos::MAX;
                self.server.handle_timeout(now);
            }
        }
    }

    fn send_batch(&mut self) {
        let batch = (self.flood.rate * BATCH_EVERY / SECS).clamp(1, self.left.max(1)).min(self.left);
        for nth in 0..batch {
            let seen = &self.firsts[self.rng.index(self.firsts.len())];
            forge(seen, &mut self.rng, &mut self.out);
            let from = address(1 + CLIENTS + self.rng.index(HOSTS), self.rng.within(1024, 65_535) as u16);
            self.net.send_after(nth * BATCH_EVERY / batch, from, SERVER, &self.out[..seen.len()]);
        }
        self.left -= batch;
        if self.left > 0 {
            self.net.after(BATCH_EVERY, Timer::Flood);
        }
    }

    fn join(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.began = self.net.now().max(1);
        client.conversation.bind(Time::from_nanos(client.began + 1), NAME, 0);
    }

    fn receive(&mut self, at: Nanos, (from, to): (SocketAddr, SocketAddr), mut bytes: Vec<u8>) {
        let now = Time::from_nanos(at + 1);
        if to != SERVER {
            let index = host(to) - 1;
            self.tell(index, |conversation, sink| conversation.receive_any(now, &mut bytes, sink));
            return self.net.recycle(bytes);
        }
        self.flooded.packets += u64::from(is_hostile(from));
        let mut asked = None;
        self.server.receive_any(now, from, &mut bytes, &mut |request| {
            if let Request::Call(call) = request {
                asked = Some(call.key);
            }
        });
        self.net.recycle(bytes);
        let Some(key) = asked else { return };
        let sent = self.server.finish(now, key, Finish::Result, &mut b"result..".to_vec(), &mut self.out);
        if let Some(sent) = sent {
            self.net.send(SERVER, sent.to, &sent.gather(&self.out));
        }
    }

    /// Lets a client's conversation act, and takes what it tells. After each call the client makes another,
    /// until the flood is over.
    fn tell(&mut self, index: usize, act: impl FnOnce(&mut Conversation, &mut dyn FnMut(Event<'_>))) {
        let (at, client) = (self.net.now(), &mut self.clients[index]);
        let (mut ended, mut bound) = (None, None);
        act(&mut client.conversation, &mut |event| match event {
            Event::Ended { outcome, .. } => ended = Some(matches!(outcome, Outcome::Result(_))),
            Event::Bound { answer, .. } => bound = Some(answer.ok().map(|bound| bound.export)),
        });
        if let Some(returned) = ended {
            client.calls += u64::from(returned);
            self.flooded.failed += u64::from(!returned);
            self.flooded.slowest = self.flooded.slowest.max(at - client.began);
        }
        if let Some(export) = bound {
            client.export = export;
            self.flooded.failed += u64::from(export.is_none());
        }
        if ended.is_none() && bound.is_none() {
            return;
        }
        client.began = 0;
        let is_over = self.left == 0 && self.net.now() > SECS;
        if let (false, Some(export)) = (is_over, client.export) {
            let call = Call { export, procedure: 1, deadline: None, trace: None, token: 1 };
            client.began = at.max(1);
            let now = Time::from_nanos(at + 1);
            if client.conversation.start(|| now, &call, &mut b"argument".to_vec()).is_err() {
                (client.began, self.flooded.failed) = (0, self.flooded.failed + 1);
            }
        }
    }

    /// Sends everything that is ready, and sets the timers.
    fn settle(&mut self) {
        let at = self.net.now();
        let now = Time::from_nanos(at + 1);
        let due = |due: Option<Time>| due.map(|due| due.as_nanos().saturating_sub(1).max(at));
        for (index, client) in self.clients.iter_mut().enumerate() {
            while let Some(len) = client.conversation.transmit(now, &mut self.out) {
                self.net.send(client.at, SERVER, &self.out[..len]);
            }
            if let Some(due) = due(client.conversation.timeout()).filter(|due| *due < client.armed) {
                client.armed = due;
                self.net.at(due, Timer::Client(index));
            }
        }
        while let Some(sent) = self.server.transmit(now, &mut self.out) {
            self.flooded.answers += u64::from(is_hostile(sent.to));
            self.net.send(SERVER, sent.to, &sent.gather(&self.out));
        }
        if let Some(due) = due(self.server.timeout()).filter(|due| *due < self.armed) {
            self.armed = due;
            self.net.at(due, Timer::Server);
        }
    }

    fn judge(mut self) -> Flooded {
        self.server.audit();
        let of_host = |index| {
            let ip = address(index, 0).ip();
            let kept = self.server.kept_for(ip);
            (kept.bytes() + kept.listed + usize::from(self.server.knows_host(ip))) as u64
        };
        let of_hosts: u64 = (1 + CLIENTS..1 + CLIENTS + HOSTS).map(of_host).sum();
        let known = self.server.conversations().abs_diff(CLIENTS);
        self.flooded.kept = of_hosts + known as u64;
        self.flooded.calls = self.clients.iter().map(|client| client.calls).sum();
        self.flooded.failed += self.clients.iter().filter(|client| client.began > 0).count() as u64;
        let honest = self.for_each_client * CLIENTS as u64;
        self.flooded.computed = audit::counts().asymmetric.abs_diff(honest);
        self.flooded
    }
}

/// Returns a server that has the export, in one of its lives.
fn server(config: &ServerConfig, keys: &Keys, life: u8) -> Server {
    let config = keys::server_config(config, Some(keys), 0, life.into());
    let mut server = Server::new(config, Time::from_nanos(1), [0x17 + life; 32]);
    let procedures = vec![Fingerprint { number: 1, types: 1, name: 1 }];
    server.export(Export { id: 1, type_name: NAME.into(), instance: String::new(), procedures });
    server
}

fn is_hostile(address: SocketAddr) -> bool {
    host(address) > CLIENTS
}

/// Returns what a client sends first, to a server in another life: when the client begins, and when the
/// server has forgotten it.
fn firsts(keys: &Keys) -> Vec<Vec<u8>> {
    let mut server = server(&ServerConfig::default(), keys, 1);
    let config = keys::client_config(&ClientConfig::default(), Some(keys), 1, 1);
    let mut client = Conversation::new(config, 0xc11e);
    let (mut out, mut firsts, mut at) = (vec![0; 1 << 16], Vec::new(), SECS);
    // The second call is refused, because the server has forgotten the conversation, which the third resumes.
    for _ in 0..3 {
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 1 };
        let began = Time::from_nanos(at);
        client.start(|| began, &call, &mut b"argument".to_vec()).expect("nothing is outstanding");
        let until = at + 5 * SECS;
        while client.stats().outstanding > 0 && at < until {
            at += SECS / 1000;
            exchange(Time::from_nanos(at), &mut client, &mut server, &mut out, &mut firsts);
        }
        server.forget_revoked(Time::from_nanos(at), |_| false);
        at += SECS;
    }
    firsts
}

/// Carries what a client has to send to a server, and the answers back. Adds what a client may begin with to
/// `firsts`.
fn exchange(
    now: Time,
    client: &mut Conversation,
    server: &mut Server,
    out: &mut [u8],
    firsts: &mut Vec<Vec<u8>>,
) {
    let mut asked = None;
    while let Some(len) = client.transmit(now, out) {
        let mut datagram = out[..len].to_vec();
        firsts.extend(is_first(&datagram).then(|| datagram.clone()));
        server.receive_any(now, address(1, 40_000), &mut datagram, &mut |request| {
            if let Request::Call(call) = request {
                asked = Some(call.key);
            }
        });
    }
    let result = asked.and_then(|key| server.finish(now, key, Finish::Result, &mut Vec::new(), out));
    if let Some(sent) = result {
        client.receive_any(now, &mut sent.gather(out), &mut |_| {});
    }
    while let Some(sent) = server.transmit(now, out) {
        client.receive_any(now, &mut sent.gather(out), &mut |_| {});
    }
    client.handle_timeout(now, &mut |_| {});
}

/// Returns whether a client may begin with this datagram: a BIND, or a sealed datagram that shows a ticket.
fn is_first(datagram: &[u8]) -> bool {
    datagram[1] == 0 && datagram[20] == BIND || datagram[2] & 0x80 != 0
}

/// Writes to `out` a datagram like one that was seen, of another client: with another identifier of the
/// client and a right checksum if it is a question, and of another conversation if it is sealed. Every fourth
/// has other bytes in its first frame besides.
fn forge(seen: &[u8], rng: &mut Rng, out: &mut [u8]) {
    let (is_sealed, end) = (seen[1] > 1, seen.len() - 8);
    let datagram = &mut out[..seen.len()];
    datagram.copy_from_slice(seen);
    let at = if is_sealed { 4 } else { 24 };
    datagram[at..at + 8].copy_from_slice(&(rng.next() | 1).to_be_bytes());
    if rng.chance(250_000) {
        let frame = usize::from(u16::from_be_bytes([seen[22], seen[23]]));
        let changed = 24 + rng.index(frame.min(end - 24));
        datagram[changed] ^= rng.within(1, 255) as u8;
    }
    if !is_sealed {
        let (body, tag) = datagram.split_at_mut(end);
        tag.copy_from_slice(&xxh3_64(body).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_questions_first_messages_resumptions_and_sealed_calls() {
        let mut rng = Rng::new(1);
        let firsts = firsts(&Keys::draw(&mut rng, (1, CLIENTS), true));
        // A question, a first message and a resumption have bodies of different lengths.
        let sealed = firsts.iter().filter(|first| first[1] > 1).count();
        let lengths: std::collections::BTreeSet<usize> = firsts
            .iter()
            .filter(|first| first[1] == 0)
            .map(|first| usize::from(u16::from_be_bytes([first[22], first[23]])))
            .collect();
        assert!(sealed > 0 && lengths.len() >= 3, "{sealed} sealed, questions of {lengths:?} bytes");
    }
}
