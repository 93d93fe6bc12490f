//! Attacks by what passes inside calls: a peer that keeps to no rule of exchanges harms no other caller. It
//! makes the server hold no more than the credit that the server gave.
//!
//! In each attack the server executes a call of the peer. Meanwhile it executes a call of an honest client at
//! another address, and that call must go on.

mod common;

use std::time::Duration;

use common::{FIRST_CREDIT, HARM, Pair, Peer, Told, comes, fragment, frame, frames_of, join};
use farcall_proto::client::CallId;
use farcall_proto::fuzzing::kinds::{CREDIT, DATA, RESULT, STATE, STOP};
use farcall_proto::server::{CallKey, Finish};
use farcall_proto::{ClientConfig, News, ServerConfig, Tail};

/// The peer's call.
const SEQUENCE: u32 = 50;

/// Flags of a DATA.
const LAST: u8 = 1;
const HAS_ALL: u8 = 2;
const ASKS: u8 = 4;

/// The server, an honest client with a call that is executed, and the peer with another one.
struct Scene {
    pair: Pair,
    honest: (CallId, CallKey),
    peer: Peer,
    harm: CallKey,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(ServerConfig::default())
    }

    fn with(config: ServerConfig) -> Scene {
        let mut pair = Pair::acquainted_with(ClientConfig::default(), config);
        let id = pair.start(1, b"argument");
        let call = pair.sent();
        pair.receive(&call);
        let key = pair.asked.pop().expect("the honest call is executed").0;
        let peer = join(&mut pair, HARM, 1);
        comes(&mut pair, peer, &[fragment(0, SEQUENCE, 8, 0, 8)]);
        let harm = pair.asked.pop().expect("the peer's call is executed").0;
        Scene { pair, honest: (id, key), peer, harm }
    }

    /// A frame of the peer reaches the server. Returns the frames of each datagram that answers.
    fn comes(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        comes(&mut self.pair, self.peer, &[frame]);
        self.pair.server.audit();
        self.pair.answered().iter().map(|datagram| frames_of(datagram)).collect()
    }

    /// Bytes that the peer's exchanges hold at the server.
    fn held(&self) -> usize {
        self.pair.server.kept_for(HARM.into()).exchanges
    }

    /// What the server's user can take of the peer in an exchange, and whether that is all.
    fn takes(&mut self, exchange: u32) -> Option<(Vec<u8>, bool)> {
        let mut into = Vec::new();
        let all = self.pair.server.take_from(self.harm, exchange, &mut into, usize::MAX)?;
        Some((into, all))
    }

    /// The news of the peer's call that the server's user is told.
    fn news(&mut self) -> Vec<(u32, News)> {
        let harm = self.harm;
        let news = std::iter::from_fn(|| self.pair.server.next_news());
        news.filter(|(key, ..)| *key == harm).map(|(_, exchange, news)| (exchange, news)).collect()
    }

    /// Time passes, in which the honest client goes on and the peer says nothing.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.pair.pass(Duration::from_secs(1));
            self.pair.tick();
            self.carry();
        }
    }

    fn carry(&mut self) {
        loop {
            let (sent, answers) = (self.pair.sent(), self.pair.answered());
            self.pair.receive(&sent);
            self.pair.hear(&answers);
            if sent.is_empty() && answers.is_empty() {
                return;
            }
        }
    }

    /// Checks that the honest client's call still carries a signal, a stream longer than the credit, and the
    /// result.
    fn honest_goes_on(mut self) {
        let (id, key) = self.honest;
        let question = self.pair.server.open_exchange(key).expect("no exchange is open");
        self.pair.server.send_in(key, question, b"question", Tail::Question);
        self.carry();
        let (mut into, mut told) = (Vec::new(), Vec::new());
        let mut note = |event: farcall_proto::client::Event<'_>| told.push(common::note(event));
        let all = self.pair.client.take_from(id, question, &mut into, usize::MAX, &mut note);
        assert_eq!((&into[..], all), (&b"question"[..], Some(true)));
        self.pair.client.send_in(id, question, b"answer..", Tail::Question);
        self.carry();
        let mut answer = Vec::new();
        let all = self.pair.server.take_from(key, question, &mut answer, usize::MAX);
        assert_eq!((&answer[..], all), (&b"answer.."[..], Some(true)));

        let stream = self.pair.client.open_exchange(id).expect("no exchange is open");
        let (mut sent, mut taken) = (0, Vec::new());
        while taken.len() < 40_000 {
            let more = vec![7; 40_000 - sent];
            sent += self.pair.client.send_in(id, stream, &more, Tail::End).unwrap_or(0);
            self.carry();
            self.pair.pass(Duration::from_millis(50));
            self.pair.tick();
            self.pair.server.take_from(key, stream, &mut taken, usize::MAX);
            self.carry();
        }
        let result = self.pair.finish(key, Finish::Result, b"result..");
        self.pair.hear(&result);
        self.carry();
        assert_eq!(self.pair.told, [(1, Told::Result(b"result..".to_vec()))]);
        self.pair.server.audit();
    }
}

