//! Procedures that wait: they use up no other caller's workers, no circle of them stays stuck, and their
//! threads end.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::builder;
use farcall::env::{Env, Event};
use farcall::{CallFailed, Export, Kind, Ran, Runtime, System};

#[farcall::interface]
trait Door {
    /// Waits until the door is opened.
    #[blocking]
    fn pass(&self) -> farcall::Result<()>;
    /// Waits until the door is opened, although no attribute says that it waits.
    fn pass_unmarked(&self) -> farcall::Result<()>;
    fn get(&self) -> farcall::Result<u32>;
    /// Calls `there` of the door `door`, which calls `get` of the door `home`.
    fn circle(&self, door: &str, home: &str) -> farcall::Result<u32>;
    /// Waits until as many calls have come as the test wants, and calls `get` of the door `home`.
    #[blocking]
    fn there(&self, home: &str) -> farcall::Result<u32>;
}

/// How long to wait for what must happen.
const GUARD: Duration = Duration::from_secs(60);

struct Gate {
    begun: Mutex<Sender<()>>,
    open: Mutex<bool>,
    opened: Condvar,
    /// How many calls must have arrived before `there` goes on.
    awaited: Mutex<usize>,
    arrived: Condvar,
}

impl Gate {
    fn new(awaited: usize) -> (Arc<Gate>, Receiver<()>) {
        let (begun, begins) = channel();
        let (open, opened, arrived) = (Mutex::new(false), Condvar::new(), Condvar::new());
        let gate = Gate { begun: Mutex::new(begun), open, opened, awaited: Mutex::new(awaited), arrived };
        (Arc::new(gate), begins)
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn import(name: &str) -> farcall::Result<DoorClient> {
        farcall::import::<dyn Door>(name)
    }
}

impl Door for Gate {
    fn pass(&self) -> farcall::Result<()> {
        self.begun.lock().unwrap().send(()).unwrap();
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        Ok(())
    }

    fn pass_unmarked(&self) -> farcall::Result<()> {
        self.pass()
    }

    fn get(&self) -> farcall::Result<u32> {
        Ok(7)
    }

    fn circle(&self, door: &str, home: &str) -> farcall::Result<u32> {
        Gate::import(door)?.there(home)
    }

    fn there(&self, home: &str) -> farcall::Result<u32> {
        let home = Gate::import(home)?;
        let mut awaited = self.awaited.lock().unwrap();
        *awaited = awaited.saturating_sub(1);
        self.arrived.notify_all();
        drop(self.arrived.wait_while(awaited, |awaited| *awaited > 0).unwrap());
        home.get()
    }
}

fn carriers() -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(|shared| !shared || cfg!(target_os = "linux"))
}

fn told<T>(outcome: farcall::Result<T>) -> CallFailed {
    outcome.err().expect("it fails").into()
}

fn exported(builder: farcall::Builder, gate: &Arc<Gate>) -> (Runtime, Export) {
    let runtime = builder.build().unwrap();
    let export = runtime.export::<dyn Door>("Door", gate.clone()).unwrap();
    (runtime, export)
}

/// Makes as many calls in a circle as there can be threads besides the receiving one. Each waits for a call
/// that needs another thread.
#[test]
fn a_circle_of_calls_at_the_limit_of_threads_is_refused() {
    const CALLS: usize = 7;
    for shared in carriers() {
        let (here, _begins) = Gate::new(0);
        let (there, _begins) = Gate::new(CALLS);
        let of = || builder().shared_memory(shared);
        let (_home, home) = exported(of().workers(4).threads(CALLS + 1), &here);
        let (_other, other) = exported(of(), &there);
        let client = of().build().unwrap();
        let door = client.import::<dyn Door>(&home.url()).unwrap();
        let (other, home) = (other.url(), home.url());
        let calls: Vec<_> = (0..CALLS).map(|_| door.start().circle(&other, &home)).collect();
        let mut refused = 0;
        for call in calls {
            let Err(why) = call.wait() else { continue };
            let why = CallFailed::from(why);
            assert_eq!((why.kind(), why.ran()), (Kind::Nested, Ran::Yes));
            assert!(
                why.detail().contains("all 8 threads wait in calls of their own (FARCALL_THREADS)"),
                "{why}"
            );
            refused += 1;
        }
        assert!(refused > 0, "there was no thread for one of them");
        // Later calls are served, also those in a circle.
        let later = of().build().unwrap().import::<dyn Door>(&home).unwrap();
        assert_eq!(later.get().unwrap(), 7);
        assert_eq!(later.circle(&other, &home).unwrap(), 7);
    }
}

#[test]
fn calls_that_wait_leave_others_their_workers() {
    const WAITING: usize = 100;
    for shared in carriers() {
        let (gate, begins) = Gate::new(0);
        let of = || builder().shared_memory(shared);
        // The server has as many workers as on the smallest machine.
        let (_runtime, export) = exported(of().workers(4), &gate);
        let (mine, others) = (of().build().unwrap(), of().build().unwrap());
        let mine = mine.import::<dyn Door>(&export.url()).unwrap();
        let others = others.import::<dyn Door>(&export.url()).unwrap();
        let waiting: Vec<_> = (0..WAITING).map(|_| mine.start().pass()).collect();
        (0..WAITING).for_each(|_| begins.recv_timeout(GUARD).expect("all of them begin"));
        assert_eq!(others.get().unwrap(), 7);
        // The server finds out that an unknown procedure waits, at the latest when another call needs its
        // worker.
        let unmarked: Vec<_> = (0..20).map(|_| mine.start().pass_unmarked()).collect();
        (0..20).for_each(|_| begins.recv_timeout(GUARD).expect("all of these too"));
        assert_eq!(others.get().unwrap(), 7);
        gate.open();
        waiting.into_iter().chain(unmarked).for_each(|call| call.wait().unwrap());
    }
}

