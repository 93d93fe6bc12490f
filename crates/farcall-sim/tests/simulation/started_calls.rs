//! Tests that started calls go on while no thread waits for them, whatever the thread that started them does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall::memory::{Memory, Remote, Rights, Settings};
use farcall_sim::{Faults, Process, Sim, check, sim};

#[farcall::interface]
trait Bell {
    fn ring(&self) -> farcall::Result<()>;
    fn sleep(&self) -> farcall::Result<()>;
}

#[derive(Clone, Default)]
struct Rung(Arc<AtomicBool>);

impl Rung {
    fn is_rung(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Bell for Rung {
    fn ring(&self) -> farcall::Result<()> {
        self.0.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self) -> farcall::Result<()> {
        sim::sleep(Duration::from_secs(1000));
        Ok(())
    }
}

fn serve(sim: &Sim, rung: &Rung) -> Process {
    let rung = rung.clone();
    sim.server("bell", move || {
        let runtime = farcall::Runtime::builder().workers(32).build()?;
        runtime.export::<dyn Bell>("Bell", Arc::new(rung.clone()))?.wait()
    })
}

fn remember(sim: &Sim) -> farcall::Result<Remote> {
    sim.server("memory", || -> farcall::Result<()> {
        let _segment = farcall::memory::export("Words", Settings::new(64).anyone(Rights::READ))?;
        sim::sleep(Duration::from_secs(10_000));
        Ok(())
    });
    farcall::memory::import("Words")
}

/// Reads memory until the bell has rung. Each read is one datagram and one answer, and its send time does not
/// matter to any thread.
fn read_until(rung: &Rung, words: &Remote) {
    for _ in 0..10_000 {
        words.load(0).expect("nothing is lost");
        if rung.is_rung() {
            return;
        }
    }
    panic!("the call was not sent");
}

#[test]
fn a_call_that_was_left_for_others_to_share_its_datagram_leaves_while_its_thread_reads_memory() {
    check(20, |sim| -> farcall::Result<()> {
        let rung = Rung::default();
        serve(sim, &rung);
        let (bell, words) = (farcall::import::<dyn Bell>("Bell")?, remember(sim)?);
        let slow: Vec<_> = (0..8).map(|_| bell.start().sleep()).collect();
        let left = bell.start().ring();
        let since = sim::now();
        read_until(&rung, &words);
        // No timer of the conversation can have expired by then.
        assert!(sim::now() - since < Duration::from_millis(20));
        drop((slow, left));
        Ok(())
    });
}

#[test]
fn a_call_that_was_lost_is_sent_again_while_its_thread_reads_memory() {
    check(20, |sim| -> farcall::Result<()> {
        let rung = Rung::default();
        let server = serve(sim, &rung);
        let (bell, words) = (farcall::import::<dyn Bell>("Bell")?, remember(sim)?);
        let client = sim.test();
        sim.faults_between(&client, &server, Faults { loss: 1.0, ..Faults::none() });
        let lost = bell.start().ring();
        sim.faults_between(&client, &server, Faults::none());
        read_until(&rung, &words);
        lost.wait()
    });
}
