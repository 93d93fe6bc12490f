//! One call to every member of a group: how it ends, what each member's outcome is, and what stays usable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::{Cluster, Member, MemberClient};
use crate::common::block_on;
use farcall::multi::{Fixed, Next, Outcome, Rest};
use farcall::{Group, Kind, Ran};

#[test]
fn every_member_is_called_once_and_its_result_bears_its_name() {
    let cluster = Cluster::of(20);
    let all = cluster.group().multi().add(100).all();
    let results: Vec<_> = all.results().map(|(name, value)| (name.to_owned(), *value)).collect();
    let expected: Vec<_> = (0..20).map(|n| (format!("Member/m{n:03}"), 100 + n)).collect();
    assert_eq!(results, expected);
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 20);
}

#[test]
fn exceptions_are_each_members_own() {
    let cluster = Cluster::of(3);
    let all = cluster.group().multi().add(u64::MAX).all();
    assert_eq!(all.get("Member/m001"), Some(&Outcome::Exception("1 has no room".to_owned())));
    let short = cluster.group().multi().add(u64::MAX).quorum(2).unwrap_err();
    assert_eq!((short.needed(), short.counted()), (2, 0));
    // Two failures of three members are enough to know that there will be no two results.
    assert!(short.to_string().matches(": raised its exception").count() >= 2, "{short}");
}

#[test]
fn a_group_of_one_is_called_too_and_of_none_is_not() {
    let cluster = Cluster::of(1);
    assert_eq!(cluster.group().multi().add(1).first().unwrap(), ("Member/m000".to_owned(), 1));
    let none: Group<MemberClient, Fixed> = Group::of::<&str>([]);
    assert!(none.multi().add(1).all().is_empty());
    assert_eq!(none.multi().add(1).first().unwrap_err().needed(), 1);
}

#[test]
fn a_group_of_one_ends_as_a_single_call_does() {
    let mut cluster = Cluster::of(1);
    let group = cluster.group().fixed();
    let result = || group.multi().add(1).all().get("Member/m000").cloned();
    assert_eq!(result(), Some(Outcome::Result(1)));
    let all = group.multi().add(u64::MAX).all();
    assert_eq!(all.get("Member/m000"), Some(&Outcome::Exception("0 has no room".to_owned())));
    assert_eq!(group.multi().bytes(1_000_000).first().unwrap().1.len(), 1_000_000);
    let name = "x".repeat(100_000);
    assert_eq!(group.multi().greet(&name).first().unwrap().1, format!("{name}, from 0"));
    assert_eq!(result(), Some(Outcome::Result(1)));
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 3, "each ran once");
    cluster.exports.clear();
    let Some(Outcome::Failed(why)) = result() else { panic!("nobody serves it any more") };
    assert_eq!(why.ran(), Ran::Maybe);
}

#[test]
fn large_results_come_whole() {
    let cluster = Cluster::of(12);
    for len in [1_000, 60_000, 1_000_000] {
        let all = cluster.group().multi().bytes(len).all();
        assert_eq!(all.results().count(), 12, "{all:?}");
        assert!(all.results().enumerate().all(|(n, (_, bytes))| *bytes == vec![n as u8; len as usize]));
    }
}

#[test]
fn members_have_arguments_of_their_own() {
    let cluster = Cluster::of(3);
    let greetings =
        cluster.group().multi_each(|index, name, member| member.greet(&format!("{index} {name}"))).all();
    let greetings: Vec<_> = greetings.results().map(|(_, greeting)| greeting.clone()).collect();
    assert_eq!(greetings, ["0 Member/m000, from 0", "1 Member/m001, from 1", "2 Member/m002, from 2"]);
}

#[test]
fn the_handler_stops_and_every_member_can_be_called_at_once() {
    let cluster = Cluster::of(5);
    let group = cluster.group();
    for _ in 0..200 {
        let mut seen = 0;
        let outcomes = group.multi().add(0).each(|reply| {
            assert!(reply.result.is_ok());
            seen += 1;
            if seen == 2 { Next::Stop } else { Next::Continue }
        });
        assert_eq!(seen, 2);
        let abandoned =
            outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Abandoned(_))).count();
        assert_eq!(abandoned, 3);
        for (_, member) in group.stubs() {
            member.add(0).unwrap();
        }
    }
}

