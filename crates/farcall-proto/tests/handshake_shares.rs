//! How a server shares its time between handshakes: whoever is not proven pays first, and a share is left for
//! everybody.
#![cfg(feature = "secure")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust};
use common::*;
use farcall_proto::client::{Call, Conversation};
use farcall_proto::server::{Finish, Request, Server};
use farcall_proto::{ClientConfig, Mutant, ServerConfig, Time};

const HELLO: u8 = 1;
const MESSAGE: u8 = 2;
const RESUME: u8 = 3;
const WAIT: u8 = 4;
const KNOWN: u8 = 5;
/// Where the bytes of the ticket begin that only the server reads, in a datagram with a WELCOME, and where
/// its nonce is in a BIND.
const REST: usize = 24 + 16 + 40;
const NONCE: usize = 24 + 8;
/// What one handshake takes.
const COST: Duration = Duration::from_micros(200);

/// A server, and the thread that computes its handshakes.
struct Field {
    server: Server,
    trust: Arc<TestTrust>,
    client: Arc<TestTrust>,
    now: Time,
    cost: Duration,
    out: Vec<u8>,
    clients: u64,
}

/// A client, where it is, and its BIND with a first message.
struct Asker {
    conversation: Conversation,
    from: SocketAddr,
    message: Vec<u8>,
}

impl Field {
    fn new() -> Field {
        let (client, trust) = (TestTrust::new(CLIENT, &[SERVER]), TestTrust::new(SERVER, &[CLIENT]));
        let now = Time::from_nanos(1_000_000_000);
        let mutant = MUTANT.get();
        let config = ServerConfig { trust: Some(trust.clone()), mutant, ..ServerConfig::default() };
        let mut pair = Pair::with(ClientConfig::default(), config);
        pair.export();
        Field { server: pair.server, trust, client, now, cost: COST, out: vec![0; 65_536], clients: 0 }
    }

    /// Gives the server a datagram, and returns its answers.
    fn give(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        if farcall_proto::secure::is_sealed(datagram) {
            // It is of a conversation that the server has forgotten: its ticket is refused.
            assert!(self.server.cipher(self.now, &from, datagram).is_none());
        } else {
            self.server.receive(self.now, from, datagram, &mut |_| {});
        }
        self.answers()
    }

    fn answers(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut answers = Vec::new();
        while let Some(sent) = self.server.transmit(self.now, &mut self.out) {
            answers.push((sent.to, sent.gather(&self.out)));
        }
        answers
    }

    /// Returns a client at this address that has a first message ready.
    fn asker(&mut self, from: SocketAddr) -> Asker {
        self.clients += 1;
        let config = ClientConfig { trust: Some(self.client.clone()), ..ClientConfig::default() };
        let conversation = Conversation::new(config, 0xace0_0000 + self.clients);
        let mut asker = Asker { conversation, from, message: Vec::new() };
        self.ask(&mut asker);
        asker
    }

