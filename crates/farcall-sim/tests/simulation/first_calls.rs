//! Tests the first call of a group whose members must all be bound first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::Group;
use farcall_sim::{Faults, Process, Sim, check, sim};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
}

#[derive(Clone, Default)]
struct Server(Arc<AtomicU64>);

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(n + 1)
    }
}

/// Returns a group of members that cannot be bound yet when the group is made. Each process has three
/// hundred.
fn group(sim: &Sim) -> farcall::Result<(Group<MemberClient>, Server, Vec<Process>)> {
    let counted = Server::default();
    let serve = |server| {
        let counted = counted.clone();
        sim.server(&format!("server {server}"), move || {
            let name = |n| format!("Member/{server}-{n}");
            let member = |n| farcall::export::<dyn Member>(&name(n), Arc::new(counted.clone()));
            let mut exports = (0..300).map(member).collect::<farcall::Result<Vec<_>>>()?;
            exports.swap_remove(0).wait()
        })
    };
    let servers = (0..3).map(serve).collect();
    sim.faults(Faults { loss: 1.0, ..Faults::none() });
    let group = farcall::import_all::<dyn Member>("Member")?;
    let delay = Duration::from_millis(10);
    sim.faults(Faults { delay, jitter: delay, ..Faults::none() });
    assert_eq!(group.stubs().count(), 900);
    Ok((group, counted, servers))
}

#[test]
fn however_many_must_be_bound_first_all_answer() {
    check(4, |sim| {
        let (group, ..) = group(sim)?;
        let all = group.multi().add(1).all();
        assert_eq!(all.results().count(), 900, "{:?}", all.failures().next());
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn those_that_are_let_finish_are_bound_and_called() {
    check(4, |sim| {
        let (group, counted, _) = group(sim)?;
        group.multi().add(1).quorum(2).expect("all are there");
        sim::sleep(Duration::from_secs(5));
        assert_eq!(counted.0.load(Ordering::SeqCst), 900);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn those_that_do_not_answer_hold_up_nobody_else() {
    check(4, |sim| {
        let (group, counted, servers) = group(sim)?;
        // This server has the first members of the group.
        servers[0].pause();
        let within = Duration::from_secs(1);
        let all = group.multi().add(1).within(within).all();
        assert_eq!(all.results().count(), 600, "{:?}", all.failures().next());
        assert!(all.iter().take(300).all(|(_, outcome)| outcome.result().is_none()));
        assert_eq!(counted.0.load(Ordering::SeqCst), 600);
        let began = sim::now();
        group.multi().add(1).hedged(Duration::from_millis(1), 900).expect("600 answer");
        assert!(sim::now() - began < within);
        // A member that did not answer is called as soon as it is there again.
        servers[0].resume();
        let all = group.multi().add(1).all();
        assert_eq!(all.results().count(), 900, "{:?}", all.failures().next());
        Ok::<(), farcall::Error>(())
    });
}
