//! Groups of every shape, and callers that use them badly: handlers that call, panic or take their time,
//! threads that call one another's groups, calls that are dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::cluster::{Cluster, Member, MemberClient, Server, runtime};
use crate::common::block_on;
use farcall::multi::{Fixed, Next, Outcome, Rest};
use farcall::{Group, Kind, Ran};

/// Asserts that each member can be called, and that nothing is left of earlier calls.
fn all_usable(group: &Group<MemberClient, Fixed>) {
    for (name, member) in group.stubs() {
        member.add(1).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn a_group_of_nobody_ends_at_once_whatever_is_asked_of_it() {
    let nobody: Group<MemberClient, Fixed> = Group::of::<&str>([]);
    let call = || nobody.multi().add(1);
    assert!(call().all().is_empty());
    assert!(call().quorum(0).unwrap().is_empty());
    assert!(call().each(|_| unreachable!()).is_empty());
    assert_eq!(call().collate(7, |_, _| unreachable!()), 7);
    assert!(call().start().wait_next().is_none());
    assert!(block_on(call().start().all()).is_empty());
    assert!(nobody.multi_each(|_, _, member| member.add(1)).all().is_empty());
    for short in [
        call().first().unwrap_err(),
        call().quorum(1).unwrap_err(),
        call().majority().unwrap_err(),
        call().hedged(Duration::from_secs(60), 3).unwrap_err(),
        block_on(call().start().first()).unwrap_err(),
    ] {
        assert_eq!((short.needed(), short.counted(), short.outcomes().len()), (1, 0, 0), "{short}");
    }
}

#[test]
fn a_quorum_of_nobody_is_met_at_once_and_lets_all_finish() {
    let cluster = Cluster::of(3);
    let gathered = cluster.group().multi().add(1).quorum(0).unwrap();
    assert_eq!(gathered.results().count(), 0);
    while cluster.calls.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
}

#[test]
fn a_quorum_that_cannot_be_is_given_up_at_once() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let one = Group::of(group.stubs().take(1));
    // If more results are needed than there are members, no member is called.
    for short in [group.multi().add(1).quorum(4).unwrap_err(), one.multi().add(1).quorum(2).unwrap_err()] {
        assert_eq!(short.counted(), 0);
        assert!(
            short.outcomes().iter().all(|(_, outcome)| *outcome == Outcome::Abandoned(Ran::No)),
            "{short}"
        );
    }
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 0);
    assert_eq!(block_on(group.multi().hang().rest(Rest::Cancel).start().quorum(4)).unwrap_err().counted(), 0);
    // One failure is enough to know, though the other members never answer.
    let calls = || {
        let all_but_one_hang =
            group.multi_each(|index, _, member| member.bytes_or_hang((index == 2).then_some(1)));
        all_but_one_hang.counting(|_| false).rest(Rest::Cancel)
    };
    assert_eq!(calls().quorum(3).unwrap_err().counted(), 0);
    assert_eq!(block_on(calls().start().quorum(3)).unwrap_err().counted(), 0);
    cluster.until_cancelled(7, || assert_eq!(calls().quorum(3).unwrap_err().counted(), 0));
    all_usable(&group);
}

#[test]
fn who_is_not_called_in_time_is_not_called() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let all = group.multi().add(1).within(Duration::ZERO).all();
    assert!(all.iter().all(|(_, outcome)| *outcome == Outcome::Abandoned(Ran::No)), "{all:?}");
    let nobody = group.multi().add(1).hedged(Duration::ZERO, 0).unwrap_err();
    assert!(nobody.outcomes().iter().all(|(_, outcome)| *outcome == Outcome::Abandoned(Ran::No)), "{nobody}");
    all_usable(&group);
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 3, "none but the last");
}