/// No call waits in the queue for 3 s, although each waits in its procedure for the last one, and nothing
/// but a look at the workers tells the server so.
#[test]
fn a_peak_of_calls_that_wait_begins_although_no_attribute_says_that_they_wait() {
    const WAITING: usize = 800;
    for shared in carriers() {
        let (gate, begins) = Gate::new(0);
        let of = || builder().shared_memory(shared);
        let bounds = of().workers(4).threads(2 * WAITING).queue(WAITING).queue_time(Duration::from_secs(3));
        let (_runtime, export) = exported(bounds, &gate);
        let door = of().build().unwrap().import::<dyn Door>(&export.url()).unwrap();
        let waiting: Vec<_> = (0..WAITING).map(|_| door.start().pass_unmarked()).collect();
        let begun = (0..WAITING).take_while(|_| begins.recv_timeout(Duration::from_secs(10)).is_ok()).count();
        gate.open();
        let refused = waiting.into_iter().filter_map(|call| call.wait().err()).count();
        assert_eq!((begun, refused), (WAITING, 0), "shared memory: {shared}");
    }
}

#[test]
fn a_call_that_waits_too_long_for_a_worker_is_refused_and_says_why() {
    for shared in carriers() {
        let (gate, begins) = Gate::new(0);
        let of = || builder().shared_memory(shared);
        let bounds = of().workers(1).threads(2).queue(1).queue_time(Duration::from_millis(30));
        let (_runtime, export) = exported(bounds, &gate);
        let door = of().build().unwrap().import::<dyn Door>(&export.url()).unwrap();
        let waiting = door.start().pass();
        begins.recv_timeout(GUARD).unwrap();
        let why = told(door.pass());
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
        for named in ["FARCALL_QUEUE_MS", "FARCALL_THREADS", "2 threads"] {
            assert!(why.detail().contains(named), "{why}");
        }
        gate.open();
        waiting.wait().unwrap();
        assert_eq!(door.get().unwrap(), 7);
    }
}

#[test]
fn a_full_queue_says_so() {
    for shared in carriers() {
        let (gate, begins) = Gate::new(0);
        let of = || builder().shared_memory(shared);
        let (_runtime, export) = exported(of().workers(1).threads(2).queue(1), &gate);
        let door = of().build().unwrap().import::<dyn Door>(&export.url()).unwrap();
        let waiting = [door.start().pass(), door.start().pass()];
        begins.recv_timeout(GUARD).unwrap();
        let why = loop {
            // Until both calls have come, one of these may be in the queue.
            match door.within(Duration::from_millis(100)).pass() {
                Err(farcall::Error::CallFailed(why)) if why.kind() == Kind::Overloaded => break why,
                _ => {}
            }
        };
        assert_eq!(why.ran(), Ran::No);
        assert!(why.detail().contains("1 calls wait for a worker (FARCALL_QUEUE)"), "{why}");
        gate.open();
        for call in waiting {
            let _ = call.wait();
        }
    }
}

/// The operating system, except that long waits are cut short and threads are counted.
#[derive(Default)]
struct Counting {
    threads: Arc<AtomicUsize>,
}

struct Hasty(Arc<dyn Event>);

impl Event for Hasty {
    fn set(&self) {
        self.0.set();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        self.0.wait(timeout.map(|time| time.min(Duration::from_millis(1))))
    }
}

impl Env for Counting {
    system_does! { now, bind, entropy, shares_memory }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        struct Ends(Arc<AtomicUsize>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.threads.fetch_add(1, Ordering::SeqCst);
        let ends = Ends(self.threads.clone());
        let run = Box::new(move || {
            let _ends = ends;
            run();
        });
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Hasty(System.event()))
    }
}

#[test]
fn threads_of_a_burst_end() {
    for shared in carriers() {
        let (gate, begins) = Gate::new(0);
        let env = Arc::new(Counting::default());
        let of = || builder().shared_memory(shared);
        let (_runtime, export) = exported(of().env(env.clone()).threads(200), &gate);
        let door = of().build().unwrap().import::<dyn Door>(&export.url()).unwrap();
        assert_eq!(door.get().unwrap(), 7);
        let threads = || env.threads.load(Ordering::SeqCst);
        let waiting: Vec<_> = (0..100).map(|_| door.start().pass()).collect();
        (0..100).for_each(|_| begins.recv_timeout(GUARD).unwrap());
        assert!(threads() >= 100);
        gate.open();
        waiting.into_iter().for_each(|call| call.wait().unwrap());
        // These are the watchdog, the host, its caller's receiver, the workers that receive datagrams, and a
        // new worker.
        while threads() > 6 {
            assert_eq!(door.get().unwrap(), 7);
        }
        // There is room for as many again.
        let waiting: Vec<_> = (0..100).map(|_| door.start().pass()).collect();
        waiting.into_iter().for_each(|call| call.wait().unwrap());
    }
}