    /// Has a client start a call, for which it needs a handshake.
    fn ask(&mut self, asker: &mut Asker) {
        let now = self.now;
        let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token: 1 };
        asker.conversation.start(|| now, &call, &mut b"call".to_vec()).expect("room for a call");
        self.carry(asker);
    }

    /// Carries datagrams until the client sends a first message.
    fn carry(&mut self, asker: &mut Asker) {
        for round in 0..50 {
            if round > 3 {
                self.now = self.now + Duration::from_millis(20);
                asker.conversation.handle_timeout(self.now, &mut |_| {});
            }
            let mut out = vec![0; 2_000];
            while let Some(len) = asker.conversation.transmit(self.now, &mut out) {
                if client_step(&out[..len]) == Some(MESSAGE) {
                    asker.message = out[..len].to_vec();
                    return;
                }
                for (_, mut answer) in self.give(asker.from, &out[..len]) {
                    asker.conversation.receive_any(self.now, &mut answer, &mut |_| {});
                }
            }
        }
        panic!("no first message");
    }

    /// Returns the tickets that the server gives for a client's conversation at [`addresses`], in answers
    /// with this step.
    fn tickets(&mut self, client: &mut Asker, step: u8) -> Vec<Vec<u8>> {
        let mut question = vec![0; 2_000];
        client.conversation.bind(self.now, "", 2);
        let len = client.conversation.transmit(self.now, &mut question).expect("a question");
        client.conversation.forget_bind(2);
        let mut tickets = Vec::new();
        for from in addresses() {
            let answers = self.give(from, &question[..len]);
            assert!(answers.iter().all(|(_, answer)| step_of(answer) == step));
            tickets.extend(answers.iter().map(|(_, answer)| ticket_of(answer)));
        }
        tickets
    }

    /// Carries the call of a client that has a ticket.
    fn call(&mut self, asker: &mut Asker) {
        let mut out = vec![0; 2_000];
        while let Some(len) = asker.conversation.transmit(self.now, &mut out) {
            let (mut datagram, mut key) = (out[..len].to_vec(), None);
            self.server.receive_any(self.now, asker.from, &mut datagram, &mut |request| {
                if let Request::Call(call) = request {
                    key = Some(call.key);
                }
            });
            let Some(key) = key else { continue };
            let result = &mut b"result".to_vec();
            let sent = self.server.finish(self.now, key, Finish::Result, result, &mut self.out);
            let mut datagram = sent.expect("a result").gather(&self.out);
            asker.conversation.receive_any(self.now, &mut datagram, &mut |_| {});
        }
        assert_eq!(asker.conversation.stats().outstanding, 0);
    }

    /// Computes one handshake, if one may be computed now, and returns to whom the answer goes, and the
    /// answer.
    fn compute(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let handshake = self.server.next_handshake(self.now)?;
        self.now = self.now + self.cost;
        let sent = self.server.finish_handshake(self.now, handshake.compute(), &mut self.out)?;
        Some((sent.to, sent.gather(&self.out)))
    }

    /// Computes the next handshake as soon as it may be.
    fn compute_next(&mut self) -> (SocketAddr, Vec<u8>) {
        let due = self.server.handshake_due().expect("a handshake waits");
        self.now = self.now.max(due);
        self.compute().expect("an answer")
    }

    fn computed(&self) -> u64 {
        *self.trust.handshakes.lock().unwrap()
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), 1_000)
}

/// Returns the kind of the step in a BIND, or `None` if it is none.
fn client_step(datagram: &[u8]) -> Option<u8> {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap()) as usize;
    let opaque = |at: usize| at + 4 + word(at).next_multiple_of(4);
    if (datagram[1], datagram[20]) != (0, BIND) {
        return None;
    }
    let (flags, at) = (datagram[21], 24 + 28);
    let at = if flags & 1 != 0 { opaque(at + 48) + 20 } else { at };
    let at = if flags & 2 != 0 { opaque(at + 48) } else { at };
    datagram.get(opaque(at) + 16).copied()
}

/// Returns where a BIND shows the ticket that it renews, with the address to which that was given.
fn renewal(bind: &[u8]) -> std::ops::Range<usize> {
    assert_eq!((bind[20], bind[21] & 1), (BIND, 1), "it renews a ticket");
    let rest = u32::from_be_bytes(bind[100..104].try_into().unwrap()) as usize;
    52..104 + rest.next_multiple_of(4) + 20
}

/// Returns the ticket in a WELCOME as a BIND shows it that renews it.
fn ticket_of(welcome: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_be_bytes(welcome[at..at + 4].try_into().unwrap()) as usize;
    let end = REST + 4 + word(REST).next_multiple_of(4);
    [&welcome[REST - 48..end], &welcome[end + 16..end + 16 + 20]].concat()
}

/// Returns the kind of the step in a WELCOME.
fn step_of(welcome: &[u8]) -> u8 {
    let word = |at: usize| u32::from_be_bytes(welcome[at..at + 4].try_into().unwrap()) as usize;
    welcome[REST + 4 + word(REST).next_multiple_of(4) + 16 + 20 + 16 + 16]
}

/// Returns the milliseconds for which a WELCOME tells its client to wait.
fn wait_of(welcome: &[u8]) -> Duration {
    assert_eq!(step_of(welcome), WAIT);
    let word = |at: usize| u32::from_be_bytes(welcome[at..at + 4].try_into().unwrap()) as usize;
    let step = REST + 4 + word(REST).next_multiple_of(4) + 16 + 20 + 16 + 16;
    Duration::from_millis(u16::from_be_bytes([welcome[step + 2], welcome[step + 3]]).into())
}

