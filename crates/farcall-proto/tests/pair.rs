//! Packet traces of the protocol's rules, one test for each rule.

mod common;

use std::time::Duration;

use common::{CALL, Datagram, EXPORT, Pair, Told, fingerprint, frames_of};
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::server::{Export, Finish, Request};
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig};

#[test]
fn a_simple_call_is_two_datagrams() {
    let mut pair = Pair::acquainted();
    for token in 1..=3 {
        pair.start(token, b"argsargs");
        let call = pair.sent();
        assert_eq!(call.len(), 1);
        pair.receive(&call);
        let (key, args) = pair.asked.pop().unwrap();
        assert_eq!(args, b"argsargs");
        let result = pair.finish(key, Finish::Result, b"result..");
        assert_eq!(result.len(), 1);
        pair.hear(&result);
        assert_eq!(pair.told.pop(), Some((token, Told::Result(b"result..".to_vec()))));
    }
    assert_eq!(pair.client.timeout(), None, "an idle client has no timer");
}

/// Returns a datagram's security scheme.
fn scheme(datagram: &[u8]) -> u8 {
    datagram[1]
}

#[test]
fn on_one_machine_datagrams_are_local() {
    let mut pair =
        Pair::with(ClientConfig { loopback: true, ..ClientConfig::default() }, ServerConfig::default());
    pair.from = "127.0.0.1:1000".parse().unwrap();
    pair.client.bind(pair.now, "Store", 0);
    let bind = pair.sent();
    assert_eq!(scheme(&bind[0]), 0, "neither end knows yet that the other is on its machine");
    pair.receive(&bind);
    let welcome = pair.answered();
    assert_eq!(scheme(&welcome[0]), 0);
    pair.hear(&welcome);
    pair.start(1, b"argument");
    let call = pair.sent();
    assert_eq!(scheme(&call[0]), 1);
    // The server drops the datagram if it is cut short, or if it comes from another machine.
    pair.receive(&[call[0][..call[0].len() - 4].to_vec()]);
    let elsewhere = std::mem::replace(&mut pair.from, "10.0.0.1:1000".parse().unwrap());
    pair.receive(&call);
    assert_eq!((pair.asked.len(), pair.server.stats().dropped), (0, 2));
    pair.from = elsewhere;
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"result..");
    assert_eq!(scheme(&result[0]), 1);
    pair.hear(&result);
    assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
}