#[test]
fn a_member_may_stand_in_a_group_twice() {
    let cluster = Cluster::of(2);
    let [(_, one), (_, two)] = cluster.group().stubs().collect::<Vec<_>>().try_into().ok().unwrap();
    let group = Group::of([("a", one.clone()), ("b", two), ("c", one.clone()), ("a", one)]);
    for _ in 0..100 {
        let before = cluster.calls.load(Ordering::SeqCst);
        let all = group.multi().add(5).all();
        let results: Vec<_> = all.results().map(|(name, value)| (name, *value)).collect();
        assert_eq!(results, [("a", 5), ("b", 6), ("c", 5), ("a", 5)]);
        assert_eq!(cluster.calls.load(Ordering::SeqCst), before + 4);
        group.multi().add(5).first().unwrap();
        all_usable(&group);
    }
}

#[test]
fn members_may_be_carried_by_anything() {
    let cluster = Cluster::of(4);
    let local = farcall::stub::local::<dyn Member>(Arc::new(Server { number: 100, ..Server::default() }));
    // The same servers, called by datagrams alone, and bound by another runtime.
    let others =
        farcall::Runtime::builder().registry(cluster.registry.clone()).shared_memory(false).build().unwrap();
    let by = |runtime: &farcall::Runtime, n: u64| {
        let member = runtime.import::<dyn Member>(&format!("Member/m{n:03}")).unwrap();
        (member, n)
    };
    let mut members =
        [(local, 100), by(&cluster.client, 0), by(&cluster.client, 1), by(&others, 2), by(&others, 3)];
    // The first member decides where the thread waits.
    for _ in 0..members.len() {
        members.rotate_left(1);
        let expected: Vec<u64> = members.iter().map(|(_, number)| number + 7).collect();
        let group = Group::of(members.iter().map(|(member, number)| (number.to_string(), member.clone())));
        for round in 0..100 {
            let all = group.multi().add(7).all();
            assert_eq!(all.results().map(|(_, value)| *value).collect::<Vec<_>>(), expected, "round {round}");
            let all = block_on(group.multi().add(7).start().all());
            assert_eq!(all.results().map(|(_, value)| *value).collect::<Vec<_>>(), expected, "round {round}");
            assert!(group.multi().add(7).majority().unwrap().results().count() >= 3);
            assert!(expected.contains(&group.multi().add(7).first().unwrap().1));
            all_usable(&group);
        }
        // Members that hang are given up, whatever carries their calls.
        let hangs = |which: usize| {
            group.multi_each(|index, _, member| member.bytes_or_hang((index == which).then_some(1)))
        };
        for (which, (_, number)) in members.iter().enumerate() {
            assert_eq!(hangs(which).first().unwrap().0, number.to_string());
            all_usable(&group);
        }
    }
}

#[test]
fn threads_may_call_the_same_group_at_once() {
    let cluster = Cluster::of(5);
    let group = cluster.group().fixed();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let group = &group;
            scope.spawn(move || {
                for round in 0..300 {
                    let n = thread * 1_000 + round;
                    let expected: Vec<u64> = (0..5).map(|member| member + n).collect();
                    match round % 4 {
                        0 => {
                            let (_, value) = group.multi().add(n).first().unwrap();
                            assert!(expected.contains(&value));
                        }
                        1 => {
                            let gathered = group.multi().add(n).majority().unwrap();
                            assert!(gathered.results().all(|(_, value)| expected.contains(value)));
                        }
                        _ => {
                            let all = group.multi().add(n).all();
                            assert_eq!(all.results().map(|(_, value)| *value).collect::<Vec<_>>(), expected);
                        }
                    }
                }
            });
        }
    });
    all_usable(&group);
}

#[test]
fn a_handler_may_call_a_member_and_a_group() {
    let cluster = Cluster::of(4);
    let group = cluster.group().fixed();
    let members: Vec<_> = group.stubs().map(|(_, member)| member).collect();
    for round in 0..100 {
        let mut seen = Vec::new();
        group.multi().add(round).each(|reply| {
            assert_eq!(reply.result.unwrap(), reply.index as u64 + round);
            // These are the member that has replied, one that may not have, and then all of them.
            assert_eq!(members[reply.index].add(2).unwrap(), reply.index as u64 + 2);
            assert_eq!(members[3 - reply.index].add(2).unwrap(), 3 - reply.index as u64 + 2);
            assert_eq!(group.multi().add(3).all().results().count(), 4);
            assert!(group.multi().add(3).first().is_ok());
            seen.push(reply.index);
            Next::Continue
        });
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
    }
}

