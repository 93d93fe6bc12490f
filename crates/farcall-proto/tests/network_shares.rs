//! Tests that a network leaves others their share of what a server keeps, however many hosts it has. One
//! machine can have all hosts of an IPv6 /48. In each test an honest host has more than any host of the hostile
//! network, and less than all of them together (docs/protocol.md, "Bounds").

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use common::*;
use farcall_proto::fuzzing::kinds::DATA;
use farcall_proto::server::{Finish, KeptForHost};
use farcall_proto::{ClientConfig, READINGS, ServerConfig};

/// The host of an honest client other than the pair's, in its network.
const HONEST: [u8; 4] = [10, 0, 0, 2];

/// Returns the address of a host of the hostile network.
fn hostile(host: u32) -> [u8; 4] {
    let [.., high, low] = host.to_be_bytes();
    [10, 6, high, low]
}

/// Returns a server with these settings and an honest client that it knows.
fn beside(server: ServerConfig) -> Pair {
    Pair::acquainted_with(
        ClientConfig { max_datagram: 1200, patience_probes: 100, ..ClientConfig::default() },
        server,
    )
}

/// Makes so many hosts of the hostile network known to the server, with one conversation each.
fn crowd(pair: &mut Pair, hosts: u32) -> Vec<Peer> {
    (0..hosts).map(|host| join(pair, hostile(host), 1)).collect()
}

fn kept(pair: &Pair, host: [u8; 4]) -> KeptForHost {
    pair.server.audit();
    pair.server.kept_for(IpAddr::from(host))
}

/// Lets the server execute a call of a peer, which has this result and hears nothing of it.
fn ends(pair: &mut Pair, peer: Peer, activity: u32, result: &[u8]) {
    comes(pair, peer, &[frame_about(CALL, 0, activity, 10, &[0, EXPORT as u32, 1, 0])]);
    let (key, _) = pair.asked.pop().expect("the server executes the call");
    pair.finish(key, Finish::Result, result);
}

fn arguments_of_many_hosts() {
    let mut pair = beside(ServerConfig { reassembly_budget: 1 << 20, ..ServerConfig::default() });
    let peers = crowd(&mut pair, 200);
    // Half of the arguments of an honest call have arrived.
    pair.start(1, &[9; 100_000]);
    for _ in 0..2 {
        let sent = pair.sent();
        pair.receive(&sent);
        let heard = pair.answered();
        pair.hear(&heard);
    }
    let held = kept(&pair, [10, 0, 0, 1]).arguments;
    for activity in 0..8 {
        for peer in &peers {
            comes(&mut pair, *peer, &[fragment(activity, 9, 1 << 20, 0, 1000)]);
        }
    }
    let most = (0..200).map(|host| pair.server.kept_for(hostile(host).into()).arguments).max();
    assert!(most < Some(held), "an honest host has {held} bytes, a hostile one {most:?}");
    assert_eq!(kept(&pair, [10, 0, 0, 1]).arguments, held);
    assert!(pair.server.stats().evicted_calls > 500);
    pair.answered();
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![9; 100_000]))]);
}

fn results_of_many_hosts() {
    let mut pair = beside(ServerConfig { held_budget: 100_000, ..ServerConfig::default() });
    pair.start(1, b"ask!");
    let call = pair.sent();
    pair.receive(&call);
    let (key, _) = pair.asked.pop().unwrap();
    pair.finish(key, Finish::Result, &[3; 1000]);
    for peer in crowd(&mut pair, 300) {
        ends(&mut pair, peer, 0, &[4; 600]);
        assert!(pair.server.held_bytes() <= 100_000 + 1000);
    }
    assert!(pair.server.held_bytes() > 90_000, "the hosts of one network have what others leave");
    assert_eq!(kept(&pair, [10, 0, 0, 1]).results, 1000);
    pair.receive(&call);
    let again = pair.answered();
    pair.hear(&again);
    assert_eq!(pair.told, [(1, Told::Result(vec![3; 1000]))]);
}

