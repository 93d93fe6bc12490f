//! Prints how soon a group answers by a socket with the receive buffer that Linux gives if nobody has set
//! more: a majority of 101 by 60 KB while seven hang, 30 of 31 by 1 MiB while one hangs, and 1,000 members
//! that take a second each.
//!
//! `cargo run --release -p farcall --example slow_members`

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall::multi::Fixed;
use farcall::names::Memory;
use farcall::{Builder, Group, Runtime};

#[farcall::interface]
trait Member {
    /// Returns this many bytes. May take long first.
    #[blocking]
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

struct Server(Duration);

impl Member for Server {
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        std::thread::sleep(self.0);
        Ok(vec![7; bytes as usize])
    }
}

const STOCK_BUFFER: usize = 212_992;
const ROUNDS: usize = 10;
/// How long a member hangs.
const LONG: Duration = Duration::from_secs(3600);

fn builder() -> Builder {
    let builder = Runtime::builder().registry(Memory::new()).shared_memory(false).workers(1);
    builder.address(([127, 0, 0, 1], 0).into())
}

/// Returns a group of members, of which the first `hung` hang and the others take `takes`.
fn members(count: usize, hung: usize, takes: Duration) -> farcall::Result<Group<MemberClient, Fixed>> {
    let mut urls = Vec::new();
    for which in 0..count {
        let runtime = builder().build()?;
        let server = Arc::new(Server(if which < hung { LONG } else { takes }));
        let export = runtime.export::<dyn Member>("Member", server)?;
        urls.push(export.url());
        // They live as long as this program.
        std::mem::forget((export, runtime));
    }
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    builder().socket_buffer(STOCK_BUFFER).build()?.import_each::<dyn Member>(&urls)
}

fn say(what: &str, mut took: Vec<Duration>) -> io::Result<()> {
    took.sort();
    writeln!(io::stdout(), "{what}: median {:?}, longest {:?}", took[took.len() / 2], took[took.len() - 1])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timed = |call: &dyn Fn() -> bool| {
        let begun = Instant::now();
        assert!(call(), "too few members have answered");
        begun.elapsed()
    };
    let group = members(101, 7, Duration::ZERO)?;
    let majority = || group.multi().work(60_000).within(Duration::from_secs(2)).majority().is_ok();
    say("a majority of 101 by 60 KB, 7 hang", (0..ROUNDS).map(|_| timed(&majority)).collect())?;
    let group = members(31, 1, Duration::ZERO)?;
    let thirty = || group.multi().work(1 << 20).within(Duration::from_secs(2)).quorum(30).is_ok();
    say("30 of 31 by 1 MiB, 1 hangs", (0..ROUNDS).map(|_| timed(&thirty)).collect())?;
    let group = members(1000, 0, Duration::from_secs(1))?;
    let all = || group.multi().work(4).all().results().count() == 1000;
    say("1,000 of 1 s each", (0..3).map(|_| timed(&all)).collect())?;
    // Procedures that hang must not keep the process.
    std::process::exit(0)
}