/// A DATA of the peer, of this call and exchange.
fn data_of(sequence: u32, exchange: u32, flags: u8, offset: u32, bytes: &[u32]) -> Vec<u8> {
    frame(DATA, flags, &[&[0, exchange, 0, sequence, 0, offset], bytes].concat())
}

/// A DATA of the peer's call.
fn data(exchange: u32, flags: u8, offset: u32, bytes: &[u32]) -> Vec<u8> {
    data_of(SEQUENCE, exchange, flags, offset, bytes)
}

/// A CREDIT of the peer's call: `through`, and `limit`.
fn credit(exchange: u32, through: u32, limit: u32) -> Vec<u8> {
    frame(CREDIT, 0, &[0, exchange, 0, SEQUENCE, 0, through, 0, limit, 0, 0])
}

fn a_peer_that_opens_exchanges_and_never_reads() {
    let mut scene = Scene::new();
    let mut opened = Vec::new();
    while let Some(exchange) = scene.pair.server.open_exchange(scene.harm) {
        let added = scene.pair.server.send_in(scene.harm, exchange, &vec![7; 200_000], Tail::End);
        assert_eq!(added, Some(FIRST_CREDIT as usize), "no more than the credit of a direction");
        opened.push(exchange);
    }
    assert_eq!(opened.len(), 64);
    let held = scene.held();
    assert!(held < 64 * (2 * FIRST_CREDIT as usize + 1_000), "{held} bytes");
    // What the peer does not acknowledge is repeated ever more rarely, and no more than a window of it.
    let mut repeated = 0;
    for _ in 0..9 {
        scene.pair.pass(Duration::from_secs(1));
        scene.pair.tick();
        repeated += scene.pair.answered().iter().map(Vec::len).sum::<usize>();
    }
    assert!(repeated < 10 * 64 * 1_200, "{repeated} bytes in nine seconds");
    scene.carry();
    scene.pass(20);
    assert_eq!(scene.held(), 0, "a peer that says nothing is gone");
    assert_eq!(scene.pair.server.open_exchange(scene.harm), None);
    scene.honest_goes_on();
}

fn a_peer_that_fills_its_exchanges_and_that_nobody_reads() {
    let mut scene = Scene::new();
    // It opens twice as many as it may, and more. Each holds what its credit allows.
    for exchange in (1..=2 * 200).step_by(2) {
        for offset in (0..2 * FIRST_CREDIT).step_by(1_000) {
            for frames in scene.comes(data(exchange, ASKS, offset, &[7; 250])) {
                assert_eq!(frames, [CREDIT], "it hears how far it may go");
            }
        }
    }
    let held = scene.held();
    assert!(held < 128 * (2 * FIRST_CREDIT as usize + 1_000), "{held} bytes");
    assert_eq!(scene.news().len(), 128);
    scene.honest_goes_on();
}

