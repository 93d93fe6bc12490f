//! Packet traces of clients that are gone, and of clients that send little (section 6.1 of docs/protocol.md).
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{
    CALL, CANCEL, Datagram, EXPORT, HARM, MUTANT, PROBE, Pair, Told, comes, forged, frame_about, frames_of,
    join,
};
use farcall_proto::fuzzing::kinds::WANTED;
use farcall_proto::server::{CallKey, Finish};
use farcall_proto::{ClientConfig, Kind, Mutant, Ran, Rule, ServerConfig, Time};

/// The patience and an interval, and a margin for the server's coarse clock.
const SILENCE: Duration = Duration::from_millis(12_300);

fn forsaken(pair: &mut Pair) -> Vec<CallKey> {
    std::iter::from_fn(|| pair.server.next_forsaken()).collect()
}

/// Returns a pair with a call that the server executes. The client knows that.
fn executed() -> Pair {
    let mut pair = Pair::acquainted();
    pair.start(1, b"long");
    let call = pair.sent();
    pair.receive(&call);
    pair
}

/// Acts on the server's timers as they become due, until `until`. Returns the calls that the server gave up.
fn server_alone(pair: &mut Pair, until: Time) -> Vec<CallKey> {
    let mut all = Vec::new();
    while let Some(due) = pair.server.timeout().filter(|due| *due <= until) {
        pair.now = pair.now.max(due);
        pair.server.handle_timeout(pair.now);
        all.extend(forsaken(pair));
    }
    pair.now = until;
    all
}

#[test]
fn the_calls_of_a_silent_client_are_given_up() {
    let mut pair = executed();
    let key = pair.asked[0].0;
    let begun = pair.now;
    assert_eq!(server_alone(&mut pair, begun + Duration::from_secs(12)), []);
    assert_eq!(server_alone(&mut pair, begun + SILENCE), [key]);
    assert!(pair.server.is_given_up(key));
    // The server gives the call up only once.
    assert_eq!(server_alone(&mut pair, begun + 10 * SILENCE), []);
}

/// A timer has read the clock, and waits for the server while a datagram is taken in.
#[test]
fn a_client_that_was_heard_after_a_timer_read_the_clock_is_not_silent() {
    let mut pair = executed();
    let key = pair.asked[0].0;
    let begun = pair.now;
    assert_eq!(server_alone(&mut pair, begun + Duration::from_secs(12)), []);
    let due = begun + SILENCE;
    pair.now = due + Duration::from_millis(300);
    let probe = frame_about(PROBE, 0, key.activity, key.sequence as u32, &[]);
    pair.receive(&[forged(key.conversation, 7_000, &[probe])]);
    pair.server.handle_timeout(due);
    assert_eq!(forsaken(&mut pair), []);
}

#[test]
fn a_waiting_client_keeps_its_call_alive_with_few_datagrams() {
    let mut pair = executed();
    let mut sent = 0;
    let end = pair.now + Duration::from_secs(3600);
    while pair.now < end {
        let due = [pair.client.timeout(), pair.server.timeout()].into_iter().flatten().min().unwrap();
        pair.now = pair.now.max(due);
        pair.tick();
        assert_eq!(forsaken(&mut pair), []);
        let datagrams = pair.sent();
        sent += datagrams.len();
        pair.receive(&datagrams);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.told, []);
    assert!((1200..=3000).contains(&sent), "{sent} datagrams in an hour");
}

#[test]
fn a_client_that_is_back_learns_that_its_call_was_cancelled() {
    for procedure_ends in [false, true] {
        let mut pair = executed();
        let key = pair.asked[0].0;
        let silent = pair.now + SILENCE;
        assert_eq!(server_alone(&mut pair, silent).len(), 1);
        if procedure_ends {
            pair.finish(key, Finish::Result, b"late");
        }
        pair.tick();
        let probe = pair.sent();
        pair.receive(&probe);
        let answers = pair.answered();
        pair.hear(&answers);
        let ran = if procedure_ends { Ran::Yes } else { Ran::Maybe };
        assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, ran))]);
    }
}

