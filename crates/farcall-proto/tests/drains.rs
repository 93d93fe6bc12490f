//! A server that drains tells its clients which calls it has not received. Those end at once, `Ran::No`.

mod common;

use std::time::Duration;

use common::{EXPORT, Pair, Told, fingerprint, frames_of};
use farcall_base::work;
use farcall_proto::fuzzing::kinds::{CALL, DRAIN};
use farcall_proto::server::{Export, Finish};
use farcall_proto::{ClientConfig, Kind, Mutant, Ran, Rule, ServerConfig, Time};

fn failed(kind: Kind) -> Told {
    Told::Failed(kind, Ran::No)
}

/// Begins a drain, and returns what the server sends.
fn drain(pair: &mut Pair, export: Option<u64>) -> Vec<Vec<u8>> {
    pair.server.drain(pair.now, export);
    pair.server.tell_drain(export);
    pair.answered()
}

#[test]
fn a_call_that_was_lost_ends_at_the_word_and_one_that_executes_is_finished() {
    let mut pair = Pair::acquainted();
    let executes = pair.execute(1, b"argument");
    pair.start(2, b"lost");
    assert_eq!(pair.sent().len(), 1);
    let words = drain(&mut pair, None);
    assert_eq!(words.iter().map(|word| frames_of(word)).collect::<Vec<_>>(), [[DRAIN]]);
    pair.hear(&words);
    assert_eq!(pair.told.pop(), Some((2, failed(Kind::Draining))));
    let result = pair.finish(executes, Finish::Result, b"result..");
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
}

#[test]
fn long_calls_that_wait_for_room_when_the_server_drains_are_not_sent_any_more() {
    for calls in 1..=3 {
        let mut pair = Pair::acquainted();
        for token in 1..=calls {
            pair.start(token, &[7; 100_000]);
        }
        assert!(!pair.sent().is_empty());
        let under_way = pair.client.stats().in_flight;
        assert!(under_way > 0 && pair.sent().is_empty(), "{under_way} bytes fill the window");
        let words = drain(&mut pair, None);
        pair.hear(&words);
        assert_eq!(pair.told, (1..=calls).map(|token| (token, failed(Kind::Draining))).collect::<Vec<_>>());
        let sent: Vec<_> = pair.sent().iter().flat_map(|datagram| frames_of(datagram)).collect();
        assert!(!sent.contains(&CALL), "{sent:x?}");
        let stats = pair.client.stats();
        assert_eq!((stats.outstanding, stats.in_flight), (0, 0));
    }
}

/// Returns what the caller of a call that was lost is told when the server drains.
fn told_at_the_word() -> Vec<(u64, Told)> {
    let mut pair = Pair::acquainted();
    pair.start(1, b"lost");
    drop(pair.sent());
    let words = drain(&mut pair, None);
    pair.hear(&words);
    std::mem::take(&mut pair.told)
}

#[test]
fn after_the_word_calls_fail_at_once_and_nothing_is_sent() {
    let mut pair = Pair::acquainted();
    let words = drain(&mut pair, None);
    pair.hear(&words);
    let call = farcall_proto::client::Call { export: EXPORT, procedure: 1, ..Default::default() };
    let now = pair.now;
    let refused = pair.client.start(|| now, &call, &mut Vec::new()).unwrap_err();
    assert_eq!((refused.kind, refused.ran), (Kind::Draining, Ran::No));
    let lone = pair.client.start_lone((EXPORT, 1), &[], &mut [0; farcall_proto::BASE_DATAGRAM]);
    assert!(lone.is_none(), "on the fast path, too");
    assert!(pair.sent().is_empty());
    // What comes twice changes nothing.
    let again = {
        pair.server.tell_drain(None);
        pair.answered()
    };
    pair.hear(&again);
    assert_eq!((again.len(), pair.told.len()), (1, 0));
}

#[test]
fn a_call_with_a_smaller_number_than_one_that_came_asks_the_server() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"lost");
    assert_eq!(pair.sent().len(), 1);
    let executes = pair.execute(2, b"argument");
    let words = drain(&mut pair, None);
    pair.hear(&words);
    assert_eq!(pair.told.len(), 0, "the server may have received both");
    let began = pair.server.last_refused();
    pair.pass(Duration::from_millis(50));
    pair.tick();
    let again = pair.sent();
    pair.receive(&again);
    assert!(pair.server.last_refused() > began, "the drain has to go on");
    let refused = pair.answered();
    pair.hear(&refused);
    assert_eq!(pair.told.pop(), Some((1, failed(Kind::Draining))));
    pair.finish(executes, Finish::Result, b"result..");
}

