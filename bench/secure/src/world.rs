//! A server of the protocol's core and its clients, with keys and without sockets. Time and random numbers
//! are simulated.
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use farcall_base::Principal;
use farcall_bench_method::alloc;
use farcall_crypto::public_key;
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::secure::{Accepted, Trust};
use farcall_proto::server::{Computed, Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Kind, MAX_DATAGRAM, Ran, ServerConfig, Time};
use zeroize::Zeroizing;

/// The number of the export, of its procedure, and the name.
const EXPORT: u64 = 42;
const NAME: &str = "Echo";
/// Bytes of the arguments of a call.
const ARGS: usize = 32;

/// The time that passes before each new client, so that the server computes its handshake without a WAIT.
const BETWEEN: Duration = Duration::from_millis(1);

/// The clients of one host. A server computes only some handshakes of a host in a period.
pub const PER_HOST: u32 = 50;

/// The private key of the server. It is secret from nobody.
const SERVER: [u8; 32] = [7; 32];

/// The keys of one end. The server accepts every client, each under a key of its own.
#[derive(Debug)]
struct Keys {
    private: [u8; 32],
    public: [u8; 32],
    server: [u8; 32],
    random: AtomicU64,
    /// How often the private key was asked for, which is once for each handshake.
    handshakes: AtomicU64,
    /// The clients that were accepted. A runtime remembers them by their keys, not by conversations, so they
    /// are not counted among the bytes of conversations.
    clients: Mutex<HashMap<[u8; 32], Arc<Principal>>>,
}

impl Keys {
    fn new(private: [u8; 32]) -> Arc<Keys> {
        Arc::new(Keys {
            private,
            public: public_key(&private),
            server: public_key(&SERVER),
            random: AtomicU64::new(
                u64::from_le_bytes(*private.first_chunk().unwrap_or(&[1; 8])).wrapping_mul(3),
            ),
            handshakes: AtomicU64::new(0),
            clients: Mutex::default(),
        })
    }
}

impl Trust for Keys {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        self.handshakes.fetch_add(1, Relaxed);
        Zeroizing::new(self.private)
    }

    fn presentation(&self, _: &[u8]) -> Vec<u8> {
        self.public.to_vec()
    }

    fn accept_server(&self, _: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let key = presentation.try_into().map_err(|_| "no key of 32 bytes")?;
        match key == self.server {
            true => Ok(Accepted { key, principal: Arc::new(Principal::new("server", key)) }),
            false => Err("it is another server".into()),
        }
    }

    fn accept_client(&self, key: &[u8; 32], _: &[u8]) -> Result<Vec<u8>, String> {
        alloc::counting(false);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.entry(*key).or_insert_with(|| Arc::new(Principal::new("client", *key)));
        drop(clients);
        alloc::counting(true);
        Ok(key.to_vec())
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        let key: [u8; 32] = facts.try_into().map_err(|_| "no key of 32 bytes")?;
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.get(&key).cloned().ok_or_else(|| "the client is not remembered".into())
    }

    fn entropy(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            part.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..part.len()]);
        }
    }
}

/// A server, the time, and the buffers through which datagrams pass.
pub struct World {
    pub server: Server,
    keys: Arc<Keys>,
    settings: ServerConfig,
    pub now: Time,
    clients: u32,
    /// How often each call was executed, by its arguments.
    pub executed: HashMap<[u8; ARGS], u32>,
    down: Vec<u8>,
    /// The live bytes before the server existed.
    before: i64,
}

/// A client, and where it is.
pub struct Client {
    pub from: SocketAddr,
    pub core: Conversation,
    /// Its public key.
    pub key: [u8; 32],
    number: u32,
    calls: u32,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Bound,
    Returned,
    Failed(Kind, Ran),
    /// Neither end has a datagram to send, and nothing has ended.
    Waits,
}

impl World {
    pub fn new(settings: ServerConfig) -> World {
        let now = Time::from_nanos(1_000_000_000);
        let keys = Keys::new(SERVER);
        let settings = ServerConfig { trust: Some(keys.clone()), ..settings };
        let down = vec![0; MAX_DATAGRAM];
        let before = alloc::live_bytes();
        let server = serve(&settings, now, 1);
        World { server, keys, settings, now, clients: 0, executed: HashMap::new(), down, before }
    }

    /// Starts the server anew: it has forgotten everything.
    pub fn restart(&mut self) {
        self.server = serve(&self.settings, self.now, 2);
        self.keys.handshakes.store(0, Relaxed);
    }

    /// Returns how many handshakes the server has computed.
    pub fn handshakes(&self) -> u64 {
        self.keys.handshakes.load(Relaxed)
    }

    /// Returns the part of `live` bytes that each of `count` conversations has.
    pub fn each(&self, live: i64, count: usize) -> f64 {
        (live - self.before) as f64 / count as f64
    }

    pub fn all_there(&self, count: usize) -> Result<()> {
        let (there, held) = (self.server.conversations(), self.server.held_bytes());
        ensure!(there == count, "the server remembers {there} conversations of {count}");
        ensure!(held == 0, "the server still holds {held} bytes of results");
        Ok(())
    }