#[test]
fn a_client_that_is_back_and_probes_very_often_is_answered_with_at_most_thrice_its_bytes() {
    let mut pair = executed();
    let key = pair.asked[0].0;
    let silent = pair.now + SILENCE;
    assert_eq!(server_alone(&mut pair, silent), [key]);
    let probe = frame_about(PROBE, 0, key.activity, key.sequence as u32, &[]);
    let many = forged(key.conversation, 7_000, &vec![probe; 2000]);
    let most = 3 * many.len() + 1200;
    pair.receive(&[many]);
    let heard: usize = pair.answered().iter().map(Vec::len).sum();
    assert!((most / 2..most).contains(&heard), "{heard}");
}

#[test]
fn a_detached_call_goes_on_whether_its_call_or_a_probe_was_marked() {
    for sent_before in [false, true] {
        let mut pair = Pair::acquainted();
        let id = pair.start(1, b"long");
        let mut datagrams: Vec<Datagram> = if sent_before { pair.sent() } else { Vec::new() };
        pair.client.detach(id, false);
        datagrams.extend(pair.sent());
        pair.receive(&datagrams);
        let end = pair.now + 10 * SILENCE;
        assert_eq!(server_alone(&mut pair, end), []);
        assert_eq!(pair.server.unfinished(), 1);
    }
}

#[test]
fn a_client_says_that_it_waits_only_for_calls_that_are_not_detached() {
    for detached in [false, true] {
        let (mut pair, id, _) = Pair::executing(b"long");
        if detached {
            pair.client.detach(id, false);
        }
        let (end, mut words) = (pair.now + Duration::from_secs(60), 0);
        while pair.now < end {
            let said = pair.sent();
            words += said.iter().filter(|d| common::frames_of(d) == [common::ACK]).count();
            pair.receive(&said);
            let answers = pair.answered();
            pair.hear(&answers);
            pair.now = pair.client.timeout().expect("the client waits").max(pair.now);
            pair.tick();
        }
        assert_eq!(words == 0, detached, "{words}");
    }
}

/// The mark of detached calls was once the same bit as the mark of calls whose SELECT waits to be sent. Such
/// a call got no SELECT any more.
#[test]
fn a_detached_call_with_long_arguments_is_told_what_has_arrived() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, &[7; 40_000]);
    pair.client.detach(id, false);
    for _ in 0..100 {
        let datagrams = pair.sent();
        pair.receive(&datagrams);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.server.unfinished(), 1);
}

#[test]
fn a_client_tells_its_own_patience_and_the_server_uses_it() {
    let client = ClientConfig { patience: Duration::from_secs(1), ..ClientConfig::default() };
    let mut pair = Pair::acquainted_with(client, ServerConfig::default());
    pair.start(1, b"long");
    let call = pair.sent();
    pair.receive(&call);
    let begun = pair.now;
    assert_eq!(server_alone(&mut pair, begun + Duration::from_millis(1200)), []);
    assert_eq!(server_alone(&mut pair, begun + Duration::from_millis(1600)).len(), 1);
}

/// Lets both ends act on their timers for some time. Returns the datagrams of the server.
fn pass(pair: &mut Pair, time: Duration) -> Vec<Datagram> {
    let (until, mut said) = (pair.now + time, Vec::new());
    loop {
        let due = [pair.client.timeout(), pair.server.timeout()].into_iter().flatten().min();
        let Some(due) = due.filter(|due| *due < until) else { return said };
        pair.now = pair.now.max(due);
        pair.tick();
        assert_eq!(forsaken(pair), []);
        let sent = pair.sent();
        pair.receive(&sent);
        let answers = pair.answered();
        pair.hear(&answers);
        said.extend(answers);
        let sent = pair.sent();
        pair.receive(&sent);
    }
}