/// Returns a datagram with one byte of its first frame changed, and a right checksum.
fn with_nonce(datagram: &[u8], nonce: u64) -> Vec<u8> {
    let mut changed = datagram.to_vec();
    changed[NONCE..NONCE + 8].copy_from_slice(&nonce.to_be_bytes());
    sound(&mut changed);
    changed
}

fn sound(datagram: &mut [u8]) {
    let end = datagram.len() - 8;
    let tag = xxhash_rust::xxh3::xxh3_64(&datagram[..end]).to_be_bytes();
    datagram[end..].copy_from_slice(&tag);
}

#[test]
fn one_message_with_one_proof_is_computed_once_under_however_many_nonces() {
    let mut field = Field::new();
    let asker = field.asker(at("192.0.2.1"));
    field.give(asker.from, &asker.message);
    let (_, answer) = field.compute_next();
    for nonce in 1..=2_000 {
        let answers = field.give(asker.from, &with_nonce(&asker.message, nonce));
        assert!(answers.iter().all(|(_, answer)| step_of(answer) == HELLO));
        while field.server.has_handshakes() {
            field.compute_next();
        }
        field.now = field.now + Duration::from_millis(10);
        if nonce == 500 {
            assert_eq!(field.give(asker.from, &asker.message), [(asker.from, answer.clone())]);
        }
    }
    assert_eq!(field.computed(), 1);
}

#[test]
fn many_hosts_of_one_network_get_as_much_time_as_one_host_of_another() {
    for (network, other) in [("2001:db8:7", "2001:db8:8::1"), ("2001:db8:7", "192.0.2.1")] {
        let mut field = Field::new();
        let mut many = Vec::new();
        for host in 0..600 {
            let asker = field.asker(at(&format!("{network}:{host:x}::1")));
            many.push(asker);
        }
        let honest = field.asker(at(other));
        for asker in &many {
            field.give(asker.from, &asker.message);
        }
        let told = field.give(honest.from, &honest.message);
        assert!(told.iter().all(|(to, _)| *to != honest.from), "it is not told to wait");
        let first: Vec<SocketAddr> = (0..2).map(|_| field.compute_next().0).collect();
        assert!(first.contains(&honest.from), "{other} waits for all of {network}: {first:?}");
    }
}

#[test]
fn half_of_the_time_is_kept_for_clients_that_have_been_here_before() {
    let mut field = Field::new();
    let mut known = field.asker(at("192.0.2.1"));
    field.give(known.from, &known.message);
    let (_, mut welcome) = field.compute_next();
    known.conversation.receive_any(field.now, &mut welcome, &mut |_| {});
    field.call(&mut known);
    assert_eq!(field.server.conversations(), 1);
    // Its ticket is so old that nobody can open it, and still shows that it was here.
    for _ in 0..4 {
        field.now = field.now + Duration::from_secs(601);
        field.server.handle_timeout(field.now);
    }
    field.server.forget_revoked(field.now, |_| false);
    field.answers();
    field.now = field.now + Duration::from_secs(13 * 3_600);
    field.server.handle_timeout(field.now);
    field.ask(&mut known);
    for _ in 0..600 {
        // Strangers, also at the same host.
        for host in ["192.0.2.1", "198.51.100.1"] {
            let stranger = field.asker(at(host));
            field.give(stranger.from, &stranger.message);
        }
    }
    assert_eq!(field.give(known.from, &known.message), [], "it is not told to wait");
    let first: Vec<Vec<u8>> = (0..2).map(|_| field.compute_next().1).collect();
    let id = known.message[24..32].to_vec();
    assert!(first.iter().any(|answer| answer[4..12] == id[..]), "it waits for strangers");
}

#[test]
fn a_ticket_that_many_addresses_show_makes_one_of_them_known() {
    a_handshake_makes_one_of_many_addresses_known(|_, _| Vec::new());
}

/// A server gives a client that has moved the same ticket for its new address. So one conversation can have a
/// ticket for each of many addresses, before it is too old.
#[test]
fn a_ticket_that_was_renewed_at_many_addresses_makes_one_of_them_known() {
    a_handshake_makes_one_of_many_addresses_known(|field, known| field.tickets(known, KNOWN));
}