#[test]
fn a_forwarder_between_two_ends_makes_them_use_the_open_scheme() {
    for (loopback, from) in [(true, "10.0.0.1:1000"), (false, "127.0.0.1:1000")] {
        let mut pair =
            Pair::with(ClientConfig { loopback, ..ClientConfig::default() }, ServerConfig::default());
        pair.from = from.parse().unwrap();
        pair.start(1, b"argument");
        for _ in 0..2 {
            let sent = pair.sent();
            assert!(sent.iter().all(|d| scheme(d) == 0));
            pair.receive(&sent);
            let answered = pair.answered();
            pair.hear(&answered);
        }
        let (key, _) = pair.asked.pop().unwrap();
        let mut result = pair.finish(key, Finish::Result, b"result..");
        assert_eq!(scheme(&result[0]), 0);
        // No other machine can make a client take a datagram without a checksum.
        let len = result[0].len();
        let mut local = result[0].clone();
        local[1] = 1;
        local[len - 8..].copy_from_slice(&(len as u64).to_be_bytes());
        pair.hear(&[local]);
        assert_eq!(pair.told.pop(), None);
        pair.hear(&result.split_off(0));
        assert_eq!(pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
    }
}

#[test]
fn binding_names_the_export_and_leaves_no_state() {
    let mut pair = Pair::new();
    for (token, name) in ["Store", "Store/one", "Store/two", "Shop", ""].into_iter().enumerate() {
        pair.client.bind(pair.now, name, token as u64);
    }
    pair.settle();
    pair.told.sort_by_key(|t| t.0);
    let told: Vec<_> = pair.told.drain(..).map(|t| t.1).collect();
    let no = || Told::NotBound(Kind::NotExported);
    assert_eq!(told, [Told::Bound(EXPORT), Told::Bound(EXPORT), no(), no(), Told::Bound(0)]);
    assert_eq!(pair.server.conversations(), 0);
}

#[test]
fn an_export_with_many_procedures_comes_in_pages() {
    let mut pair = Pair::new();
    pair.server.export(Export {
        id: 5,
        type_name: "Wide".into(),
        instance: "x".into(),
        procedures: (0..1000).map(|n| fingerprint(n, u64::from(n) * 3)).collect(),
    });
    pair.client.bind(pair.now, "Wide", 9);
    let mut bound = None;
    for _ in 0..40 {
        let sent = pair.sent();
        pair.receive(&sent);
        for d in pair.answered() {
            pair.client.receive(pair.now, &d, &mut |e| {
                if let Event::Bound { answer, .. } = e {
                    bound = Some(answer.unwrap());
                }
            });
        }
    }
    let bound = bound.expect("all pages have arrived");
    assert_eq!(bound.procedures.len(), 1000);
    assert_eq!(bound.procedures[999], fingerprint(999, 2997));
}

#[test]
fn pages_of_two_exports_are_not_mixed() {
    let mut pair = Pair::new();
    let wide = |id, print| Export {
        id,
        type_name: "Wide".into(),
        instance: "x".into(),
        procedures: (0..200).map(|n| fingerprint(n, print)).collect(),
    };
    pair.server.export(wide(5, 55));
    pair.client.bind(pair.now, "Wide", 9);
    let question = pair.sent();
    pair.receive(&question);
    let page = pair.answered();
    pair.hear(&page);
    pair.server.withdraw(5);
    pair.server.export(wide(6, 66));
    let mut answer = None;
    while answer.is_none() {
        let sent = pair.sent();
        assert!(!sent.is_empty());
        pair.receive(&sent);
        for d in pair.answered() {
            pair.client.receive(pair.now, &d, &mut |e| {
                if let Event::Bound { answer: a, .. } = e {
                    answer = Some(a.unwrap());
                }
            });
        }
    }
    let bound = answer.unwrap();
    assert_eq!((bound.export, bound.procedures.len()), (6, 200));
    assert!(bound.procedures.iter().all(|p| p.types == 66));
}

/// Exports the interface anew between any two pages, so that each answer begins again at the first page.
fn pages_until_told(each: Duration) -> (Pair, usize) {
    let (mut pair, mut pages) = (Pair::new(), 0);
    let wide = |id| Export {
        id,
        type_name: "Wide".into(),
        instance: "x".into(),
        procedures: (0..200).map(|n| fingerprint(n, 1)).collect(),
    };
    pair.client.bind(pair.now, "Wide", 9);
    while pair.told.is_empty() {
        pair.server.export(wide(1000 + pages as u64));
        let question = pair.sent();
        pair.receive(&question);
        let page = pair.answered();
        pair.pass(each);
        pair.hear(&page);
        pair.server.withdraw(1000 + pages as u64);
        pages += 1;
        assert!(pages < 100_000, "the client asks for pages without end");
    }
    (pair, pages)
}

#[test]
fn an_answer_whose_pages_do_not_end_is_given_up() {
    let (pair, pages) = pages_until_told(Duration::ZERO);
    assert_eq!(pair.told, [(9, Told::NotBound(Kind::BadResult))]);
    assert!(pages <= 2048, "{pages}");
    let (pair, pages) = pages_until_told(Duration::from_secs(1));
    assert_eq!(pair.told, [(9, Told::NotBound(Kind::BadResult))]);
    assert!(pages <= 11, "{pages} pages in as many seconds");
}

#[test]
fn a_duplicate_is_not_executed() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"once");
    let call = pair.sent();
    pair.receive(&call);
    pair.receive(&call);
    assert_eq!(pair.asked.len(), 1);
    let key = pair.asked[0].0;
    let first = pair.finish(key, Finish::Result, b"done");
    pair.receive(&call);
    assert_eq!(pair.asked.len(), 1);
    let again = pair.answered();
    assert_eq!(again.len(), 1, "the held result is sent again");
    assert_ne!(first, again, "the copy of the result has its own datagram number");
    pair.hear(&again);
    pair.hear(&first[1..]);
    assert_eq!(pair.told, [(1, Told::Result(b"done".to_vec()))]);
    // A copy that arrives after the next call of the activity is dropped.
    pair.told.clear();
    pair.start(2, b"next");
    pair.settle();
    pair.receive(&call);
    assert!(pair.asked.is_empty());
}

