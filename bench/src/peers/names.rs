//! The segment name service: requests of a process to its machine's clerk, which reads the table of another
//! machine's clerk.
use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use farcall::memory::clerk::{Clerk, Search, Settings};
use farcall::memory::{self, Rights, Segment};
use farcall::{Runtime, names};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};
use xxhash_rust::xxh3::xxh3_64;

/// The requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Export,
    Revoke,
    /// Imports a segment that was imported from there before.
    Import,
    /// Imports a segment without using caches.
    ImportAnew,
    LookUp,
    LookUpAnew,
    /// Looks a name up with transfer of control.
    LookUpAsking,
    /// Looks a name up without using caches, in a table in which this many other names collide with it.
    Collisions(Search, usize),
}

/// The names of the requests in rows and in the names of peers.
const OPERATIONS: [(&str, Operation); 7] = [
    ("export", Operation::Export),
    ("revoke", Operation::Revoke),
    ("import-cached", Operation::Import),
    ("import", Operation::ImportAnew),
    ("look-up-cached", Operation::LookUp),
    ("look-up", Operation::LookUpAnew),
    ("look-up-asking", Operation::LookUpAsking),
];

/// The segment that is looked up.
const NAME: &str = "Bench";

/// The three ways of section 4.2 of the paper, by the beginnings of the names of their peers. The third reads
/// once, and then asks.
const SEARCHES: [(&str, Search); 3] =
    [("read", Search::Read), ("ask", Search::Ask), ("read-then-ask", Search::ReadThenAsk(1))];

/// Returns the peer of this name, for example `names-look-up`, or `names-read-3` for three collisions.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let operation = name.strip_prefix("names-")?;
    let known = OPERATIONS.into_iter().find(|(known, _)| *known == operation).map(|(_, operation)| operation);
    Some(Box::new(Names(known.or_else(|| collisions(operation))?)))
}

fn collisions(name: &str) -> Option<Operation> {
    let (search, count) = name.rsplit_once('-')?;
    let (_, search) = SEARCHES.into_iter().find(|(known, _)| *known == search)?;
    Some(Operation::Collisions(search, count.parse().ok()?))
}

struct Names(Operation);

/// Returns a simulated machine with its own registry and clerk.
fn machine(settings: Settings) -> Result<(Clerk, Runtime)> {
    let runtime = Runtime::builder().registry(names::Memory::new()).shared_memory(false).build()?;
    Ok((Clerk::start(&runtime, settings)?, runtime))
}

/// The slots of a clerk's table by default.
const SLOTS: u64 = 1024;

/// Returns names that select the slot of [`NAME`] in a table of the default size.
fn colliding(count: usize) -> Vec<String> {
    let slot = |name: &str| xxh3_64(name.as_bytes()) % SLOTS;
    (0..).map(|n| format!("n{n}")).filter(|name| slot(name) == slot(NAME)).take(count).collect()
}

fn readable() -> memory::Settings {
    memory::Settings::new(4096).anyone(Rights::READ)
}

impl Peer for Names {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn calls_per_lap(&self) -> usize {
        // This sends nothing.
        if self.0 == Operation::LookUp { 1_000 } else { 1 }
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        let (clerk, runtime) = machine(Settings::default())?;
        let others = if let Operation::Collisions(_, count) = self.0 { colliding(count) } else { Vec::new() };
        let names = others.iter().map(String::as_str).chain([NAME]);
        let segments = names.map(|name| runtime.export_segment(name, readable()));
        Ok(Box::new(Exported { clerk, _segments: segments.collect::<farcall::Result<_>>()? }))
    }

    fn connect(&self, _: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let settings = match self.0 {
            Operation::Collisions(search, _) => Settings::default().search(search),
            _ => Settings::default(),
        };
        let (clerk, runtime) = machine(settings)?;
        Ok(Box::new(Client {
            operation: self.0,
            lap: self.calls_per_lap(),
            hint: address.parse()?,
            clerk,
            runtime,
        }))
    }
}

struct Exported {
    clerk: Clerk,
    _segments: Vec<Segment>,
}

impl Serving for Exported {
    fn address(&self) -> String {
        self.clerk.address().to_string()
    }
}

struct Client {
    operation: Operation,
    lap: usize,
    hint: SocketAddr,
    clerk: Clerk,
    runtime: Runtime,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        let Client { operation, lap, hint, clerk, runtime } = self;
        let (lap, hint) = (*lap, *hint);
        match operation {
            Operation::Export | Operation::Revoke => exports(runtime, *operation, laps),
            Operation::Import => each(laps, lap, || Ok(runtime.import_segment_at(NAME, hint)?)),
            Operation::ImportAnew => each(laps, lap, || Ok(runtime.import_segment_anew(NAME, Some(hint))?)),
            Operation::LookUp => each(laps, lap, || Ok(clerk.look_up(NAME, Some(hint))?)),
            Operation::LookUpAnew | Operation::Collisions(..) => {
                each(laps, lap, || Ok(clerk.look_up_anew(NAME, Some(hint))?))
            }
            Operation::LookUpAsking => each(laps, lap, || Ok(clerk.look_up_asking(NAME, hint)?)),
        }
    }
}

#[inline]
fn each<T>(laps: &mut Laps, lap: usize, ask: impl Fn() -> Result<T>) -> Result<()> {
    while laps.next() {
        for _ in 0..lap {
            black_box(ask()?);
        }
    }
    Ok(())
}

/// Runs both operations in turn. Only one of them is timed as a lap.
fn exports(runtime: &Runtime, operation: Operation, laps: &mut Laps) -> Result<()> {
    loop {
        let began = Instant::now();
        let segment = runtime.export_segment("Another", readable())?;
        let exported = began.elapsed();
        let began = Instant::now();
        drop(segment);
        let took = if operation == Operation::Export { exported } else { began.elapsed() };
        if !laps.enter(took.as_nanos() as u64) {
            return Ok(());
        }
    }
}