/// So can one that the server has forgotten, by many conversations that continue it.
#[test]
fn a_conversation_that_was_resumed_at_many_addresses_makes_one_of_them_known() {
    a_handshake_makes_one_of_many_addresses_known(|field, known| {
        field.server.forget_revoked(field.now, |_| false);
        field.answers();
        field.tickets(known, RESUME)
    });
}

/// Returns many addresses of one network.
fn addresses() -> impl Iterator<Item = SocketAddr> {
    (2..40).map(|host| at(&format!("192.0.2.{host}")))
}

/// Asserts that a client which has made one handshake makes one of many addresses known at a time, by the
/// ticket of the handshake or by those that `tickets` gets from the server.
fn a_handshake_makes_one_of_many_addresses_known(tickets: impl Fn(&mut Field, &mut Asker) -> Vec<Vec<u8>>) {
    let mut field = Field::new();
    let [mut shared, mut honest] = ["192.0.2.1", "192.0.2.200"].map(|host| {
        let mut known = field.asker(at(host));
        field.give(known.from, &known.message);
        let (_, mut welcome) = field.compute_next();
        known.conversation.receive_any(field.now, &mut welcome, &mut |_| {});
        field.call(&mut known);
        known
    });
    let mut tickets = tickets(&mut field, &mut shared);
    // The keys that sealed the tickets are erased.
    for _ in 0..2 {
        field.now = field.now + Duration::from_secs(13 * 3_600);
        field.server.handle_timeout(field.now);
    }
    field.server.forget_revoked(field.now, |_| false);
    field.answers();
    field.ask(&mut shared);
    for host in addresses() {
        if let Some(ticket) = tickets.pop() {
            assert!(!tickets.contains(&ticket), "it has another ticket for each address");
            let shown = renewal(&shared.message);
            shared.message[shown].copy_from_slice(&ticket);
            sound(&mut shared.message);
        }
        assert_eq!(field.give(shared.from, &shared.message), [], "it waits");
        shared.from = host;
        // Its proof is of the former address, so it gets another there.
        for (_, mut answer) in field.give(shared.from, &shared.message) {
            shared.conversation.receive_any(field.now, &mut answer, &mut |_| {});
        }
        field.carry(&mut shared);
    }
    field.ask(&mut honest);
    assert_eq!(field.give(honest.from, &honest.message), [], "it waits");
    let id = honest.message[24..32].to_vec();
    let first: Vec<Vec<u8>> = (0..4).map(|_| field.compute_next().1).collect();
    assert!(first.iter().any(|answer| answer[4..12] == id[..]), "it waits for the others of its network");
}

#[test]
fn a_client_that_was_told_to_wait_has_its_place_when_it_comes_again() {
    let mut field = Field::new();
    let host = "192.0.2.1";
    let fill = |field: &mut Field, count: usize| {
        for _ in 0..count {
            let stranger = field.asker(at(host));
            field.give(stranger.from, &stranger.message);
        }
    };
    let honest = field.asker(at(host));
    fill(&mut field, 256);
    let told = field.give(honest.from, &honest.message);
    let time = wait_of(&told[0].1);
    assert!(time <= Duration::from_millis(500), "{time:?}");
    field.now = field.now + time;
    fill(&mut field, 300);
    let answers = field.give(honest.from, &honest.message);
    let to_it = honest.message[24..32].to_vec();
    assert!(answers.iter().all(|(_, answer)| answer[4..12] != to_it[..]), "it is told to wait again");
    let (_, first) = field.compute_next();
    assert_eq!(first[4..12], to_it[..], "others of its host are before it");
}

#[test]
fn a_crowd_of_one_network_is_told_to_come_again_no_faster_than_it_can_be_answered() {
    let mut field = Field::new();
    let mut waits = Vec::new();
    for client in 0..1_000 {
        let asker = field.asker(at(&format!("10.0.{}.1", client / 10)));
        let answers = field.give(asker.from, &asker.message);
        waits.extend(answers.iter().map(|(_, answer)| wait_of(answer).as_millis() / 125));
    }
    assert!(waits.len() >= 700, "only {} are told to wait", waits.len());
    for period in 0..=32 {
        let count = waits.iter().filter(|wait| **wait == period).count();
        assert!(count <= 300, "{count} of {} come again in period {period}", waits.len());
    }
}

