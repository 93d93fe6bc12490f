//! A member of a group that is silent costs its callers no memory that grows with their calls.
//!
//! (`farcall/tests/dead_members.rs` has a member whose port is closed.)
//!
//! This is a binary of its own, because its global allocator counts the bytes that the process has.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../../farcall/tests/common/live_bytes.rs"]
mod live_bytes;

use std::sync::Arc;
use std::time::Duration;

use farcall::multi::{Fixed, Rest};
use farcall::{Group, Kind};
use farcall_sim::{Sim, check, sim};

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

const CALLS: u64 = 20_000;
/// The time between two calls. A call of the silent member fails after 10 s, so at most about a thousand wait
/// for that.
const PAUSE: Duration = Duration::from_millis(10);
/// After this time all calls of the silent member have failed, and nobody sends anything.
const LONG: Duration = Duration::from_secs(60);
/// The bytes by which the heap may differ after half of the calls and after all of them.
const TOLERANCE: isize = 16 << 10;

/// A group of three members, of which one is silent.
struct Silenced(Group<MemberClient, Fixed>);

impl Silenced {
    fn new(sim: &Sim) -> farcall::Result<Silenced> {
        let serve = |name: &str| {
            let export = format!("Member/{name}");
            sim.server(name, move || farcall::export::<dyn Member>(&export, Arc::new(Server))?.wait())
        };
        let [silent, ..] = ["silent", "one", "two"].map(serve);
        let group = farcall::import_all::<dyn Member>("Member")?.fixed();
        assert_eq!(group.multi().add(0).all().results().count(), 3);
        sim.partition(&sim.test(), &silent);
        Ok(Silenced(group))
    }

    /// Calls the group. The calls of the silent member are left to finish, or are cancelled. Returns the
    /// bytes of the heap when all of them have ended.
    fn call(&self) -> isize {
        for number in 0..CALLS / 2 {
            let rest = if number % 2 == 0 { Rest::Finish } else { Rest::Cancel };
            let replies = self.0.multi().add(number).rest(rest).majority().expect("two members live");
            assert_eq!(replies.results().count(), 2);
            sim::sleep(PAUSE);
        }
        let during = live_bytes::of_process();
        sim::sleep(LONG);
        live_bytes::wait_for_end_of_thread("test: farcall-rebind");
        let after = live_bytes::of_process();
        println!("after {} calls {during} bytes, and {after} when all have ended", CALLS / 2);
        after
    }

    /// Checks that the bytes of the heap after half of the calls are as many as after all of them. Calls once
    /// before, because the simulation itself keeps some hundred bytes for each of the most threads that there
    /// ever were at a time. (When the member's silence is noticed, all calls that wait for it ask the registry
    /// again, by at most 64 threads.)
    fn check(&self) {
        self.call();
        let [half, all] = [self.call(), self.call()];
        assert!(
            (all - half).abs() <= TOLERANCE,
            "{half} bytes after {} calls, {all} after {CALLS}",
            CALLS / 2
        );
    }
}

#[test]
fn a_silent_member_costs_no_memory_that_grows() {
    check(1, |sim| -> farcall::Result<()> {
        let silenced = Silenced::new(sim)?;
        silenced.check();
        // This breaks the binding, so that each call of the member has to bind from now on.
        let all = silenced.0.multi().add(0).all();
        let failed: Vec<Kind> = all.failures().map(|(_, why)| why.kind()).collect();
        assert_eq!((all.results().count(), &failed[..]), (2, &[Kind::Unreachable][..]), "{all:?}");
        silenced.check();
        Ok(())
    });
}
