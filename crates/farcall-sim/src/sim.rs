//! Simulation for users' tests: unchanged programs run in a simulated network, one thread at a time.
//!
//! [`check`](crate::check) describes how to use it. This module has the functions for simulated code:
//! [`sleep`], [`now`], [`random`], [`spawn`] and so on.

mod env;
mod faults;
mod inside;
mod names;
mod panics;
mod publication;
mod services;
mod state;
mod world;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use faults::Faults;
pub use inside::{JoinHandle, below, block_on, crash, note, now, random, sleep, spawn, unix_seconds};

use crate::net::{Nanos, Router};
use env::Outside;
use farcall::{Runtime, System};
use faults::{nanos, per_million};
use names::Names;
use state::Main;
use world::{World, here};

/// A simulated network with processes in it, for a test. Clones are handles of the same network.
///
/// Each process has a machine of its own, with an address and a clock. The test itself runs in a process,
/// called `test`, and can import and export like any other.
#[derive(Clone)]
pub struct Sim {
    world: Arc<World>,
    seed: u64,
}

impl Sim {
    /// Returns the seed of this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Starts a process. [`run`](Sim::run) waits for its end. Traces and failures contain its name.
    ///
    /// `main` is called at each start. It returns `()` or a `Result`; an error fails the run. When `main` has
    /// returned, the process ends with all its threads. This function returns when the process first waits.
    /// So a server that exports and then waits can be imported afterwards.
    pub fn process<R: Outcome>(&self, name: &str, main: impl Fn() -> R + Send + Sync + 'static) -> Process {
        self.start(name, main, false)
    }

    /// Starts a process that [`run`](Sim::run) does not wait for, because it serves for ever.
    pub fn server<R: Outcome>(&self, name: &str, main: impl Fn() -> R + Send + Sync + 'static) -> Process {
        self.start(name, main, true)
    }

    fn start<R: Outcome>(
        &self,
        name: &str,
        main: impl Fn() -> R + Send + Sync + 'static,
        server: bool,
    ) -> Process {
        let index = self.world.lock().add_process(name, main_of(main), server);
        let process = Process { world: self.world.clone(), index };
        process.restart();
        process
    }

    /// Returns the process that the test runs in.
    pub fn test(&self) -> Process {
        Process { world: self.world.clone(), index: 0 }
    }

    /// Waits until every process that [`process`](Sim::process) has started has ended or crashed. The end of
    /// the test waits for that too.
    pub fn run(&self) {
        self.world.wait_for_all();
    }

    /// Lets virtual time pass, as [`sleep`] does.
    pub fn sleep(&self, time: Duration) {
        sleep(time);
    }

    /// Returns a random number less than `bound`, as [`below`] does.
    pub fn below(&self, bound: u64) -> u64 {
        self.world.lock().rng.below(bound)
    }

    /// Sets the faults of datagrams that are sent from now on, on every path.
    pub fn faults(&self, faults: Faults) {
        let mut state = self.world.lock();
        state.note(&[10], || format!("{faults:?}"));
        state.faults = faults;
        state.net.paths().iter_mut().for_each(|path| *path = faults.path(*path));
    }

    /// Sets faults that the seed draws, from none to severe, and returns them.
    pub fn random_faults(&self) -> Faults {
        let faults = Faults::drawn(&mut self.world.lock().rng);
        self.faults(faults);
        faults
    }

    /// Sets the faults of datagrams from one process to another, in that direction only.
    pub fn faults_between(&self, from: &Process, to: &Process, faults: Faults) {
        let mut state = self.world.lock();
        let path = state.net.path(from.index, to.index);
        *path = faults.path(*path);
    }

    /// Puts a slow router before a process: it takes this long for each datagram to the process, of whatever
    /// length and from whomever, and queues as many datagrams. It drops the others.
    pub fn router(&self, before: &Process, each: Duration, queue: usize) {
        let mut state = self.world.lock();
        let facts = [17, before.index as u64, nanos(each), queue as u64];
        state.note(&facts, || format!("a router takes {each:?} for a datagram, and queues {queue}"));
        state.net.set_router(before.index, Router::new(nanos(each), queue as u64));
    }

    /// Cuts the paths between two processes, until [`heal`](Sim::heal). Datagrams on their way still arrive.
    pub fn partition(&self, a: &Process, b: &Process) {
        self.cut(a, b);
        self.cut(b, a);
    }

