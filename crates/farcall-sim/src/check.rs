//! Runs a user's test under many seeds, and says how to replay the one that failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sim::{self, Outcome, Sim};

/// Runs a test of programs that call one another in a simulated network, once for each of `seeds` seeds.
///
/// The test starts processes, and causes faults of the processes and of the network. The processes run
/// unchanged functions: they call [`farcall::export`] and [`farcall::import`], block in calls, start calls,
/// and serve. Servers and clients of ONC RPC (`farcall-onc`) run there too, at ports of UDP and TCP. Each
/// simulated thread is a thread of the operating system, but only one runs at a time. The next one runs when
/// that thread waits in a call or in [`sim::sleep`]. Time is virtual: it passes only while every thread
/// waits, so an hour of waiting costs nothing. The seed decides which thread runs next, what the network
/// loses, and what [`sim::random`] returns. So a failure can be replayed.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[farcall::interface]
/// pub trait Counter {
///     fn add(&self, n: u64) -> farcall::Result<u64>;
/// }
///
/// #[derive(Default)]
/// struct Memory(AtomicU64);
/// impl Counter for Memory {
///     fn add(&self, n: u64) -> farcall::Result<u64> {
///         Ok(self.0.fetch_add(n, Ordering::Relaxed) + n)
///     }
/// }
///
/// farcall_sim::check(20, |sim| -> farcall::Result<()> {
///     sim.random_faults();
///     sim.server("server", || {
///         farcall::export::<dyn Counter>("Counter", Arc::new(Memory::default()))?.wait()
///     });
///     let counter = farcall::import::<dyn Counter>("Counter")?;
///     for n in 1..=10 {
///         assert_eq!(counter.add(1)?, n);
///     }
///     Ok(())
/// });
/// ```
///
/// # What fails a run
///
/// - A panic of simulated code. This includes a panic in a procedure, which its caller sees as a failed call.
/// - An error that the test or a main function returns.
/// - A deadlock: every thread waits, no timer runs, and no packet is on its way. The failure says which
///   thread waits for what.
/// - The limit of virtual time, an hour unless the test sets [`Sim::limit`].
/// - A thread that runs for a minute of real time. Such a thread cannot be stopped.
///
/// # Environment variables
///
/// - `FARCALL_SIM_SEED=n` runs only that seed, and prints what happens: each datagram, each crash, and each
///   [`sim::note`].
/// - `FARCALL_SIM_SEEDS=n` runs that many seeds instead of `seeds`.
///
/// # What simulated code must not do
///
/// Simulated code must not wait for anything but farcall and this crate. It must not call
/// [`std::thread::sleep`], start threads other than by [`sim::spawn`], or wait for a channel, a condition
/// variable or an executor (use [`sim::block_on`]). It must not hold a lock during a call for which another
/// thread of the same process waits. It must ask for the time only by [`sim::now`] and for random numbers
/// only by [`sim::random`], and must not depend on the order of a `HashMap`. Otherwise two runs of one seed
/// differ.
///
/// A process has its own farcall runtime and network, but shares memory and files with the test. If a main
/// function captures an `Arc`, the value in it survives a crash, as the content of a disk would. A crash
/// happens only where a thread waits. To let a crash happen between two steps, put a [`sim::sleep`] there.
///
/// # Panics
///
/// When a run fails. The message has the seed, and says how to replay the run.
pub fn check<R: Outcome>(seeds: u64, test: impl Fn(&Sim) -> R + Send + Sync + 'static) {
    let test = Arc::new(test);
    let result = match variable("FARCALL_SIM_SEED") {
        Some(seed) => one(seed, true, &test).map(drop),
        None => (0..variable("FARCALL_SIM_SEEDS").unwrap_or(seeds))
            .try_for_each(|seed| one(seed, false, &test).map(drop)),
    };
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Returns the failure of the first of `seeds` seeds that fails. It is for tests which show that [`check`]
/// would catch a mistake.
///
/// ```
/// let failure = farcall_sim::find(100, |_| assert_ne!(farcall_sim::sim::below(4), 3, "three again"));
/// assert!(failure.unwrap().why.contains("three again"));
/// ```
pub fn find<R: Outcome>(seeds: u64, test: impl Fn(&Sim) -> R + Send + Sync + 'static) -> Option<Failure> {
    let test = Arc::new(test);
    (0..seeds).find_map(|seed| one(seed, false, &test).err())
}

/// Runs a test under one seed.
///
/// # Errors
/// When it fails.
pub fn replay<R: Outcome>(
    seed: u64,
    test: impl Fn(&Sim) -> R + Send + Sync + 'static,
) -> Result<Passed, Failure> {
    one(seed, false, &Arc::new(test))
}

fn one<R: Outcome>(
    seed: u64,
    verbose: bool,
    test: &Arc<impl Fn(&Sim) -> R + Send + Sync + 'static>,
) -> Result<Passed, Failure> {
    let sim::Ended { failure, time, trace_hash } = sim::run(seed, verbose, test);
    let time = Duration::from_nanos(time);
    match failure {
        None => Ok(Passed { seed, time, trace_hash }),
        Some(why) => Err(Failure { seed, time, trace_hash, why }),
    }
}

/// A run that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passed {
    /// The run's seed.
    pub seed: u64,
    /// The virtual time that it took.
    pub time: Duration,
    /// A hash of everything that happened. It is the same whenever the seed is run again.
    pub trace_hash: u64,
}

/// A run that failed. Its text says how to replay it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The virtual time at which it failed.
    pub time: Duration,
    /// A hash of everything that happened. It is the same whenever the seed is run again.
    pub trace_hash: u64,
    /// The failure, for people.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, time, why, .. } = self;
        let thread = std::thread::current();
        // Under `cargo test`, a thread has the name of its test.
        let test = thread.name().filter(|name| *name != "main").unwrap_or("");
        writeln!(f, "seed {seed} failed at {:.6} s: {why}", time.as_secs_f64())?;
        write!(f, "replay it by: FARCALL_SIM_SEED={seed} cargo test {test} -- --nocapture")
    }
}

impl std::error::Error for Failure {}

/// Returns the number in an environment variable.
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    Some(value.parse().unwrap_or_else(|_| panic!("the variable {name} must be a number, not {value:?}")))
}
