//! Tests of the queue by itself: turns, which entries are lost when it is full, and its counts.

use super::*;
use std::collections::HashMap;
use std::fmt::Debug;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    payer: Host,
    caller: Caller,
    number: u64,
    bytes: usize,
}

impl Waits for Call {
    type Caller = Caller;
    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn payer(&self) -> Host {
        self.payer
    }

    fn caller(&self) -> Caller {
        self.caller
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Conversation(u64),
    Process(i32),
}

fn host(n: u8) -> Host {
    host_of(0, n)
}

fn host_of(network: u8, host: u8) -> Host {
    Host::at([10, network, 0, host].into())
}

/// Returns a call of this conversation. The hundreds of the conversation's number are the host, the ten
/// thousands its network.
fn call(conversation: u64, number: u64) -> Call {
    let payer = host_of((conversation / 10_000) as u8, (conversation / 100 % 100) as u8);
    let caller = Caller::Conversation(conversation);
    Call { payer, caller, number, bytes: 1 }
}

fn queue(most: usize, most_bytes: usize, calls: impl IntoIterator<Item = Call>) -> FairQueue<Call> {
    let mut queue = FairQueue::new(most, most_bytes);
    calls.into_iter().for_each(|call| assert!(queue.push(call, false).is_empty()));
    queue
}

fn order(mut queue: FairQueue<Call>) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop()).map(|call| call.number).collect()
}

#[test]
fn hosts_take_turns_and_within_each_its_conversations() {
    let first = [(100, 1), (100, 2), (100, 3), (101, 4), (101, 5), (102, 6), (200, 7), (200, 8), (300, 9)];
    let queue = queue(9, 9, first.map(|(conversation, number)| call(conversation, number)));
    assert_eq!(order(queue), [1, 7, 9, 4, 8, 6, 2, 5, 3]);
}

#[test]
fn connections_of_one_process_have_one_turn() {
    let of = |process, number| Call {
        payer: Host::User(None),
        caller: Caller::Process(process),
        ..call(0, number)
    };
    let queue = queue(9, 9, [of(1, 1), of(1, 2), of(1, 3), of(2, 4), call(100, 5), call(101, 6)]);
    assert_eq!(order(queue), [1, 5, 4, 6, 2, 3]);
}

#[test]
fn networks_take_turns_and_within_each_its_hosts() {
    let first = [(100, 1), (200, 2), (201, 3), (300, 4), (10_100, 5), (10_100, 6), (20_100, 7), (20_200, 8)];
    let queue = queue(9, 9, first.map(|(conversation, number)| call(conversation, number)));
    assert_eq!(order(queue), [1, 5, 7, 2, 6, 8, 4, 3]);
}

#[test]
fn a_search_finds_the_next_network_behind_any_number_of_hosts() {
    let crowd = (1..=90).map(|host| call(100 * host, host));
    let mut queue = queue(100, 100, crowd.chain([call(10_100, 91), call(10_200, 92)]));
    let of_other = |call: &Call| call.payer.network() == host_of(1, 0).network();
    for number in [91, 92] {
        assert!(queue.turn_to(2, of_other));
        assert_eq!(queue.pop().map(|call| call.number), Some(number));
    }
    assert!(!queue.turn_to(usize::MAX, of_other));
    // What one search does not find for want of looks, the next ones do.
    let searches = (1..).find(|_| queue.turn_to(8, |call| call.number == 60)).unwrap();
    assert!(searches <= 90 / 8 + 1, "{searches}");
    assert_eq!(queue.pop().map(|call| call.number), Some(60));
    for (conversation, number) in [(10_100, 93), (20_100, 94), (20_200, 95), (20_300, 96)] {
        assert!(queue.push(call(conversation, number), false).is_empty());
    }
    assert!(queue.turn_to(89 + 4, |call| call.number == 96), "every host is looked at, if there are looks");
}

#[test]
fn who_may_not_be_taken_loses_no_turn() {
    let mut queue = queue(9, 9, [call(100, 1), call(100, 2), call(200, 3), call(300, 4)]);
    let not_one = |call: &Call| call.payer != host(1);
    assert_eq!(queue.pop_if(not_one), Some(call(200, 3)));
    assert_eq!(queue.pop_if(not_one), Some(call(300, 4)));
    assert_eq!(queue.pop_if(not_one), None);
    assert_eq!(order(queue), [1, 2]);
}

