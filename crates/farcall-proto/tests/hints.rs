//! CHALLENGE and STALE are hints: a client believes what they say only once the server confirms it.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig};

const CLIENT: u64 = 0xc11e;

/// Returns a STALE with this reason about the server's conversation, as old and as new ends write it.
fn stale(to: u64, conversation: u64, reason: u32) -> Datagram {
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    forged(to, 1 << 40, &[frame(STALE, 0, &[high, low, 0, 9, reason, 0, 0, 7, u32::MAX, 0])])
}

fn challenge(to: u64, conversation: u64) -> Datagram {
    let [high, low] = [(conversation >> 32) as u32, conversation as u32];
    forged(to, 1 << 40, &[frame(CHALLENGE, 0, &[high, low, 0, 9])])
}

#[test]
fn a_forged_refusal_of_a_ticket_ends_no_call_and_leads_to_one_question() {
    for (to, reason) in [0, CLIENT].into_iter().flat_map(|to| (1..=4).map(move |reason| (to, reason))) {
        let mut pair = Pair::acquainted();
        pair.start(1, b"call");
        let call = pair.sent();
        pair.receive(&call);
        // This is long after the server's last datagram, so a newer server could have been there before the
        // call.
        pair.hear(&vec![stale(to, conversation_of(&call[0]), reason); 100]);
        assert_eq!(pair.told, [], "reason {reason}");
        let asked = pair.sent();
        let questions: Vec<_> = asked.iter().map(|d| (frames_of(d)[0], d[21])).collect();
        assert_eq!(questions, [(BIND, 1)], "the client asks once");
        pair.receive(&asked);
        let welcome = pair.answered();
        pair.hear(&welcome);
        assert_eq!(
            pair.sent(),
            Vec::<Datagram>::new(),
            "the client learns that its ticket is valid, and sends nothing more"
        );
        pair.settle();
        assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
        assert_eq!(pair.server.conversations(), 1);
    }
}

#[test]
fn a_forged_challenge_makes_the_client_show_its_ticket_and_resend_its_calls_once() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    pair.hear(&vec![challenge(0, conversation_of(&call[0])); 100]);
    let again = pair.sent();
    assert_eq!(again.iter().map(|d| frames_of(d)).collect::<Vec<_>>(), [[0x05, CALL]]);
    pair.hear(&[challenge(0, conversation_of(&call[0]))]);
    assert_eq!(pair.sent(), Vec::<Datagram>::new(), "the client is showing its ticket already");
    pair.receive(&again);
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
}

/// Checks section 5.3 of docs/protocol.md: which frame the client sends at each stage of a call if the answer
/// is late, or after a CHALLENGE.
#[test]
fn the_frame_that_is_sent_again_depends_on_the_stage_of_the_call() {
    for (stands, says) in [
        ("sent", (CALL, 0)),
        ("sent in fragments", (PROBE, 0)),
        ("running", (PROBE, 0)),
        ("result in fragments", (SELECT, 1)),
        ("cancelled", (CANCEL, 0)),
    ] {
        for challenged in [false, true] {
            let mut pair = Pair::acquainted();
            let args: &[u8] = if stands == "sent in fragments" { &[7; 5000] } else { b"call" };
            let id = pair.start(1, args);
            let call = pair.sent();
            let (about, client) = ((id.activity, id.sequence as u32), pair.client.id());
            let heard = match stands {
                "running" => vec![frame_about(STATE, 0, about.0, about.1, &[2])],
                "result in fragments" => vec![frame_about(RESULT, 2, about.0, about.1, &[0, 8, 0, 7])],
                _ => vec![],
            };
            pair.hear(&heard.into_iter().map(|frame| forged(client, 1, &[frame])).collect::<Vec<_>>());
            if stands == "cancelled" {
                pair.client.cancel(pair.now, id);
            }
            pair.sent();
            if challenged {
                pair.hear(&[challenge(0, conversation_of(&call[0]))]);
            }
            let mut said = pair.sent();
            while said.is_empty() {
                pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
                pair.tick();
                said = pair.sent();
            }
            // After a CHALLENGE, a TICKET of 44 bytes stands before the frame.
            let at = if challenged { 20 + 4 + 44 } else { 20 };
            let frames: Vec<_> = said.iter().map(|d| (d[at], d[at + 1])).collect();
            assert_eq!(frames, [says], "a call that is {stands}, challenged: {challenged}");
        }
    }
}

#[test]
fn hints_about_another_conversation_are_ignored() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    let call = pair.sent();
    let other = conversation_of(&call[0]) ^ 1;
    pair.hear(&[stale(CLIENT, other, 1), stale(0, other, 1), challenge(0, other)]);
    assert_eq!((pair.sent(), &pair.told[..]), (Vec::new(), &[][..]));
}

