//! Simulated streams, and waits for many sources at once, for farcall's code that runs in the simulation.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{
    Accepted, Alarm, Interest, Listener, PeerState, Poller, Received, Socket as _, Source, Stream, Wait,
    Wanted, quoting,
};

use super::{Udp, most, waiter};
use crate::sim::faults::nanos;
use crate::sim::state::{SourceId, State, Ticket, Waits, enlist};
use crate::sim::world::World;

/// A stream, a listener or an alarm, until it is dropped.
pub(super) struct Held {
    pub(super) world: Arc<World>,
    pub(super) id: SourceId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.world.lock().release(self.id);
    }
}

impl Stream for Held {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let arrived = |state: &mut State| match state.read(self.id, buffer) {
            Err(io::ErrorKind::WouldBlock) => None,
            read => Some(read),
        };
        let enlist = |state: &mut State, ticket| state.await_source(self.id, ticket);
        let read = self.world.wait_for(waiter(&self.world), Waits::Sources, most(wait), arrived, enlist);
        Ok(read.unwrap_or(Err(io::ErrorKind::WouldBlock))?)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        Ok(self.world.lock().write(self.id, &bytes)?)
    }

    fn shutdown(&self, how: Shutdown) {
        let mut state = self.world.lock();
        state.shut_down(self.id, how != Shutdown::Write, how != Shutdown::Read);
    }

    fn take_error(&self) -> io::Result<()> {
        self.world.lock().error_of(self.id).map_or(Ok(()), |why| Err(why.into()))
    }

    fn peer_state(&self) -> PeerState {
        self.world.lock().peer_state(self.id)
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(self.id as u64)
    }
}

impl Alarm for Held {
    fn ring(&self) {
        self.world.lock().set_alarm(self.id, true);
    }

    fn quiet(&self) {
        self.world.lock().set_alarm(self.id, false);
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(self.id as u64)
    }
}

/// A listener at a port.
pub(super) struct Listening {
    pub(super) held: Held,
    pub(super) at: SocketAddr,
}

impl Listener for Listening {
    fn accept(&self) -> io::Result<Accepted> {
        let accepted = self.held.world.lock().accept(self.held.id);
        let (id, from) = accepted.ok_or(io::ErrorKind::WouldBlock)?;
        let stream = Arc::new(Held { world: self.held.world.clone(), id });
        Ok(Accepted { stream, from: Some(from), user: None })
    }

    fn local_address(&self) -> Option<SocketAddr> {
        Some(self.at)
    }

    fn close(&self) {
        self.held.world.lock().close_listener(self.held.id);
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(self.held.id as u64)
    }
}

/// A datagram socket that speaks to one address.
pub(super) struct Connected {
    pub(super) socket: Udp,
    pub(super) to: SocketAddr,
}

/// Added to the number of a datagram socket, so that it differs from all numbers of streams.
pub(super) const DATAGRAMS: u64 = 1 << 63;

impl Stream for Connected {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let of_peer = |state: &mut State| {
            loop {
                match state.fetch(self.socket.id, buffer)? {
                    Received::Datagrams { from, len, .. } if from == self.to => return Some(Ok(len)),
                    Received::Refused(to, len) if to == self.to => {
                        let quoted = buffer.get(..len).unwrap_or_default().to_vec();
                        return Some(Err(quoting(io::ErrorKind::ConnectionRefused.into(), quoted)));
                    }
                    Received::Unreachable(to, _) if to == self.to => {
                        // It quotes nothing that could be believed.
                        return Some(Err(quoting(io::ErrorKind::HostUnreachable.into(), Vec::new())));
                    }
                    _ => {}
                }
            }
        };
        self.socket.wait_for(wait, of_peer).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.socket.send(self.to, &bytes)?;
        Ok(bytes.len())
    }

    fn shutdown(&self, _: Shutdown) {
        self.socket.wake();
    }

    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    fn peer_state(&self) -> PeerState {
        PeerState::Open
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(DATAGRAMS | self.socket.id as u64)
    }
}

