//! Tests that what happens at one moment happens in an order that the seed decides: a run can be repeated
//! only then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::Runtime;
use farcall_sim::{Faults, Sim, check, sim};

#[farcall::interface]
trait Store {
    /// Waits until the call is given up.
    #[blocking]
    fn wait(&self, caller: u64) -> farcall::Result<()>;
}

/// What has happened: which caller's call began, and which was given up.
type Told = Arc<Mutex<Vec<(u64, bool)>>>;

struct Server(Told);

impl Store for Server {
    fn wait(&self, caller: u64) -> farcall::Result<()> {
        self.0.lock().unwrap().push((caller, false));
        farcall::context().cancelled().wait(Duration::from_secs(3600));
        self.0.lock().unwrap().push((caller, true));
        Ok(())
    }
}

/// Many callers call at the same time, and their calls have the same deadline.
fn play(sim: &Sim, told: &Told) {
    sim.faults(Faults { jitter: Duration::ZERO, ..Faults::none() });
    let of_server = told.clone();
    let server = sim.server("server", move || {
        Runtime::builder().build()?.export::<dyn Store>("Store", Arc::new(Server(of_server.clone())))?.wait()
    });
    let callers: Vec<_> = (0..12)
        .map(|caller| {
            sim.process(&format!("caller {caller}"), move || -> farcall::Result<()> {
                let store = Runtime::builder().build()?.import::<dyn Store>("Store")?;
                sim::sleep(Duration::from_secs(10).saturating_sub(sim::now()));
                let _ = store.within(Duration::from_secs(5)).wait(caller);
                Ok(())
            })
        })
        .collect();
    callers.iter().for_each(sim::Process::wait);
    sim.sleep(Duration::from_secs(1));
    drop(server);
}

#[test]
fn calls_that_come_and_end_at_one_moment_do_so_in_the_same_order_each_time() {
    let run = || {
        let told = Told::default();
        let of_run = told.clone();
        check(1, move |sim| play(sim, &of_run));
        told.lock().unwrap().clone()
    };
    let first = run();
    assert_eq!(first.len(), 24, "{first:?}");
    (0..6).for_each(|_| assert_eq!(run(), first));
}
