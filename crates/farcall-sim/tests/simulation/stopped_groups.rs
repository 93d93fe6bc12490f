//! Tests that a group call which is stopped early leaves every member usable at once, in every network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::multi::{Next, Rest};
use farcall_sim::{Faults, check, sim};

#[farcall::interface]
trait Member {
    #[idempotent]
    fn add(&self, n: u64) -> farcall::Result<u64>;
    fn once(&self, number: u64) -> farcall::Result<()>;
}

#[derive(Default)]
struct Server(AtomicU64);

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_micros(sim::below(3) * sim::below(2_000)));
        Ok(n + 1)
    }

    fn once(&self, number: u64) -> farcall::Result<()> {
        let former = self.0.fetch_max(number, Ordering::SeqCst);
        assert!(former < number, "{number} came after {former}");
        Ok(())
    }
}

#[test]
fn after_two_of_five_the_next_call_of_each_succeeds() {
    // 100 seeds run 100 stopped calls each.
    check(100, |sim| {
        for member in 0..5 {
            let name = format!("Member/m{member}");
            sim.server(&name.clone(), move || {
                farcall::export::<dyn Member>(&name, Arc::new(Server::default()))?.wait()
            });
        }
        let group = farcall::import_all::<dyn Member>("Member")?;
        let members: Vec<_> = group.stubs().map(|(_, stub)| stub).collect();
        // The network is never so bad that a server seems dead.
        let delay = Duration::from_micros(sim.below(20_000));
        let chance = || sim.below(100) as f64 / 1000.0;
        let (loss, duplication, reordering) = (chance(), chance(), chance());
        sim.faults(Faults { loss, duplication, reordering, delay, jitter: 2 * delay, ..Faults::none() });
        for round in 1..=100 {
            let rest = if sim.below(2) == 0 { Rest::Cancel } else { Rest::Finish };
            let queued = sim.below(2) == 0;
            let mut seen = 0;
            group.multi().add(round).rest(rest).each(|reply| {
                assert_eq!(reply.result.expect("nobody is down"), round + 1);
                seen += 1;
                if seen < 2 {
                    return Next::Continue;
                }
                if queued {
                    sim::sleep(Duration::from_millis(sim::below(500)));
                }
                Next::Stop
            });
            assert_eq!(seen, 2);
            for member in &members {
                member.once(round)?;
            }
        }
        Ok::<(), farcall::Error>(())
    });
}