fn a_peer_that_gives_credit_and_takes_it_back() {
    let window = 100_000;
    let mut scene = Scene::with(ServerConfig { window: window as u32, ..ServerConfig::default() });
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("none is open");
    let send = |scene: &mut Scene| {
        scene.pair.server.send_in(scene.harm, exchange, &vec![7; 1 << 20], Tail::End).expect("it is open")
    };
    assert_eq!(send(&mut scene), FIRST_CREDIT as usize);
    scene.comes(credit(exchange, 0, 40_000));
    for less in [20_000, 0, FIRST_CREDIT] {
        scene.comes(credit(exchange, 0, less));
    }
    assert_eq!(send(&mut scene), 40_000 - FIRST_CREDIT as usize, "what was given stays given");
    // Credit without end makes the server keep no more than its own window.
    scene.comes(credit(exchange, 0, u32::MAX));
    let more = send(&mut scene);
    assert!(40_000 + more <= window, "{more} bytes, and the window has {window}");
    for less in (0..200).map(|step| 100_000 - 500 * step) {
        scene.comes(credit(exchange, 4, less));
        send(&mut scene);
        assert!(scene.held() <= 2 * window + 1_000, "{} bytes", scene.held());
    }
    scene.honest_goes_on();
}

/// The peer says that it has more than was sent. If the server was restored from an earlier state, that is
/// true: the peer has what the server sent since.
fn a_peer_that_has_more_than_was_sent() {
    let mut scene = Scene::new();
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("none is open");
    let send = |scene: &mut Scene, tail| {
        scene.pair.server.send_in(scene.harm, exchange, &vec![7; 20_000], tail).expect("it is open")
    };
    assert_eq!(send(&mut scene, Tail::More), FIRST_CREDIT as usize);
    scene.pair.answered();
    scene.comes(credit(exchange, 100_000, 132_000));
    assert_eq!(send(&mut scene, Tail::More), 20_000, "nothing is under way that could hold it up");
    scene.comes(credit(exchange, 100_000, 132_000));
    let held = scene.held();
    assert!(held < 2_000, "{held} bytes, and the peer has them all");
    // The peer learns the end, which is not where it expects one.
    assert_eq!(send(&mut scene, Tail::End), 20_000);
    for _ in 0..3 {
        scene.pair.answered();
        scene.comes(credit(exchange, 100_000, 132_000));
        scene.pair.pass(Duration::from_secs(2));
        scene.pair.tick();
    }
    let ends = |datagram: &Vec<u8>| frames_of(datagram) == [DATA];
    assert!(scene.pair.answered().iter().any(ends), "the end is sent until it has arrived");
    // Nor does it count as arrived if the peer has other bytes just where it is.
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("one is open");
    scene.pair.server.send_in(scene.harm, exchange, &[7; 2_000], Tail::End);
    scene.pair.answered();
    let ahead = frame(CREDIT, 0, &[0, exchange, 0, SEQUENCE, 0, 400, 0, 12_000, 0, 1 << 20, 0, 1_604]);
    scene.comes(ahead);
    let again = scene.comes(credit(exchange, 2_004, 12_000));
    assert_eq!(again, [[DATA]], "the end is sent again");
    scene.honest_goes_on();
}

fn a_peer_that_answers_a_signal_twice() {
    let mut scene = Scene::new();
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("none is open");
    scene.pair.server.send_in(scene.harm, exchange, b"question", Tail::Question);
    scene.pair.answered();
    scene.comes(data(exchange, LAST | HAS_ALL, 0, &[0, 7]));
    // Another answer before the first one is taken: it resumes, and now it unwinds.
    scene.comes(data(exchange, LAST | HAS_ALL, 0, &[1, 8]));
    scene.comes(data(exchange, LAST | HAS_ALL, 0, &[1]));
    scene.comes(data(exchange, LAST | HAS_ALL, 4, &[1, 8, 9]));
    assert_eq!(scene.news(), [(exchange, News::Came)]);
    assert_eq!(scene.takes(exchange), Some((vec![0, 0, 0, 0, 0, 0, 0, 7], true)));
    // After it, too: the exchange is over, and is not opened again.
    for answer in [
        data(exchange, LAST | HAS_ALL, 0, &[1, 8]),
        data(exchange, LAST | HAS_ALL, 8, &[1]),
        data(exchange, 0, 0, &[1]),
    ] {
        assert_eq!(scene.comes(answer), [[CREDIT]], "it hears that the exchange is over");
        assert_eq!((scene.news(), scene.takes(exchange)), (vec![], None));
    }
    let next = scene.pair.server.open_exchange(scene.harm);
    assert_eq!(next, Some(exchange + 2), "the next signal is another exchange");
    scene.honest_goes_on();
}

