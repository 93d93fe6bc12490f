//! Tests a server with many clients that have keys: conversations that it forgets and that are resumed, a
//! flood of forged first packets, and a restart after which all come back. `bench/secure` does the same with
//! 100,000.
#![cfg(feature = "secure")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust};
use common::*;
use farcall_proto::client::{Call, Conversation, Event};
use farcall_proto::server::{Finish, Server};
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig, Time};

/// How long the server has been silent before it forgets. From that clients conclude that calls which they
/// make later did not run before.
const SILENCE: Duration = Duration::from_secs(60);

/// A server, and clients at hosts of their own.
struct Many {
    pair: Pair,
    trust: Arc<TestTrust>,
    clients: Vec<Conversation>,
    /// How often each call was executed, by its arguments.
    executed: BTreeMap<Vec<u8>, u32>,
}

impl Many {
    /// Makes so many clients known to a server.
    fn acquainted(count: usize) -> Many {
        Many::with(count, client_settings())
    }

    fn with(count: usize, client: ClientConfig) -> Many {
        let trust = TestTrust::new(SERVER, &[CLIENT]);
        let settings = ServerConfig { trust: Some(trust.clone()), ..ServerConfig::default() };
        let pair = Pair::with(client.clone(), settings);
        let mut many = Many { pair, trust, clients: Vec::new(), executed: BTreeMap::new() };
        for number in 0..count {
            many.clients.push(Conversation::new(client.clone(), 0x1000 + number as u64));
            many.pair.pass(Duration::from_millis(1));
            assert_eq!(many.call(number, "first"), Told::Result(argument(number, "first")));
        }
        many
    }

    /// Makes a call of a client, and returns its outcome.
    fn call(&mut self, number: usize, word: &str) -> Told {
        std::mem::swap(&mut self.pair.client, &mut self.clients[number]);
        self.pair.from = at(number);
        self.pair.start(1, &argument(number, word));
        while self.pair.told.is_empty() {
            let sent = self.pair.sent();
            assert!(!sent.is_empty(), "client {number} waits, though nothing is lost");
            self.pair.receive(&sent);
            let mut answers = self.pair.answered();
            for (key, args) in std::mem::take(&mut self.pair.asked) {
                *self.executed.entry(args.clone()).or_default() += 1;
                answers.extend(self.pair.finish(key, Finish::Result, &args));
            }
            self.pair.hear(&answers);
        }
        std::mem::swap(&mut self.pair.client, &mut self.clients[number]);
        self.pair.told.pop().expect("an outcome").1
    }

    /// Returns what the server sends now, and to whom.
    fn mail(&mut self, now: Time) -> Vec<(SocketAddr, Datagram)> {
        let mut out = vec![0; 65_536];
        let server = &mut self.pair.server;
        std::iter::from_fn(|| server.transmit(now, &mut out).map(|sent| (sent.to, sent.gather(&out))))
            .collect()
    }

    /// Returns how many handshakes the server has computed.
    fn computed(&self) -> u64 {
        *self.trust.handshakes.lock().unwrap()
    }
}

fn client_settings() -> ClientConfig {
    ClientConfig { trust: Some(TestTrust::new(CLIENT, &[SERVER])), ..ClientConfig::default() }
}

fn argument(number: usize, word: &str) -> Vec<u8> {
    let mut argument = format!("{word} {number:06}").into_bytes();
    argument.resize(argument.len().next_multiple_of(4), 0);
    argument
}

fn at(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, (number / 100) as u8, 1], 1024 + (number % 100) as u16))
}

/// Returns the number of the client at an address.
fn number_of(address: SocketAddr) -> usize {
    let std::net::IpAddr::V4(ip) = address.ip() else { panic!("{address} is nobody's") };
    usize::from(ip.octets()[2]) * 100 + usize::from(address.port()) - 1024
}