/// A waker that calls all members, and then one of them, and waits for them.
struct Calling {
    group: Group<MemberClient, Fixed>,
    told: mpsc::Sender<Vec<Outcome<u64, String>>>,
}

impl Wake for Calling {
    fn wake(self: Arc<Self>) {
        let all = self.group.multi().add(1).all();
        let (_, member) = self.group.stubs().next().unwrap();
        let outcomes = all.into_iter().map(|(_, outcome)| outcome).chain([member.add(1).into()]);
        let _ = self.told.send(outcomes.collect());
    }
}

#[test]
fn a_waker_that_waits_for_a_group_is_told_that_it_must_not() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let (told, outcomes) = mpsc::channel();
    let waker = Waker::from(Arc::new(Calling { group: group.clone(), told }));
    let (_, member) = group.stubs().next().unwrap();
    let mut waits = 0;
    for _ in 0..100 {
        let mut call = pin!(member.start().add(1).into_future());
        if let Poll::Ready(ended) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            assert_eq!(ended.unwrap(), 1);
            continue;
        }
        let outcomes = outcomes.recv().unwrap();
        let whys = outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(why) => (why.kind(), why.ran()),
            other => panic!("{other:?}"),
        });
        // The members were called, but not waited for. The last call was not made.
        assert!(
            whys.eq([Ran::Maybe, Ran::Maybe, Ran::Maybe, Ran::No].map(|ran| (Kind::Local, ran))),
            "{outcomes:?}"
        );
        waits += 1;
        assert_eq!(block_on(call).unwrap(), 1);
        all_usable(&group);
    }
    assert!(waits > 0, "each call had ended before it was asked");
}

#[test]
fn a_handler_that_panics_leaves_every_member_usable() {
    let cluster = Cluster::of(5);
    let group = cluster.group().fixed();
    for round in 0..200 {
        let after = round % 5;
        let mut seen = 0;
        let call = group.multi().add(9).rest(if round % 2 == 0 { Rest::Cancel } else { Rest::Finish });
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            call.each(|_| {
                seen += 1;
                if seen > after { resume_unwind(Box::new(after)) } else { Next::Continue }
            })
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&after));
        all_usable(&group);
    }
}

#[test]
fn a_procedure_that_panics_is_its_members_failure() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let all = group.multi().panic().all();
    assert!(all.failures().all(|(_, why)| (why.kind(), why.ran()) == (Kind::Panicked, Ran::Yes)), "{all:?}");
    assert_eq!(all.failures().count(), 3);
    all_usable(&group);
}

#[test]
fn a_call_under_way_may_be_dropped_at_any_time() {
    let cluster = Cluster::of(5);
    let group = cluster.group().fixed();
    for round in 0..200 {
        let before = cluster.calls.load(Ordering::SeqCst);
        let rest = if round % 2 == 0 { Rest::Cancel } else { Rest::Finish };
        let mut gathering = group.multi().add(1).rest(rest).start();
        for _ in 0..round % 6 {
            assert!(gathering.wait_next().is_some());
        }
        assert_eq!(gathering.outstanding(), 5 - round % 6);
        drop(gathering);
        // Calls that may finish do.
        while rest == Rest::Finish && cluster.calls.load(Ordering::SeqCst) < before + 5 {
            std::thread::yield_now();
        }
        all_usable(&group);
    }
    // Dropping a future loses no reply.
    let mut gathering = group.multi().add(1).start();
    for _ in 0..5 {
        drop(gathering.next());
        assert!(block_on(gathering.next()).is_some());
    }
    assert!(block_on(gathering.next()).is_none());
    cluster.until_cancelled(5, || drop(group.multi().hang().start()));
}

