//! Calls and results that are too long to share small datagrams make a conversation try larger ones.

mod common;

use std::time::Duration;

use common::{Datagram, Pair};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, ServerConfig};

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
