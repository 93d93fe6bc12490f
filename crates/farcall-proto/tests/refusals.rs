//! Packet traces of ICMP errors for refused ports: when they end a caller's patience, and when they do not.

mod common;

use std::time::Duration;

use common::{Datagram, Pair, Told};
use farcall_proto::{ClientConfig, Kind, Ran, Time};

const MS: Duration = Duration::from_millis(1);

/// Decides whether a datagram of the client raises an ICMP error, and which bytes the error quotes. The first
/// argument is the datagram's number.
type Refuse<'a> = dyn FnMut(usize, &Datagram) -> Option<Vec<u8>> + 'a;

/// Lets time pass in steps. For each datagram that the client sends, `refuse` decides whether an ICMP error
/// arrives, and which bytes it quotes. Ends when the client reports an outcome, or after `most`. Returns how
/// long that took.
fn refuse(
    pair: &mut Pair,
    most: Duration,
    mut refuse: impl FnMut(usize, &Datagram) -> Option<Vec<u8>>,
) -> Duration {
    let (start, mut count) = (pair.now, 0);
    while pair.told.is_empty() && pair.now.since(start) < most {
        // A datagram that is sent because of a refusal is refused at the same moment.
        loop {
            let sent = pair.sent();
            if sent.is_empty() {
                break;
            }
            for datagram in sent {
                if let Some(quoted) = refuse(count, &datagram) {
                    pair.client.handle_refused(pair.now, &quoted);
                }
                count += 1;
                assert!(count < 1_000, "the client answers refusals by datagrams without end");
            }
        }
        pair.pass(MS);
        pair.tick();
    }
    pair.now.since(start)
}

/// Returns the part of a datagram that an ICMP error quotes.
fn head(datagram: &Datagram) -> &[u8] {
    &datagram[..datagram.len().min(48)]
}

fn quoted(_: usize, datagram: &Datagram) -> Option<Vec<u8>> {
    Some(head(datagram).to_vec())
}

const UNREACHABLE: Told = Told::Failed(Kind::Unreachable, Ran::Maybe);

#[test]
fn a_server_whose_port_is_refused_is_given_up_after_half_a_second() {
    let mut pair = Pair::acquainted();
    for token in 1..=3 {
        pair.start(token, b"word");
    }
    let took = refuse(&mut pair, 20_000 * MS, quoted);
    assert_eq!(pair.told.iter().map(|(_, told)| told).collect::<Vec<_>>(), [&UNREACHABLE; 3]);
    assert!((500 * MS..1_000 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_refused_port_ends_a_call_or_bind_soon_even_after_a_long_silence() {
    for question in [false, true] {
        let mut pair = if question { Pair::new() } else { Pair::acquainted() };
        if question {
            pair.client.bind(pair.now, "Store", 1);
        } else {
            pair.start(1, b"word");
        }
        assert_eq!(refuse(&mut pair, 6_000 * MS, |_, _| None), 6_000 * MS);
        // After a long silence the client sends a datagram only once a second.
        let took = refuse(&mut pair, 20_000 * MS, quoted);
        assert!(took < 1_900 * MS, "{took:?}, question {question}");
    }
}

#[test]
fn full_patience_is_a_setting() {
    let mut pair = Pair::acquainted_with(
        ClientConfig { heeds_refusals: false, ..ClientConfig::default() },
        Default::default(),
    );
    pair.start(1, b"word");
    let took = refuse(&mut pair, 20_000 * MS, quoted);
    assert_eq!(pair.told, [(1, UNREACHABLE)]);
    assert!(took >= 10_000 * MS, "{took:?}");
}

#[test]
fn a_refusal_counts_only_if_it_quotes_a_datagram_sent_since_the_last_refusal() {
    let mut first: Option<Vec<u8>> = None;
    let mut again =
        |_: usize, datagram: &Datagram| Some(first.get_or_insert_with(|| head(datagram).to_vec()).clone());
    let short = |_: usize, datagram: &Datagram| Some(datagram[..8].to_vec());
    let forged = |count: usize, datagram: &Datagram| {
        let mut quoted = head(datagram).to_vec();
        quoted[4 + count % 8] ^= 1;
        Some(quoted)
    };
    let unsent = |_: usize, datagram: &Datagram| {
        let mut quoted = head(datagram).to_vec();
        quoted[12] = 1;
        Some(quoted)
    };
    let fakes: [&mut Refuse<'_>; 4] = [&mut again, &mut { short }, &mut { forged }, &mut { unsent }];
    for fake in fakes {
        let mut pair = Pair::acquainted();
        pair.start(1, b"word");
        let took = refuse(&mut pair, 20_000 * MS, fake);
        assert_eq!(pair.told, [(1, UNREACHABLE)]);
        assert!(took >= 10_000 * MS, "{took:?}");
    }
}

#[test]
fn refusals_far_apart_do_not_add_up() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"word");
    let mut last: Option<Time> = None;
    let start = pair.now;
    while pair.told.is_empty() {
        for datagram in pair.sent() {
            if last.is_none_or(|last| pair.now.since(last) > 2_500 * MS) {
                last = Some(pair.now);
                pair.client.handle_refused(pair.now, head(&datagram));
            }
        }
        pair.pass(MS);
        pair.tick();
    }
    assert!(pair.now.since(start) >= 10_000 * MS);
}

#[test]
fn a_datagram_from_the_server_restarts_the_count_of_refusals() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"word");
    let sent = pair.sent();
    pair.receive(&sent);
    // The server executes the call, and answers every third probe. Forged ICMP errors do not end the call.
    let start = pair.now;
    let mut probes = 0;
    while pair.now.since(start) < 60_000 * MS {
        for datagram in pair.sent() {
            probes += 1;
            if probes % 3 > 0 {
                pair.client.handle_refused(pair.now, head(&datagram));
                continue;
            }
            pair.receive(&[datagram]);
            let answers = pair.answered();
            pair.hear(&answers);
        }
        pair.pass(MS);
        pair.tick();
    }
    assert_eq!(pair.told, []);
    assert!(probes > 6);
}