#[test]
fn who_is_dead_costs_nothing_that_grows() {
    let mut cluster = Cluster::of(5);
    let group = cluster.group().fixed();
    drop(cluster.exports.drain(..2));
    for round in 0..2_000 {
        let (_, value) = group.multi().add(10).first().unwrap();
        assert!((12..15).contains(&value), "round {round}");
        let written = group.multi().add(10).majority().unwrap();
        assert_eq!(written.results().count(), 3);
    }
}

#[test]
fn replies_that_are_declared_errors_count_if_so_wished() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let raised =
        group.multi().add(u64::MAX).counting(|result| matches!(result, Err(farcall::Error::Declared(_))));
    let raised = raised.quorum(2).unwrap();
    assert!(raised.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Exception(_))).count() >= 2);
    let even = group.multi().add(0).counting(|result| matches!(result, Ok(n) if n % 2 == 1));
    assert_eq!(even.first().unwrap(), ("Member/m001".to_owned(), 1));
    let none = group.multi().add(0).counting(|result| matches!(result, Ok(n) if *n > 7));
    let short = none.quorum(1).unwrap_err();
    assert_eq!(short.counted(), 0);
    assert_eq!(short.outcomes().results().count(), 3, "they have answered all the same");
}

#[test]
fn every_end_may_be_awaited() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let majority = block_on(group.multi().add(1).start().majority()).unwrap();
    assert!(majority.results().count() >= 2);
    assert!((1..4).contains(&block_on(group.multi().add(1).start().first()).unwrap().1));
    while cluster.calls.load(Ordering::SeqCst) < 4 {
        std::thread::yield_now();
    }
}

#[test]
fn who_awaits_a_hedge_says_what_the_time_is() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    let never = std::future::pending::<()>;
    let moves = |future: &(dyn Future<Output = _> + Send)| std::mem::size_of_val(future);
    assert!(
        moves(&group.multi().add(5).hedged_by(never, 3)) > 0,
        "an executor may move it to another thread"
    );
    // The first member answers.
    assert_eq!(block_on(group.multi().add(5).hedged_by(never, 3)).unwrap(), ("Member/m000".to_owned(), 5));
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 1, "nobody else was called");
    // When a member raises an exception, the next one is called at once, but no more than the limit.
    let short = block_on(group.multi().add(u64::MAX).hedged_by(never, 2)).unwrap_err();
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 3);
    assert_eq!(short.outcomes().get("Member/m002"), Some(&Outcome::Abandoned(Ran::No)));
    // When a member is slow, the next one is called after the pause, and the slow call is cancelled.
    cluster.until_cancelled(2, || {
        let calls = group.multi_each(|index, _, member| member.bytes_or_hang((index == 2).then_some(1)));
        let mut pauses = 0;
        let pause = || {
            pauses += 1;
            std::future::ready(())
        };
        assert_eq!(block_on(calls.hedged_by(pause, 3)).unwrap().0, "Member/m002");
        assert_eq!(pauses, 2, "one before each other member");
    });
}

#[test]
fn replies_are_folded() {
    let cluster = Cluster::of(6);
    let sum = cluster.group().multi().add(10).collate(0, |sum, reply| {
        *sum += reply.result.unwrap();
        Next::Continue
    });
    assert_eq!(sum, 60 + 15);
    let two = cluster.group().multi().add(10).collate(Vec::new(), |names, reply| {
        names.push(reply.member.to_owned());
        if names.len() == 2 { Next::Stop } else { Next::Continue }
    });
    assert_eq!(two.len(), 2);
}

