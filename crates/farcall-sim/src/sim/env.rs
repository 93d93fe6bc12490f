//! The operating system of a simulated process, as farcall sees it: an [`Env`] for each life of a process.

#[cfg(unix)]
mod readiness;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(unix)]
use farcall::env::{Address, Alarm, ConnectOptions, Listener, Poller, Source, Stream, Wanted};
use farcall::env::{Env, Event, Received, Socket, SocketOptions, Time, Wait};

use super::faults::nanos;
use super::names::number;
use super::state::{State, Status, ThreadId, Ticket, Waits, enlist};
use super::world::{Guard, World, here};
use crate::net::{Nanos, SECS};
#[cfg(unix)]
use readiness::{Connected, DATAGRAMS, Held, Listening, Sources, wait_any};

/// The environment of one life of a process.
pub(super) struct Outside {
    world: Arc<World>,
    process: usize,
    life: u32,
    origin: Nanos,
}

/// The size of the receive buffer of a datagram socket that is connected to one address, in bytes.
#[cfg(unix)]
const DATAGRAM_BUFFER: usize = 1 << 20;

/// The number of processors of every machine.
const PROCESSORS: usize = 2;

impl Outside {
    pub(super) fn new(world: Arc<World>, process: usize, life: u32) -> Outside {
        let origin = world.lock().processes[process].origin;
        Outside { world, process, life, origin }
    }

    /// Returns the world, if the process is alive.
    fn alive(&self) -> io::Result<Guard<'_>> {
        let state = self.world.lock();
        match state.lives(self.process, self.life) {
            true => Ok(state),
            false => Err(io::Error::other("the process is gone")),
        }
    }

    /// Opens a datagram socket. Port 0 asks for any port.
    fn open(&self, port: u16, buffer: usize, batches: bool) -> io::Result<Udp> {
        let opened = self.alive()?.open(self.process, port, buffer, batches);
        let (id, address) = opened.ok_or(io::ErrorKind::AddrInUse)?;
        Ok(Udp { world: self.world.clone(), id, address, buffer })
    }
}

/// The seconds of the simulated calendar when a run begins: the beginning of 2027.
const BEGAN: u64 = 1_798_761_600;

/// Returns the seconds since the beginning of 1970 after that virtual time, the same on all machines.
pub(super) fn unix_seconds(now: Nanos) -> u64 {
    BEGAN + now / SECS
}

impl Env for Outside {
    fn now(&self) -> Time {
        Time::from_nanos(self.origin + self.world.lock().net.now())
    }

    fn unix_seconds(&self) -> u64 {
        unix_seconds(self.world.lock().net.now())
    }

    /// Drops the line: nobody reads the standard error of a simulated machine.
    fn say(&self, _: &str) {}

    /// Returns false, because every datagram crosses the simulated network.
    fn is_loopback(&self, _: SocketAddr) -> bool {
        false
    }

