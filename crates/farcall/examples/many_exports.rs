//! Measures exports by name: `many_exports NUMBER [DIRECTORY]`, without a directory in the user's registry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall::{Runtime, names};

#[farcall::interface]
trait Store {
    fn number(&self) -> farcall::Result<u64>;
}

struct Server;

impl Store for Server {
    fn number(&self) -> farcall::Result<u64> {
        Ok(7)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let number: usize = arguments.next().ok_or("how many exports?")?.parse()?;
    let directory = arguments.next().ok_or("which directory?")?;
    let runtime = Runtime::builder().registry(names::File::at(&directory)).build()?;
    let mut times = Vec::new();
    let mut exports = Vec::new();
    let began = Instant::now();
    for n in 0..number {
        let one = Instant::now();
        exports.push(runtime.export::<dyn Store>(&format!("Store/n{n}"), Arc::new(Server))?);
        times.push(one.elapsed());
    }
    report("exports", began.elapsed(), times);
    let mut times = Vec::new();
    let began = Instant::now();
    for n in 0..number.min(1000) {
        let one = Instant::now();
        runtime.import::<dyn Store>(&format!("Store/n{n}"))?.number()?;
        times.push(one.elapsed());
    }
    report("imports with one call", began.elapsed(), times);
    let mut times = Vec::new();
    let began = Instant::now();
    for export in exports {
        let one = Instant::now();
        drop(export);
        times.push(one.elapsed());
    }
    report("withdrawals", began.elapsed(), times);
    Ok(())
}

fn report(what: &str, all: Duration, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 1000];
    println!(
        "{} {what}: {all:?}; one: median {:?}, p99 {:?}, most {:?}",
        times.len(),
        at(500),
        at(990),
        at(1000)
    );
}
