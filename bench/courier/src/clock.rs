//! The processor's time: clocks, and an environment that measures what its sockets take.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::env::{
    Address, Alarm, ConnectOptions, Env, Event, Listener, PeerState, Poller, Received, Socket, SocketOptions,
    Source, Stream, Time, Wait, Wanted,
};
use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this process, in seconds.
pub fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Returns the processor time of this thread, in seconds.
pub fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Returns the seconds that one reading of a thread's clock takes.
pub fn reading_seconds() -> f64 {
    const READINGS: u32 = 10_000;
    let start = thread_seconds();
    for _ in 0..READINGS {
        std::hint::black_box(thread_seconds());
    }
    (thread_seconds() - start) / f64::from(READINGS)
}

/// What the sockets of an environment took.
#[derive(Debug, Default)]
pub struct Spent {
    pub write: Part,
    pub read: Part,
}

/// What one kind of system call took.
#[derive(Debug, Default)]
pub struct Part {
    nanoseconds: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Spent {
    /// Forgets everything.
    pub fn clear(&self) {
        for part in [&self.write, &self.read] {
            for number in [&part.nanoseconds, &part.calls, &part.bytes] {
                number.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Part {
    /// Returns the processor time in seconds. `reading` is the time that one reading of the clock takes.
    pub fn seconds(&self, reading: f64) -> f64 {
        let measured = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        (measured - self.calls.load(Ordering::Relaxed) as f64 * reading).max(0.0)
    }

    /// Returns how many bytes were sent or received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn measure<R>(&self, bytes: impl FnOnce(&R) -> usize, run: impl FnOnce() -> R) -> R {
        let start = thread_seconds();
        let result = run();
        let took = thread_seconds() - start;
        self.nanoseconds.fetch_add((took * 1e9) as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes(&result) as u64, Ordering::Relaxed);
        result
    }
}

/// Another environment, with sockets that measure the processor time of writes and of reads. A wait for
/// sockets (`select` in the paper) counts as a read.
pub struct TimedEnv {
    inner: Arc<dyn Env>,
    spent: Arc<Spent>,
}

impl TimedEnv {
    /// Wraps an environment. What its sockets take is added to `spent`.
    pub fn new(inner: Arc<dyn Env>, spent: Arc<Spent>) -> TimedEnv {
        TimedEnv { inner, spent }
    }
}

impl Env for TimedEnv {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        let inner = self.inner.bind(address, options)?;
        Ok(Arc::new(TimedSocket { inner, spent: self.spent.clone() }))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.inner.spawn(name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        self.inner.event()
    }

    fn entropy(&self, out: &mut [u8]) {
        self.inner.entropy(out);
    }

    fn is_loopback(&self, address: SocketAddr) -> bool {
        self.inner.is_loopback(address)
    }

    fn source_address(&self, to: IpAddr) -> io::Result<IpAddr> {
        self.inner.source_address(to)
    }

    fn connect(&self, to: &Address, options: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        let inner = self.inner.connect(to, options)?;
        Ok(Arc::new(TimedStream { inner, spent: self.spent.clone() }))
    }

    fn listen(&self, at: &Address) -> io::Result<Arc<dyn Listener>> {
        self.inner.listen(at)
    }

    fn poller(&self) -> io::Result<Arc<dyn Poller>> {
        self.inner.poller()
    }

    fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        self.inner.alarm()
    }

    fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.spent.read.measure(|_| 0, || self.inner.wait_any(wanted, timeout))
    }
}

struct TimedStream {
    inner: Arc<dyn Stream>,
    spent: Arc<Spent>,
}

impl Stream for TimedStream {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        self.spent.read.measure(count, || self.inner.read(buffer, wait))
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.spent.write.measure(count, || self.inner.write(parts))
    }

    fn shutdown(&self, how: Shutdown) {
        self.inner.shutdown(how);
    }

    fn take_error(&self) -> io::Result<()> {
        self.inner.take_error()
    }

    fn peer_state(&self) -> PeerState {
        self.inner.peer_state()
    }

    fn source(&self) -> Source<'_> {
        self.inner.source()
    }
}

struct TimedSocket {
    inner: Arc<dyn Socket>,
    spent: Arc<Spent>,
}

impl Socket for TimedSocket {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.spent.write.measure(|_| datagram.len(), || self.inner.send(to, datagram))
    }

    fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
        self.spent.write.measure(|_| train.len(), || self.inner.send_train(to, train, each))
    }

    fn send_parts(&self, to: SocketAddr, parts: [&[u8]; 3]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.spent.write.measure(|_| bytes, || self.inner.send_parts(to, parts))
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.spent.read.measure(received, || self.inner.receive(buffer, wait))
    }

    fn receive_at_rest(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        self.spent.read.measure(received, || self.inner.receive_at_rest(buffer, wait))
    }

    fn receive_awake(&self, buffer: &mut [u8], within: Duration) -> io::Result<Received> {
        self.spent.read.measure(received, || self.inner.receive_awake(buffer, within))
    }

    fn connect(&self, to: Option<SocketAddr>) {
        self.inner.connect(to);
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn source(&self) -> Option<Source<'_>> {
        self.inner.source()
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn receive_buffer(&self) -> usize {
        self.inner.receive_buffer()
    }
}

fn count(result: &io::Result<usize>) -> usize {
    result.as_ref().copied().unwrap_or_default()
}

fn received(result: &io::Result<Received>) -> usize {
    match result {
        Ok(Received::Datagrams { len, .. }) => *len,
        _ => 0,
    }
}