fn long_results_of_many_hosts() {
    let mut pair = beside(ServerConfig { sending_budget: 1 << 20, ..ServerConfig::default() });
    let peers = crowd(&mut pair, 700);
    let key = pair.execute(1, b"ask!");
    let first = pair.finish(key, Finish::Result, &[3; 200_000]);
    pair.hear(&first);
    for peer in &peers[..30] {
        ends(&mut pair, *peer, 0, &[4; 100_000]);
        assert_eq!(kept(&pair, [10, 0, 0, 1]).sending, 200_000);
    }
    // Now the budget is spent upon hosts that have little each.
    for peer in &peers[30..] {
        ends(&mut pair, *peer, 0, &[4; 2_000]);
    }
    let honest = join(&mut pair, HONEST, 1);
    ends(&mut pair, honest, 0, &[5; 300_000]);
    assert_eq!([1, 2].map(|host| kept(&pair, [10, 0, 0, host]).sending), [200_000, 300_000]);
    pair.carry(1, Duration::from_secs(60), |_, _, _| true);
    assert_eq!(pair.told, [(1, Told::Result(vec![3; 200_000]))]);
}

/// A short result for each of so many hosts that a long one of another network needs the room of hundreds.
fn short_ones_among_long_results_of_many_hosts() {
    let mut pair = beside(ServerConfig { sending_budget: 1 << 20, ..ServerConfig::default() });
    for peer in crowd(&mut pair, 600) {
        ends(&mut pair, peer, 0, &[4; 2_000]);
    }
    let honest = join(&mut pair, HONEST, 1);
    ends(&mut pair, honest, 0, &[5; 500_000]);
    assert_eq!(kept(&pair, HONEST).sending, 500_000);
}

fn calls_of_many_hosts() {
    let mut pair = beside(ServerConfig::default());
    let honest = join(&mut pair, HONEST, 1);
    (0..1000).for_each(|activity| ends(&mut pair, honest, activity, b"kept"));
    for peer in crowd(&mut pair, 700) {
        let call = |activity| frame_about(CALL, 0, activity, 10, &[0, EXPORT as u32, 1]);
        comes(&mut pair, peer, &(0..400).map(call).collect::<Vec<_>>());
        for (key, _) in std::mem::take(&mut pair.asked) {
            pair.finish(key, Finish::Result, b"kept");
        }
    }
    assert_eq!(kept(&pair, HONEST).calls, 1000);
    let all: usize = (0..700).map(|host| pair.server.kept_for(hostile(host).into()).calls).sum();
    assert!((250_000..=(1 << 18)).contains(&all), "{all}");
}

fn activities_of_many_hosts() {
    let mut pair = beside(ServerConfig { max_conversations: 1000, ..ServerConfig::default() });
    let honest = join(&mut pair, HONEST, 1);
    let uses = |pair: &mut Pair, peer, activities: u32| {
        let cancels: Vec<_> = (0..activities).map(|n| frame_about(CANCEL, 0, n, 9, &[])).collect();
        comes(pair, peer, &cancels);
        pair.answered();
        // The server reads only so many frames of a network in 125 ms.
        pair.pass(Duration::from_secs(1));
    };
    uses(&mut pair, honest, 300);
    let before = kept(&pair, HONEST).activities;
    for peer in crowd(&mut pair, 500) {
        uses(&mut pair, peer, 200);
    }
    assert_eq!((before > 0, kept(&pair, HONEST).activities), (true, before));
    let challenges = pair.server.stats().challenges;
    comes(&mut pair, honest, &[frame_about(PROBE, 0, 1, 9, &[])]);
    assert_eq!(pair.server.stats().challenges, challenges, "the server still knows this conversation");
}

