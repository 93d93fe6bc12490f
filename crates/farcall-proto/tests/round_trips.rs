//! Packet traces of paths that are long, or become longer while long messages pass: both ends learn it, and
//! do not send again what is only under way.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{Datagram, Pair, To, Told, note};
use farcall_proto::client::CallId;
use farcall_proto::server::{CallKey, Finish};
use farcall_proto::{ClientConfig, Mutant, Rule, ServerConfig, Tail, Time};

/// The round trip that the path has at first, and the one that it has later.
const NEAR: Duration = Duration::from_micros(100);
const FAR: Duration = Duration::from_millis(400);

/// The bytes of a long message, and the fragments that it takes.
const LONG: usize = 100_000;
const FRAGMENTS: u64 = 90;

/// A pair of ends, and the datagrams under way between them.
struct Path {
    pair: Pair,
    under_way: VecDeque<(Time, To, Datagram)>,
    round_trip: Duration,
}

impl Path {
    /// Returns a path of small datagrams that was near for ten calls, and is far now.
    fn that_became_longer() -> Path {
        let client = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
        let pair = Pair::acquainted_with(client, ServerConfig::default());
        let mut path = Path { pair, under_way: VecDeque::new(), round_trip: NEAR };
        (1..=10).for_each(|token| path.call(token, b"near", 8));
        path.round_trip = FAR;
        path
    }

    /// Returns a path of small datagrams that takes this long both ways together. The client has bound.
    fn new(round_trip: Duration) -> Path {
        Path::that_loses(round_trip, 0)
    }

    /// Returns such a path that lost this many datagrams at first.
    fn that_loses(round_trip: Duration, first: usize) -> Path {
        let client = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
        let pair = Pair::with(client, ServerConfig::default());
        let mut path = Path { pair, under_way: VecDeque::new(), round_trip };
        path.pair.client.bind(path.pair.now, "Store/one", 9);
        for _ in 0..first {
            assert_eq!(path.pair.sent().len(), 1);
            path.step();
        }
        while path.pair.told.is_empty() {
            path.send();
            path.step();
        }
        path.pair.told.clear();
        path
    }

    /// Sends everything that is ready.
    fn send(&mut self) {
        let arrives = self.pair.now + self.round_trip / 2;
        let sent = self.pair.sent().into_iter().map(|datagram| (arrives, To::Server, datagram));
        self.under_way.extend(sent.collect::<Vec<_>>());
        let sent = self.pair.answered().into_iter().map(|datagram| (arrives, To::Client, datagram));
        self.under_way.extend(sent);
    }

    /// Goes on to the next arrival or timer.
    fn step(&mut self) {
        let Path { pair, under_way, .. } = self;
        let arrives = under_way.front().map(|(arrives, ..)| *arrives);
        let timers = [pair.client.timeout(), pair.server.timeout()];
        let next = timers.into_iter().flatten().chain(arrives).min().expect("something happens");
        pair.now = pair.now.max(next);
        while under_way.front().is_some_and(|(arrives, ..)| *arrives <= pair.now) {
            let Some((_, to, datagram)) = under_way.pop_front() else { break };
            match to {
                To::Server => pair.receive(&[datagram]),
                To::Client => pair.hear(&[datagram]),
            }
        }
        pair.tick();
    }

    /// Makes a call whose result has this length.
    fn call(&mut self, token: u64, args: &[u8], len: usize) {
        self.pair.start(token, args);
        while self.pair.told.is_empty() {
            self.send();
            self.step();
            for (key, _) in std::mem::take(&mut self.pair.asked) {
                let arrives = self.pair.now + self.round_trip / 2;
                let answers = self.pair.finish(key, Finish::Result, &vec![7; len]);
                self.under_way.extend(answers.into_iter().map(|datagram| (arrives, To::Client, datagram)));
            }
        }
        self.send();
        assert_eq!(self.pair.told.pop(), Some((token, Told::Result(vec![7; len]))));
    }

