//! Accesses to a segment of the server's memory: served over UDP, or mapped by a process of the same user.
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use farcall::memory::{self, Deposit, Memory, Notify, Remote, Rights, Segment, Settings};
use farcall::{Level, Pending, Runtime, names};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};

use super::keys;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    /// Reads words, in ascending order.
    Read,
    /// Reads bytes, in any order.
    ReadBytes,
    /// Reads that many ranges in one access.
    ReadEach,
    /// Reads, of which that many are under way.
    ReadMany,
    /// Reads that are deposited in a segment of the client's, of which that many are under way.
    DepositMany,
    /// Writes, and waits until the exporter has the bytes.
    Write,
    WriteBytes,
    /// Writes with notice, and pauses until the exporter's thread sleeps again.
    Post,
    /// Writes, of which that many are under way.
    WriteMany,
    CompareAndSwap,
    /// Writes with notice, and waits until a thread of the exporter was notified.
    Notify,
}

/// The names of the operations in rows and in the names of peers.
const OPERATIONS: [(&str, Operation); 11] = [
    ("read", Operation::Read),
    ("read-bytes", Operation::ReadBytes),
    ("read-16", Operation::ReadEach),
    ("read-64", Operation::ReadMany),
    ("read-into-64", Operation::DepositMany),
    ("write", Operation::Write),
    ("write-bytes", Operation::WriteBytes),
    ("write-64", Operation::WriteMany),
    ("post", Operation::Post),
    ("cas", Operation::CompareAndSwap),
    ("notify", Operation::Notify),
];

/// The number of ranges of [`Operation::ReadEach`].
const RANGES: usize = 16;
/// The number of accesses under way if there are many.
const MANY: usize = 64;
/// The offset at which the exporter writes when it was notified.
const TOLD: u64 = 0;
/// The offset of accesses; each further range is a page further.
const AT: u64 = 4096;
const SIZE: usize = 1 << 20;
/// The accesses in a lap, if one takes less time than a reading of the clock, or little more.
const LAP: usize = 1_000;
/// How long a client leaves the exporter's core idle before it notifies the exporter.
const QUIET: Duration = Duration::from_micros(40);

/// One operation over one carrier.
struct Accesses {
    operation: Operation,
    mapped: bool,
    /// How much the seals protect, if both ends have keys.
    level: Option<Level>,
}

/// Returns the peer of this name: for example `memory-read`, over UDP, `secure-read`, over UDP with
/// keys, or `mapped-read`.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let (carrier, operation) = name.split_once('-')?;
    let (mapped, level) = match carrier {
        "memory" => (false, None),
        "authenticated" => (false, Some(Level::Authenticated)),
        "secure" => (false, Some(Level::Secure)),
        "mapped" => (true, None),
        _ => return None,
    };
    let (_, operation) = OPERATIONS.into_iter().find(|(known, _)| *known == operation)?;
    Some(Box::new(Accesses { operation, mapped, level }))
}

impl Accesses {
    fn runtime(&self) -> farcall::Result<Runtime> {
        let builder = Runtime::builder().registry(names::Memory::new()).shared_memory(self.mapped);
        keys::with(self.level, builder).build()
    }
}