fn conversations_of_many_hosts() {
    let mut pair = beside(ServerConfig { max_conversations: 64, ..ServerConfig::default() });
    let honest: Vec<Peer> = (1..10).map(|port| join(&mut pair, HONEST, port)).collect();
    for host in 0..500 {
        join(&mut pair, hostile(host), 1);
        pair.pass(Duration::from_secs(1));
    }
    assert_eq!(pair.server.conversations(), 64);
    let challenges = pair.server.stats().challenges;
    for peer in honest {
        comes(&mut pair, peer, &[frame_about(PROBE, 0, 1, 9, &[])]);
    }
    assert_eq!(pair.server.stats().challenges, challenges, "the server still knows them");
}

fn results_of_accesses_of_many_hosts() {
    const LEN: usize = 16_000;
    let mut pair = beside(ServerConfig { held_budget: 1 << 20, ..ServerConfig::default() });
    let mut given = 0;
    for peer in crowd(&mut pair, 150) {
        if !pair.server.has_room(pair.now, &peer.at, LEN) {
            continue;
        }
        given += LEN;
        comes(&mut pair, peer, &[frame_about(CALL, 0, 0, 900, &[0, EXPORT as u32, READINGS + 1])]);
        let (key, _) = pair.asked.pop().unwrap();
        pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; LEN], &mut []);
    }
    let anybody = SocketAddr::from((HONEST, 1));
    assert!(pair.server.has_room(pair.now, &anybody, LEN));
    // While the hosts of one network are alone, each has its least share beyond the budget.
    assert!((3 << 19) - LEN < given && given <= 3 << 19, "{given}");
}

/// Returns how many calls the server's answers report on.
fn states(pair: &mut Pair) -> usize {
    let answers = pair.answered();
    answers.iter().flat_map(|answer| frames_of(answer)).filter(|kind| *kind == STATE).count()
}

fn questions_of_many_hosts() {
    let mut pair = beside(ServerConfig::default());
    let peers = crowd(&mut pair, 30);
    let honest = join(&mut pair, HONEST, 1);
    pair.answered();
    let probes = vec![frame_about(PROBE, 0, 5, 100, &[]); 1000];
    let mut ask = |peer| {
        comes(&mut pair, peer, &probes);
        states(&mut pair)
    };
    let many: usize = peers.into_iter().map(&mut ask).sum();
    assert!((16_384..=16_384 + 30).contains(&many), "the server acted on {many} probes");
    assert_eq!(ask(honest), 1000);
}

fn answers_to_many_hosts() {
    let mut pair = beside(ServerConfig::default());
    let peers = crowd(&mut pair, 60);
    let honest: Vec<Peer> = (1..=4).map(|host| join(&mut pair, [10, 7, 0, host], 1)).collect();
    let probes: Vec<_> = (0..2000).map(|n| frame_about(PROBE, 0, 1 + n, 5, &[])).collect();
    // The server acts on questions of eight hosts of a network in 125 ms.
    for some in peers.chunks(8) {
        some.iter().for_each(|peer| _ = comes(&mut pair, *peer, &probes));
        pair.pass(Duration::from_millis(125));
    }
    assert_eq!(pair.server.replies(), 8192 / 4 * 3);
    for peer in honest {
        comes(&mut pair, peer, &probes);
    }
    assert_eq!(pair.server.replies(), 8192 / 4 * 3 + 1024);
}

#[test]
fn used_buffers_are_left_to_other_networks() {
    const LONG: u32 = 900_000;
    let mut pair = beside(ServerConfig::default());
    let peers = crowd(&mut pair, 18);
    let honest = join(&mut pair, HONEST, 1);
    for peer in peers.iter().chain([&honest]) {
        for offset in (0..LONG).step_by(50_000) {
            comes(&mut pair, *peer, &[fragment(0, 11, LONG, offset, 50_000.min(LONG - offset) as usize)]);
        }
        let (key, _) = pair.asked.pop().expect("all arguments have arrived");
        pair.finish(key, Finish::Result, b"");
    }
    // These are as many spare buffers as there can be.
    (0..18).for_each(|_| pair.server.recycle(Vec::with_capacity(LONG as usize)));
    for peer in &peers {
        comes(&mut pair, *peer, &[fragment(1, 12, LONG, 0, 4)]);
    }
    comes(&mut pair, honest, &[fragment(1, 12, LONG, 0, 4)]);
    assert!(kept(&pair, HONEST).arguments >= LONG as usize);
}