    /// Makes a call with a long result, which is lost at first. Loses all that is under way three times, each
    /// time after something of the result has come. Returns how long the client waits each time before it
    /// asks for the rest.
    fn waits(&mut self) -> Vec<Duration> {
        self.pair.start(1, b"fetch...");
        drop(self.pair.sent());
        let (mut waits, mut lost) = (Vec::new(), None);
        while self.pair.told.is_empty() {
            let asked = self.under_way.len();
            self.send();
            if let (Some(since), true) = (lost, self.under_way.len() > asked) {
                waits.push(self.pair.now.since(since));
                lost = None;
            }
            self.step();
            for (key, _) in std::mem::take(&mut self.pair.asked) {
                let arrives = self.pair.now + self.round_trip / 2;
                let answers = self.pair.finish(key, Finish::Result, &[7; LONG]);
                self.under_way.extend(answers.into_iter().map(|datagram| (arrives, To::Client, datagram)));
            }
            let come = self.pair.client.stats().received;
            if waits.len() < 3 && lost.is_none() && come > 10 * (waits.len() as u64 + 1) {
                drop((self.pair.sent(), self.pair.answered(), self.under_way.drain(..)));
                lost = Some(self.pair.now);
            }
        }
        waits
    }

    /// Makes a call inside which the server sends a long stream.
    fn stream(&mut self, token: u64) {
        let id = self.pair.start(token, b"stream..");
        let (mut key, mut left, mut taken) = (None, LONG, 0);
        while self.pair.told.is_empty() {
            self.send();
            self.step();
            if let Some((asked, _)) = self.pair.asked.pop() {
                key = Some(asked);
                self.pair.server.open_exchange(asked);
            }
            if let Some(key) = key {
                self.produce(key, &mut left);
            }
            taken += self.consume(id);
        }
        self.send();
        assert_eq!((taken, self.pair.told.pop()), (LONG, Some((token, Told::Result(b"done".to_vec())))));
    }

    fn produce(&mut self, key: CallKey, left: &mut usize) {
        while self.pair.server.next_news().is_some() {}
        if *left == 0 {
            return;
        }
        let sent = self.pair.server.send_in(key, 2, &vec![7; *left], Tail::End);
        *left -= sent.expect("the stream is open");
        if *left == 0 {
            self.pair.finish(key, Finish::Result, b"done").into_iter().for_each(|datagram| {
                self.under_way.push_back((self.pair.now + self.round_trip / 2, To::Client, datagram));
            });
        }
    }

    fn consume(&mut self, id: CallId) -> usize {
        while self.pair.client.next_news().is_some() {}
        let (mut into, told) = (Vec::new(), &mut self.pair.told);
        self.pair.client.take_from(id, 2, &mut into, usize::MAX, &mut |event| told.push(note(event)));
        into.len()
    }

    /// Returns how many fragments the server has sent again since the last look.
    fn again(&self, before: &mut u64) -> u64 {
        let again = self.pair.server.stats().retransmitted;
        again - std::mem::replace(before, again)
    }
}

/// Returns how many fragments were sent again in each of a few calls with long results, on a path that became
/// longer before, and how often the client asked for a result.
fn again_by_results() -> (Vec<u64>, Vec<u64>) {
    let (mut path, mut before) = (Path::that_became_longer(), 0);
    path.again(&mut before);
    let results = (20..26).map(|token| {
        let asked = path.pair.client.stats().retransmitted;
        path.call(token, b"fetch...", LONG);
        let asked = path.pair.client.stats().retransmitted - asked;
        // The server counts each question that it answers.
        (path.again(&mut before).saturating_sub(asked), asked)
    });
    results.unzip()
}

#[test]
fn long_results_teach_both_ends_a_longer_round_trip() {
    let (again, asked) = again_by_results();
    assert!(again[0] < FRAGMENTS, "{again:?}");
    assert!(again[1..].iter().all(|again| *again == 0), "{again:?}");
    // A result takes five round trips, and the client waits for each part.
    assert!(asked.iter().all(|asked| *asked < 5), "{asked:?}");
}

#[test]
fn without_the_rules_of_late_and_second_fragments_many_more_are_sent_again() {
    let (with, _) = again_by_results();
    for rule in Rule::OF_ROUND_TRIPS {
        common::MUTANT.set(Mutant::of(*rule));
        let (again, _) = again_by_results();
        common::MUTANT.set(Mutant::NONE);
        let (again, with): (u64, u64) = (again.iter().sum(), with.iter().sum());
        assert!(again > with, "{}: {again}, not {with}", rule.name());
    }
}