#[test]
fn a_lost_call_and_a_lost_result_are_sent_again() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"once");
    pair.sent();
    pair.pass(Duration::from_millis(25));
    pair.tick();
    let call = pair.sent();
    assert_eq!(call.len(), 1);
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"lost");
    pair.pass(Duration::from_millis(200));
    pair.tick();
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"lost".to_vec()))]);
}

#[test]
fn a_silent_server_is_given_up_after_ten_seconds_and_ten_probes() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"once");
    pair.sent();
    let began = pair.now;
    pair.starve();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
    let took = pair.now.since(began);
    assert!((10..12).contains(&took.as_secs()), "{took:?}");
    assert!(pair.client.stats().retransmitted >= 10);
}

#[test]
fn a_call_of_a_server_that_never_answered_did_not_run() {
    let mut pair = Pair::new();
    pair.start(1, b"once");
    pair.starve();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::No))]);
}

#[test]
fn a_slow_call_is_probed_ever_more_rarely_and_never_given_up() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"slow");
    let call = pair.sent();
    pair.receive(&call);
    let hour = pair.now + Duration::from_secs(3600);
    // The other datagrams say that the client waits for the call: `silence.rs`.
    let before = pair.client.stats().probes;
    while pair.now < hour {
        pair.now = pair.client.timeout().unwrap().max(pair.now);
        pair.tick();
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert!(pair.told.is_empty());
    let probes = pair.client.stats().probes - before;
    assert!((300..450).contains(&probes), "{probes} probes in an hour");
    let (key, _) = pair.asked.pop().unwrap();
    let result = pair.finish(key, Finish::Result, b"slow");
    pair.hear(&result);
    assert_eq!(pair.told.len(), 1);
}

#[test]
fn large_arguments_and_results_arrive_whole() {
    for len in [1_000, 1_200, 5_000, 70_000, 1_000_000] {
        let mut pair = Pair::acquainted();
        let args: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        pair.start(1, &args);
        pair.settle();
        assert_eq!(pair.told, [(1, Told::Result(args))], "{len} bytes");
        assert_eq!(pair.server.held_bytes(), if len <= 1_000 { len } else { pair.server.held_bytes() });
    }
}

#[test]
fn a_long_result_is_dropped_when_it_has_arrived() {
    let mut pair = Pair::acquainted();
    pair.start(1, &vec![1; 400_000]);
    pair.settle();
    assert_eq!(pair.server.held_bytes(), 0);
}

#[test]
fn a_cancel_that_overtakes_its_call_consumes_its_number() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"late");
    let call = pair.sent();
    pair.client.cancel(pair.now, id);
    let cancel = pair.sent();
    pair.receive(&cancel);
    pair.receive(&call);
    assert!(pair.asked.is_empty());
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::No))]);
}

#[test]
fn a_cancel_reaches_the_procedure() {
    let (mut pair, id, old) = Pair::executing(b"long");
    pair.cancel(id);
    assert_eq!(pair.cancelled, [old]);
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    // The activity is usable at once, while the old call still runs.
    pair.told.clear();
    pair.start(2, b"next");
    let call = pair.sent();
    pair.receive(&call);
    assert_eq!(pair.asked.len(), 2);
    let new = pair.asked[1].0;
    assert_eq!(pair.finish(old, Finish::Result, b"late"), Vec::<Datagram>::new());
    let result = pair.finish(new, Finish::Result, b"news");
    pair.hear(&result);
    assert_eq!(pair.told, [(2, Told::Result(b"news".to_vec()))]);
    assert_eq!(pair.server.unfinished(), 0);
}

#[test]
fn a_call_that_is_cancelled_twice_is_cancelled_once() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"argument");
    assert_eq!(pair.sent().len(), 1);
    pair.client.cancel(pair.now, id);
    assert_eq!(pair.sent().len(), 1);
    let due = pair.client.timeout();
    pair.pass(Duration::from_millis(1));
    pair.client.cancel(pair.now, id);
    assert_eq!((pair.sent().len(), pair.client.timeout()), (0, due));
}

