//! Servers that are silent, late, broken or lie.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farcall_names::{Error, Registry};
use simple_dns::{PacketFlag, RCODE};

use crate::server::{
    Query, Record, Reply, Server, address, alias, answer, encode, label, registry, shown, srv, store, until,
};

const GOOD: [&str; 1] = ["a udp://10.0.0.1:7000"];

/// Returns records by which [`GOOD`] is found.
fn good() -> Vec<Record> {
    vec![store(0, "a.example.org", 7000), address("a.example.org", "10.0.0.1")]
}

/// Returns records of another server.
fn evil() -> Vec<Record> {
    vec![store(0, "evil.example.org", 666), address("evil.example.org", "10.6.6.6")]
}

fn stores(server: &Server) -> Vec<String> {
    shown(&server.registry().instances(&label("Store")).unwrap())
}

/// Returns why nothing was found.
fn failure(server: &Server) -> String {
    let failed = server.registry().instances(&label("Store")).unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    failed.to_string()
}

#[test]
fn answers_that_are_not_the_servers_to_this_question_are_passed_over() {
    let server = Server::new(|query| {
        let (forgery, evil) = (evil(), answer(query, &evil()));
        let (mut other_id, mut no_answer) = (evil.clone(), evil.clone());
        other_id[0] ^= 1;
        no_answer[2] &= 0x7f;
        let mut other_name = Query { name: "_stork._udp.example.org".to_owned(), ..query.clone() };
        other_name.bytes[17] = b'k';
        let mut other_kind = query.clone();
        let kind = 12 + 25;
        assert_eq!(other_kind.bytes[kind..kind + 2], [0, 33]);
        other_kind.bytes[kind + 1] = 1;
        let mut forged = other_kind.answer(&forgery, &[]);
        forged.answers.push(address("_store._udp.example.org", "10.6.6.6"));
        vec![
            Reply::FromElsewhere(evil),
            Reply::Message(other_id),
            Reply::Message(no_answer),
            Reply::Message(Vec::new()),
            Reply::Message(vec![0; 11]),
            Reply::Message(encode(query, &other_name.answer(&forgery, &[]))),
            Reply::Message(encode(query, &forged)),
            Reply::Message(answer(query, &good())),
            Reply::Message(answer(query, &forgery)),
        ]
    });
    assert_eq!(stores(&server), GOOD);
    assert_eq!(server.asked(), 1);
}

#[test]
fn a_datagram_with_another_question_does_not_end_an_attempt() {
    let server = Server::new(|query| {
        let mut other_kind = query.clone();
        other_kind.bytes[12 + 26] = 1;
        let mut broken = encode(query, &other_kind.answer(&evil(), &[]));
        broken.truncate(broken.len() - 1);
        let mut no_question = query.answer(&evil(), &[]);
        no_question.questions.clear();
        let mut two_questions = query.bytes.clone();
        two_questions[2] |= 0x80;
        two_questions[5] = 2;
        let mut refusal = query.answer(&[], &[]);
        refusal.questions.clear();
        *refusal.rcode_mut() = RCODE::ServerFailure;
        let mut refusal_of_other = other_kind.answer(&[], &[]);
        *refusal_of_other.rcode_mut() = RCODE::NameError;
        vec![
            Reply::Message(broken),
            Reply::Message(encode(query, &no_question)),
            Reply::Message(two_questions),
            Reply::Message(encode(query, &refusal)),
            Reply::Message(encode(query, &refusal_of_other)),
            Reply::Message(answer(query, &good())),
        ]
    });
    assert_eq!(stores(&server), GOOD);
    assert_eq!(server.asked(), 1);
}

#[test]
fn a_late_answer_to_an_earlier_question_is_not_taken_for_that_to_the_next() {
    let mut first: Option<Query> = None;
    let mut ports: Vec<SocketAddr> = Vec::new();
    let server = Server::new(move |query| {
        ports.push(query.from);
        let Some(first) = &first else {
            first = Some(query.clone());
            return Vec::new();
        };
        assert_ne!(first.from, query.from, "each question has a port of its own");
        let late = answer(first, &evil());
        vec![
            Reply::To(first.from, late.clone()),
            Reply::Message(late),
            Reply::Message(answer(query, &good())),
        ]
    });
    assert_eq!(stores(&server), GOOD);
}