fn a_peer_that_resumes_after_unwinding() {
    let mut scene = Scene::new();
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("none is open");
    scene.pair.server.send_in(scene.harm, exchange, b"question", Tail::Question);
    scene.pair.answered();
    scene.comes(data(exchange, LAST | HAS_ALL, 0, &[1]));
    assert_eq!(scene.takes(exchange), Some((vec![0, 0, 0, 1], true)));
    // The procedure is unwound, and then the peer resumes it.
    scene.pair.finish(scene.harm, Finish::Result, b"");
    for answer in [data(exchange, LAST | HAS_ALL, 0, &[0, 7]), data(exchange + 2, LAST, 0, &[0, 7])] {
        let answers = scene.comes(answer);
        assert!(answers.len() <= 1, "{answers:?}");
        assert_eq!((scene.news(), scene.takes(exchange)), (vec![], None));
    }
    // The peer cancels another call, and answers its signal then.
    comes(&mut scene.pair, scene.peer, &[fragment(0, SEQUENCE + 1, 8, 0, 8)]);
    let key = scene.pair.asked.pop().expect("it is executed").0;
    let exchange = scene.pair.server.open_exchange(key).expect("none is open");
    scene.pair.server.send_in(key, exchange, b"question", Tail::Question);
    scene.comes(common::frame_about(common::CANCEL, 0, 0, SEQUENCE + 1, &[]));
    assert_eq!(scene.pair.cancelled, [key]);
    let answers = scene.comes(data_of(SEQUENCE + 1, exchange, LAST | HAS_ALL, 0, &[0, 7]));
    assert!(answers.iter().flatten().all(|kind| [STATE, RESULT].contains(kind)), "{answers:?}");
    let mut into = Vec::new();
    assert_eq!(scene.pair.server.take_from(key, exchange, &mut into, 100), None);
    assert_eq!(scene.held(), 0);
    scene.pair.finish(key, Finish::Result, b"");
    scene.honest_goes_on();
}

fn a_peer_that_sends_beyond_its_credit() {
    let mut scene = Scene::new();
    scene.comes(data(1, ASKS, 0, &[7; 250]));
    for offset in [FIRST_CREDIT - 996, FIRST_CREDIT, FIRST_CREDIT + 4, 1 << 20, u32::MAX - 3_003] {
        scene.comes(data(1, ASKS, offset, &[9; 250]));
    }
    assert!(scene.held() < 3_000, "{} bytes", scene.held());
    for offset in (1_000..60_000).step_by(1_000) {
        scene.comes(data(1, ASKS, offset, &[7; 250]));
    }
    let (taken, all) = scene.takes(1).expect("it is open");
    assert_eq!((taken.len(), all), (FIRST_CREDIT as usize, false));
    assert!(taken.chunks(4).all(|word| word == [0, 0, 0, 7]));
    // What was taken is the credit for more.
    for offset in (FIRST_CREDIT..100_000).step_by(1_000) {
        scene.comes(data(1, ASKS, offset, &[7; 250]));
    }
    let (more, _) = scene.takes(1).expect("it is open");
    assert!(more.len() <= 4 * taken.len(), "{} bytes", more.len());
    scene.honest_goes_on();
}

fn a_peer_that_sends_in_calls_of_others_and_of_nobody() {
    let mut scene = Scene::new();
    let held = scene.held();
    let honest = scene.honest.1.sequence as u32;
    for sequence in [0, 1, honest, SEQUENCE - 1, SEQUENCE + 1, u32::MAX] {
        for activity in [0, 1, 77, 20_000, u32::MAX] {
            if (activity, sequence) == (0, SEQUENCE) {
                continue;
            }
            let place = [activity, 1, 0, sequence];
            for more in [
                frame(DATA, LAST, &[&place[..], &[0, 0, 7]].concat()),
                frame(CREDIT, 0, &[&place[..], &[0, 4, 0, u32::MAX, 0, 0]].concat()),
                frame(STOP, 0, &[&place[..], &[1]].concat()),
            ] {
                let answers = scene.comes(more);
                assert!(answers.len() <= 1 && answers.iter().flatten().count() <= 1, "{answers:?}");
            }
        }
    }
    // It knows the honest call's conversation, too; but its address does not.
    let stolen = Peer { id: scene.honest.1.conversation, ..scene.peer };
    let place = [scene.honest.1.activity, 1, 0, honest];
    comes(&mut scene.pair, stolen, &[frame(DATA, LAST, &[&place[..], &[0, 0, 7]].concat())]);
    comes(&mut scene.pair, stolen, &[frame(STOP, 0, &[&place[..], &[1]].concat())]);
    scene.pair.answered();
    assert_eq!((scene.held(), scene.news()), (held, vec![]));
    assert_eq!(scene.pair.server.next_news(), None, "nothing came in the honest call");
    scene.honest_goes_on();
}