#[test]
fn a_time_limit_holds_for_every_end() {
    let cluster = Cluster::of(3);
    let group = cluster.group().fixed();
    // How many of the others answer in time depends on the machine. The test shows that each of these calls
    // ends at all.
    let brief = Duration::from_millis(30);
    let one_hangs = || group.multi_each(|index, _, member| member.bytes_or_hang((index != 1).then_some(4)));
    let abandoned = |outcome: &Outcome<(), ()>| matches!(outcome, Outcome::Abandoned(_));
    let all = one_hangs().within(brief).all();
    assert!(
        all.results().count() <= 2 && matches!(all.get("Member/m001"), Some(Outcome::Abandoned(_))),
        "{all:?}"
    );
    let short = one_hangs().within(brief).quorum(3).unwrap_err();
    assert!(short.counted() <= 2 && short.outcomes().get("Member/m001").is_some_and(abandoned), "{short}");
    let mut replies = 0;
    let seen = one_hangs().within(brief).each(|_| {
        replies += 1;
        Next::Continue
    });
    assert!(replies == seen.results().count() && seen.get("Member/m001").is_some_and(abandoned), "{seen:?}");
    let short = group.multi().hang().within(brief).hedged(Duration::from_millis(5), 2).unwrap_err();
    assert_eq!(short.outcomes().get("Member/m002"), Some(&Outcome::Abandoned(Ran::No)), "{short}");
    // For a task that awaits the replies, the time is a deadline of each call too: the member's server knows
    // it, and may end the call in time.
    let ended = |late: &Outcome<Vec<u8>>| match late {
        Outcome::Result(nothing) => nothing.is_empty(),
        Outcome::Failed(why) => why.kind() == Kind::Deadline,
        other => matches!(other, Outcome::Abandoned(_)),
    };
    let all = block_on(one_hangs().within(brief).start().all());
    assert!(ended(all.get("Member/m001").unwrap()), "{all:?}");
    let mut gathering = one_hangs().within(brief).start();
    while let Some(reply) = gathering.wait_next() {
        assert!(reply.index != 1 || ended(&reply.result.into()));
    }
    all_usable(&group);
}

#[test]
fn a_group_changes_while_it_is_called() {
    let mut cluster = Cluster::of(3);
    let (group, done) = (cluster.group(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut calls = 0;
            while done.load(Ordering::SeqCst) == 0 || calls < 10 {
                let all = group.multi().add(1).within(Duration::from_secs(60)).all();
                // A member that left during the call may not have answered; the three that stay have.
                assert!(all.results().take(3).map(|(_, value)| *value).eq([1, 2, 3]), "{all:?}");
                calls += 1;
            }
        });
        for _ in 0..10 {
            cluster.join(7);
            drop(cluster.exports.pop());
        }
        done.store(1, Ordering::SeqCst);
        caller.join().unwrap();
    });
    assert_eq!(group.len(), 3);
}

#[farcall::interface]
trait Sum {
    /// Returns the sum of all members' results.
    fn sum(&self, n: u64) -> farcall::Result<u64>;
}

/// A server that calls a group in each of its calls.
struct Asking(Group<MemberClient>);

impl Sum for Asking {
    fn sum(&self, n: u64) -> farcall::Result<u64> {
        let all = self.0.multi().add(n).all();
        Ok(all.results().map(|(_, value)| value).sum())
    }
}

#[test]
fn a_procedure_may_call_a_group_also_one_that_its_own_runtime_serves() {
    let cluster = Cluster::of(3);
    let node = runtime(&cluster.registry);
    let own: Arc<dyn Member> = Arc::new(Server { number: 3, ..Server::default() });
    let _member = node.export::<dyn Member>("Member/own", own).unwrap();
    let asking = Asking(node.import_all::<dyn Member>("Member").unwrap());
    let _exports = [node.export::<dyn Sum>("Sum/a", Arc::new(asking)).unwrap(), {
        let asking = Asking(cluster.group());
        cluster.client.export::<dyn Sum>("Sum/b", Arc::new(asking)).unwrap()
    }];
    let sums = cluster.client.import_all::<dyn Sum>("Sum").unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let sums = &sums;
            scope.spawn(move || {
                for _ in 0..100 {
                    let all = sums.multi().sum(n).all();
                    assert!(all.results().map(|(_, sum)| *sum).eq([6 + 4 * n; 2]), "{all:?}");
                }
            });
        }
    });
}
