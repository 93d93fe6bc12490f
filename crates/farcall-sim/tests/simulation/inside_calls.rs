//! Tests signals, streams and bulk under all faults, with the driver and all its threads: what users are promised of
//! what passes inside their calls.
//!
//! Each call has a number of its own, and the content of everything that passes inside follows from the number. So
//! each end knows what the other one must send. A call is executed at most once, and what its caller is told is true.
//! A signal is raised in order, handled at most once, and resumed with its own answer; behind one that was unwound
//! none is raised. Items come in order and none is missing: a stream that ends without a failure was complete, and
//! the last item tells the failure. At the end every call has ended, and no procedure waits for anything.
//!
//! 1,000 seeds take some minutes: `FARCALL_SIM_SEEDS=1000 cargo test --profile soak -p farcall-sim --test simulation
//! inside_calls`. A failure prints its seed, which `FARCALL_SIM_SEED` replays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Answer, Bulk, Error, Ran, Result, Runtime, Stream};
use farcall_sim::{Faults, Sim, check, replay, sim};

#[farcall::interface]
trait Inside {
    /// Raises the signal so often, and returns the sum of the answers.
    fn ask(&self, number: u64, times: u32, micros: u64) -> Result<u64>;
    /// Sends items, then the exception if it is `odd`.
    fn items(&self, number: u64, count: u32, micros: u64, odd: bool) -> Result<Stream<Vec<u8>, Odd>, Odd>;
    /// Takes items, at most so many, and returns how many it took.
    fn count(&self, number: u64, most: u32, items: Stream<Vec<u8>>) -> Result<u32>;
    /// Sends each item back.
    fn echo(&self, number: u64, items: Stream<Vec<u8>>) -> Result<Stream<Vec<u8>>>;
    /// Returns so many bytes.
    fn fetch(&self, number: u64, bytes: u64) -> Result<Bulk>;
    /// Takes the bytes, and returns how many there were.
    fn store(&self, number: u64, content: Bulk) -> Result<u64>;
    /// Takes part in nothing but the call itself.
    fn quiet(&self, number: u64) -> Result<u64>;
    #[signal]
    fn which(&self, number: u64, time: u32) -> u64;
}

/// A server between the one that raises the signal and the one that handles it.
#[farcall::interface]
trait Between {
    fn ask(&self, number: u64, inner: u64, times: u32) -> Result<u64>;
    #[signal]
    fn which(&self, number: u64, time: u32) -> u64;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
struct Odd {
    number: u64,
}

/// How a call ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Returned,
    Failed(Ran),
}

/// What is known of a call.
#[derive(Debug, Default)]
struct Facts {
    executed: u32,
    /// How often the signal was raised, how often it was handled, and how often the procedure was resumed.
    raised: u32,
    handled: u32,
    resumed: u32,
    /// The handler unwound the procedure, and the procedure was.
    unwinds: bool,
    unwound: bool,
    told: Option<Told>,
}

/// Facts that all processes share, and that no crash destroys.
#[derive(Default)]
struct Books {
    next: AtomicU64,
    calls: Mutex<BTreeMap<u64, Facts>>,
    /// Procedures and streams of servers that have not ended.
    running: AtomicI64,
}

/// The longest time that a call takes, with all that passes inside.
const LONGEST: Duration = Duration::from_secs(1800);

impl Books {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn of<R>(&self, number: u64, act: impl FnOnce(&mut Facts) -> R) -> R {
        act(self.calls.lock().unwrap().entry(number).or_default())
    }

    /// Notes how a call ended, of which so many items had come.
    fn note<E: std::fmt::Debug>(
        &self,
        number: u64,
        how: &str,
        ended: std::result::Result<(), &Error<E>>,
        items: u32,
    ) {
        let told = match ended {
            Ok(()) | Err(Error::Declared(_)) => Told::Returned,
            Err(Error::CallFailed(why)) => Told::Failed(why.ran()),
        };
        sim::note(&format!("call {number}, {how}: {told:?} after {items} items: {:?}", ended.err()));
        assert!(
            items == 0 || told != Told::Failed(Ran::No),
            "call {number}: {items} items, and it did not run"
        );
        let before = self.of(number, |facts| facts.told.replace(told));
        assert_eq!(before, None, "call {number} ended twice");
    }