    /// Binds to the machine's only address. `address` is ignored, except its port.
    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Ok(Arc::new(self.open(address.port(), options.buffer, !options.divisible)?))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        if self.world.lock().lacks_thread(self.process, name) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.world.spawn(self.process, self.life, name, run)
    }

    #[cfg(feature = "soak")]
    fn mutant(&self) -> farcall::driver_mutants::Mutant {
        self.world.lock().mutant
    }

    fn event(&self) -> Arc<dyn Event> {
        Flag::new(&self.world)
    }

    fn thread_number(&self) -> Option<u32> {
        here().and_then(|here| here.thread.try_into().ok())
    }

    /// A thread that could run counts as running, as it does in a kernel.
    fn sleeps(&self, thread: u32) -> bool {
        let state = self.world.lock();
        state.threads.get(thread as usize).is_some_and(|thread| matches!(thread.status, Status::Waiting(_)))
    }

    #[cfg(unix)]
    fn connect(&self, to: &Address, _: &ConnectOptions) -> io::Result<Arc<dyn Stream>> {
        match to {
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
            Address::Tcp(to) => {
                let id = self.alive()?.connect(self.process, *to);
                Ok(Arc::new(Held { world: self.world.clone(), id }))
            }
            Address::Udp(to) => {
                Ok(Arc::new(Connected { socket: self.open(0, DATAGRAM_BUFFER, false)?, to: *to }))
            }
        }
    }

    #[cfg(unix)]
    fn listen(&self, at: &Address) -> io::Result<Arc<dyn Listener>> {
        let Address::Tcp(at) = at else { return Err(io::ErrorKind::Unsupported.into()) };
        let listening = self.alive()?.listen(self.process, at.port());
        let (id, at) = listening.ok_or(io::ErrorKind::AddrInUse)?;
        Ok(Arc::new(Listening { held: Held { world: self.world.clone(), id }, at }))
    }

    #[cfg(unix)]
    fn poller(&self) -> io::Result<Arc<dyn Poller>> {
        Ok(Arc::new(Sources { world: self.world.clone(), inner: Mutex::default() }))
    }

    #[cfg(unix)]
    fn alarm(&self) -> io::Result<Arc<dyn Alarm>> {
        let id = self.alive()?.alarm(self.process);
        Ok(Arc::new(Held { world: self.world.clone(), id }))
    }

    #[cfg(unix)]
    fn wait_any(&self, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) -> io::Result<()> {
        wait_any(&self.world, wanted, timeout);
        Ok(())
    }

    fn entropy(&self, out: &mut [u8]) {
        self.world.lock().rng.fill(out);
    }

    /// Fails, because no caller needs the answer: a socket is always bound to the machine's only address.
    fn source_address(&self, _: IpAddr) -> io::Result<IpAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the addresses of a host that the test has given a name ([`Sim::host`](super::Sim::host)).
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "no host has this name in the simulation");
        self.world.services.resolve(host, port, |time| self.world.sleep(time)).ok_or_else(unknown)
    }

    fn has_dns(&self) -> bool {
        false
    }

    fn process_id(&self) -> u32 {
        number(self.process, self.life)
    }

    fn processors(&self) -> usize {
        PROCESSORS
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn variable_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A simulated socket.
struct Udp {
    world: Arc<World>,
    id: usize,
    address: SocketAddr,
    buffer: usize,
}

impl Udp {
    /// Waits until `look`, which examines what has arrived, returns a value, and returns that value.
    fn wait_for<T>(&self, wait: Wait, look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let thread = waiter(&self.world);
        self.world.wait_for(thread, Waits::Datagram(self.address), most(wait), look, |state, ticket| {
            state.await_datagram(self.id, ticket);
        })
    }
}

impl Socket for Udp {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.world.lock().send(self.id, to, datagram);
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        let received = self.wait_for(wait, |state| state.fetch(self.id, buffer));
        Ok(received.unwrap_or(Received::TimedOut))
    }

    fn wake(&self) {
        self.world.lock().rouse(self.id);
    }

    #[cfg(unix)]
    fn source(&self) -> Option<Source<'_>> {
        Some(Source::Simulated(DATAGRAMS | self.id as u64))
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn receive_buffer(&self) -> usize {
        self.buffer
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}

/// A simulated event.
pub(super) struct Flag {
    world: Arc<World>,
    /// The state of the event. It is locked only while the world is locked.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    set: bool,
    waiters: Vec<Ticket>,
}

impl Flag {
    pub(super) fn new(world: &Arc<World>) -> Arc<Flag> {
        Arc::new(Flag { world: world.clone(), inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event for Flag {
    fn set(&self) {
        let mut state = self.world.lock();
        let mut inner = self.inner();
        inner.set = true;
        state.wake_all(std::mem::take(&mut inner.waiters));
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let is_set = |_: &mut State| std::mem::take(&mut self.inner().set).then_some(());
        let enlist = |state: &mut State, ticket| enlist(&state.threads, &mut self.inner().waiters, ticket);
        let thread = waiter(&self.world);
        self.world.wait_for(thread, Waits::Event, timeout.map(nanos), is_set, enlist).is_some()
    }
}

/// Returns the longest duration of a wait, in nanoseconds.
fn most(wait: Wait) -> Option<Nanos> {
    match wait {
        Wait::No => Some(0),
        Wait::Nanos(nanos) => Some(nanos),
        Wait::Forever => None,
    }
}

/// Returns the thread that is about to wait.
fn waiter(world: &Arc<World>) -> ThreadId {
    match here() {
        Some(here) if Arc::ptr_eq(&here.world, world) => here.thread,
        _ => {
            panic!("a thread that the simulation did not start waits in it: start threads with `sim::spawn`")
        }
    }
}
