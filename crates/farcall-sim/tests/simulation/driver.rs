//! Tests the driver and the runtime under all faults. The promises of the protocol must hold for the threads
//! that call, start, cancel, drop and serve.
//!
//! Each call has a number of its own, and servers note which calls they executed. At the end of a run, every
//! call was executed at most once; exactly once if it returned; and never if it was reported as not run, even
//! after every late packet has come. And every call has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Error, Ran, Runtime};
use farcall_sim::{Sim, sim};

use super::long_run::{self, EXCEPTION, Scale, Successes, Told};

#[farcall::interface]
trait Work {
    /// Runs for `micros` microseconds. Returns the number and `bytes` bytes.
    fn work(&self, number: u64, micros: u64, bytes: u32, payload: &[u8])
    -> farcall::Result<Vec<u8>, Refused>;
    #[blocking]
    fn blocking(&self, number: u64, micros: u64) -> farcall::Result<u64, Refused>;
    /// Makes another server do the work.
    fn relay(&self, number: u64, inner: u64, hops: u32) -> farcall::Result<u64, Refused>;
}

#[derive(Debug, farcall::Xdr)]
struct Refused;

/// Facts that all processes share, and that no crash destroys.
#[derive(Default)]
struct Books {
    next: AtomicU64,
    executed: Mutex<HashMap<u64, u64>>,
    told: Mutex<Vec<(u64, Told, String)>>,
    successes: Successes,
}

/// The kinds of calls, of which each must succeed in some run.
const KINDS: [&str; 9] = [
    "call",
    "blocking",
    "relay",
    "relayed",
    "start and wait",
    "start and await",
    "cancel",
    "one of many",
    EXCEPTION,
];

const SCALE: Scale = Scale { servers: 3, threads: 4, calls: 12 };

/// The longest time that procedures, queues, pauses, partitions and the patience of callers can explain.
const LONGEST: Duration = Duration::from_secs(180);

impl Books {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn execute(&self, number: u64) {
        *self.executed.lock().unwrap().entry(number).or_default() += 1;
    }

    fn note<T>(&self, number: u64, kind: &'static str, result: Result<T, Error<Refused>>) {
        let told = self.successes.note(kind, &result);
        let text = result.err().map(|why| why.to_string()).unwrap_or_default();
        sim::note(&format!("call {number}, {kind}: {told:?} {text}"));
        self.told.lock().unwrap().push((number, told, format!("{kind}: {text}")));
    }

    fn audit(&self) {
        let executed = self.executed.lock().unwrap();
        let times = |number: &u64| executed.get(number).copied().unwrap_or(0);
        if let Some((number, times)) = executed.iter().find(|(_, times)| **times > 1) {
            panic!("call {number} was executed {times} times");
        }
        for (number, told, how) in &*self.told.lock().unwrap() {
            match told {
                Told::Returned | Told::Failed(Ran::Yes) => {
                    assert_eq!(times(number), 1, "call {number} {told:?}, {how}")
                }
                Told::Failed(Ran::No) => assert_eq!(times(number), 0, "call {number} did not run, {how}"),
                Told::Failed(_) => {}
            }
        }
    }
}

struct Worker(Arc<Books>);

impl Work for Worker {
    fn work(&self, number: u64, micros: u64, bytes: u32, _: &[u8]) -> farcall::Result<Vec<u8>, Refused> {
        self.0.execute(number);
        long_run::sleep_micros(micros);
        if bytes == 13 {
            return Err(Refused.into());
        }
        Ok(vec![number as u8; bytes as usize])
    }

    fn blocking(&self, number: u64, micros: u64) -> farcall::Result<u64, Refused> {
        self.0.execute(number);
        sim::sleep(Duration::from_micros(micros));
        Ok(number)
    }

    fn relay(&self, number: u64, inner: u64, hops: u32) -> farcall::Result<u64, Refused> {
        self.0.execute(number);
        let next = farcall::import::<dyn Work>("Work")?.within(Duration::from_secs(5));
        let result = match hops {
            0 => next.blocking(inner, 10),
            _ => next.relay(inner, self.0.number(), hops - 1),
        };
        sim::note(&format!("call {inner} was relayed by {number}"));
        self.0.note(inner, "relayed", result);
        Ok(number)
    }
}

fn serve(books: &Arc<Books>) -> farcall::Result<()> {
    let runtime = Runtime::builder()
        .workers(1 + sim::below(3) as usize)
        .threads(4 + sim::below(20) as usize)
        .queue(1 + sim::below(8) as usize)
        .build()?;
    runtime.enter(|| {
        loop {
            let export = farcall::export::<dyn Work>("Work", Arc::new(Worker(books.clone())))?;
            if sim::below(3) == 0 {
                return export.wait();
            }
            sim::sleep(Duration::from_millis(sim::below(20_000)));
            if sim::below(2) == 0 {
                export.drain(Duration::from_millis(sim::below(3_000)));
            }
        }
    })
}

/// Runs one thread of a client.
fn call(books: &Arc<Books>, calls: u64) {
    let work = long_run::connected(|| farcall::import::<dyn Work>("Work"));
    long_run::call_repeatedly(calls, LONGEST, 500_000, || one_call(books, &work));
}

fn one_call(books: &Arc<Books>, work: &WorkClient) {
    let number = books.number();
    let micros = if sim::below(2) == 0 { 0 } else { 1 << sim::below(22) };
    let bytes = if sim::below(4) == 0 { 1 << sim::below(16) } else { sim::below(40) as u32 };
    let payload = vec![7; if sim::below(6) == 0 { 1 << sim::below(16) } else { 8 }];
    let right = |result: farcall::Result<Vec<u8>, Refused>| {
        if let Ok(result) = &result {
            assert!(result.len() == bytes as usize && result.iter().all(|byte| *byte == number as u8));
        }
        result
    };
    let mut work = work.clone();
    if sim::below(5) == 0 {
        work = work.within(Duration::from_millis(sim::below(3_000)));
    }
    match sim::below(12) {
        0..=2 => books.note(number, "call", right(work.work(number, micros, bytes, &payload))),
        3 => books.note(number, "blocking", work.blocking(number, micros)),
        4 => books.note(number, "relay", work.relay(number, books.number(), sim::below(3) as u32)),
        5..=10 => {
            let started = work.start().work(number, micros, bytes, &payload);
            if let Some((kind, result)) = long_run::end_started(started) {
                books.note(number, kind, right(result));
            }
        }
        _ => {
            let many: Vec<_> = (0..sim::below(20))
                .map(|_| (books.number(), work.start()))
                .map(|(number, start)| (number, start.blocking(number, micros / 16)))
                .collect();
            many.into_iter().for_each(|(number, started)| books.note(number, "one of many", started.wait()));
        }
    }
}

fn run(sim: &Sim, successes: &Successes) {
    let books = Arc::new(Books { successes: successes.clone(), ..Books::default() });
    let (served, called) = (books.clone(), books.clone());
    long_run::run(sim, &SCALE, move || serve(&served), move |calls| call(&called, calls));
    books.audit();
}

#[test]
fn a_seed_is_one_run_of_all_this() {
    long_run::check_replay(10, run);
}

#[test]
fn what_is_said_of_a_call_is_true() {
    long_run::check_kinds(60, &KINDS, run);
}