#[test]
fn a_call_to_a_restarted_server_fails_as_not_run_and_the_next_call_runs_at_once() {
    let mut pair = Pair::acquainted();
    pair.pass(Duration::from_secs(60));
    pair.restart_server(8);
    pair.pass(Duration::from_secs(10));
    pair.start(1, b"late");
    // The call, CHALLENGE, the call with its ticket, STALE, BIND, WELCOME: one round trip more than to
    // believe STALE.
    let datagrams = pair.settle();
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ServerRestarted, Ran::No))]);
    assert_eq!(datagrams, 6);
    pair.start(2, b"next");
    assert_eq!(pair.settle(), 2, "the answer has brought a ticket");
    assert_eq!(pair.told[1], (2, Told::Result(b"next".to_vec())));
}

#[test]
fn a_refusal_for_lack_of_room_says_that_nothing_ran_and_forgets_no_conversation() {
    let mut pair =
        Pair::with(ClientConfig::default(), ServerConfig { max_conversations: 1, ..ServerConfig::default() });
    // The pair's client has the older ticket. Another client, known by a newer ticket, is idle.
    pair.client.bind(pair.now, "", 9);
    pair.settle();
    let older = std::mem::replace(&mut pair.client, Conversation::new(ClientConfig::default(), 0xbeef));
    pair.start(1, b"here");
    pair.settle();
    let newer = std::mem::replace(&mut pair.client, older);
    pair.told.clear();
    pair.start(2, b"full");
    pair.settle();
    assert_eq!(pair.told, [(2, Told::Failed(Kind::Overloaded, Ran::No))]);
    assert_eq!(pair.server.stats().evicted, 0);
    pair.client = newer;
    pair.start(3, b"here");
    pair.settle();
    assert_eq!(pair.told[1], (3, Told::Result(b"here".to_vec())));
}

#[test]
fn a_call_that_was_refused_for_lack_of_room_never_runs_even_if_there_is_room_later() {
    let settings = ServerConfig { max_conversations: 1, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), settings);
    pair.start(1, b"busy");
    let call = pair.sent();
    pair.receive(&call);
    let (busy, _) = pair.asked.pop().unwrap();
    pair.client = Conversation::new(ClientConfig::default(), 0xbeef);
    pair.start(2, b"full");
    let mut all = Vec::new();
    while pair.told.is_empty() {
        let sent = pair.sent();
        pair.receive(&sent);
        all.extend(sent);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.told, [(2, Told::Failed(Kind::Overloaded, Ran::No))]);
    pair.finish(busy, Finish::Result, b"done");
    pair.receive(&all);
    assert_eq!((pair.asked.len(), pair.server.stats().evicted), (0, 0));
}

#[test]
fn a_known_conversation_goes_on_after_the_server_has_forgotten_a_newer_one() {
    let settings = ServerConfig { max_conversations: 2, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), settings);
    join(&mut pair, HARM, 1);
    pair.pass(Duration::from_secs(1));
    pair.start(1, b"call");
    pair.settle();
    join(&mut pair, HARM, 2);
    assert_eq!(pair.server.stats().evicted, 1);
    // The client's address changes, so the client has to show its ticket.
    pair.from.set_port(2000);
    pair.start(2, b"call");
    pair.settle();
    assert_eq!(pair.told[1], (2, Told::Result(b"call".to_vec())));
    assert_eq!((pair.server.stats().evicted, pair.server.conversations()), (1, 2));
}

#[test]
fn a_server_that_drains_gives_no_new_ticket() {
    for name in ["", "Store"] {
        let mut pair = Pair::new();
        pair.server.drain(pair.now, None);
        pair.client.bind(pair.now, name, 1);
        pair.settle();
        assert_eq!(pair.told, [(1, Told::NotBound(Kind::Draining))]);
    }
}

#[test]
fn a_server_that_drains_renews_the_ticket_of_a_conversation_that_it_has() {
    let mut pair = Pair::acquainted();
    pair.start(1, b"call");
    let call = pair.sent();
    pair.receive(&call);
    pair.server.drain(pair.now, None);
    pair.from = "10.0.0.1:2000".parse().unwrap();
    pair.pass(Duration::from_millis(30));
    pair.tick();
    let again = pair.sent();
    pair.receive(&again);
    let refused = pair.answered();
    assert_eq!(frames_of(&refused[0]), [STALE]);
    pair.hear(&refused);
    let (key, args) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, &args);
    pair.settle();
    assert_eq!(pair.told, [(1, Told::Result(b"call".to_vec()))]);
}