/// Refuses every datagram of the client until the client has enough refusals to give the server up. Its next
/// timeout is due then.
fn refuse_enough(pair: &mut Pair) {
    let mut refused: Option<(Time, Time)> = None;
    while refused.is_none_or(|(first, last)| last.since(first) < 500 * MS) {
        pair.pass(MS);
        pair.tick();
        for datagram in pair.sent() {
            pair.client.handle_refused(pair.now, head(&datagram));
            refused = Some((refused.map_or(pair.now, |(first, _)| first), pair.now));
        }
    }
    assert_eq!(pair.client.timeout(), Some(pair.now));
}

#[test]
fn a_datagram_that_has_arrived_is_handled_before_the_server_is_given_up() {
    for word in ["none", "running", "result"] {
        let mut pair = Pair::acquainted();
        pair.start(1, b"word");
        let first = pair.sent();
        pair.receive(&first);
        let key = pair.asked[0].0;
        let answers = match word {
            "none" => Vec::new(),
            "running" => {
                pair.receive(&first);
                pair.answered()
            }
            _ => pair.finish(key, farcall_proto::server::Finish::Result, b"late"),
        };
        refuse_enough(&mut pair);
        pair.hear(&answers);
        pair.tick();
        let told = match word {
            "none" => vec![(1, UNREACHABLE)],
            "running" => Vec::new(),
            _ => vec![(1, Told::Result(b"late".to_vec()))],
        };
        assert_eq!(pair.told, told, "{word}");
    }
}

#[test]
fn a_question_to_a_refused_port_is_given_up_too() {
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Store", 7);
    let took = refuse(&mut pair, 20_000 * MS, quoted);
    assert_eq!(pair.told, [(7, Told::NotBound(Kind::Unreachable))]);
    assert!((500 * MS..1_000 * MS).contains(&took), "{took:?}");
    let mut pair = Pair::new();
    pair.client.bind(pair.now, "Store", 7);
    refuse_enough(&mut pair);
    pair.tick();
    assert_eq!(pair.told, [(7, Told::NotBound(Kind::Unreachable))]);
}

#[test]
fn a_refused_question_counts_only_if_it_is_the_clients_own() {
    let mut others = |count: usize, datagram: &Datagram| {
        let mut quoted = head(datagram).to_vec();
        // This changes the identifier in a BIND.
        quoted[24 + count % 8] ^= 1;
        Some(quoted)
    };
    let mut pair = Pair::new();
    pair.start(1, b"word");
    let took = refuse(&mut pair, 20_000 * MS, &mut others as &mut Refuse<'_>);
    assert!(took >= 9_000 * MS, "{took:?}");
    let mut pair = Pair::new();
    pair.start(1, b"word");
    let took = refuse(&mut pair, 20_000 * MS, quoted);
    assert!(took < 2_000 * MS, "{took:?}");
}