#[test]
fn conversations_that_a_server_has_forgotten_are_resumed_and_nothing_is_executed_twice() {
    const COUNT: usize = 1_000;
    let mut many = Many::acquainted(COUNT);
    let computed = many.computed();
    many.pair.pass(SILENCE);
    many.pair.server.forget_revoked(many.pair.now, |_| false);
    assert_eq!(many.pair.server.conversations(), 0);
    many.pair.pass(Duration::from_secs(1));
    let mut refused = 0;
    for number in 0..COUNT {
        let mut told = many.call(number, "again");
        if told == Told::Failed(Kind::Forgotten, Ran::No) {
            refused += 1;
            told = many.call(number, "then");
        }
        assert!(matches!(told, Told::Result(_)), "{number}: {told:?}");
    }
    assert_eq!((refused, many.computed(), many.pair.server.conversations()), (COUNT, computed, COUNT));
    assert_eq!(many.executed.len(), 2 * COUNT);
    assert!(many.executed.values().all(|times| *times == 1));
}

#[test]
fn forged_first_packets_compute_nothing_and_keep_nothing_and_an_honest_client_is_served() {
    const PACKETS: u64 = 50_000;
    let mut many = Many::acquainted(1);
    // What another server with the same key has seen: its tickets prove nothing here.
    let settings = ServerConfig { trust: Some(TestTrust::new(SERVER, &[CLIENT])), ..ServerConfig::default() };
    let mut other = Pair::with(client_settings(), settings.clone());
    other.server = Server::new(settings, other.now, [9; 32]);
    other.export();
    other.start(1, b"call");
    let mut seen = Vec::new();
    other.carry(1, Duration::from_secs(5), |_, datagram, to| {
        seen.extend((to == To::Server).then(|| datagram.clone()));
        true
    });
    other.server.forget_revoked(other.now, |_| false);
    other.pass(Duration::from_secs(1));
    for token in 2..4 {
        other.start(token, b"call");
        other.carry(1, Duration::from_secs(5), |_, datagram, to| {
            seen.extend((to == To::Server).then(|| datagram.clone()));
            true
        });
        other.told.clear();
    }
    // Padding only takes time here.
    let mut forged: Vec<Datagram> =
        seen.iter().filter(|datagram| is_first(datagram)).map(shortened).collect();
    assert!(forged.len() >= 4, "{}", forged.len());
    let computed = many.computed();
    let kept = many.pair.server.kept_for(HARM.into());
    let mut answers = 0;
    for nth in 0..PACKETS {
        let len = forged.len();
        let datagram = &mut forged[nth as usize % len];
        change(datagram, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(nth + 1) | 1);
        many.pair.from = SocketAddr::from((HARM, 1024 + (nth % 60_000) as u16));
        many.pair.receive(std::slice::from_ref(datagram));
        answers += many.pair.answered().len() as u64;
        if nth % 1_000 == 0 {
            many.pair.pass(Duration::from_millis(2));
            assert!(matches!(many.call(0, &format!("{nth}")), Told::Result(_)));
        }
    }
    assert!(answers > 0 && answers <= PACKETS, "{answers}");
    assert_eq!((many.computed(), many.pair.server.conversations()), (computed, 1));
    assert_eq!(many.pair.server.kept_for(HARM.into()), kept);
}

/// Returns whether a client may begin with this datagram: a BIND, or a sealed datagram that shows a ticket.
fn is_first(datagram: &Datagram) -> bool {
    datagram[1] == 0 && datagram[20] == BIND || datagram[2] & 0x80 != 0
}

/// Returns a BIND without its padding, and other datagrams as they are.
fn shortened(datagram: &Datagram) -> Datagram {
    let mut datagram = datagram.clone();
    if datagram[1] == 0 {
        let end = 24 + usize::from(u16::from_be_bytes([datagram[22], datagram[23]]));
        datagram.truncate(end + 8);
    }
    datagram
}

/// Makes a datagram that of another client: changes the client's identifier and the checksum of a question,
/// and the conversation of a sealed datagram.
fn change(datagram: &mut Datagram, identifier: u64) {
    let (sealed, end) = (datagram[1] > 1, datagram.len() - 8);
    let at = if sealed { 4 } else { 24 };
    datagram[at..at + 8].copy_from_slice(&identifier.to_be_bytes());
    if !sealed {
        let (body, tag) = datagram.split_at_mut(end);
        tag.copy_from_slice(&xxhash_rust::xxh3::xxh3_64(body).to_be_bytes());
    }
}

