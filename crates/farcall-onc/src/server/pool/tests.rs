//! Tests how a pool stops while its threads are in states that occur rarely.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use farcall::System;
use farcall::env::{Socket, SocketOptions};

use super::*;

/// Far longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

const HOST: NonZero<u64> = NonZero::<u64>::MIN;

/// The operating system. It reports when a thread begins to wait for an event.
struct ReportsWaits(Sender<()>);

impl Env for ReportsWaits {
    fn now(&self) -> Time {
        System.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        System.bind(address, options)
    }

    fn spawn(&self, name: &str, run: Job) -> io::Result<()> {
        System.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(ReportingEvent(System.event(), self.0.clone()))
    }

    fn entropy(&self, out: &mut [u8]) {
        System.entropy(out);
    }
}

struct ReportingEvent(Arc<dyn Event>, Sender<()>);

impl Event for ReportingEvent {
    fn set(&self) {
        self.0.set();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let _ = self.1.send(());
        self.0.wait(timeout)
    }
}

/// A point that runs `watch` in each thread that receives there.
struct Scripted<F>(F);

impl<F: Fn(&ServingThread) -> bool + Send + Sync> ReceivePoint for Scripted<F> {
    fn watch(&self, thread: &ServingThread) -> bool {
        (self.0)(thread)
    }

    fn wake(&self) {}
}

/// A pool without a watchdog, whose only point is scripted.
fn pool(env: Arc<dyn Env>, watch: impl Fn(&ServingThread) -> bool + Send + Sync + 'static) -> Arc<Workers> {
    let workers = Workers::new(env, 4, 4, Duration::ZERO);
    workers.receive_at(Arc::new(Scripted(watch)), workers.pool()).unwrap();
    workers
}

fn next<T>(from: &Mutex<Receiver<T>>) -> T {
    lock(from).recv_timeout(PATIENCE).unwrap()
}

/// Stops the pool, and fails if that takes long.
fn stops(workers: &Arc<Workers>) {
    let (done, is_done) = channel();
    let workers = workers.clone();
    thread::spawn(move || {
        workers.stop();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).expect("the pool stops");
}

#[test]
fn stop_does_not_wait_for_a_procedure_that_begins_just_after_it_looked() {
    let (waits, stop_waits) = channel();
    let (receives, received) = channel();
    let (ends, end) = channel::<()>();
    let [stop_waits, end] = [stop_waits, end].map(Mutex::new);
    let workers = pool(Arc::new(ReportsWaits(waits)), move |thread| {
        receives.send(()).unwrap();
        // Only the thread in `stop` waits for an event.
        next(&stop_waits);
        thread.begin(HOST);
        // The procedure runs until the test ends.
        let _ = lock(&end).recv();
        thread.done(|| false)
    });
    received.recv_timeout(PATIENCE).unwrap();
    stops(&workers);
    drop(ends);
}

#[test]
fn a_thread_that_panics_is_replaced_and_stop_does_not_wait_for_it() {
    let (panics, panic) = channel();
    let (accepts, accepted) = channel();
    let panic = Mutex::new(panic);
    let workers = pool(System::current(), move |thread| {
        let Ok(executing) = lock(&panic).recv() else { return false };
        if executing {
            thread.begin(HOST);
        }
        accepts.send(()).unwrap();
        std::panic::resume_unwind(Box::new("a panic of the test's"));
    });
    for executing in [false, true, true, false] {
        // The thread that replaces the panicked thread accepts the next panic.
        panics.send(executing).unwrap();
        accepted.recv_timeout(PATIENCE).unwrap();
    }
    drop(panics);
    stops(&workers);
}