    fn execute(self: &Arc<Books>, number: u64) -> Running {
        let times = self.of(number, |facts| {
            facts.executed += 1;
            facts.executed
        });
        sim::note(&format!("call {number} is executed"));
        assert_eq!(times, 1, "call {number} was executed again");
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(self.clone())
    }

    fn audit(&self) {
        for (number, facts) in &*self.calls.lock().unwrap() {
            match facts.told {
                Some(Told::Returned | Told::Failed(Ran::Yes)) => {
                    assert_eq!(facts.executed, 1, "call {number}: {facts:?}");
                }
                Some(Told::Failed(Ran::No)) => assert_eq!(facts.executed, 0, "call {number}: {facts:?}"),
                _ => {}
            }
            let Facts { raised, handled, resumed, .. } = *facts;
            assert!(
                resumed <= handled && handled <= raised && raised <= resumed + 1,
                "call {number}: {facts:?}"
            );
            assert!(
                facts.unwinds || !facts.unwound || facts.told != Some(Told::Returned),
                "{number}: {facts:?}"
            );
        }
        assert_eq!(self.running.load(Ordering::SeqCst), 0, "procedures that have not ended");
    }
}

/// A procedure, or the stream that it has returned.
struct Running(Arc<Books>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The item at a place of a call's stream. Some are longer than a stream's first credit.
fn item(number: u64, place: u32) -> Vec<u8> {
    let mixed = (number * 1_000 + u64::from(place)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = match mixed >> 59 {
        0 => (mixed >> 20) % 30_000,
        1..8 => (mixed >> 20) % 2_000,
        _ => (mixed >> 20) % 20,
    };
    (0..len).map(|at| (mixed ^ at ^ at >> 8) as u8).collect()
}

fn items(number: u64, count: u32) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
    (0..count).map(move |place| item(number, place))
}

/// The bytes of a call's bulk.
fn content(number: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (number ^ at ^ at >> 8) as u8).collect()
}

/// The answer to a signal.
fn answer(number: u64, time: u32) -> u64 {
    number * 100 + u64::from(time) + 1
}

fn sleep(micros: u64) {
    if micros > 0 {
        sim::sleep(Duration::from_micros(micros));
    }
}

struct Server(Arc<Books>);

impl Inside for Server {
    fn ask(&self, number: u64, times: u32, micros: u64) -> Result<u64> {
        let _running = self.0.execute(number);
        let mut sum = 0;
        for time in 0..times {
            sleep(micros);
            let unwound = self.0.of(number, |facts| {
                facts.raised += 1;
                facts.unwound
            });
            assert!(!unwound, "call {number}: a signal behind one that was unwound");
            let found = InsideSignals::which(number, time).inspect_err(|_| {
                self.0.of(number, |facts| facts.unwound = true);
            })?;
            assert_eq!(found, answer(number, time), "call {number}: the answer of another signal");
            self.0.of(number, |facts| facts.resumed += 1);
            sum += found;
        }
        Ok(sum)
    }

    fn items(&self, number: u64, count: u32, micros: u64, odd: bool) -> Result<Stream<Vec<u8>, Odd>, Odd> {
        let running = self.0.execute(number);
        let values = (0..count).map(move |place| {
            let _running = &running;
            sleep(micros);
            Ok(item(number, place))
        });
        Ok(Stream::new(values.chain(odd.then(|| Err(Odd { number }.into())))))
    }

    fn count(&self, number: u64, most: u32, items: Stream<Vec<u8>>) -> Result<u32> {
        let _running = self.0.execute(number);
        let mut taken = 0;
        for found in items {
            assert_eq!(found?, item(number, taken), "call {number}, item {taken}");
            taken += 1;
            if taken == most {
                break;
            }
            sleep(1 << sim::below(14));
        }
        Ok(taken)
    }

    fn echo(&self, number: u64, items: Stream<Vec<u8>>) -> Result<Stream<Vec<u8>>> {
        let running = self.0.execute(number);
        Ok(Stream::new(items.inspect(move |_| {
            let _running = &running;
        })))
    }

    fn fetch(&self, number: u64, bytes: u64) -> Result<Bulk> {
        let running = self.0.execute(number);
        let reader = std::io::Cursor::new(content(number, bytes));
        Ok(Bulk::from_reader(Keeps { reader, _running: running }))
    }