/// Has two calls executed, of which one is given up. The server learns nothing of it: each CANCEL is lost.
/// Returns the server's name of that call.
fn given_up_unheard(late_answer: bool) -> (Pair, CallKey) {
    let mut pair = executed();
    let (key, _) = pair.asked.pop().expect("the call");
    pair.start(2, b"goes on.");
    let other = pair.sent();
    pair.receive(&other);
    pair.pass(Duration::from_millis(30));
    pair.tick();
    let id = farcall_proto::client::CallId { activity: key.activity, sequence: key.sequence };
    let asks = pair.sent();
    pair.receive(&asks);
    let running = pair.answered();
    assert!(!running.is_empty());
    pair.client.cancel(pair.now, id);
    pair.sent();
    if late_answer {
        // It answers an earlier question of the client, who takes it for the answer to the CANCEL.
        pair.hear(&running);
        assert_eq!(pair.told, [(1, Told::Failed(Kind::Cancelled, Ran::Maybe))]);
    }
    while pair.client.progress(id) != farcall_proto::client::CallProgress::Ended {
        pair.now = pair.client.timeout().expect("it reminds the server").max(pair.now);
        pair.tick();
        for sent in pair.sent().into_iter().filter(|sent| !frames_of(sent).contains(&CANCEL)) {
            pair.receive(&[sent]);
            let answers = pair.answered();
            pair.hear(&answers);
        }
    }
    assert_eq!(pair.cancelled, []);
    pair.told.clear();
    (pair, key)
}

/// Seeds 2659 and 4195 of the simulation once failed: a procedure waited for ever for bytes inside such a
/// call.
#[test]
fn a_server_learns_that_a_call_was_given_up_though_each_cancel_was_lost() {
    for late_answer in [false, true] {
        let (mut pair, key) = given_up_unheard(late_answer);
        pass(&mut pair, Duration::from_secs(30));
        assert_eq!((&pair.cancelled[..], &pair.told[..]), (&[key][..], &[][..]));
        assert!(pair.server.is_given_up(key));
        assert_eq!(pair.server.unfinished(), 2);
    }
}

#[test]
fn without_the_question_or_its_answer_a_call_that_was_given_up_runs_for_ever() {
    for rule in Rule::OF_GIVEN_UP {
        MUTANT.set(Mutant::of(*rule));
        let (mut pair, _) = given_up_unheard(false);
        MUTANT.set(Mutant::NONE);
        pass(&mut pair, Duration::from_secs(600));
        assert_eq!(pair.cancelled, [], "{}", rule.name());
    }
}

#[test]
fn a_server_asks_nothing_about_calls_that_their_client_probes() {
    let mut pair = executed();
    pair.start(2, b"long");
    let call = pair.sent();
    pair.receive(&call);
    let said = pass(&mut pair, Duration::from_secs(3600));
    assert!(said.len() > 300 && said.iter().all(|said| !frames_of(said).contains(&WANTED)));
    assert_eq!((&pair.cancelled[..], &pair.told[..]), (&[][..], &[][..]));
}

/// A detached call goes on without its client, so nobody is asked.
#[test]
fn a_server_asks_nothing_about_detached_calls() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"long");
    pair.client.detach(id, false);
    pair.start(2, b"long");
    let calls = pair.sent();
    pair.receive(&calls);
    let peer = join(&mut pair, HARM, 1);
    comes(&mut pair, peer, &[frame_about(CALL, 8, 3, 9, &[0, EXPORT as u32, 1])]);
    let mut said = Vec::new();
    for _ in 0..60 {
        pair.pass(Duration::from_secs(1));
        comes(&mut pair, peer, &[frame_about(common::ACK, 0, 0, 9, &[])]);
        pair.server.handle_timeout(pair.now);
        said.extend(pair.answered());
    }
    // The second call is not detached. Its client says nothing, as the other one says nothing of its call.
    assert!(said.iter().all(|said| !frames_of(said).contains(&WANTED)));
}