#[test]
fn after_a_restart_all_clients_come_back_and_those_that_must_wait_are_told_so() {
    const COUNT: usize = 1_000;
    // The last ones wait for longer than a client is patient with a silent server.
    let patience = Duration::from_millis(200);
    let impatient =
        ClientConfig { patience, patience_probes: 3, max_retransmit: patience / 4, ..client_settings() };
    let mut many = Many::with(COUNT, impatient);
    let settings = ServerConfig { trust: Some(many.trust.clone()), ..ServerConfig::default() };
    many.pair.pass(SILENCE);
    many.pair.server = Server::new(settings, many.pair.now, [8; 32]);
    many.pair.export();
    many.pair.pass(Duration::from_secs(2));
    let before = many.computed();
    let mut waiting: Vec<usize> = (0..COUNT).collect();
    let (mut out, mut waited) = (vec![0; 2_000], 0);
    let now = many.pair.now;
    many.clients.iter_mut().enumerate().for_each(|(number, client)| start(client, now, number));
    let end = many.pair.now + Duration::from_secs(60);
    // All clients speak in the same millisecond, again and again, until each has its result.
    while !waiting.is_empty() && many.pair.now < end {
        let now = many.pair.now;
        many.pair.server.handle_timeout(now);
        let mut told: BTreeMap<usize, Told> = BTreeMap::new();
        let mut mail = many.mail(now);
        for &number in &waiting {
            let client = &mut many.clients[number];
            client.handle_timeout(now, &mut |event| drop(told.insert(number, note(event).1)));
            while let Some(len) = many.clients[number].transmit(now, &mut out) {
                many.pair.from = at(number);
                many.pair.receive(&[out[..len].to_vec()]);
                for (key, args) in std::mem::take(&mut many.pair.asked) {
                    *many.executed.entry(args.clone()).or_default() += 1;
                    let result = &mut args.clone();
                    let sent = many.pair.server.finish(now, key, Finish::Result, result, &mut out);
                    mail.extend(sent.map(|sent| (sent.to, sent.gather(&out))));
                }
            }
        }
        mail.extend(many.mail(now));
        for (to, mut answer) in mail {
            let number = number_of(to);
            waited += u32::from(is_wait(&answer));
            let tell = &mut |event: Event<'_>| drop(told.insert(number, note(event).1));
            many.clients[number].receive_any(now, &mut answer, tell);
        }
        let mut rest = Vec::new();
        for number in waiting {
            let client = &mut many.clients[number];
            match told.remove(&number) {
                None => rest.push(number),
                Some(Told::Result(_)) => {}
                // The call was meant for the former server, and did not run.
                Some(Told::Failed(Kind::ServerRestarted, Ran::No)) => {
                    start(client, now, number);
                    rest.push(number);
                }
                Some(told) => panic!("client {number} was told {told:?}"),
            }
        }
        waiting = rest;
        many.pair.pass(Duration::from_millis(1));
    }
    assert!(waiting.is_empty(), "{} clients are not back", waiting.len());
    assert_eq!((many.computed() - before, many.pair.server.conversations()), (COUNT as u64, COUNT));
    assert!(waited as usize > COUNT / 4, "{waited} answers told a client to wait");
    let back = many.executed.iter().filter(|(args, _)| args.starts_with(b"back"));
    assert_eq!(back.map(|(_, times)| *times).max(), Some(1));
}

/// Starts a call of a client that comes back.
fn start(client: &mut Conversation, now: Time, number: usize) {
    let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token: 1 };
    client.start(|| now, &call, &mut argument(number, "back")).expect("room for a call");
}

/// Returns whether a datagram of the server tells its client to wait.
fn is_wait(datagram: &Datagram) -> bool {
    const WELCOME: u8 = 2;
    const REST: usize = 24 + 16 + 40;
    if (datagram[1], datagram[20]) != (0, WELCOME) {
        return false;
    }
    let rest = u32::from_be_bytes(datagram[REST..REST + 4].try_into().unwrap()) as usize;
    datagram.get(REST + 4 + rest.next_multiple_of(4) + 16 + 20 + 16 + 16) == Some(&4)
}
