//! Tests servers and clients of ONC RPC under all faults, over UDP and TCP. What a caller is told about a
//! call must be true, and a server must not execute a call again that it remembers.
//!
//! Each call has a number of its own, and servers note which calls they executed, when, and in which of their
//! lives. At the end of a run, no life has executed a call again before its memory of the call was over. A
//! call that returned was executed. A call that was reported as not run never was, even after every late
//! packet has come. And every call has ended.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::Ran;
use farcall_onc::server::Retention;
use farcall_onc::{Client, Server};
use farcall_sim::{Sim, sim};

use super::long_run::{self, Scale, Successes, Told, sleep_micros};

#[farcall::interface(program = 0x2000_0100, version = 1)]
trait Work {
    /// Runs for `micros` microseconds, and returns `bytes` bytes.
    #[procedure(1)]
    fn work(&self, number: u64, micros: u64, bytes: u32, payload: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns the number after `micros` microseconds. It may run twice.
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u64, micros: u64) -> farcall::Result<u64>;
    /// Makes another server do the work.
    #[procedure(3)]
    fn relay(&self, number: u64, micros: u64) -> farcall::Result<u64>;
}

/// Facts that all processes share, and that no crash destroys.
#[derive(Default)]
struct Books {
    next: AtomicU64,
    lives: AtomicU32,
    executed: Mutex<HashMap<u64, Vec<Execution>>>,
    told: Mutex<Vec<(u64, Told, String)>>,
    addresses: Mutex<Vec<SocketAddr>>,
    successes: Successes,
}

/// The kinds of calls, of which each must succeed in some run.
const KINDS: [&str; 8] =
    ["call", "again", "relay", "relayed", "start and wait", "start and await", "cancel", "one of many"];

const SCALE: Scale = Scale { servers: 2, threads: 4, calls: 12 };

#[derive(Clone, Copy, Debug)]
struct Execution {
    /// The number of the server's life.
    life: u32,
    began: Duration,
    /// When the execution ended; `None` if a crash ended it.
    ended: Option<Duration>,
    idempotent: bool,
}

/// The longest time that procedures, pauses, partitions and the patience of callers can explain.
const LONGEST: Duration = Duration::from_secs(180);

impl Books {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn note<T>(&self, number: u64, kind: &'static str, result: farcall::Result<T>) {
        let told = self.successes.note(kind, &result);
        let text = result.err().map(|why| why.to_string()).unwrap_or_default();
        sim::note(&format!("call {number}, {kind}: {told:?} {text}"));
        self.told.lock().unwrap().push((number, told, format!("{kind}: {text}")));
    }

    fn audit(&self) {
        let executed = self.executed.lock().unwrap();
        for (number, all) in &*executed {
            for (place, later) in all.iter().enumerate() {
                let forgotten = |earlier: &&Execution| {
                    let ended = earlier.ended.unwrap_or(Duration::MAX);
                    earlier.idempotent
                        || earlier.life != later.life
                        || later.began >= ended.saturating_add(Retention::default().time)
                };
                let remembered = all[..place].iter().find(|earlier| !forgotten(earlier));
                assert!(remembered.is_none(), "call {number} was executed twice: {all:?}");
            }
        }
        for (number, told, how) in &*self.told.lock().unwrap() {
            let ran = executed.contains_key(number);
            match told {
                Told::Returned | Told::Failed(Ran::Yes) => assert!(ran, "call {number} {told:?}, {how}"),
                Told::Failed(Ran::No) => assert!(!ran, "call {number} did not run, {how}"),
                Told::Failed(_) => {}
            }
        }
    }
}

struct Worker {
    books: Arc<Books>,
    life: u32,
}

impl Worker {
    /// Executes a call, and notes when it began and ended.
    fn execute<T>(&self, number: u64, idempotent: bool, run: impl FnOnce() -> T) -> T {
        let place = {
            let mut executed = self.books.executed.lock().unwrap();
            let all = executed.entry(number).or_default();
            all.push(Execution { life: self.life, began: sim::now(), ended: None, idempotent });
            all.len() - 1
        };
        sim::note(&format!("call {number} is executed in life {}", self.life));
        let result = run();
        let mut executed = self.books.executed.lock().unwrap();
        executed.entry(number).and_modify(|all| all[place].ended = Some(sim::now()));
        result
    }
}