#[test]
fn one_that_is_given_back_comes_next() {
    let mut queue = queue(9, 9, [call(100, 1), call(100, 2), call(200, 3)]);
    let first = queue.pop().unwrap();
    queue.put_back(first);
    queue.put_back(call(300, 4));
    queue.put_back(call(200, 5));
    assert_eq!(order(queue), [5, 4, 1, 3, 2]);
}

#[test]
fn a_full_queue_evicts_the_newest_entry_of_the_largest_caller_of_the_largest_host() {
    let many = (0..20).map(|n| call(100 + n % 10, n)).chain([call(105, 20)]);
    let mut queue = queue(21, 1000, many);
    assert_eq!(queue.push(call(200, 21), false), [call(105, 20)]);
    // If the new entry would be the next one to be evicted, it is refused instead.
    assert_eq!(queue.push(call(111, 22), false), [call(111, 22)]);
    let refused: Vec<Call> = (30..60).flat_map(|n| queue.push(call(200 + n, n), false)).collect();
    assert_eq!(refused.iter().filter(|call| call.payer == host(1)).count(), 9);
    assert_eq!(queue.hosts[&host(1)].weight.len, 11);
    // Within a host, a caller that has much makes way for the host's other callers.
    let mut queue = self::queue(4, 1000, (0..4).map(|n| call(100, n)));
    assert_eq!(queue.push(call(101, 4), false), [call(100, 3)]);
}

#[test]
fn a_full_queue_evicts_of_the_largest_network_however_many_hosts_that_has() {
    let many = (0..20).map(|n| call(100 * n, n));
    let mut queue = queue(21, 1000, many.chain([call(505, 20)]));
    assert_eq!(queue.push(call(10_100, 21), false), [call(505, 20)], "of the host that has most");
    let refused: Vec<Call> =
        (30..60).flat_map(|n| queue.push(call(10_000 + 100 * (n % 9), n), false)).collect();
    assert_eq!(refused.iter().filter(|call| call.payer.network() == host(0).network()).count(), 9);
    assert_eq!(queue.networks[&host(0).network()].weight.len, 11);
    // Further hosts of the network take no place of others.
    assert_eq!(queue.push(call(9_900, 60), false), [call(9_900, 60)]);
    // So it is with bytes.
    let long = |conversation, number, bytes| Call { bytes, ..call(conversation, number) };
    let mut queue = self::queue(100, 100, (0..10).map(|n| long(100 * n, n, 10)));
    let evicted: Vec<u64> = queue.push(long(10_100, 50, 15), false).iter().map(|call| call.number).collect();
    assert_eq!(evicted, [9, 8]);
}

#[test]
fn bytes_are_evicted_from_the_largest_and_only_as_many_as_needed() {
    let long = |conversation, number, bytes| Call { bytes, ..call(conversation, number) };
    let mut queue =
        queue(100, 100, (0..8).map(|n| long(100, n, 10)).chain((0..20).map(|n| call(200, 20 + n))));
    let evicted: Vec<u64> = queue.push(long(300, 50, 15), false).iter().map(|call| call.number).collect();
    assert_eq!((evicted, queue.bytes()), (vec![7, 6], 95));
    for (bytes, number) in [(33, 51), (101, 52), (usize::MAX, 53)] {
        let lacking = queue.push(long(400, number, bytes), false);
        assert_eq!(
            lacking,
            [long(400, number, bytes)],
            "no other payer has so much more that evicting its entries is fair"
        );
    }
}