/// Returns what a client sends within 10 ms after it was told of a drain, while it lacks the outcome of a
/// call. By its own timer it would ask after 20 ms.
fn asked_after_a_word() -> Vec<Vec<u8>> {
    let mut pair = Pair::acquainted();
    let executes = pair.execute(1, b"argument");
    drop(pair.finish(executes, Finish::Result, b"lost"));
    let words = drain(&mut pair, None);
    pair.hear(&words);
    assert_eq!(pair.sent(), Vec::<Vec<u8>>::new(), "the result may be on its way");
    pair.pass(Duration::from_millis(10));
    pair.tick();
    pair.sent()
}

#[test]
fn a_client_that_lacks_an_outcome_asks_soon_when_it_is_told() {
    let asked = asked_after_a_word();
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[test]
fn other_exports_go_on_when_one_drains() {
    let mut pair = Pair::acquainted();
    let procedures = vec![fingerprint(1, 1)];
    pair.server.export(Export { id: 5, type_name: "Other".into(), instance: String::new(), procedures });
    let words = drain(&mut pair, Some(5));
    pair.hear(&words);
    let key = pair.execute(1, b"argument");
    let result = pair.finish(key, Finish::Result, b"result..");
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
    let call = farcall_proto::client::Call { export: 5, procedure: 1, ..Default::default() };
    let now = pair.now;
    let refused = pair.client.start(|| now, &call, &mut Vec::new()).unwrap_err();
    assert_eq!((refused.kind, refused.ran), (Kind::Draining, Ran::No));
}

#[test]
fn a_server_that_repeats_its_word_has_no_calls_looked_at_each_time() {
    const CALLS: u64 = 2000;
    let client = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(client, ServerConfig::default());
    for token in 1..=CALLS {
        pair.start(token, b"sent");
    }
    let sent = pair.sent();
    // The server has received the last one, so each of them may have come.
    pair.receive(&sent);
    let words = drain(&mut pair, None);
    let word = words.iter().find(|word| frames_of(word) == [DRAIN]).unwrap();
    let hears = |pair: &mut Pair| work::counted(|| pair.hear(&vec![word.clone(); 500])).1;
    assert_eq!(hears(&mut pair), CALLS, "of 500 words one");
    pair.pass(Duration::from_millis(1));
    assert_eq!(hears(&mut pair), 0, "a look at so many calls has a longer pause after it");
    pair.pass(Duration::from_millis(2));
    assert_eq!(hears(&mut pair), CALLS, "a word of a later round is heard");
}

#[test]
fn a_late_word_of_an_earlier_server_says_nothing_of_the_present_one() {
    let mut pair = Pair::acquainted();
    let late = drain(&mut pair, None);
    pair.restart_server(9);
    pair.export();
    // The first call finds out that the server is another one, and the second one goes to it.
    pair.start(1, b"argument");
    pair.settle();
    pair.told.clear();
    pair.asked.clear();
    pair.client.bind(pair.now, "Store", 7);
    pair.settle();
    pair.told.clear();
    pair.start(2, b"argument");
    let call = pair.sent();
    pair.receive(&call);
    pair.hear(&late);
    assert_eq!(pair.told.len(), 0, "the present server executes the call");
}

#[test]
fn every_client_is_told_once_in_a_round() {
    let mut pair = Pair::acquainted();
    for port in 0..200 {
        let peer = common::join(&mut pair, [10, 0, 1, 1], 1_000 + port);
        common::comes(&mut pair, peer, &[common::fragment(0, 1, 8, 0, 8)]);
    }
    pair.answered();
    let words = drain(&mut pair, None);
    assert_eq!(words.len(), pair.server.conversations());
    assert!(words.len() > 100 && words.iter().all(|word| frames_of(word) == [DRAIN]));
    assert!(pair.server.is_quiet());
}

#[test]
fn a_client_that_has_not_called_is_told_too_and_only_once_in_a_round() {
    let (mut pair, words) = bound_and_drained();
    assert_eq!(words.iter().map(|word| frames_of(word)).collect::<Vec<_>>(), [[DRAIN]]);
    pair.hear(&words);
    let call = farcall_proto::client::Call { export: EXPORT, procedure: 1, ..Default::default() };
    let now = pair.now;
    let refused = pair.client.start(|| now, &call, &mut Vec::new()).unwrap_err();
    assert_eq!((refused.kind, refused.ran), (Kind::Draining, Ran::No));
}

/// Returns a pair whose client was bound and had not called when the server drained, and what the server
/// sent.
fn bound_and_drained() -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    pair.export();
    pair.client.bind(pair.now, "Store", 7);
    pair.settle();
    assert_eq!(pair.server.conversations(), 0, "the server knows no conversation");
    let words = drain(&mut pair, None);
    (pair, words)
}