#[test]
fn handshakes_take_two_fifths_of_a_processor_however_long_each_takes() {
    for cost in [30, 150, 1_000, 6_000].map(Duration::from_micros) {
        let mut field = Field::new();
        field.cost = cost;
        let askers: Vec<Asker> = (0..256).map(|_| field.asker(at("192.0.2.1"))).collect();
        for asker in &askers {
            field.give(asker.from, &asker.message);
        }
        let (began, before) = (field.now, field.computed());
        while field.now.since(began) < Duration::from_millis(400) && field.server.has_handshakes() {
            if field.compute().is_none() {
                field.now = field.now + Duration::from_micros(50);
            }
        }
        let count = (field.computed() - before) as u32;
        let (took, all) = (cost * count, field.now.since(began));
        let most = all * 2 / 5 + Duration::from_millis(45);
        assert!(took <= most, "{count} of {cost:?} in {all:?}");
        let idle = !field.server.has_handshakes() || took >= all / 3;
        assert!(idle || cost < Duration::from_micros(100), "only {count} of {cost:?} in {all:?}");
    }
}

#[test]
fn handshakes_that_wait_are_bounded_and_whoever_has_most_is_told_to_wait() {
    let mut field = Field::new();
    let mut waits = Vec::new();
    for host in ["192.0.2.1", "198.51.100.1", "203.0.113.1"] {
        for _ in 0..300 {
            let asker = field.asker(at(host));
            waits.extend(field.give(asker.from, &asker.message).iter().map(|(to, _)| to.ip().to_string()));
        }
    }
    let of = |host: &str| waits.iter().filter(|to| **to == host).count();
    let [a, b, c] = ["192.0.2.1", "198.51.100.1", "203.0.113.1"].map(of);
    assert_eq!(a + b + c, 900 - 256);
    assert!([a, b, c].iter().all(|waits| (300 - waits).abs_diff(256 / 3) <= 2), "{a}, {b}, {c}");
}

#[test]
fn what_a_client_shows_is_looked_at_only_when_it_has_proven_its_key() {
    let mut field = Field::new();
    for changed in 0..20 {
        let mut asker = field.asker(at("192.0.2.1"));
        let frame = 24 + usize::from(u16::from_be_bytes([asker.message[22], asker.message[23]]));
        asker.message[frame - 4 - 3 * changed] ^= 1;
        sound(&mut asker.message);
        field.give(asker.from, &asker.message);
        let (_, answer) = field.compute_next();
        assert_eq!(step_of(&answer), HELLO);
    }
    assert_eq!(*field.trust.looked.lock().unwrap(), 0);
    let asker = field.asker(at("192.0.2.1"));
    field.give(asker.from, &asker.message);
    let (_, answer) = field.compute_next();
    assert_eq!((step_of(&answer), *field.trust.looked.lock().unwrap()), (MESSAGE, 1));
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_shares_is_noticed() {
    use farcall_proto::Rule;
    const TESTS: [fn(); 9] = [
        one_message_with_one_proof_is_computed_once_under_however_many_nonces,
        many_hosts_of_one_network_get_as_much_time_as_one_host_of_another,
        half_of_the_time_is_kept_for_clients_that_have_been_here_before,
        a_ticket_that_many_addresses_show_makes_one_of_them_known,
        a_ticket_that_was_renewed_at_many_addresses_makes_one_of_them_known,
        a_conversation_that_was_resumed_at_many_addresses_makes_one_of_them_known,
        a_client_that_was_told_to_wait_has_its_place_when_it_comes_again,
        handshakes_take_two_fifths_of_a_processor_however_long_each_takes,
        what_a_client_shows_is_looked_at_only_when_it_has_proven_its_key,
    ];
    std::panic::set_hook(Box::new(|_| {}));
    let is_noticed = |rule: &Rule| {
        MUTANT.set(Mutant::of(*rule));
        TESTS.iter().any(|test| std::panic::catch_unwind(test).is_err())
    };
    let unnoticed: Vec<_> = Rule::OF_SHARES.iter().filter(|rule| !is_noticed(rule)).collect();
    MUTANT.set(Mutant::NONE);
    drop(std::panic::take_hook());
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
