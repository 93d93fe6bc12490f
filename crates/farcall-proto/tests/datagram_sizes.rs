//! Calls and results that are too long to share small datagrams make a conversation try larger ones.

mod common;

use std::time::Duration;

use common::{Datagram, Pair, Told};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Kind, Ran, ServerConfig, Tail};

/// The largest datagram that a conversation tries.
const LARGEST: usize = 64_000;

/// Keeps calls outstanding as a driver does: a call that may wait is queued, and what is queued is sent
/// before the next result is received.
struct Window {
    pair: Pair,
    result: usize,
    started: u64,
    /// The datagrams of either end that have been exchanged.
    datagrams: usize,
}

impl Window {
    fn new(mut pair: Pair, arguments: usize, result: usize, outstanding: u64) -> Window {
        pair.answer = Some(vec![7; result]);
        let mut window = Window { pair, result, started: 0, datagrams: 0 };
        window.start(arguments, outstanding);
        window
    }

    fn start(&mut self, arguments: usize, calls: u64) {
        for _ in 0..calls {
            self.started += 1;
            let id = self.pair.start(self.started, &vec![7; arguments]);
            if !self.pair.may_wait(id, false) {
                self.send();
            }
        }
    }

    fn send(&mut self) {
        let sent = self.pair.sent();
        self.datagrams += sent.len();
        self.pair.receive(&sent);
    }

    /// Ends all outstanding calls, starting another for each until this number were started.
    fn run(&mut self, arguments: usize, calls: u64) {
        let mut ended = 0;
        while ended < calls {
            self.send();
            let mut answers = self.pair.answered();
            // Calls of one datagram are answered together.
            for (key, _) in std::mem::take(&mut self.pair.asked) {
                let now = self.pair.now;
                let mut payload = vec![7; self.result];
                assert!(self.pair.server.finish(now, key, Finish::Result, &mut payload, &mut []).is_none());
            }
            answers.extend(self.pair.answered());
            assert!(!answers.is_empty(), "{ended} of {calls} calls have ended");
            self.datagrams += answers.len();
            self.hear(&answers, arguments, calls, &mut ended);
        }
    }

    fn hear(&mut self, answers: &[Datagram], arguments: usize, calls: u64, ended: &mut u64) {
        for answer in answers {
            self.pair.pass(Duration::from_micros(10));
            self.pair.hear(std::slice::from_ref(answer));
            let came = std::mem::take(&mut self.pair.told).len() as u64;
            *ended += came;
            self.start(arguments, came.min(calls - self.started));
        }
    }
}

#[test]
fn started_calls_of_every_length_come_to_share_datagrams() {
    for bytes in [32, 200, 400, 600, 1000, 1080, 1100, 4000] {
        let mut window = Window::new(Pair::acquainted(), bytes, bytes, 64);
        window.run(bytes, 1000);
        assert_eq!(window.pair.client.stats().datagram, LARGEST, "calls of {bytes} bytes");
        let datagrams = window.datagrams;
        assert!(datagrams < 1000, "1,000 calls of {bytes} bytes took {datagrams} datagrams, both ways");
    }
}

#[test]
fn results_of_every_length_come_to_share_datagrams() {
    for bytes in [400, 600, 1000, 1080] {
        let mut window = Window::new(Pair::acquainted(), 8, bytes, 16);
        window.run(8, 400);
        assert_eq!(window.pair.client.stats().datagram, LARGEST, "results of {bytes} bytes");
        let datagrams = window.datagrams;
        assert!(datagrams < 400, "400 results of {bytes} bytes took {datagrams} datagrams, both ways");
    }
}

#[test]
fn calls_one_after_another_leave_datagrams_small() {
    let mut pair = Pair::acquainted();
    for token in 0..100 {
        pair.start(token, &[7; 1000]);
        assert_eq!(pair.settle(), 2, "no larger datagram is tried");
    }
    assert_eq!(pair.client.stats().datagram, 1200);
}

#[test]
fn on_loopback_one_probe_raises_the_datagrams_of_started_calls() {
    let client = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut window = Window::new(Pair::acquainted_with(client, ServerConfig::default()), 1000, 1000, 64);
    window.run(1000, 200);
    let stats = window.pair.client.stats();
    assert_eq!((stats.datagram, stats.probes), (LARGEST, 1));
}