    fn store(&self, number: u64, mut bulk: Bulk) -> Result<u64> {
        let _running = self.0.execute(number);
        let mut kept = Vec::new();
        let copied = bulk.copy_to(&mut kept, u64::MAX);
        assert!(kept == content(number, kept.len() as u64), "call {number}: {} bytes", kept.len());
        copied.done()
    }

    fn quiet(&self, number: u64) -> Result<u64> {
        let _running = self.0.execute(number);
        Ok(number)
    }
}

/// A reader that is dropped with the stream that reads from it.
struct Keeps {
    reader: std::io::Cursor<Vec<u8>>,
    _running: Running,
}

impl std::io::Read for Keeps {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        std::io::Read::read(&mut self.reader, into)
    }
}

struct Passes(Arc<Books>);

impl Between for Passes {
    fn ask(&self, number: u64, inner: u64, times: u32) -> Result<u64> {
        let _running = self.0.execute(number);
        let server = farcall::import::<dyn Inside>("Inside")?.within(Duration::from_secs(60));
        let outcome = server.ask(inner, times, 0);
        self.0.note(inner, "through a server between", outcome.as_ref().map(drop), 0);
        outcome
    }
}

/// Handles the signals of one call.
#[derive(Clone)]
struct Handles {
    books: Arc<Books>,
    number: u64,
    /// At which time it unwinds.
    unwinds_at: u32,
    micros: u64,
    /// It makes a call of its own first.
    calls: Option<InsideClient>,
}

impl Handles {
    fn handle(&self, number: u64, time: u32) -> Answer<u64> {
        assert_eq!(number, self.number, "the signal of another call");
        let before = self.books.of(number, |facts| {
            facts.handled += 1;
            facts.handled - 1
        });
        sim::note(&format!("call {number}: signal {time} is handled"));
        assert_eq!(before, time, "call {number}: a signal was handled again, or one was left out");
        sleep(self.micros);
        if let Some(server) = &self.calls {
            let quiet = self.books.number();
            let outcome = server.quiet(quiet);
            self.books.note(quiet, "in a handler", outcome.as_ref().map(drop), 0);
        }
        if time < self.unwinds_at {
            return Answer::Resume(answer(number, time));
        }
        self.books.of(number, |facts| facts.unwinds = true);
        Answer::unwind(Result::<u64>::Ok(u64::MAX))
    }
}

impl InsideHandler for Handles {
    fn which(&self, number: u64, time: u32) -> Answer<u64> {
        self.handle(number, time)
    }
}

impl BetweenHandler for Handles {
    fn which(&self, number: u64, time: u32) -> Answer<u64> {
        self.handle(number, time)
    }
}

fn serve(books: &Arc<Books>) -> farcall::Result<()> {
    let threads = 8 + sim::below(20) as usize;
    let workers = 1 + sim::below(3) as usize;
    let runtime = Runtime::builder().workers(workers).threads(threads).queue(1 + sim::below(8) as usize);
    let runtime = runtime.build()?;
    let _inside = runtime.export::<dyn Inside>("Inside", Arc::new(Server(books.clone())))?;
    runtime.export::<dyn Between>("Between", Arc::new(Passes(books.clone())))?.wait()
}

/// Runs one thread of a client process.
fn call(books: &Arc<Books>, calls: u64) {
    let server = loop {
        match farcall::import::<dyn Inside>("Inside") {
            Ok(server) => break server,
            Err(_) => sim::sleep(Duration::from_millis(300)),
        }
    };
    for _ in 0..calls {
        let before = sim::now();
        one_call(books, &server);
        let took = sim::now() - before;
        assert!(took < LONGEST, "a call took {took:?}");
        sleep(sim::below(3).saturating_sub(1) * sim::below(1_000_000));
    }
}