#[test]
fn a_client_answers_only_that_it_does_not_wait_and_bounds_its_answers() {
    let mut pair = executed();
    let key = pair.asked[0].0;
    let id = pair.client.id();
    let asked = |activity, sequence| frame_about(WANTED, 0, activity, sequence, &[]);
    let (now, later) = (key.sequence as u32, key.sequence as u32 + 1);
    // Of a call that it waits for, and of one that it has not made, it says nothing.
    pair.hear(&[forged(id, 90, &[asked(key.activity, now), asked(key.activity, later), asked(7, later)])]);
    assert_eq!(pair.sent(), [] as [Datagram; 0]);
    // The first call has ended long ago.
    pair.hear(&[forged(id, 91, &[asked(key.activity, now - 1), asked(key.activity, now - 1)])]);
    let said = pair.sent();
    assert_eq!(said.iter().map(|said| frames_of(said)).collect::<Vec<_>>(), [[CANCEL]]);
    pair.receive(&said);
    assert_eq!((&pair.cancelled[..], &pair.told[..]), (&[][..], &[][..]));
    // Activities that it has never used are no calls of its own.
    pair.hear(&[forged(id, 92, &[asked(7, 1)])]);
    assert_eq!(pair.sent(), [] as [Datagram; 0]);
    let result = pair.finish(key, Finish::Result, b"done");
    pair.hear(&result);
    (2..200).for_each(|token| {
        pair.start(token, b"more");
        pair.settle();
    });
    let many: Vec<_> = (1..200).map(|sequence| asked(key.activity, sequence)).collect();
    pair.hear(&[forged(id, 93, &many)]);
    let said: usize = pair.sent().iter().map(|said| frames_of(said).len()).sum();
    assert!((64..70).contains(&said), "{said} frames");
}

#[test]
fn a_client_tells_how_long_it_may_be_silent_and_the_server_waits_so_long() {
    let seconds = Duration::from_secs;
    for (asks, least, given_up) in [(60, 3600, 60), (60, 20, 20), (5, 3600, 12)] {
        let client = ClientConfig { server_patience: Some(seconds(asks)), ..ClientConfig::default() };
        let server = ServerConfig { max_silence: seconds(least), ..ServerConfig::default() };
        let mut pair = Pair::acquainted_with(client, server);
        pair.start(1, b"long");
        let call = pair.sent();
        pair.receive(&call);
        let begun = pair.now;
        assert_eq!(server_alone(&mut pair, begun + seconds(given_up)), []);
        assert_eq!(server_alone(&mut pair, begun + seconds(given_up) + Duration::from_millis(300)).len(), 1);
    }
}

#[test]
fn a_server_bounds_the_silence_that_follows_from_a_patience_too() {
    let client = ClientConfig { patience: Duration::from_secs(1 << 40), ..ClientConfig::default() };
    let server = ServerConfig { max_silence: Duration::from_secs(100), ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client, server);
    pair.start(1, b"long");
    let call = pair.sent();
    pair.receive(&call);
    let begun = pair.now;
    assert_eq!(server_alone(&mut pair, begun + Duration::from_secs(101)).len(), 1);
}

