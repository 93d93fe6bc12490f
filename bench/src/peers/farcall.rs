//! Farcall over UDP or through shared memory: the stubs that any program would use, and a runtime with nearly
//! the default settings.
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use farcall::names::Memory;
use farcall::xdr::Decode;
use farcall::{Bytes, Calls, Export, Level, Pending, Runtime};
use farcall_bench_method::{Calling, Carry, Crew, Laps, Mode, Peer, SLOW, STUCK, Schedule, Serving, Setup};

use super::keys;

/// The time for which a spinning side polls before it blocks. It is longer than any round trip, so the side
/// never blocks while it is measured, and short enough that polling soon ends afterwards.
pub const SPIN: Duration = Duration::from_millis(1);
/// The most procedures that execute at the same time. In the open loop many of them sleep.
pub const WORKERS: usize = 256;
/// The most due calls that are begun in a row. After them a late client receives replies; otherwise
/// unreceived replies would fill the windows, and the client would fall further behind.
const BURST: usize = 64;

#[farcall::interface(program = 0x2000_0099, version = 1)]
pub trait Echo {
    /// The null call.
    #[idempotent]
    fn null(&self) -> farcall::Result<()>;
    /// Returns the first 32 bytes.
    #[idempotent]
    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]>;
    /// Returns all bytes.
    #[idempotent]
    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns that many of the server's bytes.
    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes>;
    /// Returns the number of bytes.
    fn store(&self, data: &[u8]) -> farcall::Result<u32>;
    /// Does what `echo` does, after a sleep.
    fn slow(&self, data: &[u8]) -> farcall::Result<[u8; 32]>;
    /// Sleeps for that many seconds.
    fn stick(&self) -> farcall::Result<()>;
}

/// The server.
#[derive(Default)]
pub struct Server {
    /// The bytes that `fetch` returns.
    pub data: Bytes,
}

impl Echo for Server {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]> {
        Ok(data.first_chunk().copied().unwrap_or_default())
    }

    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes> {
        Ok(self.data.slice(..self.data.len().min(bytes as usize)))
    }

    fn store(&self, data: &[u8]) -> farcall::Result<u32> {
        Ok(data.len() as u32)
    }

    fn slow(&self, data: &[u8]) -> farcall::Result<[u8; 32]> {
        std::thread::sleep(SLOW);
        self.echo(data)
    }

    fn stick(&self) -> farcall::Result<()> {
        std::thread::sleep(STUCK);
        Ok(())
    }
}

pub struct Farcall {
    /// Whether the runtime uses shared memory, which must be available, instead of UDP.
    pub shared: bool,
    /// How much the seals protect, if both ends have keys.
    pub level: Option<Level>,
}

impl Peer for Farcall {
    fn transport(&self) -> &'static str {
        if self.shared { "shared memory" } else { "udp" }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        let server = Server { data: vec![7; setup.bytes].into() };
        Ok(Box::new(Exported(self.runtime(setup)?.export::<dyn Echo>("Echo", Arc::new(server))?)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let name = if self.shared { address.replacen("udp://", "shm://", 1) } else { address.to_owned() };
        let echo = self.runtime(setup)?.import::<dyn Echo>(&name)?;
        Ok(Box::new(Client::new(echo, setup)))
    }
}

impl Farcall {
    pub const OVER_UDP: Farcall = Farcall { shared: false, level: None };

    /// Returns the peer whose ends have keys, and seal what they send over UDP.
    pub const fn sealed(level: Level) -> Farcall {
        Farcall { shared: false, level: Some(level) }
    }

    /// Returns a runtime. Its registry stays within the process, because addresses suffice here.
    pub fn runtime(&self, setup: &Setup) -> farcall::Result<Runtime> {
        let builder = Runtime::builder().registry(Memory::new()).workers(WORKERS).shared_memory(self.shared);
        let builder = keys::with(self.level, builder);
        match setup.mode {
            Mode::Block => builder.build(),
            Mode::Spin => builder.spin(SPIN).build(),
        }
    }
}

/// The arguments of the null call: none, whatever the payload of other calls is.
pub struct Null;

impl Peer for Null {
    fn transport(&self) -> &'static str {
        Farcall::OVER_UDP.transport()
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        Farcall::OVER_UDP.serve(&Setup { bytes: 0, ..*setup })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        Farcall::OVER_UDP.connect(&Setup { bytes: 0, ..*setup }, address)
    }
}

pub struct Exported(pub Export);

impl Serving for Exported {
    fn address(&self) -> String {
        self.0.url()
    }
}

/// A client, with whatever its stub is bound to.
pub struct Client {
    caller: Caller,
    crew: Option<Crew>,
    stuck: Option<Pending<()>>,
}