    /// Adds a client with a key and an address of its own, which binds and makes one call.
    pub fn converse(&mut self) -> Result<Client> {
        self.converse_seen(&mut Vec::new())
    }

    /// Does what [`World::converse`] does, and notes what the client sends.
    fn converse_seen(&mut self, seen: &mut Vec<Vec<u8>>) -> Result<Client> {
        self.clients += 1;
        self.now = self.now + BETWEEN;
        let number = self.clients;
        let host = Ipv4Addr::from(0x0a00_0000 + number / PER_HOST);
        let from = SocketAddr::from((host, 1024 + (number % PER_HOST) as u16));
        let mut private = [3; 32];
        private[4..8].copy_from_slice(&number.to_le_bytes());
        // Any identifiers will do that are distributed like random ones.
        let id = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let keys = Keys::new(private);
        let key = keys.public;
        let config = ClientConfig { trust: Some(keys), ..ClientConfig::default() };
        let mut client = Client { from, core: Conversation::new(config, id), key, number, calls: 0 };
        client.core.bind(self.now, NAME, 0);
        let bound = self.exchange(&mut client, seen);
        ensure!(bound == Ended::Bound, "client {number} could not bind: {bound:?}");
        client.start(self.now)?;
        let ended = self.exchange(&mut client, seen);
        ensure!(ended == Ended::Returned, "client {number} did not get its result: {ended:?}");
        Ok(client)
    }

    /// Makes one call, and returns how it ended.
    pub fn call(&mut self, client: &mut Client) -> Result<Ended> {
        client.start(self.now)?;
        Ok(self.exchange(client, &mut Vec::new()))
    }

    /// Carries datagrams both ways until something has ended, or no side has any. Notes what the client
    /// sends.
    fn exchange(&mut self, client: &mut Client, seen: &mut Vec<Vec<u8>>) -> Ended {
        loop {
            let sent = client.sends(self.now);
            self.now = self.now + Duration::from_micros(10);
            let mut answers = Vec::new();
            for datagram in &sent {
                answers.extend(self.give(client.from, &mut datagram.clone()));
            }
            let none = sent.is_empty();
            seen.extend(sent);
            match client.hear(self.now, answers) {
                Some(ended) => return ended,
                None if none => return Ended::Waits,
                None => {}
            }
        }
    }

    /// Gives the server a datagram, executes the calls that result (an echo), and returns the datagrams that
    /// the server sends. They are not counted among the server's bytes.
    pub fn give(&mut self, from: SocketAddr, datagram: &mut [u8]) -> Vec<Vec<u8>> {
        let mut sent = self.serve(from, datagram);
        while let Some(handshake) = self.server.next_handshake(self.now) {
            sent.extend(self.finish(handshake.compute()).map(|(_, datagram)| datagram));
        }
        sent
    }

    /// Ends a handshake that was computed, and returns the datagram that the server sends, and where to.
    pub fn finish(&mut self, handshake: Computed) -> Option<(SocketAddr, Vec<u8>)> {
        let sent = self.server.finish_handshake(self.now, handshake, &mut self.down)?;
        Some((sent.to, sent.gather(&self.down)))
    }

    /// Does what [`World::give`] does, but computes no handshake.
    pub fn serve(&mut self, from: SocketAddr, datagram: &mut [u8]) -> Vec<Vec<u8>> {
        let mut called = None;
        self.server.receive_sealed(self.now, from, datagram, &mut |request| {
            if let Request::Call(call) = request {
                let mut args = [0; ARGS];
                args.copy_from_slice(&call.args);
                called = Some((call.key, args));
            }
        });
        let mut sent = Vec::new();
        if let Some((key, args)) = called {
            let mut result = self.server.buffer(self.now, args.len());
            result.extend_from_slice(&args);
            *self.executed.entry(args).or_default() += 1;
            let datagram = self.server.finish(self.now, key, Finish::Result, &mut result, &mut self.down);
            sent.extend(datagram.map(|datagram| datagram.gather(&self.down)));
        }
        while let Some(datagram) = self.server.transmit(self.now, &mut self.down) {
            sent.push(datagram.gather(&self.down));
        }
        sent
    }

    /// Advances the time until the server holds no results.
    pub fn settle(&mut self) -> Result<()> {
        for _ in 0..1_000_000 {
            let Some(due) = self.server.timeout() else { return Ok(()) };
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
        }
        bail!("the server's timers never end")
    }

    /// Returns how many calls were executed more than once.
    pub fn executed_twice(&self) -> usize {
        self.executed.values().filter(|count| **count > 1).count()
    }
}

impl Client {
    /// Starts a call, whose arguments no other call has.
    pub fn start(&mut self, now: Time) -> Result<()> {
        self.calls += 1;
        let mut args = vec![0; ARGS];
        args[..4].copy_from_slice(&self.number.to_le_bytes());
        args[4..8].copy_from_slice(&self.calls.to_le_bytes());
        let call = Call { export: EXPORT, procedure: 0, deadline: None, trace: None, token: 1 };
        match self.core.start(|| now, &call, &mut args) {
            Ok(_) => Ok(()),
            Err(why) => bail!("client {} could not start its call: {why:?}", self.number),
        }
    }