#[test]
fn a_call_that_was_never_sent_did_not_run() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"idea");
    pair.client.cancel(pair.now, id);
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::No))]);
    assert_eq!(pair.sent(), Vec::<Datagram>::new());
}

#[test]
fn an_outcome_that_fits_a_datagram_is_returned_at_once_and_is_held() {
    let mut pair = Pair::acquainted();
    let key = pair.execute(1, b"argument");
    let result = pair.finish(key, Finish::Result, b"result..");
    pair.hear(&result);
    // The activity has been used before. The call returns its arguments to the server, and its outcome to the
    // client.
    pair.start(2, b"argument");
    let call = pair.sent();
    let now = pair.now;
    let none = &mut |_: Request<'_>| panic!("the fast path gives the sink nothing");
    let incoming = pair.server.receive_call(
        now,
        || panic!("the fast path reads the clock"),
        &pair.from,
        (&call[0], None),
        none,
    );
    let (key, mut out) = (incoming.expect("the datagram holds just one call").key, vec![0; 65_536]);
    let sent = pair.server.finish(now, key, Finish::Result, &mut vec![7; 100], &mut out);
    pair.hear(&[out[..sent.expect("the outcome fits into a datagram").len].to_vec()]);
    assert_eq!(pair.told.pop(), Some((2, Told::Result(vec![7; 100]))));
    assert_eq!((pair.server.unfinished(), pair.server.held_bytes()), (0, 100));
    pair.receive(&call);
    assert!(pair.asked.is_empty(), "the call does not run again");
    assert_eq!(pair.answered().len(), 1, "the result is sent again");
}

#[test]
fn a_refusal_is_remembered() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"much");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    let refusal = Finish::from(Failure::new(Kind::Overloaded, Ran::No).with_detail("queue of 8"));
    let refused = pair.finish(key, refusal, b"");
    pair.receive(&call);
    assert!(pair.asked.is_empty());
    pair.pass(Duration::from_secs(120));
    pair.tick();
    pair.receive(&call);
    assert!(pair.asked.is_empty(), "the call does not run after its refusal is dropped");
    pair.hear(&refused);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Overloaded, Ran::No))]);
}

#[test]
fn a_call_whose_result_was_dropped_does_not_run_again() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"once");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"lost");
    pair.pass(Duration::from_secs(31));
    pair.server.handle_timeout(pair.now);
    pair.receive(&call);
    let answers = pair.answered();
    pair.hear(&answers);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ResultLost, Ran::Yes))]);
    assert_eq!(pair.server.held_bytes(), 0);
}

#[test]
fn a_restarted_server_reports_as_not_run_only_calls_that_began_after_its_start() {
    // The call was first sent long after the restart, so it cannot have run.
    let mut pair = Pair::acquainted();
    pair.pass(Duration::from_secs(1));
    pair.restart_server(8);
    pair.pass(Duration::from_secs(5));
    pair.start(1, b"anew");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ServerRestarted, Ran::No))]);
    // The call was first sent before the restart, so it may have run.
    let mut pair = Pair::acquainted();
    pair.start(1, b"old.");
    let call = pair.sent();
    pair.receive(&call);
    pair.pass(Duration::from_millis(10));
    pair.restart_server(9);
    pair.pass(Duration::from_millis(15));
    pair.tick();
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ServerRestarted, Ran::Maybe))]);
    // The client begins a new conversation for the next call.
    pair.told.clear();
    pair.start(2, b"next");
    pair.settle();
    assert_eq!(pair.told, [(2, Told::Result(b"next".to_vec()))]);
}