#[test]
fn nothing_is_taken_from_records_of_other_names() {
    let server = Server::new(|query| {
        let records = [
            store(0, "a.example.org", 7000),
            srv("_mail._udp.example.org", 3600, 0, "evil.example.org", 666),
            address("evil.example.org", "10.6.6.6"),
            address("a.example.org", "10.6.6.7"),
        ];
        let additional = [
            address("a.example.org", "10.0.0.1"),
            address("evil.example.org", "10.6.6.6"),
            store(0, "evil.example.org", 666),
            alias("a.example.org", "evil.example.org"),
        ];
        vec![Reply::Message(encode(query, &query.answer(&records, &additional)))]
    });
    let registry = server.registry();
    assert_eq!(shown(&registry.instances(&label("Store")).unwrap()), GOOD);
    assert_eq!(shown(&registry.list().unwrap().entries), GOOD);
}

#[test]
fn a_truncated_answer_is_asked_for_by_tcp() {
    let server = Server::new(|query| {
        let mut packet = query.answer(&good(), &[]);
        if query.by_tcp {
            return vec![Reply::Message(answer(query, &good()))];
        }
        packet.set_flags(PacketFlag::TRUNCATION);
        packet.answers = evil();
        vec![Reply::Message(encode(query, &packet))]
    });
    assert_eq!(stores(&server), GOOD);
    assert_eq!(server.asked(), 2);
}

/// All addresses come with the answer, which has more records than are used.
#[test]
fn a_thousand_records_are_used_and_further_ones_are_passed_over() {
    for (count, expected) in [(1000, 1000), (1300, 1000)] {
        let host = |which| format!("h{which:04}");
        let records: Vec<Record> = (0..count).map(|which| store(0, &host(which), 7000)).collect();
        let ip = |which| format!("10.1.{}.{}", which / 250, 1 + which % 250);
        let additional: Vec<Record> = (0..count).map(|which| address(&host(which), &ip(which))).collect();
        let server = Server::new(move |query| {
            vec![Reply::Message(encode(query, &query.answer(&records, &additional)))]
        });
        let found = stores(&server);
        assert_eq!((found.len(), &found[0][..]), (expected, "h0000 udp://10.1.0.1:7000"));
        assert_eq!(server.asked(), 2, "one question by UDP, and one by TCP");
    }
}

#[test]
fn malformed_answers_are_refused() {
    type Spoil = fn(&mut Vec<u8>);
    let cases: [Spoil; 5] = [
        // The name of the first record is a pointer to itself, then one to the next, which points back.
        |bytes| point(bytes, RECORD, RECORD),
        |bytes| point(bytes, RECORD, RECORD + 1),
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes[7] = 200,
        |bytes| bytes[RECORD] = 0x40,
    ];
    for (number, spoil) in cases.into_iter().enumerate() {
        let server = Server::new(move |query| {
            let mut bytes = answer(query, &good());
            spoil(&mut bytes);
            vec![Reply::Message(bytes)]
        });
        let why = failure(&server);
        assert!(why.contains("malformed"), "{number}: {why}");
    }
}

/// The place of the first record: after the header and the question of 29 bytes.
const RECORD: usize = 12 + 29;

fn point(bytes: &mut [u8], at: usize, to: usize) {
    bytes[at..at + 2].copy_from_slice(&(0xc000 | to as u16).to_be_bytes());
}

#[test]
fn aliases_without_end_are_refused() {
    let around = [
        alias("_store._udp.example.org", "one.example.org"),
        alias("one.example.org", "_store._udp.example.org"),
    ];
    let server = Server::new(move |query| vec![Reply::Message(encode(query, &query.answer(&around, &[])))]);
    assert!(failure(&server).contains("aliases"));
    let mut count = 0;
    server.behave(move |query| {
        count += 1;
        let next = alias(&query.name, &format!("n{count}.example.org"));
        vec![Reply::Message(encode(query, &query.answer(&[next], &[])))]
    });
    let before = server.asked();
    assert!(failure(&server).contains("aliases"));
    assert!(server.asked() - before <= 10);
}