/// Passes time for two seconds more than the client's patience, on a path that lets pass what `passes`.
/// Returns how long it took until a call had ended.
fn run_narrow(pair: &mut Pair, passes: impl Fn(&Datagram) -> bool) -> Option<Duration> {
    const STEP: Duration = Duration::from_millis(1);
    let begun = pair.now;
    let end = begun + ClientConfig::default().patience + Duration::from_secs(2);
    while pair.now < end && pair.told.is_empty() {
        pair.pass(STEP);
        pair.tick();
        let sent: Vec<_> = pair.sent().into_iter().filter(&passes).collect();
        pair.receive(&sent);
        let answers: Vec<_> = pair.answered().into_iter().filter(&passes).collect();
        pair.hear(&answers);
    }
    (!pair.told.is_empty()).then(|| pair.now.since(begun))
}

/// The server answers every question, but the path has become narrower than any datagram of a long call.
#[test]
fn a_call_of_which_nothing_arrives_any_more_fails_although_the_server_answers() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 5_000]);
    let ended = run_narrow(&mut pair, |datagram| datagram.len() <= 1_072);
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
    assert!(ended >= Some(ClientConfig::default().patience), "{ended:?}");
    pair.told.clear();
    pair.start(2, &[7; 500]);
    pair.settle();
    assert!(matches!(pair.told[..], [(2, Told::Result(_))]), "a short call passes: {:?}", pair.told);
}

/// Some fragments have arrived when the path becomes narrower.
#[test]
fn a_call_of_which_a_part_arrived_before_fails_too() {
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 50_000]);
    let sent = pair.sent();
    assert!(sent.len() > 2);
    pair.receive(&sent[..2]);
    let answers = pair.answered();
    pair.hear(&answers);
    assert!(run_narrow(&mut pair, |datagram| datagram.len() <= 1_072).is_some());
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
}

/// The call and the questions about it pass, but no fragment of its result does.
#[test]
fn a_call_fails_of_whose_result_nothing_arrives_although_the_server_answers() {
    for arrived in [0, 1] {
        let (mut pair, _, key) = Pair::executing(&[7; 8]);
        let sent = pair.finish(key, Finish::Result, &[7; 5_000]);
        pair.hear(&sent[..arrived]);
        let ended = run_narrow(&mut pair, |datagram| datagram.len() <= 1_072);
        let [(1, Told::Failed(Kind::Unreachable, ran))] = pair.told[..] else { panic!("{:?}", pair.told) };
        assert_eq!(ran, Ran::Maybe);
        assert!(ended >= Some(ClientConfig::default().patience), "{ended:?}");
    }
}

/// The ends of a call speak to each other, but none of the items that the client sends arrives.
#[test]
fn a_call_fails_of_whose_argument_stream_nothing_arrives_although_the_server_answers() {
    let (mut pair, id, _) = Pair::executing(&[7; 8]);
    assert_eq!(pair.client.open_exchange(id), Some(1));
    assert_eq!(pair.client.send_in(id, 1, &[7; 5_000], Tail::More), Some(5_000));
    // What the server says counts as long as the first tries may have been lost.
    (0..2).find_map(|_| run_narrow(&mut pair, |datagram| datagram.len() <= 1_072));
    assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
}

/// The ends of a call speak to each other, but none of the items that the server sends arrives.
#[test]
fn a_call_is_given_up_of_whose_result_stream_nothing_arrives_although_the_client_speaks() {
    let (mut pair, _, key) = Pair::executing(&[7; 8]);
    assert_eq!(pair.server.open_exchange(key), Some(2));
    assert_eq!(pair.server.send_in(key, 2, &[7; 5_000], Tail::More), Some(5_000));
    let forsaken = (0..4).find_map(|_| {
        run_narrow(&mut pair, |datagram| datagram.len() <= 1_072);
        pair.server.next_forsaken()
    });
    assert_eq!(forsaken, Some(key), "{:?}", pair.told);
    assert_eq!(pair.server.kept_for(pair.from.ip()).exchanges, 0);
}