#[test]
fn a_forgotten_conversation_does_not_run_old_packets() {
    let server = ServerConfig { max_conversations: 1, ..ServerConfig::default() };
    let mut pair = Pair::with(ClientConfig::default(), server);
    pair.start(1, b"once");
    let mut first = Vec::new();
    for _ in 0..2 {
        let sent = pair.sent();
        first = if sent.is_empty() { first } else { sent.clone() };
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, b"lost");
    // Another client takes the only place.
    let mut other = Conversation::new(ClientConfig::default(), 0xbeef);
    let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token: 0 };
    other.start(|| pair.now, &call, &mut Vec::new()).unwrap();
    let mut out = vec![0; 65_536];
    for _ in 0..3 {
        while let Some(n) = other.transmit(pair.now, &mut out) {
            pair.receive(&[out[..n].to_vec()]);
        }
        for d in pair.answered() {
            other.receive(pair.now, &d, &mut |_| {});
        }
    }
    assert_eq!(pair.asked.len(), 1, "the call of the other client");
    pair.asked.clear();
    pair.receive(&first);
    assert!(pair.asked.is_empty(), "the server refuses a ticket that is older than the horizon");
    let answers = pair.answered();
    pair.hear(&answers);
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Forgotten, Ran::Maybe))]);
}

#[test]
fn a_client_that_moved_renews_its_ticket() {
    let mut pair = Pair::acquainted();
    pair.from = "10.0.0.1:2000".parse().unwrap();
    pair.start(1, b"moved...");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"moved...".to_vec()))]);
    assert_eq!(pair.server.conversations(), 1);
}

#[test]
fn an_unproven_address_gets_at_most_three_times_the_bytes_that_it_sent() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"spoofed!");
    pair.start(2, b"spoof123");
    let calls = pair.sent();
    pair.from = "10.9.9.9:9".parse().unwrap();
    for d in calls {
        pair.receive(std::slice::from_ref(&d));
        let heard: usize = pair.answered().iter().map(Vec::len).sum();
        assert!(heard <= 3 * d.len(), "{heard} bytes were sent for {}", d.len());
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"once");
    let call = pair.sent().remove(0);
    for bit in 0..call.len() * 8 {
        let mut broken = call.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        pair.receive(&[broken]);
        assert!(pair.asked.is_empty(), "bit {bit}");
        assert!(pair.answered().is_empty());
    }
    pair.receive(&[call]);
    let (key, _) = pair.asked.pop().expect("the datagram is intact");
    let result = pair.finish(key, Finish::Result, b"done").remove(0);
    for bit in 0..result.len() * 8 {
        let mut broken = result.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        pair.hear(&[broken]);
        assert_eq!((&pair.told[..], pair.client.stats().outstanding), (&[][..], 1), "bit {bit}");
    }
    assert_eq!(pair.client.stats().dropped, 8 * result.len() as u64);
    pair.hear(&[result]);
    assert_eq!(pair.told.len(), 1);
}

#[test]
fn first_fragments_without_the_rest_are_bounded() {
    let server = ServerConfig { reassembly_budget: 1 << 20, ..ServerConfig::default() };
    let mut pair = Pair::with(ClientConfig { max_outstanding: 4096, ..ClientConfig::default() }, server);
    pair.start(0, b"");
    pair.settle();
    for token in 1..=3000 {
        pair.start(token, &vec![0; 1 << 20]);
        let first = pair.sent();
        pair.receive(&first[..first.len().min(1)]);
        assert!(pair.server.held_bytes() <= (1 << 20) + (1 << 18), "{}", pair.server.held_bytes());
        pair.answered();
    }
    assert!(pair.asked.is_empty());
}

#[test]
fn after_all_calls_nothing_is_held_and_no_timer_runs() {
    let mut pair = Pair::acquainted();
    for token in 1..=50 {
        pair.start(token, &vec![0; 40 * token as usize]);
    }
    pair.settle();
    assert_eq!(pair.told.len(), 50);
    for _ in 0..10 {
        pair.pass(Duration::from_secs(30));
        pair.tick();
    }
    assert_eq!((pair.client.timeout(), pair.server.timeout()), (None, None));
    assert_eq!(pair.server.held_bytes(), 0);
    assert_eq!(pair.sent(), Vec::<Datagram>::new());
}