#[test]
fn whoever_is_given_up_is_cancelled() {
    let cluster = Cluster::of(3);
    let mut members: Vec<_> = cluster.group().stubs().collect();
    let quick = members.pop().unwrap();
    // All members hang, so none has a result when the time is up.
    let hanging = Group::of(members);
    cluster.until_cancelled(2, || {
        let short = hanging.multi().hang().within(Duration::from_millis(50)).first().unwrap_err();
        assert_eq!(short.counted(), 0);
        assert!(
            short
                .outcomes()
                .iter()
                .all(|(_, outcome)| matches!(outcome, Outcome::Abandoned(Ran::No | Ran::Maybe)))
        );
    });
    assert_eq!(quick.1.add(1).unwrap(), 3);
}

#[test]
fn a_quorum_lets_the_others_finish() {
    let cluster = Cluster::of(5);
    let group = cluster.group().fixed();
    for _ in 0..50 {
        let before = cluster.calls.load(Ordering::SeqCst);
        let gathered = group.multi().add(7).majority().unwrap();
        assert!(gathered.results().count() >= 3);
        while cluster.calls.load(Ordering::SeqCst) < before + 5 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_hedge_calls_another_only_when_the_first_is_slow_or_fails() {
    let cluster = Cluster::of(3);
    let group = cluster.group();
    let (_, value) = group.multi().add(5).hedged(Duration::from_secs(60), 3).unwrap();
    assert_eq!(value, 5);
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 1, "nobody else was called");
    // Each member fails at once, so the next one is called at once.
    let short = group.multi().add(u64::MAX).hedged(Duration::from_secs(60), 2).unwrap_err();
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 3);
    assert_eq!(short.outcomes().get("Member/m002"), Some(&Outcome::Abandoned(Ran::No)));
}

#[test]
fn who_joins_or_leaves_is_seen_by_the_next_call() {
    let mut cluster = Cluster::of(2);
    let group = cluster.group();
    assert_eq!(group.multi().add(0).all().len(), 2);
    cluster.join(2);
    assert_eq!(group.multi().add(0).all().results().count(), 3);
    drop(cluster.exports.remove(0));
    let names: Vec<_> = group.multi().add(0).all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Member/m001", "Member/m002"]);
}

#[test]
fn a_dead_member_costs_only_its_own_outcome() {
    let mut cluster = Cluster::of(4);
    let group = cluster.group().fixed();
    drop(cluster.exports.remove(1));
    let all = group.multi().add(0).rest(Rest::Finish).all();
    assert_eq!(all.results().count(), 3);
    let failures: Vec<_> = all.failures().map(|(name, why)| (name.to_owned(), why.ran())).collect();
    // No member answers, so it cannot be known whether the call came before the member ended.
    assert_eq!(failures, [("Member/m001".to_owned(), Ran::Maybe)]);
}

#[test]
fn a_dead_and_a_hung_member_keep_no_reply_back() {
    let mut cluster = Cluster::of(20);
    let group = cluster.group().fixed();
    group.multi().bytes(4).all();
    // One member dies. One hangs, and its call never ends by itself.
    drop(cluster.exports.remove(0));
    cluster.until_cancelled(1, || {
        let (mut answers, mut order) = (0, Vec::new());
        let calls = group.multi_each(|index, _, member| member.bytes_or_hang((index != 1).then_some(4)));
        let outcomes = calls.each(|reply| {
            order.push(reply.index);
            answers += usize::from(reply.result.is_ok());
            if answers == 18 { Next::Stop } else { Next::Continue }
        });
        // All members that could answer have, and the call of the one that hangs was given up.
        let abandoned: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Abandoned(Ran::Maybe)).collect();
        assert!(abandoned.iter().any(|(name, _)| *name == "Member/m001"), "{outcomes:?}");
        assert_eq!(outcomes.results().count(), 18);
        assert!(!order.contains(&1));
    });
}

#[test]
fn arguments_that_do_not_encode_fail_for_each_and_reach_nobody() {
    let cluster = Cluster::of(2);
    let group = cluster.group();
    let long = "x".repeat((64 << 20) + 1);
    let all = group.multi().greet(&long).all();
    assert!(
        all.failures().all(|(_, why)| why.kind() == Kind::BadArguments && why.ran() == Ran::No),
        "{all:?}"
    );
}

#[test]
fn replies_are_awaited() {
    let cluster = Cluster::of(6);
    let group = cluster.group();
    let all = block_on(group.multi().add(1).start().all());
    assert_eq!(all.results().map(|(_, value)| value).sum::<u64>(), 15 + 6);
    let quorum = block_on(group.multi().add(1).start().quorum(4)).unwrap();
    assert!(quorum.results().count() >= 4);
    let mut gathering = group.multi().add(2).start();
    let mut sum = 0;
    while let Some(reply) = gathering.wait_next() {
        sum += reply.result.unwrap();
    }
    assert_eq!(sum, 15 + 12);
}