impl Client {
    pub fn new(echo: EchoClient, setup: &Setup) -> Client {
        let caller = Caller { echo, carry: setup.carry, data: vec![7; setup.bytes] };
        Client { caller, crew: None, stuck: None }
    }
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        self.caller.calls(|| laps.next())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let Caller { echo, carry, data } = &self.caller;
        started(echo, *carry, data, outstanding, calls)
    }

    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let member = || {
            let caller = self.caller.clone();
            Ok(move |calls| {
                let mut calls = 0..calls;
                caller.calls(|| calls.next().is_some())
            })
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }

    fn short(&mut self, laps: &mut Laps, beside: bool) -> Result<()> {
        let Caller { echo, .. } = &self.caller;
        let over = AtomicBool::new(!beside);
        std::thread::scope(|scope| {
            let long = beside.then(|| {
                scope.spawn(|| {
                    let mut once = 0..1;
                    let ran = self.caller.calls(|| once.next().is_some());
                    over.store(true, Ordering::Relaxed);
                    ran
                })
            });
            while laps.next() || !over.load(Ordering::Relaxed) {
                std::hint::black_box(echo.echo(&[7; 32])?);
            }
            long.map_or(Ok(()), |long| long.join().unwrap_or_else(|_| bail!("the long call panicked")))
        })
    }

    /// Begins calls and receives replies to earlier ones, in one thread.
    fn open(&mut self, schedule: &mut Schedule) -> Result<()> {
        let Caller { echo, data, .. } = &self.caller;
        let echo = echo.start();
        let mut calls = Calls::new();
        while !schedule.is_over() {
            for arrival in std::iter::from_fn(|| schedule.due()).take(BURST) {
                calls.add(arrival, if arrival.slow { echo.slow(data) } else { echo.echo(data) });
            }
            while let Some((arrival, result)) = calls.try_next() {
                schedule.ended(arrival, &result);
            }
        }
        Ok(())
    }

    fn polled(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let Caller { echo, data, .. } = &self.caller;
        let echo = echo.start();
        let (mut left, mut under_way) = (calls, Calls::new());
        while left > 0 || !under_way.is_empty() {
            let begin = left.min(outstanding - under_way.len()).min(BURST);
            (0..begin).for_each(|_| under_way.add((), echo.echo(data)));
            left -= begin;
            while let Some(((), result)) = under_way.try_next() {
                std::hint::black_box(result?);
            }
        }
        Ok(())
    }

    fn stick(&mut self, begin: bool) -> Result<()> {
        let stuck = self.stuck.take();
        self.stuck = begin.then(|| self.caller.echo.start().stick());
        Ok(stuck.map_or(Ok(()), Pending::wait)?)
    }
}

/// Starts `calls` calls, with `outstanding` of them at any time.
pub fn started(echo: &EchoClient, carry: Carry, data: &[u8], outstanding: usize, calls: usize) -> Result<()> {
    let echo = echo.start();
    match (carry, data.len()) {
        (Carry::Result, bytes) => window(outstanding, calls, || echo.fetch(bytes as u32)),
        (Carry::Argument, _) => window(outstanding, calls, || echo.store(data)),
        (Carry::Both, 0) => window(outstanding, calls, || echo.null()),
        (Carry::Both, 32) => window(outstanding, calls, || echo.echo(data)),
        (Carry::Both, _) => window(outstanding, calls, || echo.echo_all(data)),
    }
}

/// Keeps `outstanding` calls under way: waits for the oldest, and starts another.
fn window<T>(outstanding: usize, calls: usize, start: impl Fn() -> Pending<T>) -> Result<()>
where
    T: for<'a> Decode<'a>,
{
    let mut under_way = VecDeque::with_capacity(outstanding);
    for _ in 0..calls {
        if under_way.len() == outstanding {
            under_way.pop_front().map(Pending::wait).transpose()?;
        }
        under_way.push_back(start());
    }
    under_way.into_iter().try_for_each(|call| call.wait().map(drop))?;
    Ok(())
}

#[derive(Clone)]
struct Caller {
    echo: EchoClient,
    carry: Carry,
    data: Vec<u8>,
}

impl Caller {
    #[inline]
    fn calls(&self, next: impl FnMut() -> bool) -> Result<()> {
        calls(&self.echo, self.carry, &self.data, next)
    }
}

/// Makes calls for as long as `next` returns true, by `echo`.
#[inline]
pub fn calls(
    echo: &(impl Echo + ?Sized),
    carry: Carry,
    data: &[u8],
    mut next: impl FnMut() -> bool,
) -> Result<()> {
    match (carry, data.len()) {
        (Carry::Result, bytes) => {
            while next() {
                std::hint::black_box(echo.fetch(bytes as u32)?);
            }
        }
        (Carry::Argument, _) => {
            while next() {
                std::hint::black_box(echo.store(data)?);
            }
        }
        (Carry::Both, 0) => {
            while next() {
                echo.null()?;
            }
        }
        (Carry::Both, 32) => {
            while next() {
                std::hint::black_box(echo.echo(data)?);
            }
        }
        (Carry::Both, _) => {
            while next() {
                std::hint::black_box(echo.echo_all(data)?);
            }
        }
    }
    Ok(())
}