fn one_call(books: &Arc<Books>, server: &InsideClient) {
    let number = books.number();
    let micros = if sim::below(2) == 0 { 0 } else { 1 << sim::below(18) };
    let mut server = server.clone();
    if sim::below(5) == 0 {
        server = server.within(Duration::from_millis(1 + sim::below(10_000)));
    }
    match sim::below(8) {
        0 | 1 => signals(books, &server, number, micros),
        2 => signals_through_another_server(books, number, micros),
        3 => result_stream(books, &server, number, micros),
        4 => {
            let (count, most) = (sim::below(40) as u32, 1 + sim::below(40) as u32);
            let outcome = server.count(number, most, Stream::of(items(number, count)));
            if let Ok(taken) = &outcome {
                assert_eq!(*taken, count.min(most), "call {number}: items that were taken");
            }
            books.note(number, "argument stream", outcome.as_ref().map(drop), 0);
        }
        5 => {
            let count = sim::below(40) as u32;
            let outcome = server.echo(number, Stream::of(items(number, count)));
            take(books, number, (count, None), 0, outcome);
        }
        6 => fetch(books, &server, number),
        _ => {
            let bytes = 1 << sim::below(18);
            let outcome = server.store(number, Bulk::from_bytes(content(number, bytes)));
            if let Ok(stored) = &outcome {
                assert_eq!(*stored, bytes, "call {number}");
            }
            books.note(number, "bulk argument", outcome.as_ref().map(drop), 0);
        }
    }
}

fn handles(books: &Arc<Books>, number: u64, micros: u64) -> Handles {
    let unwinds_at = if sim::below(3) == 0 { sim::below(5) as u32 } else { u32::MAX };
    Handles { books: books.clone(), number, unwinds_at, micros, calls: None }
}

/// Checks what a call that raised so many signals has returned.
fn check_sum(books: &Books, number: u64, times: u32, unwinds_at: u32, outcome: &Result<u64>) {
    let Ok(sum) = outcome else { return };
    let resumed = books.of(number, |facts| facts.resumed);
    if unwinds_at < times {
        assert_eq!((*sum, resumed), (u64::MAX, unwinds_at), "call {number} was unwound");
    } else {
        let expected = (0..times).map(|time| answer(number, time)).sum::<u64>();
        assert_eq!((*sum, resumed), (expected, times), "call {number} was resumed");
    }
}

fn signals(books: &Arc<Books>, server: &InsideClient, number: u64, micros: u64) {
    let times = sim::below(6) as u32;
    let mut handler = handles(books, number, micros);
    if sim::below(3) == 0 {
        handler.calls = Some(server.clone());
    }
    let unwinds_at = handler.unwinds_at;
    let outcome = match sim::below(8) {
        0 => {
            // Nobody handles the signal, so it unwinds the procedure.
            let outcome = server.ask(number, times, micros);
            assert!(outcome.is_err() || times == 0, "call {number}: {outcome:?}");
            books.note(number, "unhandled", outcome.as_ref().map(drop), 0);
            return;
        }
        1 => server.catching(handler).start().ask(number, times, micros).wait(),
        _ => server.catching(handler).ask(number, times, micros),
    };
    check_sum(books, number, times, unwinds_at, &outcome);
    books.note(number, "signals", outcome.as_ref().map(drop), 0);
}

fn signals_through_another_server(books: &Arc<Books>, number: u64, micros: u64) {
    let (inner, times) = (books.number(), sim::below(4) as u32);
    let between = match farcall::import::<dyn Between>("Between") {
        Ok(between) => between.within(Duration::from_secs(120)),
        Err(_) => return,
    };
    let handler = handles(books, inner, micros);
    let unwinds_at = handler.unwinds_at;
    let outcome = between.catching(handler).ask(number, inner, times);
    check_sum(books, inner, times, unwinds_at, &outcome);
    books.note(number, "between", outcome.as_ref().map(drop), 0);
}

fn result_stream(books: &Arc<Books>, server: &InsideClient, number: u64, micros: u64) {
    let (count, odd) = (sim::below(60) as u32, sim::below(4) == 0);
    let outcome = server.items(number, count, micros / 16, odd);
    take(books, number, (count, odd.then_some(Odd { number })), micros / 4, outcome);
}

