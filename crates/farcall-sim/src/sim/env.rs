//! What farcall's drivers see of the simulation: an [`Env`] for each life of a process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Env, Event, Received, Socket, SocketOptions, Time, Wait};

use super::faults::nanos;
use super::names::number;
use super::state::{Ticket, Waits};
use super::world::{Here, World, here};
use crate::net::Nanos;

/// The outside of one life of a process.
pub(super) struct Outside {
    world: Arc<World>,
    process: usize,
    life: u32,
    origin: Nanos,
}

/// How many processors every machine has.
const PROCESSORS: usize = 2;

impl Outside {
    pub(super) fn new(world: Arc<World>, process: usize, life: u32) -> Outside {
        let origin = world.lock().processes[process].origin;
        Outside { world, process, life, origin }
    }
}

impl Env for Outside {
    fn now(&self) -> Time {
        Time::from_nanos(self.origin + self.world.lock().net.now())
    }

    /// Every datagram crosses the simulated network.
    fn is_loopback(&self, _: SocketAddr) -> bool {
        false
    }

    /// Whatever address is asked for, it is the machine's only one.
    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        let mut state = self.world.lock();
        if !state.lives(self.process, self.life) {
            return Err(io::Error::other("the process is gone"));
        }
        let Some((id, address)) = state.open(self.process, address.port(), options.buffer) else {
            return Err(io::ErrorKind::AddrInUse.into());
        };
        Ok(Arc::new(Udp { world: self.world.clone(), id, address, buffer: options.buffer }))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        if self.world.lock().lacks_thread(self.process, name) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.world.spawn(self.process, self.life, name, run)
    }

    fn event(&self) -> Arc<dyn Event> {
        Flag::new(&self.world)
    }

    fn entropy(&self, out: &mut [u8]) {
        self.world.lock().rng.fill(out);
    }

    /// Nobody needs to ask: a socket is always bound to the machine's only address.
    fn source_address(&self, _: IpAddr) -> io::Result<IpAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The machines have no names but those of processes, which the registry knows.
    fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no host has a name in the simulation"))
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
}

/// A simulated socket.
struct Udp {
    world: Arc<World>,
    id: usize,
    address: SocketAddr,
    buffer: usize,
}

impl Socket for Udp {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.world.lock().send(self.id, to, datagram);
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        let me = waiter(&self.world);
        let mut state = self.world.go_on(self.world.lock(), me.thread);
        let until = match wait {
            Wait::No => Some(0),
            Wait::Nanos(nanos) => Some(state.net.now().saturating_add(nanos)),
            Wait::Forever => None,
        };
        loop {
            if let Some(received) = state.fetch(self.id, buffer) {
                return Ok(received);
            }
            if until.is_some_and(|until| until <= state.net.now()) {
                return Ok(Received::TimedOut);
            }
            let ticket = state.ticket(me.thread);
            state.await_datagram(self.id, ticket);
            state = self.world.wait(state, me.thread, Waits::Datagram(self.address), until);
        }
    }

    fn wake(&self) {
        self.world.lock().rouse(self.id);
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
    /// Locked only while the world is.
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
        let me = waiter(&self.world);
        let mut state = self.world.go_on(self.world.lock(), me.thread);
        let until = timeout.map(|timeout| state.net.now().saturating_add(nanos(timeout)));
        loop {
            if std::mem::take(&mut self.inner().set) {
                return true;
            }
            if until.is_some_and(|until| until <= state.net.now()) {
                return false;
            }
            let ticket = state.ticket(me.thread);
            self.inner().waiters.push(ticket);
            state = self.world.wait(state, me.thread, Waits::Event, until);
        }
    }
}

/// The thread that is about to wait.
fn waiter(world: &Arc<World>) -> Here {
    match here() {
        Some(here) if Arc::ptr_eq(&here.world, world) => here,
        _ => {
            panic!("a thread that the simulation did not start waits in it: start threads with `sim::spawn`")
        }
    }
}