/// The result comes, but not the items before it.
#[test]
fn a_call_fails_whose_result_waits_for_items_that_never_arrive() {
    let (mut pair, _, key) = Pair::executing(&[7; 8]);
    assert_eq!(pair.server.open_exchange(key), Some(2));
    assert_eq!(pair.server.send_in(key, 2, &[7; 5_000], Tail::End), Some(5_000));
    let narrow = |datagram: &Datagram| datagram.len() <= 1_072;
    let sent = pair.finish(key, Finish::Result, &[7; 8]);
    pair.hear(&sent.into_iter().filter(narrow).collect::<Vec<_>>());
    (0..6).find_map(|_| run_narrow(&mut pair, narrow));
    assert_eq!(pair.told, [(1, Told::Failed(Kind::ResultLost, Ran::Yes))]);
}

/// The path lets nothing pass for about as long as a call waits for a silent server, and then everything. The
/// server is heard again before that time is over, and what it says first is not about the items.
#[test]
fn a_call_whose_path_is_whole_again_does_not_fail() {
    for cut in (8_500..9_900).step_by(50) {
        let (mut pair, id, _) = Pair::executing(&[7; 8]);
        assert_eq!(pair.client.open_exchange(id), Some(1));
        assert_eq!(pair.client.send_in(id, 1, &[7; 5_000], Tail::More), Some(5_000));
        let (begun, whole) = (pair.now, Duration::from_millis(cut));
        while pair.now.since(begun) < whole + Duration::from_secs(5) {
            let is_whole = pair.now.since(begun) >= whole;
            pair.pass(Duration::from_millis(1));
            pair.tick();
            let sent = pair.sent();
            pair.receive(if is_whole { &sent } else { &[] });
            let answers = pair.answered();
            pair.hear(if is_whole { &answers } else { &[] });
        }
        assert_eq!(pair.told, [], "cut for {cut} ms");
    }
}

/// The client is silent for less time than a result is kept, while the end of a stream is under way.
#[test]
fn what_is_sent_to_a_silent_client_is_kept() {
    let (mut pair, _, key) = Pair::executing(&[7; 8]);
    assert_eq!(pair.server.open_exchange(key), Some(2));
    assert_eq!(pair.server.send_in(key, 2, &[7; 5_000], Tail::End), Some(5_000));
    pair.finish(key, Finish::Result, &[7; 8]);
    for _ in 0..25 * 20 {
        pair.pass(Duration::from_millis(50));
        let now = pair.now;
        pair.server.handle_timeout(now);
        pair.answered();
    }
    assert!(pair.server.kept_for(pair.from.ip()).exchanges > 0);
}

/// The server has no memory for what a slow reader does not take.
#[test]
fn a_call_does_not_fail_because_its_server_is_short_of_memory() {
    let server = ServerConfig { held_budget: 200_000, ..ServerConfig::default() };
    let mut pair = Pair::acquainted_with(ClientConfig::default(), server);
    let id = pair.start(1, &[7; 8]);
    let sent = pair.sent();
    pair.receive(&sent);
    let (key, _) = pair.asked.pop().unwrap();
    for _ in 0..30 {
        let exchange = pair.client.open_exchange(id).unwrap();
        pair.client.send_in(id, exchange, &[7; 8_000], Tail::More);
        pair.settle();
    }
    pair.client.send_in(id, 1, &[7; 4_000], Tail::More);
    for _ in 0..2 {
        assert_eq!(run_narrow(&mut pair, |_| true), None, "{:?}", pair.told);
    }
    let mut taken = Vec::new();
    for _ in 0..2 {
        for exchange in (1..60).step_by(2) {
            pair.server.take_from(key, exchange, &mut taken, usize::MAX);
        }
        assert_eq!(run_narrow(&mut pair, |_| true), None, "{:?}", pair.told);
    }
    assert_eq!(taken.len(), 30 * 8_000 + 4_000);
}

/// A path that loses nearly everything is no narrow one.
#[test]
fn a_call_whose_fragments_arrive_rarely_does_not_fail() {
    const ONE_IN: u32 = 20;
    let mut pair = Pair::acquainted();
    pair.start(1, &[7; 20_000]);
    let count = std::cell::Cell::new(0);
    let passes = |datagram: &Datagram| {
        count.set(count.get() + u32::from(datagram.len() > 1_072));
        datagram.len() <= 1_072 || count.get().is_multiple_of(ONE_IN)
    };
    while pair.asked.is_empty() {
        assert_eq!(run_narrow(&mut pair, passes), None, "{:?}", pair.told);
    }
}