impl Peer for Accesses {
    fn transport(&self) -> &'static str {
        if self.mapped { "mapped" } else { "udp" }
    }

    fn calls_per_lap(&self) -> usize {
        match (self.operation, self.mapped) {
            (Operation::Notify | Operation::Post, _) => 1,
            (Operation::ReadMany | Operation::DepositMany | Operation::WriteMany, _) => MANY,
            (_, true) => LAP,
            (_, false) => 1,
        }
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        let settings = Settings::new(SIZE);
        let settings =
            if self.mapped { settings.same_user(Rights::ALL) } else { settings.anyone(Rights::ALL) };
        let heard = if self.operation == Operation::Notify { Notify::Asked } else { Notify::Never };
        let segment = Arc::new(self.runtime()?.export_segment("Bench", settings.notify(heard))?);
        if heard == Notify::Asked {
            let segment = segment.clone();
            std::thread::spawn(move || {
                loop {
                    segment.notice();
                    let _ = segment.store(TOLD, now());
                }
            });
        }
        Ok(Box::new(Exported(segment)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let runtime = self.runtime()?;
        let remote = runtime.import_segment(address)?;
        let here = match self.operation {
            Operation::DepositMany => {
                Some(runtime.export_segment("Here", Settings::new(MANY * setup.bytes))?)
            }
            _ => None,
        };
        Ok(Box::new(Client {
            remote,
            here,
            operation: self.operation,
            lap: self.calls_per_lap(),
            data: vec![7; setup.bytes],
        }))
    }
}

/// Returns the nanoseconds of the clock that all processes of a machine read.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

struct Exported(Arc<Segment>);

impl Serving for Exported {
    fn address(&self) -> String {
        self.0.url()
    }
}

struct Client {
    remote: Remote,
    /// The segment in which results are deposited.
    here: Option<Segment>,
    operation: Operation,
    lap: usize,
    data: Vec<u8>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        let Client { remote, here, lap, data, .. } = self;
        let (lap, length) = (*lap, data.len());
        match self.operation {
            Operation::Read => each(laps, lap, || remote.read(AT, black_box(data))),
            Operation::ReadBytes => each(laps, lap, || remote.read_bytes(AT, black_box(data))),
            Operation::ReadEach => {
                let mut into = vec![0; RANGES * length];
                let chunks = into.chunks_mut(length.max(1)).enumerate();
                let mut ranges: Vec<(u64, &mut [u8])> =
                    chunks.map(|(n, chunk)| (AT * (n as u64 + 1), chunk)).collect();
                each(laps, lap, || remote.read_each(black_box(&mut ranges)))
            }
            Operation::ReadMany => many(laps, lap, || remote.start_read(AT, length), Pending::wait),
            Operation::DepositMany => {
                let here = here.as_ref().context("there is no segment for deposits")?;
                let mut places = (0..MANY).map(|place| (place * length) as u64).cycle();
                let mut start = || {
                    let place = places.next().unwrap_or_default();
                    remote.start_read_into(AT, length, here, place, false)
                };
                many(laps, lap, &mut start, Deposit::wait)
            }
            Operation::Write => {
                each(laps, lap, || remote.write(AT, black_box(data)).and_then(|()| remote.flush()))
            }
            Operation::WriteBytes => {
                each(laps, lap, || remote.write_bytes(AT, black_box(data)).and_then(|()| remote.flush()))
            }
            Operation::Post => each(laps, lap, || {
                let begun = Instant::now();
                let posted = remote.post(AT, data);
                while begun.elapsed() < QUIET {
                    std::hint::spin_loop();
                }
                posted
            }),
            Operation::WriteMany => many(laps, lap, || remote.start_write(AT, data), Pending::wait),
            Operation::CompareAndSwap => {
                let mut word = remote.load(AT)?;
                each(laps, lap, || {
                    let swapped = remote.compare_and_swap(AT, word, word + 1);
                    word += 1;
                    swapped
                })
            }
            Operation::Notify => notify(remote, data, laps),
        }
    }
}

/// Makes the accesses of a lap, one after the other.
#[inline]
fn each<T>(laps: &mut Laps, lap: usize, mut access: impl FnMut() -> memory::Result<T>) -> Result<()> {
    while laps.next() {
        for _ in 0..lap {
            black_box(access()?);
        }
    }
    Ok(())
}

/// Makes the accesses of a lap with many under way: waits for the oldest before it starts another.
fn many<A, T>(
    laps: &mut Laps,
    lap: usize,
    mut start: impl FnMut() -> A,
    wait: impl Fn(A) -> memory::Result<T>,
) -> Result<()> {
    let mut under_way = VecDeque::with_capacity(MANY);
    while laps.next() {
        for _ in 0..lap {
            if under_way.len() == MANY {
                under_way.pop_front().map(&wait).transpose()?;
            }
            under_way.push_back(start());
        }
    }
    under_way.into_iter().try_for_each(|access| wait(access).map(drop))?;
    Ok(())
}

/// Ends each lap when the exporter was notified, by the common clock.
fn notify(remote: &Remote, data: &[u8], laps: &mut Laps) -> Result<()> {
    let mut told = remote.load(TOLD)?;
    loop {
        let (begun, before) = (Instant::now(), now());
        remote.write_notify(AT, data)?;
        let last = told;
        while told == last {
            while begun.elapsed() < QUIET {
                std::hint::spin_loop();
            }
            told = remote.load(TOLD)?;
        }
        let took = told.checked_sub(before).context("the clock was set back")?;
        if !laps.enter(took) {
            return Ok(());
        }
    }
}

/// Copies the same number of bytes within the client, as a lower bound for accesses.
pub struct Copying;

impl Peer for Copying {
    fn transport(&self) -> &'static str {
        "memory"
    }

    fn calls_per_lap(&self) -> usize {
        LAP
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        Ok(Box::new(Nobody))
    }

    fn connect(&self, setup: &Setup, _: &str) -> Result<Box<dyn Calling>> {
        Ok(Box::new(Copy {
            from: vec![7; setup.bytes + PAGE],
            to: vec![0; setup.bytes],
            lap: self.calls_per_lap(),
        }))
    }
}

/// The copied memory begins at a page, as segments do.
const PAGE: usize = 4096;

/// The server of a peer that needs none.
pub struct Nobody;

impl Serving for Nobody {
    fn address(&self) -> String {
        "here".into()
    }
}

struct Copy {
    from: Vec<u8>,
    to: Vec<u8>,
    lap: usize,
}

impl Calling for Copy {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        let Copy { from, to, lap } = self;
        let skip = from.as_ptr().align_offset(PAGE).min(PAGE);
        let from = &from[skip..skip + to.len()];
        each(laps, *lap, || {
            to.copy_from_slice(black_box(from));
            black_box(&mut *to);
            Ok(())
        })
    }
}