/// A debugger stops a process, and so does SIGSTOP.
#[test]
fn a_caller_that_is_stopped_for_twenty_seconds_keeps_its_call_of_thirty() {
    let seconds = Duration::from_secs;
    for (server_patience, rule, keeps) in [
        (Some(seconds(600)), None, true),
        (None, None, false),
        (Some(seconds(600)), Some(Rule::SilenceUnheeded), false),
    ] {
        let mutant = rule.map_or(Mutant::NONE, Mutant::of);
        let client = ClientConfig { server_patience, mutant, ..ClientConfig::default() };
        let server = ServerConfig { mutant, ..ServerConfig::default() };
        let mut pair = Pair::acquainted_with(client, server);
        pair.start(1, b"long");
        let call = pair.sent();
        pair.receive(&call);
        let (key, _) = pair.asked.pop().expect("the call");
        pass(&mut pair, seconds(5));
        let stopped = pair.now;
        let given_up = server_alone(&mut pair, stopped + seconds(20));
        assert_eq!(given_up.is_empty(), keeps);
        // What is under way to a process when it goes on is handled before its timers.
        let waits = pair.answered();
        pair.hear(&waits);
        pass(&mut pair, seconds(5));
        let result = pair.finish(key, Finish::Result, b"at last.");
        pair.hear(&result);
        let kept = (1, Told::Result(b"at last.".to_vec()));
        assert_eq!(pair.told.contains(&kept), keeps, "{:?}", pair.told);
    }
}

/// The server looks at a part of its calls at a time. If there are many calls, it looks more often.
#[test]
fn the_call_of_a_silent_client_is_given_up_in_time_among_thousands_of_calls() {
    let mut pair = executed();
    let (key, begun) = (pair.asked.remove(0).0, pair.now);
    let peer = join(&mut pair, HARM, 1);
    for from in (0..12_000).step_by(2000) {
        let call = |n| frame_about(CALL, 0, n, 9, &[0, EXPORT as u32, 1]);
        let calls: Vec<_> = (from..from + 2000).map(call).collect();
        comes(&mut pair, peer, &calls);
        for (key, _) in std::mem::take(&mut pair.asked) {
            pair.finish(key, Finish::Result, b"held");
        }
    }
    assert_eq!(pair.server.timeout(), Some(begun + Duration::from_secs(12)));
    assert_eq!(server_alone(&mut pair, begun + SILENCE + Duration::from_secs(3)), [key]);
}