fn a_peer_that_opens_exchanges_with_the_servers_numbers() {
    let mut scene = Scene::new();
    for exchange in [0, 2, 4, 64, 130, u32::MAX - 1] {
        scene.comes(data(exchange, LAST, 0, &[7]));
        scene.comes(frame(STOP, 0, &[0, exchange, 0, SEQUENCE, 1]));
    }
    scene.comes(data(u32::MAX, LAST, 0, &[7]));
    assert_eq!(scene.news(), []);
    assert_eq!(scene.pair.server.open_exchange(scene.harm), Some(2), "the server's numbers are its own");
    assert_eq!(scene.takes(2), Some((vec![], false)));
    scene.honest_goes_on();
}

fn a_peer_that_goes_on_after_an_end_and_after_a_stop() {
    let mut scene = Scene::new();
    // More after the end, and another end.
    scene.comes(data(1, LAST, 0, &[7, 7]));
    for more in
        [data(1, 0, 8, &[9]), data(1, LAST, 8, &[9]), data(1, LAST, 0, &[9]), data(1, LAST, 4, &[9, 9])]
    {
        scene.comes(more);
    }
    assert_eq!(scene.takes(1), Some((vec![0, 0, 0, 7, 0, 0, 0, 7], true)));
    // An end that comes first, and bytes that do not fit it.
    scene.comes(data(3, LAST, 8, &[]));
    for more in [data(3, 0, 4, &[9, 9]), data(3, LAST, 4, &[]), data(3, LAST, 12, &[]), data(3, 0, 8, &[9])] {
        scene.comes(more);
    }
    scene.comes(data(3, 0, 0, &[7, 7]));
    assert_eq!(scene.takes(3), Some((vec![0, 0, 0, 7, 0, 0, 0, 7], true)));
    // The server takes no more, and the peer goes on all the same.
    scene.comes(data(5, ASKS, 0, &[7; 250]));
    let held = scene.held();
    scene.pair.server.stop_exchange(scene.harm, 5, 3);
    for offset in (0..FIRST_CREDIT).step_by(1_000) {
        let answers = scene.comes(data(5, ASKS, offset, &[7; 250]));
        assert!(answers.len() <= 1, "{answers:?}");
        assert!(scene.held() <= held);
    }
    assert_eq!(scene.takes(5), Some((vec![], false)));
    // It says that it takes no more of what the server sends, over and over, and gives credit for it.
    let exchange = scene.pair.server.open_exchange(scene.harm).expect("few are open");
    scene.pair.server.send_in(scene.harm, exchange, &[7; 4_000], Tail::More);
    for _ in 0..100 {
        scene.comes(frame(STOP, 0, &[0, exchange, 0, SEQUENCE, 9]));
        scene.comes(credit(exchange, 0, 1 << 20));
    }
    let stops = scene.news().into_iter().filter(|(_, news)| *news == News::Stopped(9)).count();
    assert_eq!(stops, 1, "the user hears of it once");
    assert_eq!(scene.pair.server.send_in(scene.harm, exchange, &[7; 4], Tail::More), None);
    scene.honest_goes_on();
}