/// Takes the items of a call, or stops early, and checks them: so many come, and then perhaps the exception.
fn take<E: PartialEq + std::fmt::Debug>(
    books: &Books,
    number: u64,
    (count, exception): (u32, Option<E>),
    micros: u64,
    outcome: Result<Stream<Vec<u8>, E>, E>,
) where
    Stream<Vec<u8>, E>: Iterator<Item = Result<Vec<u8>, E>>,
{
    let stops_at = if sim::below(4) == 0 { sim::below(20) as u32 } else { u32::MAX };
    let mut stream = match outcome {
        Ok(stream) => stream,
        Err(why) => {
            if let Error::Declared(found) = &why {
                assert_eq!((Some(found), 0), (exception.as_ref(), count), "call {number}");
            }
            return books.note(number, "no stream", Err(&why), 0);
        }
    };
    let mut place = 0;
    let ended = loop {
        if place == stops_at {
            sim::note(&format!("call {number}: stopped after {place} items"));
            return;
        }
        match stream.next() {
            None => break None,
            Some(Err(why)) => break Some(why),
            Some(Ok(found)) => assert_eq!(found, item(number, place), "call {number}, item {place}"),
        }
        place += 1;
        sleep(micros);
    };
    match &ended {
        None => assert_eq!((place, &exception), (count, &None), "call {number}: items that came"),
        Some(Error::Declared(found)) => assert_eq!((place, Some(found)), (count, exception.as_ref())),
        Some(Error::CallFailed(_)) => assert!(place <= count, "call {number}: {place} of {count} items"),
    }
    assert!(stream.next().is_none(), "call {number}: something came behind the last item");
    books.note(number, "stream", ended.as_ref().map_or(Ok(()), Err), place);
}

fn fetch(books: &Arc<Books>, server: &InsideClient, number: u64) {
    let bytes = 1 << sim::below(18);
    let mut bulk = match server.fetch(number, bytes) {
        Ok(bulk) => bulk,
        Err(why) => return books.note(number, "no bulk", Err(&why), 0),
    };
    let mut kept = Vec::new();
    let copied = bulk.copy_to(&mut kept, u64::MAX);
    let (length, outcome) = (copied.bytes, copied.done());
    assert!(kept == content(number, length), "call {number}: {length} bytes");
    assert!(outcome.is_err() || length == bytes, "call {number}: {length} of {bytes} bytes");
    books.note(number, "bulk result", outcome.as_ref().map(drop), u32::from(length > 0));
}

fn run(sim: &Sim) {
    sim.limit(Duration::from_secs(24 * 3600));
    sim.random_faults();
    let books = Arc::new(Books::default());
    let servers: Vec<_> = (0..1 + sim.below(2))
        .map(|n| {
            let books = books.clone();
            sim.server(&format!("server {n}"), move || serve(&books))
        })
        .collect();
    let clients: Vec<_> = (0..1 + sim.below(2))
        .map(|n| {
            let books = books.clone();
            sim.process(&format!("client {n}"), move || {
                let thread = |_| {
                    let books = books.clone();
                    sim::spawn(move || call(&books, 8))
                };
                let threads: Vec<_> = (0..1 + sim::below(3)).map(thread).collect();
                threads.into_iter().for_each(|thread| thread.join());
            })
        })
        .collect();
    for _ in 0..sim.below(8) {
        sim.sleep(Duration::from_millis(sim.below(4000)));
        let server = &servers[sim.below(servers.len() as u64) as usize];
        let client = &clients[sim.below(clients.len() as u64) as usize];
        match sim.below(7) {
            0 | 1 => {
                server.crash();
                sim.sleep(Duration::from_millis(sim.below(8000)));
                server.restart();
            }
            2 => client.crash(),
            3 => {
                let one = [server, client][sim.below(2) as usize];
                one.pause();
                sim.sleep(Duration::from_millis(sim.below(20_000)));
                one.resume();
            }
            4 => {
                sim.cut(server, client);
                sim.sleep(Duration::from_millis(sim.below(20_000)));
                sim.heal();
            }
            _ => drop(sim.random_faults()),
        }
    }
    sim.faults(Faults::none());
    sim.run();
    // All late packets arrive now, and servers give up the calls of clients that crashed.
    sim.sleep(Duration::from_secs(7 * 3600));
    books.audit();
}

#[test]
fn a_seed_is_one_run_of_all_this() {
    for seed in 0..5 {
        assert_eq!(replay(seed, run), replay(seed, run));
    }
}

#[test]
fn what_passes_inside_calls_is_what_was_sent_and_each_signal_is_handled_once() {
    check(40, run);
}