/// The server knows to an eighth of a second when it last heard a client. So the end of a client's patience
/// may seem near several times in a row. In this test it seems to be 2 ms away.
#[test]
fn the_server_looks_for_silent_clients_at_most_every_five_milliseconds() {
    let client = ClientConfig { patience: Duration::from_nanos(1_120_147_735), ..ClientConfig::default() };
    let server = ServerConfig { hold: Duration::from_millis(1250), ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(client, server);
    pair.start(1, b"long");
    let call = pair.sent();
    pair.receive(&call);
    let mut looks = Vec::new();
    while pair.server.next_forsaken().is_none() {
        pair.now = pair.server.timeout().expect("the server has a timer while it executes a call");
        looks.push(pair.now);
        pair.server.handle_timeout(pair.now);
    }
    assert!(looks.len() > 2, "{looks:?}");
    assert!(looks.windows(2).all(|two| two[1].since(two[0]) >= Duration::from_millis(5)), "{looks:?}");
}

/// A look at a part of many calls finds the call of a silent client only by chance. So such clients do not
/// make the server look sooner.
#[test]
fn silent_clients_among_thousands_of_calls_do_not_make_the_server_look_more_often() {
    let mut pair = Pair::acquainted();
    let peers: Vec<_> = (1..=64).map(|port| join(&mut pair, HARM, port)).collect();
    let begun = pair.now;
    for peer in peers {
        let call = |n| frame_about(CALL, 0, n, 9, &[0, EXPORT as u32, 1]);
        comes(&mut pair, peer, &(0..128).map(call).collect::<Vec<_>>());
        pair.now = pair.now + Duration::from_millis(37);
    }
    let (mut looks, mut given_up) = (0, 0);
    while let Some(due) = pair.server.timeout().filter(|due| *due <= begun + Duration::from_secs(18)) {
        pair.now = pair.now.max(due);
        pair.server.handle_timeout(pair.now);
        looks += 1;
        given_up += forsaken(&mut pair).len();
    }
    assert_eq!(given_up, 64 * 128);
    // The server looks at half of the calls at a time, and at all of them in two seconds.
    assert!(looks <= 8, "{looks} looks");
}

#[test]
fn only_a_probe_of_the_call_itself_detaches_it() {
    // The first probe is of an older call, the second of another exchange. A duplicate of the call follows.
    for word in [frame_about(PROBE, 1, 3, 8, &[]), common::frame(PROBE, 1, &[3, 1, 0, 9])] {
        let mut pair = Pair::acquainted();
        let peer = join(&mut pair, HARM, 1);
        let call = frame_about(CALL, 0, 3, 9, &[0, EXPORT as u32, 1]);
        for said in [call.clone(), word, call] {
            comes(&mut pair, peer, &[said]);
        }
        let key = pair.asked.remove(0).0;
        let end = pair.now + SILENCE;
        assert_eq!(server_alone(&mut pair, end), [key]);
    }
}

#[test]
fn a_detached_call_with_a_long_result_stays_detached_when_its_call_is_sent_again() {
    let mut pair = Pair::acquainted();
    let id = pair.start(1, b"long");
    pair.client.detach(id, false);
    let call = pair.sent();
    pair.receive(&call);
    let key = pair.asked.remove(0).0;
    assert!(pair.server.may_execute(key, 50_000));
    pair.receive(&call);
    let end = pair.now + 2 * SILENCE;
    assert_eq!(server_alone(&mut pair, end), []);
}

/// A call on the fast path once did not tell the client's patience, so the server had the usual patience.
#[test]
fn a_call_of_a_client_with_its_own_patience_does_not_take_the_fast_path() {
    let (usual, minute) = (ClientConfig::default().patience, Duration::from_secs(60));
    for (patience, server_patience, is_brief) in [
        (usual, None, true),
        (Duration::from_secs(1), None, false),
        (usual, Some(minute), false),
        (usual, Some(Duration::from_secs(1)), true),
    ] {
        let client = ClientConfig { patience, server_patience, ..ClientConfig::default() };
        let mut pair = Pair::acquainted_with(client, ServerConfig::default());
        let brief = pair.client.start_lone((common::EXPORT, 1), b"long", &mut [0; 2048]);
        assert_eq!(brief.is_some(), is_brief);
    }
}

#[test]
fn a_stopped_server_reads_waiting_datagrams_before_it_gives_up_calls() {
    let mut pair = executed();
    // The server was stopped for an hour, and its clients' datagrams are in its socket.
    pair.pass(Duration::from_secs(3600));
    pair.server.handle_timeout(pair.now);
    assert_eq!(forsaken(&mut pair), []);
    let end = pair.now + SILENCE;
    assert_eq!(server_alone(&mut pair, end).len(), 1);
}

/// The datagram that moves a conversation to another address once did not count as received from its client.
#[test]
fn the_datagram_that_moves_a_conversation_counts_as_received() {
    let mut pair = executed();
    pair.asked.clear();
    let moves = pair.now + Duration::from_secs(7);
    assert_eq!(server_alone(&mut pair, moves), []);
    pair.from.set_port(4_567);
    pair.tick();
    // The client's datagram from the new address is challenged. The client renews its ticket there, and sends
    // the datagram again with it.
    for _ in 0..3 {
        let said = pair.sent().swap_remove(0);
        pair.receive(&[said]);
        let answers = pair.answered();
        pair.hear(&answers);
    }
    assert_eq!(pair.told, []);
    assert_eq!(server_alone(&mut pair, moves + Duration::from_secs(12)), []);
    assert_eq!(server_alone(&mut pair, moves + SILENCE).len(), 1);
}

#[test]
fn a_short_call_needs_no_additional_datagram() {
    let mut pair = executed();
    let key = pair.asked[0].0;
    pair.pass(Duration::from_millis(15));
    pair.tick();
    assert_eq!(pair.sent().len(), 0);
    let result = pair.finish(key, Finish::Result, b"done");
    pair.hear(&result);
    assert_eq!((pair.told.len(), pair.client.timeout()), (1, None));
}