#[test]
fn what_many_hosts_of_one_network_send_and_nobody_takes_leaves_another_network_its_credit() {
    const BUDGET: usize = 200_000;
    let mut pair = beside(ServerConfig { held_budget: BUDGET, ..ServerConfig::default() });
    let honest = pair.execute(1, b"argument");
    let peers = crowd(&mut pair, 100);
    for peer in &peers {
        comes(&mut pair, *peer, &[fragment(0, 50, 8, 0, 8)]);
    }
    let data = |exchange, sequence, offset| {
        frame(DATA, 4, &[&[0, exchange, 0, sequence, 0, offset][..], &[7; 250]].concat())
    };
    // Each host stays within its least share.
    for exchange in (1..=5).step_by(2) {
        for offset in (0..4_000).step_by(1_000) {
            for peer in &peers {
                comes(&mut pair, *peer, &[data(exchange, 50, offset)]);
            }
        }
    }
    let harm: usize = (0..100).map(|host| pair.server.kept_for(hostile(host).into()).exchanges).sum();
    assert!((BUDGET..3 * BUDGET + 20_000).contains(&harm), "{harm} bytes");
    let from = Peer { id: honest.conversation, at: pair.from };
    for offset in (0..FIRST_CREDIT).step_by(1_000) {
        comes(&mut pair, from, &[data(1, honest.sequence as u32, offset)]);
    }
    let mut taken = Vec::new();
    assert!(pair.server.take_from(honest, 1, &mut taken, usize::MAX).is_some());
    assert_eq!(taken.len(), FIRST_CREDIT as usize);
}

/// What the hosts of a hostile network make a server keep.
const CROWDS: [fn(); 10] = [
    arguments_of_many_hosts,
    results_of_many_hosts,
    long_results_of_many_hosts,
    short_ones_among_long_results_of_many_hosts,
    calls_of_many_hosts,
    activities_of_many_hosts,
    conversations_of_many_hosts,
    results_of_accesses_of_many_hosts,
    questions_of_many_hosts,
    answers_to_many_hosts,
];

#[test]
fn arguments_are_left_to_other_networks() {
    arguments_of_many_hosts();
}

#[test]
fn results_are_left_to_other_networks() {
    results_of_many_hosts();
}

#[test]
fn long_results_are_left_to_other_networks() {
    long_results_of_many_hosts();
    short_ones_among_long_results_of_many_hosts();
}

#[test]
fn calls_with_anything_kept_are_left_to_other_networks() {
    calls_of_many_hosts();
}

#[test]
fn activities_are_left_to_other_networks() {
    activities_of_many_hosts();
}

#[test]
fn conversations_are_left_to_other_networks() {
    conversations_of_many_hosts();
}

#[test]
fn results_of_accesses_are_left_to_other_networks() {
    results_of_accesses_of_many_hosts();
}

#[test]
fn time_for_words_about_calls_is_left_to_other_networks() {
    questions_of_many_hosts();
}

#[test]
fn places_for_short_answers_are_left_to_other_networks() {
    answers_to_many_hosts();
}

#[cfg(feature = "mutants")]
#[test]
fn a_server_that_compares_hosts_alone_fails_in_each_case() {
    use farcall_proto::{Mutant, Rule};
    std::panic::set_hook(Box::new(|_| {}));
    common::MUTANT.set(Mutant::of(Rule::NoShareOfNetworks));
    let unnoticed: Vec<_> =
        (0..CROWDS.len()).filter(|at| std::panic::catch_unwind(CROWDS[*at]).is_ok()).collect();
    common::MUTANT.set(Mutant::NONE);
    drop(std::panic::take_hook());
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