#[test]
fn held_entries_get_no_turn_but_count_and_can_be_evicted() {
    let mut queue = queue(6, 6, [call(100, 1)]);
    assert!(queue.push(call(101, 2), true).is_empty() && queue.push(call(101, 3), true).is_empty());
    assert!(
        queue.holds(Caller::Conversation(101))
            && !queue.holds(Caller::Conversation(100))
            && queue.holds_any()
    );
    assert!(queue.push(call(101, 4), true).is_empty() && queue.push(call(102, 5), true).is_empty());
    assert!(queue.push(call(200, 6), false).is_empty());
    assert_eq!(queue.push(call(300, 7), false), [call(101, 4)]);
    let admit = |queue: &mut FairQueue<Call>, most| {
        queue.admit(Caller::Conversation(101), |call| call.number <= most)
    };
    assert!(!admit(&mut queue, 1) && admit(&mut queue, 2) && admit(&mut queue, 3) && !admit(&mut queue, 9));
    assert_eq!(queue.firsts().count(), 4);
    let popped: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|call| call.number).collect();
    assert_eq!((popped, queue.len(), queue.held), (vec![1, 6, 7, 2, 3], 1, 1));
    assert!(queue.remove(Caller::Conversation(102), call(102, 5).key()).is_some() && queue.is_empty());
}

#[test]
fn whatever_is_done_all_is_counted() {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut queue = FairQueue::new(30, 300);
    let mut inside = HashMap::new();
    for number in 0..20_000 {
        let conversation = 10_000 * random(3) + 100 * random(5) + random(4);
        let new = Call { bytes: random(25) as usize, ..call(conversation, number) };
        match random(8) {
            0..4 => {
                inside.insert(number, new);
                for evicted in queue.push(new, random(3) == 0) {
                    assert_eq!(inside.remove(&evicted.number), Some(evicted));
                }
            }
            4 => {
                if let Some(first) = queue.pop() {
                    queue.put_back(first);
                }
            }
            5 => {
                queue.admit(new.caller, |_| true);
                queue.turn_to(1 + random(9) as usize, |_| random(4) == 0);
            }
            6 => drop(queue.pop().map(|call| inside.remove(&call.number).unwrap())),
            _ => {
                let any = inside.values().next().copied();
                let removed = any.and_then(|any| queue.remove(any.caller, any.key()));
                assert_eq!(removed, any.and_then(|any| inside.remove(&any.number)));
            }
        }
        check(&queue, &inside);
    }
}

/// Checks that the counts are those of the entries inside, and that exactly the callers, hosts and networks
/// with a waiting entry have a turn.
fn check(queue: &FairQueue<Call>, inside: &HashMap<u64, Call>) {
    let lines = || queue.callers.values();
    let all = || lines().flat_map(|line| line.waiting.iter().chain(&line.held));
    assert_eq!(queue.all.len, inside.len());
    assert_eq!((all().count(), all().map(|call| call.bytes).sum()), (queue.all.len, queue.all.bytes));
    assert_eq!(lines().map(|line| line.held.len()).sum::<usize>(), queue.held);
    assert!(queue.all.len <= queue.most && queue.all.bytes <= queue.most_bytes);
    for (name, host) in &queue.hosts {
        let own = || queue.callers.iter().filter(|(_, line)| line.host == *name);
        check_turns(host, own().map(|(name, line)| (*name, line.weight, !line.waiting.is_empty())));
    }
    for (name, network) in &queue.networks {
        let own = queue.hosts.iter().filter(|(host, _)| host.network() == *name);
        check_turns(network, own.map(|(name, host)| (*name, host.weight, !host.turns.is_empty())));
    }
    let networks = queue.networks.iter();
    let all = Turns { weight: queue.all, latest: 0, turns: queue.turns.clone() };
    check_turns(&all, networks.map(|(name, network)| (*name, network.weight, !network.turns.is_empty())));
}

/// Checks that turns have the weight of their parts together, and that exactly the waiting parts have a turn.
fn check_turns<N: Debug>(turns: &Turns<N>, parts: impl Iterator<Item = (N, Weight, bool)>) {
    let (mut sum, mut waiting) = (Weight::default(), Vec::new());
    for (name, weight, waits) in parts {
        assert!(weight.len > 0);
        (sum.len, sum.bytes) = (sum.len + weight.len, sum.bytes + weight.bytes);
        waiting.extend(waits.then(|| format!("{name:?}")));
    }
    let mut have_turn: Vec<_> = turns.turns.iter().map(|name| format!("{name:?}")).collect();
    have_turn.sort();
    waiting.sort();
    assert_eq!((sum, have_turn), (turns.weight, waiting));
}