#[test]
fn a_post_reaches_its_export_and_gets_no_answer() {
    let mut pair = Pair::acquainted();
    let mut out = vec![0; 1_200];
    let posted = |pair: &mut Pair, export, out: &mut [u8]| {
        let len = pair.client.post(export, &[7; farcall_proto::MAX_POST], out).expect("room");
        pair.receive(&[out[..len].to_vec()]);
        (pair.answered().len(), std::mem::take(&mut pair.posted).len())
    };
    assert_eq!(posted(&mut pair, EXPORT, &mut out), (0, 1));
    assert_eq!(posted(&mut pair, EXPORT + 1, &mut out), (0, 0), "the server has no such export");
    assert!(pair.client.post(EXPORT, &[7; 1_164], &mut out).is_none(), "a post must fit into a datagram");
    assert_eq!(pair.client.post(EXPORT, &[7; 1_160], &mut out), Some(1_200));
    assert!(pair.client.post(EXPORT, b"odd", &mut out).is_none(), "a post must be a multiple of four bytes");
    pair.server.drain(pair.now, None);
    assert_eq!(posted(&mut pair, EXPORT, &mut out), (0, 0), "a draining server takes no posts");
    // The server asks an unknown client for its ticket, and does nothing else.
    pair.restart_server(9);
    assert_eq!(posted(&mut pair, EXPORT, &mut out), (1, 0));
}

#[test]
fn a_client_that_the_server_may_not_know_shows_its_ticket_with_a_post() {
    let mut pair = Pair::new();
    let mut out = vec![0; 1_200];
    assert!(pair.client.post(EXPORT, b"1234", &mut out).is_none(), "the client has no conversation");
    pair.client.bind(pair.now, "Store", 1);
    pair.settle();
    let len = pair.client.post(EXPORT, &[7; farcall_proto::MAX_POST], &mut out).expect("room");
    pair.receive(&[out[..len].to_vec()]);
    assert_eq!(pair.posted.len(), 1);
}

#[test]
fn a_deadline_travels_with_the_call() {
    let mut pair = Pair::acquainted();
    let deadline = Some(pair.now + Duration::from_millis(500));
    let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token: 4 };
    pair.client.start(|| pair.now, &call, &mut Vec::new()).unwrap();
    let sent = pair.sent();
    let mut seen = None;
    pair.server.receive(pair.now, pair.from, &sent[0], &mut |r| {
        if let Request::Call(call) = r {
            seen = call.deadline;
        }
    });
    assert_eq!(seen, deadline);
    pair.pass(Duration::from_millis(500));
    pair.tick();
    assert_eq!(pair.told, [(4, Told::Failed(Kind::Deadline, Ran::Maybe))]);
    let cancel = pair.sent();
    pair.receive(&cancel);
    assert_eq!(pair.cancelled.len(), 1);
}

#[test]
fn an_unknown_export_is_refused() {
    let mut pair = Pair::acquainted();
    pair.server.withdraw(EXPORT);
    pair.start(1, b"gone");
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::NotExported, Ran::No))]);
}

#[test]
fn calls_that_are_ready_together_share_a_datagram() {
    let mut pair = Pair::acquainted();
    for token in 1..=8 {
        pair.start(token, b"tiny");
    }
    assert_eq!(pair.sent().len(), 1);
}

#[test]
fn a_cancel_does_not_end_a_call_that_its_deadline_has_ended() {
    let mut pair = Pair::acquainted();
    let call = Call {
        export: EXPORT,
        procedure: 1,
        deadline: Some(pair.now + Duration::from_millis(10)),
        trace: None,
        token: 1,
    };
    let id = pair.client.start(|| pair.now, &call, &mut Vec::new()).expect("room for a call");
    pair.sent();
    pair.pass(Duration::from_millis(20));
    pair.tick();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Deadline, Ran::Maybe))]);
    pair.client.cancel(pair.now, id);
    pair.settle();
    assert_eq!(pair.told.len(), 1);
}

#[test]
fn a_path_probe_that_claims_to_be_small_is_not_answered() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"args");
    let call = pair.sent().remove(0);
    let conversation = u64::from_be_bytes(call[4..12].try_into().unwrap());
    for size in [0u32, 1, 27, 28, 1199] {
        let frame = [&[0x16, 0, 0, 4], &size.to_be_bytes()[..]].concat();
        pair.receive(&[farcall_proto::fuzzing::seal(conversation, 99, &frame)]);
    }
    assert_eq!(pair.answered(), Vec::<Datagram>::new());
}