#[test]
fn a_client_that_the_server_has_forgotten_holds_the_drain_up_when_it_comes_and_is_told() {
    let (mut pair, began) = forgotten_and_back();
    assert!(pair.server.last_refused() > began, "the drain has to go on");
    assert_eq!(pair.told.pop(), Some((1, Told::Failed(Kind::Forgotten, Ran::No))));
    pair.client.bind(pair.now, "Store", 2);
    pair.settle();
    assert_eq!(pair.told.pop(), Some((2, Told::NotBound(Kind::Draining))));
}

/// Returns what a client is told that asks for each of these names.
fn told_of(pair: &mut Pair, names: &[&str]) -> Vec<Told> {
    pair.told.clear();
    for name in names {
        pair.client.bind(pair.now, name, 7);
        pair.settle();
    }
    pair.told.drain(..).map(|(_, told)| told).collect()
}

#[test]
fn a_question_for_a_drained_export_says_that_it_drains_until_another_export_has_the_name() {
    let mut pair = Pair::new();
    let export = |id, instance: &str| {
        let procedures = vec![fingerprint(1, 1)];
        Export { id, type_name: "Shelf".into(), instance: instance.into(), procedures }
    };
    pair.server.export(export(3, "a"));
    let drains = || Told::NotBound(Kind::Draining);
    let unknown = || Told::NotBound(Kind::NotExported);
    pair.server.drain(pair.now, Some(3));
    let names = ["Shelf", "Shelf/a", "Shelf/b"];
    assert_eq!(told_of(&mut pair, &names), [drains(), drains(), unknown()], "while it drains");
    pair.server.end_drain(3);
    assert_eq!(told_of(&mut pair, &names), [drains(), drains(), unknown()], "afterwards");
    pair.server.export(export(5, "b"));
    assert_eq!(told_of(&mut pair, &names), [Told::Bound(5), drains(), Told::Bound(5)]);
    pair.server.withdraw(5);
    assert_eq!(told_of(&mut pair, &names), [unknown(), drains(), unknown()], "this one did not drain");
}

#[test]
fn calls_of_other_exports_go_on_when_a_question_for_a_drained_one_is_refused() {
    let mut pair = Pair::new();
    let procedures = vec![fingerprint(1, 1)];
    pair.server.export(Export { id: 5, type_name: "Other".into(), instance: String::new(), procedures });
    pair.server.drain(pair.now, Some(5));
    pair.client.bind(pair.now, "Other", 1);
    pair.start(2, b"call");
    pair.settle();
    pair.told.sort_by_key(|told| told.0);
    assert_eq!(pair.told, [(1, Told::NotBound(Kind::Draining)), (2, Told::Result(b"call".to_vec()))]);
}

/// Returns a pair whose server forgets the client, drains, and then receives a call of the client; and when
/// the drain began.
fn forgotten_and_back() -> (Pair, Time) {
    let one = ServerConfig { max_conversations: 1, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), one);
    pair.pass(Duration::from_secs(1));
    let peer = common::join(&mut pair, [10, 0, 1, 1], 1_000);
    common::comes(&mut pair, peer, &[common::fragment(0, 1, 8, 0, 8)]);
    assert_eq!(pair.server.stats().evicted, 1);
    pair.answered();
    pair.pass(Duration::from_secs(1));
    drain(&mut pair, None);
    let began = pair.server.last_refused();
    pair.pass(Duration::from_millis(50));
    pair.start(1, b"late");
    pair.settle();
    (pair, began)
}

#[test]
fn a_drain_knows_when_a_client_last_lacked_an_outcome() {
    let mut pair = Pair::acquainted();
    assert_eq!(pair.server.last_asked(), Time::default());
    let running = pair.execute(1, b"argument");
    let ask = |pair: &mut Pair| {
        pair.pass(Duration::from_millis(50));
        pair.tick();
        let asked = pair.sent();
        assert_eq!(asked.len(), 1);
        pair.receive(&asked);
        pair.answered();
    };
    ask(&mut pair);
    assert_eq!(pair.server.last_asked(), Time::default(), "the call has no outcome yet");
    drop(pair.finish(running, Finish::Result, b"lost"));
    pair.pass(Duration::from_secs(1));
    ask(&mut pair);
    assert_eq!(pair.server.last_asked(), pair.now);
}

#[test]
fn broken_rules_of_drains_are_noticed() {
    for rule in Rule::OF_DRAINS {
        common::MUTANT.set(Mutant::of(*rule));
        let is_noticed = match rule {
            Rule::DrainUntold | Rule::DrainUnheard => told_at_the_word().is_empty(),
            Rule::UncalledUntold => bound_and_drained().1.is_empty(),
            Rule::DrainAsksLate => asked_after_a_word().is_empty(),
            Rule::ForgottenUnheard => {
                let (pair, began) = forgotten_and_back();
                pair.server.last_refused() == began
            }
            _ => false,
        };
        assert!(is_noticed, "{}", rule.name());
    }
    common::MUTANT.set(Mutant::NONE);
}
