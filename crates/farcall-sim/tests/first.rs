//! The first call of many, each of whom must be bound to before.
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::Group;
use farcall_sim::{Faults, Sim, check, sim};

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

/// Members that none can be bound to when the group is made.
fn group(sim: &Sim) -> farcall::Result<(Group<MemberClient>, Server)> {
    let counted = Server::default();
    for server in 0..3 {
        let counted = counted.clone();
        sim.server(&format!("server {server}"), move || {
            let name = |n| format!("Member/{server}-{n}");
            let member = |n| farcall::export::<dyn Member>(&name(n), Arc::new(counted.clone()));
            let mut exports = (0..300).map(member).collect::<farcall::Result<Vec<_>>>()?;
            exports.swap_remove(0).wait()
        });
    }
    sim.faults(Faults { loss: 1.0, ..Faults::none() });
    let group = farcall::import_all::<dyn Member>("Member")?;
    let delay = Duration::from_millis(10);
    sim.faults(Faults { delay, jitter: delay, ..Faults::none() });
    assert_eq!(group.stubs().count(), 900);
    Ok((group, counted))
}

#[test]
fn however_many_must_be_bound_first_all_answer() {
    check(4, |sim| {
        let (group, _) = group(sim)?;
        let all = group.multi().add(1).all();
        assert_eq!(all.results().count(), 900, "{:?}", all.failures().next());
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn those_that_are_let_finish_are_bound_and_called() {
    check(4, |sim| {
        let (group, counted) = group(sim)?;
        group.multi().add(1).quorum(2).expect("all are there");
        sim::sleep(Duration::from_secs(5));
        assert_eq!(counted.0.load(Ordering::SeqCst), 900);
        Ok::<(), farcall::Error>(())
    });
}
