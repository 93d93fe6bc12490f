//! Tests signals, streams and bulk under all faults, with the driver and all its threads: what users are
//! promised of what passes inside their calls.
//!
//! Each call has a number of its own, and the content of everything that passes inside follows from the
//! number. So each end knows what the other one must send. A call is executed at most once, and what its
//! caller is told is true. Signals are raised in order. Each is handled at most once, and its procedure is
//! resumed with the answer to that signal; after a signal has unwound the procedure, no other is raised.
//! Items come in order, and none is missing: a stream that ends without a failure was complete, and otherwise
//! its last item tells the failure. At the end every call has ended, and no procedure waits for anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::{Answer, Bulk, Error, Ran, Result, Runtime, Stream};
use farcall_sim::{Sim, sim};

use super::long_run::{self, EXCEPTION, Scale, Successes, Told, sleep_micros};

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
    successes: Successes,
}

/// The kinds of calls, of which each must succeed in some run. The kind "unhandled" is not among them: its
/// calls fail if they raise a signal.
const KINDS: [&str; 12] = [
    "signals",
    "signals of a started call",
    "in a handler",
    "between",
    "behind a server between",
    "argument stream",
    "stalled sender",
    "result stream",
    "two streams",
    "bulk argument",
    "bulk result",
    EXCEPTION,
];