impl Work for Worker {
    fn work(&self, number: u64, micros: u64, bytes: u32, _: &[u8]) -> farcall::Result<Vec<u8>> {
        self.execute(number, false, || sleep_micros(micros));
        Ok(vec![number as u8; bytes as usize])
    }

    fn again(&self, number: u64, micros: u64) -> farcall::Result<u64> {
        self.execute(number, true, || sleep_micros(micros));
        Ok(number)
    }

    fn relay(&self, number: u64, micros: u64) -> farcall::Result<u64> {
        self.execute(number, false, || {
            let Some(next) = client(&self.books) else { return };
            let inner = self.books.number();
            let next = next.bind::<dyn Work>().within(Duration::from_secs(5));
            sim::note(&format!("call {inner} is relayed by {number}"));
            self.books.note(inner, "relayed", next.work(inner, micros, 9, b""));
        });
        Ok(number)
    }
}

fn serve(books: &Arc<Books>) -> std::io::Result<()> {
    let life = books.lives.fetch_add(1, Ordering::Relaxed);
    let worker = Arc::new(Worker { books: books.clone(), life });
    let server = Server::builder().program::<dyn Work>(worker).workers(1 + sim::below(4) as usize);
    let server = server.address("0.0.0.0:2049".parse().unwrap()).start()?;
    let address = server.tcp().unwrap();
    let mut addresses = books.addresses.lock().unwrap();
    if !addresses.contains(&address) {
        addresses.push(address);
    }
    drop(addresses);
    server.wait();
    Ok(())
}

/// Returns a client of one of the servers, or `None` if no server can be reached.
fn client(books: &Books) -> Option<Client> {
    let address = {
        let addresses = books.addresses.lock().unwrap();
        addresses[sim::below(addresses.len() as u64) as usize]
    };
    let network = if sim::below(2) == 0 { "udp" } else { "tcp" };
    let retransmit = Duration::from_millis(100 << sim::below(5));
    Client::builder().retransmit(retransmit).connect(&format!("{network}://{address}")).ok()
}

/// Runs one thread of a client process.
fn call(books: &Arc<Books>, calls: u64) {
    let work = long_run::connected(|| client(books).ok_or(())).bind::<dyn Work>();
    long_run::call_repeatedly(calls, LONGEST, 2_000_000, || one_call(books, &work));
}

fn one_call(books: &Arc<Books>, work: &WorkClient) {
    let number = books.number();
    let micros = if sim::below(2) == 0 { 0 } else { 1 << sim::below(22) };
    let bytes = if sim::below(4) == 0 { 1 << sim::below(15) } else { sim::below(40) as u32 };
    let payload = vec![7; if sim::below(6) == 0 { 1 << sim::below(15) } else { 8 }];
    let right = |result: farcall::Result<Vec<u8>>| {
        if let Ok(result) = &result {
            assert!(result.len() == bytes as usize && result.iter().all(|byte| *byte == number as u8));
        }
        result
    };
    let mut work = work.clone();
    if sim::below(5) == 0 {
        work = work.within(Duration::from_millis(1 + sim::below(3_000)));
    }
    match sim::below(12) {
        0..=3 => books.note(number, "call", right(work.work(number, micros, bytes, &payload))),
        4 => books.note(number, "again", work.again(number, micros)),
        5 => books.note(number, "relay", work.relay(number, micros / 4)),
        6..=10 => {
            let started = work.start().work(number, micros, bytes, &payload);
            if let Some((kind, result)) = long_run::end_started(started) {
                books.note(number, kind, right(result));
            }
        }
        _ => {
            let many: Vec<_> = (0..sim::below(20))
                .map(|_| (books.number(), work.start()))
                .map(|(number, start)| (number, start.work(number, micros / 16, 9, b"")))
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
fn what_is_said_of_a_call_is_true_and_no_call_that_is_remembered_runs_again() {
    long_run::check_kinds(40, &KINDS, run);
}
