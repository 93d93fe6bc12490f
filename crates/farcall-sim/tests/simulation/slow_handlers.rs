//! Tests that the other members' calls of a group go on while the caller's own code takes long.

use std::sync::Arc;
use std::time::Duration;

use farcall::multi::{Fixed, Next, Outcome};
use farcall::{Bulk, Group, Ran};
use farcall_sim::{Sim, check, sim};

#[farcall::interface]
trait Member {
    /// Takes as many seconds as the member's number says, and returns `bytes` bytes.
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

struct Server {
    takes: Duration,
}

impl Member for Server {
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        sim::sleep(self.takes);
        Ok(vec![7; bytes as usize])
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// Members that take these times.
fn members(sim: &Sim, times: &[Duration]) -> farcall::Result<Group<MemberClient, Fixed>> {
    for (which, &takes) in times.iter().enumerate() {
        let name = format!("Member/m{which:02}");
        sim.server(&name.clone(), move || {
            farcall::export::<dyn Member>(&name, Arc::new(Server { takes }))?.wait()
        });
    }
    sim.limit(10 * HOUR);
    Ok(farcall::import_all::<dyn Member>("Member")?.fixed())
}

fn handle_each_reply_for_an_hour(sim: &Sim) -> farcall::Result<()> {
    // One member replies at once, one while the handler runs, and one after that.
    let group = members(sim, &[Duration::ZERO, HOUR / 2, 2 * HOUR])?;
    let mut handled = Vec::new();
    let outcomes = group.multi().work(100_000).each(|reply| {
        handled.push((reply.index, reply.result.map(|content| content.len())));
        sim::sleep(HOUR);
        Next::Continue
    });
    assert_eq!(handled, [0, 1, 2].map(|index| (index, Ok(100_000))), "{outcomes:?}");
    Ok(())
}

#[test]
fn no_server_cancels_while_a_handler_takes_an_hour() {
    check(10, handle_each_reply_for_an_hour);
}

#[test]
#[cfg(feature = "soak")]
fn a_group_call_that_probes_no_server_while_a_handler_runs_is_noticed() {
    let failure = farcall_sim::find(10, |sim| {
        sim.breaks(farcall::driver_mutants::Rule::ProbingGoesOn);
        handle_each_reply_for_an_hour(sim)
    });
    failure.expect("a server takes its client for dead");
}

#[test]
fn no_server_cancels_while_the_caller_decides_whether_a_reply_counts() {
    check(10, |sim| {
        let group = members(sim, &[Duration::ZERO, 2 * HOUR])?;
        let counts = |reply: &farcall::Result<Vec<u8>>| {
            sim::sleep(HOUR);
            reply.is_ok()
        };
        let both = group.multi().work(4).counting(counts).quorum(2).expect("both are well");
        assert_eq!(both.results().count(), 2);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_handler_that_stops_the_call_late_leaves_the_others_cancelled() {
    check(10, |sim| {
        let group = members(sim, &[Duration::ZERO, 2 * HOUR])?;
        let outcomes = group.multi().work(4).each(|_| {
            sim::sleep(HOUR);
            Next::Stop
        });
        assert!(matches!(outcomes.get("Member/m01"), Some(Outcome::Abandoned(Ran::Maybe))), "{outcomes:?}");
        // The member is usable at once.
        let again = group.multi().work(4).within(3 * HOUR).all();
        assert_eq!(again.results().count(), 2);
        Ok::<(), farcall::Error>(())
    });
}

#[farcall::interface]
trait Files {
    /// Returns how many bytes came.
    fn store(&self, content: Bulk) -> farcall::Result<u64>;
}

struct Counts;

impl Files for Counts {
    fn store(&self, mut content: Bulk) -> farcall::Result<u64> {
        content.copy_to(&mut std::io::sink(), u64::MAX).done()
    }
}

/// The thread that waits for a call sends its bytes, and runs the user's code between them.
#[test]
fn no_server_cancels_while_the_source_of_an_argument_takes_long() {
    check(5, |sim| {
        for which in 0..3 {
            let name = format!("Files/{which}");
            sim.server(&name.clone(), move || farcall::export::<dyn Files>(&name, Arc::new(Counts))?.wait());
        }
        sim.limit(100 * HOUR);
        let group = farcall::import_all::<dyn Files>("Files")?.fixed();
        let (_, one) = group.stubs().next().expect("three servers");
        let slow = || Bulk::from_bytes(vec![7; 600_000]).with_progress(|_| sim::sleep(HOUR / 60));
        assert_eq!(one.store(slow())?, 600_000);
        assert_eq!(one.start().store(slow()).wait()?, 600_000);
        assert_eq!(sim::block_on(one.start().store(slow()))?, 600_000);
        let all = group.multi_each(|_, _, files| files.store(slow())).all();
        assert_eq!(all.results().filter(|(_, bytes)| **bytes == 600_000).count(), 3, "{all:?}");
        let all = sim::block_on(group.multi_each(|_, _, files| files.store(slow())).start().all());
        assert_eq!(all.results().count(), 3, "{all:?}");
        Ok::<(), farcall::Error>(())
    });
}