    /// Cuts the path from one process to another, in that direction only.
    pub fn cut(&self, from: &Process, to: &Process) {
        let mut state = self.world.lock();
        let facts = [12, from.index as u64, to.index as u64];
        let names = [from, to].map(|p| state.processes[p.index].name.clone());
        state.note(&facts, || format!("nothing passes from {} to {}", names[0], names[1]));
        state.net.path(from.index, to.index).cut_until = Nanos::MAX;
    }

    /// Ends every partition and every cut. Other faults stay.
    pub fn heal(&self) {
        let mut state = self.world.lock();
        state.note(&[11], || "partitions end".to_owned());
        state.net.paths().iter_mut().for_each(|path| path.cut_until = 0);
    }

    /// Makes farcall fail, in every process from now on, to start threads of its own, as if the operating
    /// system had no more threads. `chance`, from 0 to 1, is the chance of each failure. Threads of [`spawn`]
    /// still start.
    pub fn thread_failures(&self, chance: f64) {
        let mut state = self.world.lock();
        state.thread_failures = per_million(chance);
        state.note(&[14], || format!("of farcall's threads {chance} cannot be started"));
    }

    /// Gives a host a name. The resolver of this network knows the addresses of these processes for it, in
    /// this order. Hosts have no names otherwise; the registry knows the names of exports.
    pub fn host(&self, name: &str, processes: &[&Process]) {
        let address = |process: &&Process| crate::net::address(process.index, 0).ip();
        self.world.services.name_host(name, processes.iter().map(address).collect());
    }

    /// Makes each question to the registry fail at once from now on, as if its process had ended; or has it
    /// answer again, with `ended` false.
    pub fn end_registry(&self, ended: bool) {
        self.world.lock().note(&[18, ended.into()], || format!("the registry has ended: {ended}"));
        self.world.services.end_registry(ended);
    }

    /// Makes the registry answer nothing from now on, or answer again, with `silent` false. Questions that
    /// were put meanwhile are answered then. With an odd seed the silent registry does not keep deadlines, as
    /// one of a user's: then farcall asks it in threads of its own.
    pub fn silence_registry(&self, silent: bool) {
        self.world.lock().note(&[15, silent.into()], || format!("the registry is silent: {silent}"));
        self.world.services.silence_registry(silent, silent && self.seed % 2 == 1);
    }

    /// Makes the registry lose all its entries, as etcd does that was away for longer than their leases.
    /// Returns their names. Their processes do not publish them again by themselves
    /// ([`publish_again`](Sim::publish_again)).
    pub fn lose_names(&self) -> Vec<String> {
        self.world.lock().note(&[17], || "the registry loses its entries".to_owned());
        names::lose(&self.world)
    }

    /// Has the process that has published this name publish it again, after the registry has lost it.
    pub fn publish_again(&self, name: &str) {
        self.world.lock().note(&[18], || format!("{name} is published again"));
        names::publish_again(&self.world, name);
    }

    /// Makes the resolver of hosts' names answer nothing from now on, or answer again, as
    /// [`silence_registry`](Sim::silence_registry) does with the registry.
    pub fn silence_resolver(&self, silent: bool) {
        self.world.lock().note(&[16, silent.into()], || format!("the resolver is silent: {silent}"));
        self.world.services.silence_resolver(silent);
    }

    /// Makes every process break a rule on purpose from now on, to show that a test would notice.
    #[cfg(feature = "soak")]
    #[doc(hidden)]
    pub fn breaks(&self, rule: farcall::driver_mutants::Rule) {
        self.world.lock().mutant = farcall::driver_mutants::Mutant::of(rule);
    }

    /// Sets how much virtual time the run may take before it fails. The default is an hour.
    pub fn limit(&self, time: Duration) {
        self.world.lock().limit = nanos(time);
    }