fn a_peer_that_leaves_gaps() {
    let mut scene = Scene::new();
    // Every other word, from the end to the beginning: as many pieces as can be.
    for word in (1..FIRST_CREDIT / 4).rev().filter(|word| word % 2 == 1) {
        scene.comes(data(1, 0, 4 * word, &[word]));
    }
    assert!(scene.held() < 256 * 200 + 2 * FIRST_CREDIT as usize, "{} bytes", scene.held());
    assert_eq!(scene.takes(1), Some((vec![], false)));
    // Pieces that overlap one another, and what was there already; then again, in order.
    for word in (0..FIRST_CREDIT / 4 - 2).rev().chain(0..FIRST_CREDIT / 4 - 2) {
        scene.comes(data(1, 0, 4 * word, &[word, word + 1, word + 2]));
    }
    let (taken, all) = scene.takes(1).expect("it is open");
    let expected: Vec<u8> = (0..FIRST_CREDIT / 4).flat_map(u32::to_be_bytes).collect();
    assert!(taken == expected && !all, "{} bytes", taken.len());
    assert!(scene.held() < 1_000 + 2 * FIRST_CREDIT as usize, "{} bytes", scene.held());
    scene.honest_goes_on();
}

fn peers_that_fill_the_budget() {
    const BUDGET: usize = 300_000;
    let mut scene = Scene::with(ServerConfig { held_budget: BUDGET, ..ServerConfig::default() });
    for port in 2..10 {
        let peer = join(&mut scene.pair, HARM, port);
        comes(&mut scene.pair, peer, &[fragment(0, SEQUENCE, 8, 0, 8)]);
        scene.pair.asked.pop().expect("the peer's call is executed");
        for (exchange, offset) in (1..128).step_by(2).flat_map(|e| [0, 1_000, 2_000].map(|o| (e, o))) {
            comes(&mut scene.pair, peer, &[data(exchange, 0, offset, &[7; 250])]);
        }
        scene.pair.server.audit();
    }
    assert!(scene.held() > BUDGET / 2 && scene.held() < 2 * BUDGET + 100_000, "{} bytes", scene.held());
    scene.honest_goes_on();
}

fn a_peer_of_whose_news_nobody_asks() {
    let mut scene = Scene::new();
    for exchange in (1..20_000).step_by(2) {
        comes(&mut scene.pair, scene.peer, &[data(exchange, LAST | HAS_ALL, 0, &[])]);
        assert!(scene.pair.server.news() <= 4_096, "{} news", scene.pair.server.news());
    }
    scene.honest_goes_on();
}

macro_rules! attacks {
    ($($attack:ident => $test:ident,)*) => {
        $(#[test] fn $test() { $attack(); })*

        #[cfg(feature = "mutants")]
        const ATTACKS: &[fn()] = &[$($attack,)*];
    };
}

attacks! {
    a_peer_that_opens_exchanges_and_never_reads =>
        a_peer_that_never_reads_holds_its_credit_until_it_is_given_up,
    a_peer_that_fills_its_exchanges_and_that_nobody_reads =>
        a_peer_that_fills_its_exchanges_holds_its_credit,
    a_peer_that_gives_credit_and_takes_it_back => credit_that_was_given_stays_given,
    a_peer_that_has_more_than_was_sent => a_server_goes_on_where_the_peer_has_more,
    a_peer_that_answers_a_signal_twice => a_signal_has_one_answer,
    a_peer_that_resumes_after_unwinding => what_is_unwound_is_not_resumed,
    a_peer_that_sends_beyond_its_credit => bytes_beyond_the_credit_are_not_taken,
    a_peer_that_sends_in_calls_of_others_and_of_nobody => nobody_sends_in_the_calls_of_others,
    a_peer_that_opens_exchanges_with_the_servers_numbers => each_end_has_its_own_numbers,
    a_peer_that_goes_on_after_an_end_and_after_a_stop => what_has_ended_does_not_go_on,
    a_peer_that_leaves_gaps => gaps_cost_no_more_than_their_pieces,
    peers_that_fill_the_budget => a_host_that_fills_the_budget_harms_itself,
    a_peer_of_whose_news_nobody_asks => news_of_exchanges_that_are_over_are_dropped,
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_that_only_attacks_show_is_noticed() {
    use farcall_proto::{Mutant, Rule};
    std::panic::set_hook(Box::new(|_| {}));
    let is_noticed = |rule: &Rule| {
        common::MUTANT.set(Mutant::of(*rule));
        ATTACKS.iter().any(|attack| std::panic::catch_unwind(attack).is_err())
    };
    let unnoticed: Vec<_> = Rule::OF_ATTACKS.iter().filter(|rule| !is_noticed(rule)).collect();
    common::MUTANT.set(Mutant::NONE);
    drop(std::panic::take_hook());
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
