//! Prints how soon a group answers by a socket with the receive buffer that Linux gives if nobody has set
//! more, and how many datagrams the buffer had no room for: a majority of 101 by 60 KB while seven hang, 30
//! of 31 by 1 MiB while one hangs, 1,000 members that take a second each, and 300 that then return 60 KB
//! each. Each once by a thread that waits, and once by a task that awaits.
//!
//! `cargo run --release -p farcall --example slow_members -- [ROUNDS] [ADDRESS]`
//!
//! Paths between other addresses than loopback have a window of their own (docs/multi.md). In a network
//! namespace only this program's datagrams are counted:
//!
//! ```sh
//! unshare --net sh -c 'ip link set lo up; ip addr add 10.9.0.1/24 dev lo
//!     FARCALL_OPEN=1 slow_members 10 10.9.0.1'
//! ```

use std::future::Future;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
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
        thread::sleep(self.0);
        Ok(vec![7; bytes as usize])
    }
}

/// Linux doubles what is asked for: the buffer has the 212,992 bytes that a socket has if nobody asks.
const STOCK_BUFFER: usize = 212_992 / 2;
/// How long a member hangs.
const LONG: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

/// How many members must answer a call, and with how many bytes each, within this time.
struct Wanted {
    replies: usize,
    bytes: u32,
    within: Duration,
}

fn builder(address: IpAddr) -> Builder {
    let builder = Runtime::builder().registry(Memory::new()).shared_memory(false).workers(1);
    builder.address((address, 0).into())
}

/// Returns a group of members, of which the first `hung` hang and the others take `takes`.
fn members(
    address: IpAddr,
    count: usize,
    hung: usize,
    takes: Duration,
) -> farcall::Result<Group<MemberClient, Fixed>> {
    let mut urls = Vec::new();
    for which in 0..count {
        let runtime = builder(address).build()?;
        let server = Arc::new(Server(if which < hung { LONG } else { takes }));
        let export = runtime.export::<dyn Member>("Member", server)?;
        urls.push(export.url());
        // They live as long as this program.
        std::mem::forget((export, runtime));
    }
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    builder(address).socket_buffer(STOCK_BUFFER).build()?.import_each::<dyn Member>(&urls)
}

/// Makes a call so many times in each way, and prints how long they took and what was lost.
fn measure(what: &str, rounds: usize, group: &Group<MemberClient, Fixed>, wanted: &Wanted) -> io::Result<()> {
    let Wanted { replies, bytes, within } = *wanted;
    let waits = || group.multi().work(bytes).within(within).quorum(replies).is_ok();
    let awaits = || block_on(group.multi().work(bytes).within(within).start().quorum(replies)).is_ok();
    let ways: [(&str, &dyn Fn() -> bool); 2] = [("waited for", &waits), ("awaited", &awaits)];
    for (way, call) in ways {
        let lost = lost_datagrams();
        let (mut took, mut failed) = (Vec::new(), 0);
        for _ in 0..rounds {
            let begun = Instant::now();
            failed += usize::from(!call());
            took.push(begun.elapsed());
        }
        took.sort();
        let lost =
            lost_datagrams().zip(lost).map_or("unknown".into(), |(now, then)| (now - then).to_string());
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        writeln!(
            io::stdout(),
            "{what}, {way}: {failed} of {rounds} failed; median {median:?}, longest {longest:?}; datagrams \
             without room: {lost}"
        )?;
    }
    Ok(())
}

/// Returns for how many datagrams the receive buffers of this network namespace have had no room.
fn lost_datagrams() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/snmp").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, lost) = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "RcvbufErrors")?;
    lost.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(10), |rounds| rounds.parse())?;
    let address: IpAddr = arguments.next().map_or(Ok([127, 0, 0, 1].into()), |address| address.parse())?;
    let few = rounds.div_ceil(10);
    let group = members(address, 101, 7, Duration::ZERO)?;
    let wanted = Wanted { replies: 51, bytes: 60_000, within: 2 * SECOND };
    measure("a majority of 101 by 60 KB, 7 hang", rounds, &group, &wanted)?;
    let group = members(address, 31, 1, Duration::ZERO)?;
    let wanted = Wanted { replies: 30, bytes: 1 << 20, within: 10 * SECOND };
    measure("30 of 31 by 1 MiB, 1 hangs", rounds, &group, &wanted)?;
    let group = members(address, 1000, 0, SECOND)?;
    let wanted = Wanted { replies: 1000, bytes: 4, within: 10 * SECOND };
    measure("1,000 of 1 s each", few, &group, &wanted)?;
    let group = members(address, 300, 0, SECOND)?;
    let wanted = Wanted { replies: 300, bytes: 60_000, within: 10 * SECOND };
    measure("300 of 1 s each by 60 KB", few, &group, &wanted)?;
    // Procedures that hang must not keep the process.
    std::process::exit(0)
}

/// Runs a future on this thread, which sleeps until the future is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
