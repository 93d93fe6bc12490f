//! Tests what becomes of the calls of a caller that is stopped for long, as in a debugger, and of a call
//! whose caller has given it up in a way that its server cannot have heard of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Kind, Runtime, Stream};
use farcall_sim::{Sim, check, sim};

#[farcall::interface]
trait Work {
    /// Takes so many seconds.
    fn take(&self, seconds: u64) -> farcall::Result<u64>;
    /// Takes items until there are no more, and returns how many there were.
    fn count(&self, items: Stream<u64>) -> farcall::Result<u64>;
}

/// A server, which tells whether its procedure waits for items.
struct Worker(Arc<AtomicBool>);

struct Waits<'a>(&'a AtomicBool);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Work for Worker {
    fn take(&self, seconds: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_secs(seconds));
        Ok(seconds)
    }

    fn count(&self, items: Stream<u64>) -> farcall::Result<u64> {
        self.0.store(true, Ordering::SeqCst);
        let _waits = Waits(&self.0);
        let mut count = 0;
        for item in items {
            count += item?;
        }
        Ok(count)
    }
}

/// Stops a caller for twenty seconds of its call of thirty. Returns how the call ended.
fn stopped(sim: &Sim, server_patience: Option<Duration>) -> Result<u64, Kind> {
    sim.server("worker", || farcall::export::<dyn Work>("Work", Arc::new(Worker(Arc::default())))?.wait());
    let told = Arc::new(Mutex::new(None));
    let caller = {
        let told = told.clone();
        sim.process("caller", move || {
            let builder = Runtime::builder();
            let builder = match server_patience {
                Some(patience) => builder.server_patience(patience),
                None => builder,
            };
            let runtime = builder.build()?;
            let outcome = runtime.import::<dyn Work>("Work")?.take(30);
            let kind = |why: farcall::Error| why.call_failed().expect("nothing is declared").kind();
            *told.lock().unwrap() = Some(outcome.map_err(kind));
            Ok::<(), farcall::Error>(())
        })
    };
    sim.sleep(Duration::from_secs(5));
    caller.pause();
    sim.sleep(Duration::from_secs(20));
    caller.resume();
    caller.wait();
    told.lock().unwrap().take().expect("the call has ended")
}

#[test]
fn a_caller_that_is_stopped_for_long_keeps_its_call_if_it_asks_servers_for_patience() {
    check(5, |sim| {
        let (asks, outcome) = match sim.seed() % 2 {
            0 => (Some(Duration::from_secs(600)), Ok(30)),
            _ => (None, Err(Kind::Cancelled)),
        };
        assert_eq!(stopped(sim, asks), outcome);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_procedure_learns_that_its_call_was_cancelled_though_nothing_of_that_arrived() {
    check(5, |sim| {
        let waits = Arc::<AtomicBool>::default();
        let worker = {
            let waits = waits.clone();
            sim.server("worker", move || {
                farcall::export::<dyn Work>("Work", Arc::new(Worker(waits.clone())))?.wait()
            })
        };
        let work = farcall::import::<dyn Work>("Work")?;
        // Another call keeps the conversation alive.
        let long = work.start().take(200);
        let stalls = std::iter::from_fn(|| {
            sim::sleep(Duration::from_secs(150));
            None
        });
        let mut counting = work.start().count(Stream::new(std::iter::once(Ok(1)).chain(stalls)));
        sim.sleep(Duration::from_secs(1));
        assert!(waits.load(Ordering::SeqCst));
        sim.cut(&sim.test(), &worker);
        counting.cancel();
        sim.sleep(Duration::from_secs(6));
        sim.heal();
        assert!(waits.load(Ordering::SeqCst), "nobody has told the procedure");
        sim.sleep(Duration::from_secs(30));
        assert!(!waits.load(Ordering::SeqCst), "the procedure waits for ever");
        assert_eq!(long.wait()?, 200);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_stream_whose_sender_stalls_for_long_goes_on() {
    check(5, |sim| {
        sim.server("worker", || {
            farcall::export::<dyn Work>("Work", Arc::new(Worker(Arc::default())))?.wait()
        });
        let work = farcall::import::<dyn Work>("Work")?;
        let mut items = 0;
        let stalls = std::iter::from_fn(move || {
            items += 1;
            sim::sleep(Duration::from_secs(100));
            (items <= 3).then_some(Ok(1))
        });
        assert_eq!(work.start().count(Stream::new(stalls)).wait()?, 3);
        Ok::<(), farcall::Error>(())
    });
}