    /// Allows panics of simulated code. They no longer fail the run, and have the effect that they have in a
    /// real process: the caller of a procedure that panics gets an error, and a main function that panics
    /// ends its process.
    pub fn allow_panics(&self) {
        self.world.lock().panics_allowed = true;
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// A process of a simulation, on a machine of its own. Clones are handles of the same process.
#[derive(Clone)]
pub struct Process {
    world: Arc<World>,
    index: usize,
}

impl Process {
    /// Stops the process at once, as a crash of its machine would. Nothing that it sends from now on leaves,
    /// and datagrams to it are lost. Its exports stay in the registry, but do not answer importers. If a
    /// process crashes itself, this function does not return.
    ///
    /// The process's threads stop where they next wait (in a call, in [`sleep`]) and unwind, so destructors
    /// run. The effects of destructors do not leave the process, except in memory that the test shares with
    /// it. In these destructors `std::thread::panicking()` returns true. A destructor that waits in a call
    /// blocks its thread for ever.
    ///
    /// # Panics
    /// When it is called for [the test's](Sim::test) process.
    pub fn crash(&self) {
        self.world.crash(self.index);
    }

    /// Starts the process again if it has crashed or ended, by calling its main function once more. The
    /// process may get the same ports as before, or others.
    ///
    /// # Panics
    /// When the operating system has no thread left.
    pub fn restart(&self) {
        if self.is_running() || self.world.lock().ending {
            return;
        }
        self.world.start(self.index).expect("the operating system starts a thread");
    }

    /// Gives the process another main function, for example a new version of the program, and starts it
    /// again. If the process is running, it crashes first.
    pub fn restart_as<R: Outcome>(&self, main: impl Fn() -> R + Send + Sync + 'static) {
        self.crash();
        let former = self.world.lock().processes[self.index].main.replace(main_of(main));
        drop(former);
        self.restart();
    }

    /// Stops the process, as SIGSTOP does, until [`resume`](Process::resume). Time continues, and datagrams
    /// wait for the process. A process that stops itself runs until it next waits.
    pub fn pause(&self) {
        self.world.lock().pause(self.index);
    }

    /// Continues a paused process.
    pub fn resume(&self) {
        self.world.lock().resume(self.index);
    }

    /// Returns whether the process has started, and has neither ended nor crashed.
    pub fn is_running(&self) -> bool {
        self.world.lock().processes[self.index].alive
    }

    /// Waits until the process has ended or crashed.
    pub fn wait(&self) {
        self.world.wait_for_end(self.index);
    }

    /// Returns the process's name.
    pub fn name(&self) -> String {
        self.world.lock().processes[self.index].name.clone()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.name()).finish()
    }
}

/// The result of a test or of a process's main function: `()`, or a `Result`, whose error fails the run.
pub trait Outcome {
    /// Returns the error, if there is one.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|why| format!("{why:?}"))
    }
}

/// Makes the runtime of one life of a process.
fn runtime(world: &Arc<World>, process: usize, life: u32) -> farcall::Result<Runtime> {
    let outside = Arc::new(Outside::new(world.clone(), process, life));
    world.lock().processes[process].env = Some(outside.clone());
    System::replace(outside.clone());
    let names = Names::new(world.clone(), process, life);
    Runtime::builder().env(outside).registry(names).build()
}

fn main_of<R: Outcome>(main: impl Fn() -> R + Send + Sync + 'static) -> Arc<Main> {
    Arc::new(move || main().failure().map_or(Ok(()), Err))
}

/// The outcome of a run.
pub(crate) struct Ended {
    pub(crate) failure: Option<String>,
    pub(crate) time: Nanos,
    pub(crate) trace_hash: u64,
}

/// The real time that a thread may run before the run is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test under one seed.
pub(crate) fn run<R: Outcome>(
    seed: u64,
    verbose: bool,
    test: &Arc<impl Fn(&Sim) -> R + Send + Sync + 'static>,
) -> Ended {
    run_with(World::new(seed, verbose, PATIENCE), seed, test)
}

fn run_with<R: Outcome>(
    world: Arc<World>,
    seed: u64,
    test: &Arc<impl Fn(&Sim) -> R + Send + Sync + 'static>,
) -> Ended {
    assert!(here().is_none(), "a simulation cannot run inside another");
    panics::watch();
    let sim = Sim { world: world.clone(), seed };
    let test = test.clone();
    world.run(Arc::new(move || {
        if let Some(failure) = test(&sim).failure() {
            return Err(failure);
        }
        sim.run();
        Ok(())
    }));
    let (failure, time, trace_hash) = world.outcome();
    Ended { failure, time, trace_hash }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_something_else_is_named() {
        let test = Arc::new(|sim: &Sim| {
            sim.process("strange", || {
                let (_open, never) = std::sync::mpsc::channel::<()>();
                let _ = never.recv();
            });
        });
        let ended = run_with(World::new(1, false, Duration::from_millis(50)), 1, &test);
        let why = ended.failure.unwrap();
        assert!(why.starts_with("strange: main ran for 50ms of real time"), "{why}");
    }
}