/// Returns what a source is ready for.
fn readiness(state: &mut State, source: u64) -> Interest {
    match source & DATAGRAMS {
        0 => state.readiness(source as usize),
        _ => Interest { read: state.has_datagram((source & !DATAGRAMS) as usize), write: true },
    }
}

fn await_source(state: &mut State, source: u64, ticket: Ticket) {
    match source & DATAGRAMS {
        0 => state.await_source(source as usize, ticket),
        _ => state.await_datagram((source & !DATAGRAMS) as usize, ticket),
    }
}

fn number(source: &Source<'_>) -> u64 {
    match source {
        Source::Simulated(number) => *number,
        Source::Descriptor(_) => panic!("the simulation is asked for a descriptor of the operating system"),
    }
}

fn both(a: Interest, b: Interest) -> Interest {
    Interest { read: a.read && b.read, write: a.write && b.write }
}

/// Waits until one of these sources is ready, or `timeout` has passed.
pub(super) fn wait_any(world: &Arc<World>, wanted: &mut [Wanted<'_>], timeout: Option<Duration>) {
    let sources: Vec<u64> = wanted.iter().map(|one| number(&one.source)).collect();
    let ready = |state: &mut State| {
        for (one, source) in wanted.iter_mut().zip(&sources) {
            one.ready = both(one.interest, readiness(state, *source));
        }
        wanted.iter().any(|one| one.ready != Interest::default()).then_some(())
    };
    world.wait_for(waiter(world), Waits::Sources, timeout.map(nanos), ready, |state, ticket| {
        sources.iter().for_each(|source| await_source(state, *source, ticket));
    });
}

/// A poller of many sources.
pub(super) struct Sources {
    pub(super) world: Arc<World>,
    /// The registered sources. They are locked only while the world is locked.
    pub(super) inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// For each source, by its key: its number, and the events that the poller is to report.
    armed: BTreeMap<u64, (u64, Interest)>,
    woken: bool,
    waiters: Vec<Ticket>,
}

impl Sources {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, key: u64, to: Option<(u64, Interest)>) {
        let mut state = self.world.lock();
        let mut inner = self.inner();
        match to {
            Some(to) => drop(inner.armed.insert(key, to)),
            None => drop(inner.armed.remove(&key)),
        }
        state.wake_all(std::mem::take(&mut inner.waiters));
    }
}

impl Poller for Sources {
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()> {
        self.set(key, Some((number(&source), Interest::default())));
        Ok(())
    }

    fn arm(&self, source: Source<'_>, key: u64, interest: Interest) -> io::Result<()> {
        if !self.inner().armed.contains_key(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.set(key, Some((number(&source), interest)));
        Ok(())
    }

    fn remove(&self, _: Source<'_>, key: u64) {
        self.set(key, None);
    }

    fn wait(&self) -> Option<(u64, Interest)> {
        let ready = |state: &mut State| {
            let mut inner = self.inner();
            if inner.woken {
                return Some(None);
            }
            let armed = inner.armed.iter();
            let ready = armed.map(|(key, (id, interest))| (*key, both(*interest, readiness(state, *id))));
            let ready: Vec<_> = ready.filter(|(_, ready)| *ready != Interest::default()).collect();
            if ready.is_empty() {
                return None;
            }
            let one = ready[state.rng.index(ready.len())];
            inner.armed.entry(one.0).and_modify(|(_, interest)| *interest = Interest::default());
            Some(Some(one))
        };
        let enlist = |state: &mut State, ticket| {
            let mut inner = self.inner();
            inner.armed.values().for_each(|(id, _)| await_source(state, *id, ticket));
            enlist(&state.threads, &mut inner.waiters, ticket);
        };
        self.world.wait_for(waiter(&self.world), Waits::Sources, None, ready, enlist).flatten()
    }

    fn wake(&self) {
        let mut state = self.world.lock();
        let mut inner = self.inner();
        inner.woken = true;
        state.wake_all(std::mem::take(&mut inner.waiters));
    }
}

#[cfg(test)]
mod tests;
