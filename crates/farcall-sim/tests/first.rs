//! The first call of many, each of whom must be bound to before.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use farcall_sim::{Faults, check};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        Ok(n + 1)
    }
}

#[test]
fn however_many_must_be_bound_first_all_answer() {
    check(4, |sim| {
        for server in 0..3 {
            sim.server(&format!("server {server}"), move || {
                let member = |n| farcall::export::<dyn Member>(&format!("Member/{server}-{n}"), Arc::new(Server));
                let mut exports = (0..300).map(member).collect::<farcall::Result<Vec<_>>>()?;
                exports.swap_remove(0).wait()
            });
        }
        // None can be bound when the group is made, and all must when it is called.
        sim.faults(Faults { loss: 1.0, ..Faults::none() });
        let group = farcall::import_all::<dyn Member>("Member")?;
        let delay = Duration::from_millis(10);
        sim.faults(Faults { delay, jitter: delay, ..Faults::none() });
        assert_eq!(group.stubs().count(), 900);
        let all = group.multi().add(1).all();
        assert_eq!(all.results().count(), 900, "{:?}", all.failures().next());
        Ok::<(), farcall::Error>(())
    });
}