const SCALE: Scale = Scale { servers: 2, threads: 3, calls: 8 };

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
    fn note<T, E: std::fmt::Debug>(&self, number: u64, kind: &'static str, ended: &Result<T, E>, items: u32) {
        let told = self.successes.note(kind, ended);
        sim::note(&format!(
            "call {number}, {kind}: {told:?} after {items} items: {:?}",
            ended.as_ref().err()
        ));
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

struct Server(Arc<Books>);

impl Inside for Server {
    fn ask(&self, number: u64, times: u32, micros: u64) -> Result<u64> {
        let _running = self.0.execute(number);
        let mut sum = 0;
        for time in 0..times {
            sleep_micros(micros);
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
            sleep_micros(micros);
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
            sleep_micros(1 << sim::below(14));
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
        let outcome = match number % 3 {
            // The signal of another interface, of the same name and types, does not reach the caller.
            0 => {
                let outcome = server.ask(inner, times, 0);
                assert!(outcome.is_err() || times == 0, "call {inner}: {outcome:?}");
                outcome
            }
            1 => server.catching(Relays).ask(inner, times, 0),
            _ => InsideSignals::catching(Relays, || server.ask(inner, times, 0)),
        };
        self.0.note(inner, "behind a server between", &outcome, 0);
        outcome
    }
}

/// Raises the signal of the server between for that of the server that it calls.
struct Relays;

impl InsideHandler for Relays {
    fn which(&self, _: InsideRaiser, number: u64, time: u32) -> Answer<u64> {
        BetweenSignals::which(number, time).into()
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
    /// It unwinds the procedure by an outcome of other types.
    is_wrong: bool,
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
        sleep_micros(self.micros);
        if let Some(server) = &self.calls {
            let quiet = self.books.number();
            let outcome = server.quiet(quiet);
            self.books.note(quiet, "in a handler", &outcome, 0);
        }
        if time < self.unwinds_at {
            return Answer::Resume(answer(number, time));
        }
        self.books.of(number, |facts| facts.unwinds = true);
        match self.is_wrong {
            // Its eight bytes could be a number.
            true => Answer::unwind(Result::<String>::Ok("text".into())),
            false => Answer::unwind(Result::<u64>::Ok(u64::MAX)),
        }
    }
}

impl InsideHandler for Handles {
    fn which(&self, by: InsideRaiser, number: u64, time: u32) -> Answer<u64> {
        assert!(matches!(by, InsideRaiser::ask(_)), "call {number}: another procedure has raised");
        self.handle(number, time)
    }
}

impl BetweenHandler for Handles {
    fn which(&self, by: BetweenRaiser, number: u64, time: u32) -> Answer<u64> {
        assert!(matches!(by, BetweenRaiser::ask(_)), "call {number}: another procedure has raised");
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
    let server = long_run::connected(|| farcall::import::<dyn Inside>("Inside"));
    long_run::call_repeatedly(calls, LONGEST, 1_000_000, || one_call(books, &server));
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
            // The sender may give nothing for up to a minute, which blocks only itself.
            let stalls_at = if sim::below(3) == 0 { sim::below(20) as u32 } else { u32::MAX };
            let pause = 1 << (10 + sim::below(17));
            let items = items(number, count).zip(0..).map(move |(item, place)| {
                sleep_micros(if place == stalls_at { pause } else { 0 });
                item
            });
            let outcome = server.count(number, most, Stream::of(items));
            if let Ok(taken) = &outcome {
                assert_eq!(*taken, count.min(most), "call {number}: items that were taken");
            }
            let stalled = stalls_at < count.min(most);
            books.note(number, if stalled { "stalled sender" } else { "argument stream" }, &outcome, 0);
        }
        5 => {
            let count = sim::below(40) as u32;
            let outcome = server.echo(number, Stream::of(items(number, count)));
            take(books, number, "two streams", (count, None), 0, outcome);
        }
        6 => fetch(books, &server, number),
        _ => {
            let bytes = 1 << sim::below(18);
            let outcome = server.store(number, Bulk::from_bytes(content(number, bytes)));
            if let Ok(stored) = &outcome {
                assert_eq!(*stored, bytes, "call {number}");
            }
            books.note(number, "bulk argument", &outcome, 0);
        }
    }
}

fn handles(books: &Arc<Books>, number: u64, micros: u64) -> Handles {
    let unwinds_at = if sim::below(3) == 0 { sim::below(5) as u32 } else { u32::MAX };
    let is_wrong = sim::below(3) == 0;
    Handles { books: books.clone(), number, unwinds_at, micros, calls: None, is_wrong }
}

/// How a call is expected to end that raises signals.
#[derive(Clone, Copy)]
struct Expected {
    number: u64,
    /// How many signals it raises.
    times: u32,
    /// At which of them it is unwound, and whether by an outcome of other types.
    unwinds_at: u32,
    is_wrong: bool,
    /// Whether there is no server between the one that raises them and the caller.
    is_direct: bool,
}

impl Expected {
    fn of(handler: &Handles, times: u32, is_direct: bool) -> Expected {
        let Handles { number, unwinds_at, is_wrong, .. } = *handler;
        Expected { number, times, unwinds_at, is_wrong, is_direct }
    }
}

/// Checks what a call that raised signals has returned.
fn check_sum(books: &Books, expected: Expected, outcome: &Result<u64>) {
    let Expected { number, times, unwinds_at, is_wrong, is_direct } = expected;
    let Ok(sum) = outcome else { return };
    let (resumed, unwound) = books.of(number, |facts| (facts.resumed, facts.unwound));
    if unwinds_at < times {
        assert_eq!((*sum, resumed), (u64::MAX, unwinds_at), "call {number} was unwound");
        assert!(unwound || !is_direct, "call {number}: its procedure does not know that it was unwound");
        assert!(!is_wrong, "call {number} was unwound by an outcome of other types");
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
    let expected = Expected::of(&handler, times, true);
    let (kind, outcome) = match sim::below(8) {
        0 => {
            // Nobody handles the signal, so it unwinds the procedure.
            let outcome = server.ask(number, times, micros);
            assert!(outcome.is_err() || times == 0, "call {number}: {outcome:?}");
            books.note(number, "unhandled", &outcome, 0);
            return;
        }
        1 => {
            let started = server.catching(handler).start().ask(number, times, micros);
            ("signals of a started call", started.wait())
        }
        _ => ("signals", server.catching(handler).ask(number, times, micros)),
    };
    check_sum(books, expected, &outcome);
    books.note(number, kind, &outcome, 0);
}

fn signals_through_another_server(books: &Arc<Books>, number: u64, micros: u64) {
    let (inner, times) = (books.number(), sim::below(4) as u32);
    let between = match farcall::import::<dyn Between>("Between") {
        Ok(between) => between.within(Duration::from_secs(120)),
        Err(_) => return,
    };
    let handler = handles(books, inner, micros);
    let expected = Expected::of(&handler, times, false);
    let outcome = between.catching(handler).ask(number, inner, times);
    check_sum(books, expected, &outcome);
    books.note(number, "between", &outcome, 0);
}

fn result_stream(books: &Arc<Books>, server: &InsideClient, number: u64, micros: u64) {
    let (count, odd) = (sim::below(60) as u32, sim::below(4) == 0);
    let outcome = server.items(number, count, micros / 16, odd);
    let exception = odd.then_some(Odd { number });
    take(books, number, "result stream", (count, exception), micros / 4, outcome);
}

/// Takes the items of a call, or stops early, and checks them: so many come, and then perhaps the exception.
fn take<E: PartialEq + std::fmt::Debug>(
    books: &Books,
    number: u64,
    kind: &'static str,
    (count, exception): (u32, Option<E>),
    micros: u64,
    outcome: Result<Stream<Vec<u8>, E>, E>,
) where
    Stream<Vec<u8>, E>: Iterator<Item = Result<Vec<u8>, E>>,
{
    let stops_at = if sim::below(4) == 0 { sim::below(20) as u32 } else { u32::MAX };
    if let Err(Error::Declared(found)) = &outcome {
        assert_eq!((Some(found), 0), (exception.as_ref(), count), "call {number}");
    }
    let Ok(mut stream) = outcome else { return books.note(number, "no stream", &outcome, 0) };
    let mut place = 0;
    let ended = loop {
        if place == stops_at {
            sim::note(&format!("call {number}: stopped after {place} items"));
            return;
        }
        match stream.next() {
            None => break Ok(()),
            Some(Err(why)) => break Err(why),
            Some(Ok(found)) => assert_eq!(found, item(number, place), "call {number}, item {place}"),
        }
        place += 1;
        sleep_micros(micros);
    };
    match &ended {
        Ok(()) => assert_eq!((place, &exception), (count, &None), "call {number}: items that came"),
        Err(Error::Declared(found)) => assert_eq!((place, Some(found)), (count, exception.as_ref())),
        Err(Error::CallFailed(_)) => assert!(place <= count, "call {number}: {place} of {count} items"),
    }
    assert!(stream.next().is_none(), "call {number}: something came behind the last item");
    books.note(number, kind, &ended, place);
}

fn fetch(books: &Arc<Books>, server: &InsideClient, number: u64) {
    let bytes = 1 << sim::below(18);
    let fetched = server.fetch(number, bytes);
    let Ok(mut bulk) = fetched else { return books.note(number, "no bulk", &fetched, 0) };
    let mut kept = Vec::new();
    let copied = bulk.copy_to(&mut kept, u64::MAX);
    let (length, outcome) = (copied.bytes, copied.done());
    assert!(kept == content(number, length), "call {number}: {length} bytes");
    assert!(outcome.is_err() || length == bytes, "call {number}: {length} of {bytes} bytes");
    books.note(number, "bulk result", &outcome, u32::from(length > 0));
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
fn what_passes_inside_calls_is_what_was_sent_and_each_signal_is_handled_once() {
    long_run::check_kinds(40, &KINDS, run);
}

#[test]
fn broken_rules_of_signals_are_noticed() {
    let rules = [
        Rule::SignalOfItsInterface,
        Rule::RaiserIsNamed,
        Rule::UnwindingIsChecked,
        Rule::UnwindingIsConfirmed,
    ];
    for rule in rules {
        let failure = farcall_sim::find(3000, move |sim| {
            sim.breaks(rule);
            run(sim, &Successes::default());
        });
        let failure = failure.unwrap_or_else(|| panic!("nothing notices that {rule:?} is broken"));
        let why = failure.why.lines().next().unwrap_or_default();
        println!("{rule:?}: seed {}: {why}", failure.seed);
    }
}
