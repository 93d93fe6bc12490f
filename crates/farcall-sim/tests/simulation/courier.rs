//! Tests servers and clients of Courier under all faults, over TCP. What a caller is told about a call must
//! be true, and no call is executed twice unless its procedure is idempotent.
//!
//! Each call has a number of its own, and servers note which calls they executed. At the end of a run, a call
//! that returned was executed, a call that was reported as not run never was, and every call has ended.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::Ran;
use farcall_courier::{Builder, Server};
use farcall_sim::{Sim, sim};

use super::long_run::{self, Scale, Successes, Told, sleep_micros};

#[farcall::interface(program = 900, version = 1)]
trait Work {
    /// Runs for `micros` microseconds, and returns `words` words.
    #[procedure(1)]
    fn work(&self, number: u32, micros: u32, words: u16, payload: &[u16]) -> farcall::Result<Vec<u16>>;
    /// Returns the number after `micros` microseconds. It may run twice.
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u32, micros: u32) -> farcall::Result<u32>;
    /// Makes another server do the work.
    #[procedure(3)]
    fn relay(&self, number: u32, micros: u32) -> farcall::Result<u32>;
}

/// Facts that all processes share, and that no crash destroys.
#[derive(Default)]
struct Books {
    next: AtomicU32,
    /// How often each call was executed.
    executed: Mutex<HashMap<u32, u32>>,
    told: Mutex<Vec<(u32, Told, String)>>,
    addresses: Mutex<Vec<SocketAddr>>,
    successes: Successes,
}

/// The kinds of calls, of which each must succeed in some run.
const KINDS: [&str; 7] =
    ["call", "again", "relay", "relayed", "start and wait", "start and await", "one of many"];

const SCALE: Scale = Scale { servers: 2, threads: 4, calls: 12 };

/// The longest time that procedures, pauses, partitions and the patience of callers can explain.
const LONGEST: Duration = Duration::from_secs(600);

impl Books {
    fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn note<T>(&self, number: u32, kind: &'static str, result: farcall::Result<T>) {
        let told = self.successes.note(kind, &result);
        let text = result.err().map(|why| why.to_string()).unwrap_or_default();
        sim::note(&format!("call {number}, {kind}: {told:?} {text}"));
        self.told.lock().unwrap().push((number, told, format!("{kind}: {text}")));
    }

    fn audit(&self) {
        let executed = self.executed.lock().unwrap();
        for (number, told, how) in &*self.told.lock().unwrap() {
            let times = executed.get(number).copied().unwrap_or(0);
            match told {
                Told::Returned | Told::Failed(Ran::Yes) => {
                    assert!(times > 0, "call {number} {told:?}, {how}");
                }
                Told::Failed(Ran::No) => assert_eq!(times, 0, "call {number} did not run, {how}"),
                Told::Failed(_) => {}
            }
            assert!(times <= 1 || how.starts_with("again"), "call {number} ran {times} times, {how}");
        }
    }
}

struct Worker(Arc<Books>);

impl Worker {
    fn execute(&self, number: u32, run: impl FnOnce()) {
        *self.0.executed.lock().unwrap().entry(number).or_default() += 1;
        sim::note(&format!("call {number} is executed"));
        run();
    }
}

impl Work for Worker {
    fn work(&self, number: u32, micros: u32, words: u16, _: &[u16]) -> farcall::Result<Vec<u16>> {
        self.execute(number, || sleep_micros(micros.into()));
        Ok(vec![number as u16; words.into()])
    }

    fn again(&self, number: u32, micros: u32) -> farcall::Result<u32> {
        self.execute(number, || sleep_micros(micros.into()));
        Ok(number)
    }

    fn relay(&self, number: u32, micros: u32) -> farcall::Result<u32> {
        self.execute(number, || {
            let Some(next) = client(&self.0) else { return };
            let inner = self.0.number();
            sim::note(&format!("call {inner} is relayed by {number}"));
            self.0.note(inner, "relayed", next.within(Duration::from_secs(5)).work(inner, micros, 9, &[]));
        });
        Ok(number)
    }
}

fn serve(books: &Arc<Books>) -> std::io::Result<()> {
    let server = Server::builder().program::<dyn Work>(Arc::new(Worker(books.clone())));
    let server = server.tcp("0.0.0.0:5000".parse().unwrap()).connections(10).start()?;
    let address = server.addresses()[0];
    let mut addresses = books.addresses.lock().unwrap();
    if !addresses.contains(&address) {
        addresses.push(address);
    }
    drop(addresses);
    server.wait();
    Ok(())
}

/// Returns a stub for one of the servers, or `None` if no server can be reached.
fn client(books: &Books) -> Option<WorkClient> {
    let address = {
        let addresses = books.addresses.lock().unwrap();
        addresses[sim::below(addresses.len() as u64) as usize]
    };
    let builder = Builder::default();
    let builder = if sim::below(3) == 0 { builder.version_2() } else { builder };
    builder.import::<dyn Work>(&format!("tcp://{address}")).ok()
}

/// Runs one thread of a client process.
fn call(books: &Arc<Books>, calls: u64) {
    let work = long_run::connected(|| client(books).ok_or(()));
    long_run::call_repeatedly(calls, LONGEST, 2_000_000, || one_call(books, &work));
}

fn one_call(books: &Arc<Books>, work: &WorkClient) {
    let number = books.number();
    let micros = if sim::below(2) == 0 { 0 } else { 1 << sim::below(22) };
    let words = if sim::below(4) == 0 { 1 << sim::below(14) } else { sim::below(40) as u16 };
    let payload = vec![7; if sim::below(6) == 0 { 1 << sim::below(14) } else { 8 }];
    let right = |result: farcall::Result<Vec<u16>>| {
        if let Ok(result) = &result {
            assert!(result.len() == usize::from(words) && result.iter().all(|word| *word == number as u16));
        }
        result
    };
    let mut work = work.clone();
    if sim::below(5) == 0 {
        work = work.within(Duration::from_millis(1 + sim::below(3_000)));
    }
    match sim::below(12) {
        0..=3 => books.note(number, "call", right(work.work(number, micros, words, &payload))),
        4 => books.note(number, "again", work.again(number, micros)),
        5 => books.note(number, "relay", work.relay(number, micros / 4)),
        6..=10 => {
            let started = work.start().work(number, micros, words, &payload);
            if let Some((kind, result)) = long_run::end_started(started) {
                books.note(number, kind, right(result));
            }
        }
        _ => {
            let many: Vec<_> = (0..sim::below(20))
                .map(|_| (books.number(), work.start()))
                .map(|(number, start)| (number, start.work(number, micros / 16, 9, &[])))
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
    long_run::check_replay(5, run);
}

#[test]
fn what_is_said_of_a_call_is_true_and_only_idempotent_calls_run_twice() {
    long_run::check_kinds(40, &KINDS, run);
}