/// If a question was sent again, its answer does not measure a round trip, because it is not known which of
/// the datagrams it answers. The same holds for a call. Then only a bound is known.
#[test]
fn a_client_that_had_to_bind_again_learns_from_a_long_result_how_short_the_round_trip_is() {
    let waits = Path::that_loses(NEAR, 4).waits();
    assert_eq!(waits.len(), 3);
    assert!(waits[0] > Duration::from_millis(100), "nothing but the bound is known: {waits:?}");
    assert!(waits[1..].iter().all(|wait| *wait <= Duration::from_millis(25)), "{waits:?}");
    for rule in Rule::OF_BOUNDS {
        common::MUTANT.set(Mutant::of(*rule));
        let waits = Path::that_loses(NEAR, 4).waits();
        common::MUTANT.set(Mutant::NONE);
        assert!(waits[1..].iter().all(|wait| *wait > Duration::from_millis(100)), "{rule:?}: {waits:?}");
    }
}

#[test]
fn long_arguments_teach_a_client_a_longer_round_trip() {
    let mut path = Path::that_became_longer();
    let mut before = path.pair.client.stats().retransmitted;
    let mut again = Vec::new();
    for token in 20..23 {
        path.call(token, &[1; LONG], 8);
        let sent = path.pair.client.stats().retransmitted;
        again.push(sent - std::mem::replace(&mut before, sent));
    }
    assert!(again[0] < FRAGMENTS && again[1..].iter().all(|again| *again < 12), "{again:?}");
}

#[test]
fn a_stream_teaches_a_server_a_longer_round_trip() {
    let (mut path, mut before) = (Path::that_became_longer(), 0);
    path.again(&mut before);
    let again: Vec<u64> = (20..24)
        .map(|token| {
            path.stream(token);
            path.again(&mut before)
        })
        .collect();
    assert!(again[0] < FRAGMENTS, "{again:?}");
    assert!(again[1..].iter().all(|again| *again < 12), "{again:?}");
}

/// Returns how often the two ends have sent something again, except binds.
fn repeated(path: &Path, binds: u64) -> u64 {
    path.pair.server.stats().retransmitted + path.pair.client.stats().retransmitted - binds
}

#[test]
fn nothing_but_a_bind_is_sent_twice_over_a_path_that_was_long_from_the_beginning() {
    for millis in [21, 80, 400] {
        let round_trip = Duration::from_millis(millis);
        for kind in ["short call", "result", "arguments", "stream"] {
            let mut path = Path::new(round_trip);
            let binds = path.pair.client.stats().retransmitted;
            assert!(
                binds > 0 || millis < 80,
                "a bind is short, so it is repeated before a round trip is known"
            );
            match kind {
                "short call" => path.call(1, b"far away", 8),
                "result" => path.call(1, b"fetch...", LONG),
                "arguments" => path.call(1, &[1; LONG], 8),
                _ => path.stream(1),
            }
            assert_eq!(repeated(&path, binds), 0, "{kind} in round trips of {millis} ms");
        }
    }
}

#[test]
fn a_long_result_is_not_sent_twice_although_its_conversation_was_idle_for_long() {
    let mut path = Path::new(FAR);
    path.pair.pass(Duration::from_secs(3_600));
    let binds = path.pair.client.stats().retransmitted;
    path.call(1, b"fetch...", LONG);
    assert_eq!(repeated(&path, binds), 0);
}

#[test]
fn a_lost_call_over_a_near_path_is_sent_again_within_25_milliseconds() {
    let mut path = Path::new(NEAR);
    for token in 1..10 {
        path.pair.start(token, b"lost");
        let lost = (path.pair.now, path.pair.sent());
        assert_eq!(lost.1.len(), 1);
        let mut again = Vec::new();
        while again.is_empty() {
            let due = path.pair.client.timeout().expect("a call is outstanding");
            path.pair.now = path.pair.now.max(due);
            path.pair.tick();
            again = path.pair.sent();
        }
        let later = path.pair.now.since(lost.0);
        assert!(later <= Duration::from_millis(25), "{later:?}");
        let arrives = path.pair.now + NEAR / 2;
        path.under_way.extend(again.into_iter().map(|datagram| (arrives, To::Server, datagram)));
        while path.pair.told.is_empty() {
            path.step();
            for (key, _) in std::mem::take(&mut path.pair.asked) {
                let arrives = path.pair.now + NEAR / 2;
                let answers = path.pair.finish(key, Finish::Result, b"done");
                path.under_way.extend(answers.into_iter().map(|datagram| (arrives, To::Client, datagram)));
            }
        }
        path.pair.told.clear();
    }
}