#[test]
fn an_export_that_is_withdrawn_while_arguments_arrive_is_not_called() {
    for kind in [Kind::NotExported, Kind::Draining] {
        let mut pair = Pair::acquainted();
        pair.start(1, &[7; 5000]);
        let fragments = pair.sent();
        pair.receive(&fragments[..2]);
        if kind == Kind::Draining {
            pair.server.drain(pair.now, None)
        } else {
            pair.server.withdraw(EXPORT)
        }
        pair.receive(&fragments[2..]);
        assert!(pair.asked.is_empty());
        let answers = pair.answered();
        pair.hear(&answers);
        assert_eq!(pair.told, [(1, Told::Failed(kind, Ran::No))]);
        assert!(pair.server.held_bytes() < 1000, "the server drops the arguments that have arrived");
        pair.server.audit();
    }
}

#[test]
fn a_call_waits_for_others_only_while_results_are_expected() {
    let mut pair = Pair::acquainted();
    let slow = pair.start(1, b"slow");
    assert!(!pair.may_wait(slow, true), "a call does not wait if no result is expected");
    let sent = pair.sent();
    pair.receive(&sent);
    pair.asked.clear();
    let quick = pair.start(2, b"quick...");
    assert!(pair.may_wait(quick, true));
    assert!(
        !pair.may_wait(quick, false),
        "a call does not wait if more than a quarter of the outstanding calls would wait"
    );
    pair.settle();
    assert_eq!(pair.told.pop(), Some((2, Told::Result(b"quick...".to_vec()))));
    let last = pair.start(3, b"last");
    assert!(!pair.may_wait(last, true), "a call that newer calls have overtaken counts as slow");
}

/// Returns a pair whose server executes this number of calls.
fn with_slow_calls(calls: u64) -> Pair {
    let mut pair = Pair::acquainted();
    (0..calls).for_each(|token| _ = pair.start(token, b"slow"));
    let sent = pair.sent();
    pair.receive(&sent);
    pair
}

#[test]
fn calls_are_queued_until_no_further_call_would_fit_into_the_datagram() {
    let mut pair = with_slow_calls(10);
    // The first two calls may be queued. The third may not, because a fourth would not fit into the same
    // datagram.
    let waits = [10, 11, 12].map(|token| {
        let id = pair.start(token, &[7; 300]);
        pair.may_wait(id, true)
    });
    // Larger datagrams are tried after it.
    let calls = pair.sent().iter().filter(|datagram| frames_of(datagram).contains(&CALL)).count();
    assert_eq!((waits, calls), ([true, true, false], 1));
}

#[test]
fn no_more_calls_wait_than_a_quarter_of_those_whose_results_are_expected() {
    let mut pair = with_slow_calls(9);
    let waits = [10, 11, 12].map(|token| {
        let id = pair.start(token, b"tiny");
        (pair.may_wait(id, false), pair.may_wait(id, true))
    });
    assert_eq!(waits, [(true, true), (true, true), (false, true)]);
}

#[test]
fn the_text_of_a_failure_is_cut_between_two_characters() {
    for before in 0..4 {
        let (mut pair, _, key) = Pair::executing(b"fail");
        let mut failure = Failure::new(Kind::Other, Ran::Yes);
        failure.detail = "-".repeat(before) + &"\u{1d11e}".repeat(300);
        let answers = pair.finish(key, failure.clone().into(), &[]);
        let mut said = None;
        pair.client.receive(pair.now, &answers[0], &mut |event| {
            if let Event::Ended { outcome: Outcome::Failed(failure), .. } = event {
                said = Some(failure.detail);
            }
        });
        let said = said.expect("the call has ended");
        assert_eq!(said, failure.sent_detail());
        assert!(said.len() < failure.detail.len() && said.len() <= Failure::MAX_DETAIL, "{}", said.len());
    }
}

#[test]
fn an_answer_of_a_new_incarnation_ends_the_calls_of_the_former_one() {
    let (mut pair, _, _) = Pair::executing(b"long");
    pair.restart_server(8);
    pair.client.bind(pair.now, "Store", 5);
    let question = pair.sent();
    pair.receive(&question);
    let answers = pair.answered();
    pair.hear(&answers);
    assert!(pair.told.contains(&(1, Told::Failed(Kind::ServerRestarted, Ran::Maybe))), "{:?}", pair.told);
}