#[test]
fn a_silent_dns_is_asked_no_longer_than_its_caller_waits() {
    let (silent, good) = (Server::new(|_| Vec::new()), Server::of(good()));
    let (store, begun) = (label("Store"), Instant::now());
    for _ in 0..10 {
        let within = Duration::from_millis(50);
        let failed = registry(&[silent.address]).instances_within(&store, within).unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    }
    // Each of these took 5 s when no caller could say how long it waits.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // A server that is silent gets a share of the time alone.
    let both = registry(&[silent.address, good.address]);
    let found = both.instances_within(&store, Duration::from_secs(4)).unwrap();
    assert_eq!(shown(&found), GOOD);
    let lookup = |within| registry(&[silent.address]).lookup_within(&store, &store, within);
    let asked = silent.asked();
    assert!(lookup(Duration::ZERO).is_err());
    assert_eq!(silent.asked(), asked, "nothing is asked when no time is left");
}

#[test]
fn the_next_server_is_asked_if_one_fails_is_gone_or_is_silent() {
    let failing = Server::new(|query| {
        let mut packet = query.answer(&[], &[]);
        *packet.rcode_mut() = RCODE::ServerFailure;
        vec![Reply::Message(encode(query, &packet))]
    });
    // Nobody receives at this address any more.
    let gone = UdpSocket::bind((crate::server::host(), 0)).unwrap().local_addr().unwrap();
    let silent = Server::new(|_| Vec::new());
    let server = Server::of(good());
    for bad in [failing.address, gone, silent.address] {
        let both = registry(&[bad, server.address]);
        assert_eq!(shown(&both.instances(&label("Store")).unwrap()), GOOD);
    }
    let why = failure(&failing);
    assert!(why.contains("ServerFailure") && why.contains(&failing.address.to_string()), "{why}");
    assert_eq!(failing.asked(), 1 + 2, "a server is asked twice");
}

#[test]
fn an_old_server_is_asked_without_extensions() {
    let server = Server::new(|query| {
        let mut packet = query.answer(&[], &[]);
        if !query.extended {
            return vec![Reply::Message(answer(query, &good()))];
        }
        packet.questions.clear();
        *packet.rcode_mut() = RCODE::FormatError;
        vec![Reply::Message(encode(query, &packet))]
    });
    assert_eq!(stores(&server), GOOD);
}

#[test]
fn what_was_known_stays_while_dns_is_away() {
    let short = || {
        let record = srv("_store._udp.example.org", 0, 0, "a.example.org", 7000);
        vec![record, address("a.example.org", "10.0.0.1")]
    };
    let server = Server::of(short());
    let registry = server.registry();
    registry.instances(&label("Store")).unwrap();
    let version = registry.version().unwrap();
    let refuse = |query: &Query| {
        let mut packet = query.answer(&[], &[]);
        *packet.rcode_mut() = RCODE::Refused;
        vec![Reply::Message(encode(query, &packet))]
    };
    server.behave(refuse);
    let before = server.asked();
    until("questions", || {
        assert_eq!(registry.version().unwrap(), version);
        (server.asked() >= before + 2).then_some(())
    });
    assert_eq!(shown(&registry.instances(&label("Store")).unwrap()), GOOD);
    assert_eq!(registry.version().unwrap(), version);
    let unknown = registry.instances(&label("Mail")).unwrap_err();
    assert!(matches!(unknown, Error::Unavailable { .. }), "{unknown:?}");
}

#[test]
fn an_instance_whose_addresses_fail_stays_as_it_was() {
    let both = |ttl| {
        let target = |host: &str| srv("_store._udp.example.org", ttl, 0, host, 7000);
        vec![target("a.example.org"), target("b.example.org"), address("b.example.org", "10.0.0.2")]
    };
    let mut known = both(0);
    known.push(address("a.example.org", "10.0.0.1"));
    let server = Server::of(known);
    let registry = server.registry();
    assert_eq!(registry.instances(&label("Store")).unwrap().len(), 2);
    let version = registry.version().unwrap();
    server.behave(move |query| {
        let mut packet = query.answer(&[], &[]);
        if query.name.starts_with('a') {
            *packet.rcode_mut() = RCODE::ServerFailure;
            return vec![Reply::Message(encode(query, &packet))];
        }
        vec![Reply::Message(answer(query, &both(0)))]
    });
    let before = server.asked();
    until("the questions for the addresses", || {
        assert_eq!(registry.version().unwrap(), version);
        (server.asked() >= before + 5).then_some(())
    });
    assert_eq!(registry.instances(&label("Store")).unwrap().len(), 2);
}