    pub fn sends(&mut self, now: Time) -> Vec<Vec<u8>> {
        let mut out = [0; 2048];
        std::iter::from_fn(|| self.core.transmit(now, &mut out).map(|len| out[..len].to_vec())).collect()
    }

    /// Hears datagrams, and returns what has ended by them.
    pub fn hear(&mut self, now: Time, datagrams: Vec<Vec<u8>>) -> Option<Ended> {
        let mut ended = None;
        for mut datagram in datagrams {
            self.core.receive_any(now, &mut datagram, &mut |event| ended = Some(Ended::of(event)));
        }
        ended
    }

    /// Acts on the client's timers, and returns what has ended by them.
    pub fn tick(&mut self, now: Time) -> Option<Ended> {
        let mut ended = None;
        self.core.handle_timeout(now, &mut |event| ended = Some(Ended::of(event)));
        ended
    }
}

impl Ended {
    fn of(event: Event<'_>) -> Ended {
        match event {
            Event::Bound { answer: Ok(_), .. } => Ended::Bound,
            Event::Ended { outcome: Outcome::Result(_), .. } => Ended::Returned,
            Event::Bound { answer: Err(why), .. } => Ended::Failed(why.kind, why.ran),
            Event::Ended { outcome: Outcome::Failed(why), .. } => Ended::Failed(why.kind, why.ran),
            Event::Ended { .. } => Ended::Failed(Kind::Local, Ran::Yes),
        }
    }
}

/// Returns whether a datagram of the server tells its client to wait (docs/protocol.md, section 11.2).
pub fn is_wait(datagram: &[u8]) -> bool {
    /// Where the bytes of the ticket begin that only the server reads, in a datagram with a WELCOME.
    const REST: usize = 24 + 16 + 40;
    let word =
        datagram.get(REST..REST + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes);
    let step = REST + 4 + (word as usize).next_multiple_of(4) + 16 + 20 + 16 + 16;
    datagram.get(20) == Some(&2) && datagram.get(step) == Some(&4)
}

fn serve(settings: &ServerConfig, now: Time, incarnation: u8) -> Server {
    let mut server = Server::new(settings.clone(), now, [incarnation; 32]);
    let procedures = vec![farcall_proto::Fingerprint { number: 0, types: 1, name: 2 }];
    server.export(Export { id: EXPORT, type_name: NAME.into(), instance: String::new(), procedures });
    server
}

/// A forged first packet: what a client would send, under another identifier each time.
pub struct Forged(Vec<u8>);

/// Returns the datagrams with which clients begin: the question who answers, a handshake's first message, a
/// sealed call with a ticket, and a resumption. They are of a server that nobody else has spoken to.
pub fn first_packets() -> Result<Vec<Forged>> {
    let mut world = World::new(ServerConfig::default());
    let mut seen = Vec::new();
    let mut client = world.converse_seen(&mut seen)?;
    let now = world.now;
    world.server.forget_revoked(now, |_| false);
    world.now = now + Duration::from_secs(1);
    client.start(world.now)?;
    world.exchange(&mut client, &mut seen);
    client.start(world.now)?;
    world.exchange(&mut client, &mut seen);
    let of = |kind: u8| seen.iter().find(|datagram| kind_of(datagram) == Some(kind)).cloned();
    let sealed = seen.iter().find(|datagram| datagram[2] & 0x80 != 0).cloned();
    let all = [of(1), of(2), of(3), sealed].into_iter().map(|datagram| datagram.map(Forged));
    match all.collect() {
        Some(all) => Ok(all),
        None => bail!("a client did not send all kinds of first packets"),
    }
}

/// Returns the kind of the step in a BIND (docs/protocol.md, sections 4.1 and 11.2).
fn kind_of(datagram: &[u8]) -> Option<u8> {
    let word = |at: usize| {
        let word = datagram.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map_or(0, u32::from_be_bytes) as usize
    };
    let opaque = |at: usize| at + 4 + word(at).next_multiple_of(4);
    let ticket = |at: usize| opaque(at + 40);
    if (datagram[1], datagram[20]) != (0, 1) {
        return None;
    }
    let (flags, mut at) = (datagram[21], 24 + 28);
    at = if flags & 1 != 0 { ticket(at + 8) + 20 } else { at };
    at = if flags & 2 != 0 { ticket(at + 8) } else { at };
    datagram.get(opaque(at) + 16).copied()
}

impl Forged {
    /// Makes the datagram that of another client.
    pub fn forge(&mut self, identifier: u64) {
        let Forged(datagram) = self;
        let sealed = datagram[1] > 1;
        let at = if sealed { 4 } else { 24 };
        datagram[at..at + 8].copy_from_slice(&identifier.to_be_bytes());
        let end = datagram.len() - 8;
        if !sealed {
            let (body, tag) = datagram.split_at_mut(end);
            tag.copy_from_slice(&xxhash_rust::xxh3::xxh3_64(body).to_be_bytes());
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
