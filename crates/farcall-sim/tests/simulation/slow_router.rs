//! Tests that a group's calls behind a slow router do not overflow its queue: few are sent again, and calling
//! all members takes no longer than calling one after the other (Satyanarayanan & Siegel 1990, section
//! VI-B3). Where only the servers are slow, their calls do not wait for one another.

use std::sync::Arc;
use std::time::Duration;

use farcall::{Group, Runtime};
use farcall_sim::{Sim, check, sim};

#[farcall::interface]
trait Member {
    /// Takes as long as `Work` says.
    fn work(&self) -> farcall::Result<()>;
}

/// How long a procedure takes: a constant time, or one of which the mean is this.
#[derive(Clone, Copy)]
enum Work {
    Constant(Duration),
    Exponential(Duration),
}

impl Work {
    fn draw(self) -> Duration {
        match self {
            Work::Constant(time) => time,
            Work::Exponential(mean) => {
                let unit = (1 + sim::below(1 << 32)) as f64 / (1u64 << 32) as f64;
                mean.mul_f64(-unit.ln())
            }
        }
    }
}

struct Server(Work);

impl Member for Server {
    fn work(&self) -> farcall::Result<()> {
        sim::sleep(self.0.draw());
        Ok(())
    }
}

/// As in the measurement of the paper's experiment: a hundred replies take four of the shortest times after
/// which a call is sent again (20 ms), and the router queues 25.
const EACH: Duration = Duration::from_micros(800);
const QUEUE: usize = 25;
const WORK: Duration = Duration::from_millis(2);

/// The largest share of what a client sends that it sends again, in percent, by the paper.
const MOST_AGAIN: u64 = 25;

/// Returns a client and a group of this many members. Every member is bound.
fn group_of(sim: &Sim, members: usize, work: Work) -> farcall::Result<(Runtime, Group<MemberClient>)> {
    for which in 0..members {
        let name = format!("Member/m{which:04}");
        sim.server(&name.clone(), move || {
            farcall::export::<dyn Member>(&name, Arc::new(Server(work)))?.wait()
        });
    }
    let client = Runtime::builder().build()?;
    let group = client.import_all::<dyn Member>("Member")?;
    group.stubs().try_for_each(|(_, member)| member.work())?;
    Ok((client, group))
}

/// Returns a client behind the router, and a group of this many members. Every member is bound.
fn routed(sim: &Sim, members: usize, work: Work) -> farcall::Result<(Runtime, Group<MemberClient>)> {
    let routed = group_of(sim, members, work)?;
    sim.router(&sim.test(), EACH, QUEUE);
    Ok(routed)
}

/// Returns how many datagrams the client has sent so far, and how many of them because something was late.
fn sent(client: &Runtime) -> (u64, u64) {
    let of = |peer: &farcall::stats::Peer| {
        let stats = &peer.conversation;
        (stats.sent, stats.retransmitted + stats.probes)
    };
    client.stats().peers.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Returns which percentage of the datagrams of some work were sent again.
fn share_again(client: &Runtime, work: impl FnOnce()) -> u64 {
    let before = sent(client);
    work();
    let after = sent(client);
    (after.1 - before.1) * 100 / (after.0 - before.0)
}

#[test]
fn behind_a_slow_router_a_group_sends_little_again_and_takes_no_longer_than_single_calls() {
    for work in [Work::Constant(WORK), Work::Exponential(WORK)] {
        for members in [100, 400] {
            check(2, move |sim| {
                let (client, group) = routed(sim, members, work)?;
                for round in 0..3 {
                    let begun = sim::now();
                    let again = share_again(&client, || {
                        assert_eq!(group.multi().work().all().results().count(), members);
                    });
                    let all_at_once = sim::now() - begun;
                    assert!(again <= MOST_AGAIN, "{members} members, round {round}: {again} % again");
                    let begun = sim::now();
                    group.stubs().try_for_each(|(_, member)| member.work())?;
                    let one_by_one = sim::now() - begun;
                    assert!(all_at_once <= one_by_one, "{members} members, round {round}: {all_at_once:?}");
                }
                Ok::<(), farcall::Error>(())
            });
        }
    }
}

#[test]
fn a_group_call_that_is_awaited_keeps_to_the_path_too() {
    check(2, |sim| {
        let (client, group) = routed(sim, 100, Work::Constant(WORK))?;
        let again = share_again(&client, || {
            assert_eq!(sim::block_on(group.multi().work().start().all()).results().count(), 100);
        });
        assert!(again <= MOST_AGAIN, "{again} % again");
        Ok::<(), farcall::Error>(())
    });
}

#[test]
#[cfg(feature = "soak")]
fn the_simulation_would_notice_that_members_do_not_share_a_path() {
    check(1, |sim| {
        let (client, group) = routed(sim, 100, Work::Constant(WORK))?;
        sim.breaks(farcall::driver_mutants::Rule::PathShared);
        let again = share_again(&client, || {
            assert_eq!(group.multi().work().all().results().count(), 100);
        });
        assert!(again > MOST_AGAIN, "{again} % again");
        Ok::<(), farcall::Error>(())
    });
}

/// A path is not taken for slow because servers are, which take times by chance.
#[test]
#[cfg(feature = "soak")]
fn slow_servers_without_a_router_work_at_the_same_time() {
    const MEMBERS: usize = 300;
    check(3, |sim| {
        let work = Work::Exponential(Duration::from_millis(50));
        let (_client, group) = group_of(sim, MEMBERS, work)?;
        let time = |_| {
            let begun = sim::now();
            assert_eq!(group.multi().work().all().results().count(), MEMBERS);
            sim::now() - begun
        };
        let shared: Vec<Duration> = (0..4).map(time).collect();
        sim.breaks(farcall::driver_mutants::Rule::PathShared);
        let all_at_once = (0..4).map(time).max().unwrap_or_default();
        assert!(shared[0] < 3 * all_at_once, "{shared:?}, {all_at_once:?}");
        assert!(shared[1..].iter().all(|&time| time < 2 * all_at_once), "{shared:?}, {all_at_once:?}");
        Ok::<(), farcall::Error>(())
    });
}
