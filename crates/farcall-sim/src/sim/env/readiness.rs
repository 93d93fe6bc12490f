//! Streams, and waits for many sources at once, for farcall's drivers in the simulation.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{
    Accepted, Alarm, Interest, Listener, PeerState, Poller, Received, Source, Stream, Wait, Wanted,
};

use super::waiter;
use crate::net::Nanos;
use crate::sim::faults::nanos;
use crate::sim::state::{SourceId, State, Ticket, Waits};
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

/// Returns when a wait that begins now ends.
pub(super) fn end_of(wait: Wait, now: Nanos) -> Option<Nanos> {
    match wait {
        Wait::No => Some(0),
        Wait::Nanos(nanos) => Some(now.saturating_add(nanos)),
        Wait::Forever => None,
    }
}

impl Stream for Held {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let me = waiter(&self.world);
        let mut state = self.world.go_on(self.world.lock(), me.thread);
        let until = end_of(wait, state.net.now());
        loop {
            match state.read(self.id, buffer) {
                Err(io::ErrorKind::WouldBlock) => {}
                read => return Ok(read?),
            }
            if until.is_some_and(|until| until <= state.net.now()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let ticket = state.ticket(me.thread);
            state.await_source(self.id, ticket);
            state = self.world.wait(state, me.thread, Waits::Sources, until);
        }
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
    pub(super) world: Arc<World>,
    /// The socket's place in the world.
    pub(super) id: usize,
    pub(super) to: SocketAddr,
}

/// Added to the number of a datagram socket, so that it differs from every stream's.
pub(super) const DATAGRAMS: u64 = 1 << 63;

impl Stream for Connected {
    fn read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let me = waiter(&self.world);
        let mut state = self.world.go_on(self.world.lock(), me.thread);
        let until = end_of(wait, state.net.now());
        loop {
            match state.fetch(self.id, buffer) {
                Some(Received::Datagrams { from, len, .. }) if from == self.to => return Ok(len),
                Some(Received::Refused(to, _)) if to == self.to => {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Some(_) => continue,
                None => {}
            }
            if until.is_some_and(|until| until <= state.net.now()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let ticket = state.ticket(me.thread);
            state.await_datagram(self.id, ticket);
            state = self.world.wait(state, me.thread, Waits::Sources, until);
        }
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.world.lock().send(self.id, self.to, &bytes);
        Ok(bytes.len())
    }

    fn shutdown(&self, _: Shutdown) {
        self.world.lock().rouse(self.id);
    }

    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    fn peer_state(&self) -> PeerState {
        PeerState::Open
    }

    fn source(&self) -> Source<'_> {
        Source::Simulated(DATAGRAMS | self.id as u64)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}

/// Returns what a source is ready for.
fn readiness(state: &mut State, source: &Source<'_>) -> Interest {
    match number(source) {
        id if id & DATAGRAMS != 0 => {
            Interest { read: state.has_datagram((id & !DATAGRAMS) as usize), write: true }
        }
        id => state.readiness(id as usize),
    }
}

fn await_source(state: &mut State, source: &Source<'_>, ticket: Ticket) {
    match number(source) {
        id if id & DATAGRAMS != 0 => state.await_datagram((id & !DATAGRAMS) as usize, ticket),
        id => state.await_source(id as usize, ticket),
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
    let me = waiter(world);
    let mut state = world.go_on(world.lock(), me.thread);
    let until = timeout.map(|timeout| state.net.now().saturating_add(nanos(timeout)));
    loop {
        for one in wanted.iter_mut() {
            one.ready = both(one.interest, readiness(&mut state, &one.source));
        }
        let ready = wanted.iter().any(|one| one.ready != Interest::default());
        if ready || until.is_some_and(|until| until <= state.net.now()) {
            return;
        }
        let ticket = state.ticket(me.thread);
        wanted.iter().for_each(|one| await_source(&mut state, &one.source, ticket));
        state = world.wait(state, me.thread, Waits::Sources, until);
    }
}

/// A poller of many sources.
pub(super) struct Sources {
    pub(super) world: Arc<World>,
    /// Locked only while the world is.
    pub(super) inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// The interest that each source is armed for.
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
        let me = waiter(&self.world);
        let mut state = self.world.go_on(self.world.lock(), me.thread);
        loop {
            let ticket = state.ticket(me.thread);
            {
                let mut inner = self.inner();
                if inner.woken {
                    return None;
                }
                let mut ready = Vec::new();
                for (key, (id, interest)) in &inner.armed {
                    let source = Source::Simulated(*id);
                    match both(*interest, readiness(&mut state, &source)) {
                        none if none == Interest::default() => await_source(&mut state, &source, ticket),
                        some => ready.push((*key, some)),
                    }
                }
                if !ready.is_empty() {
                    let one = ready[state.rng.index(ready.len())];
                    inner.armed.entry(one.0).and_modify(|(_, interest)| *interest = Interest::default());
                    return Some(one);
                }
                inner.waiters.push(ticket);
            }
            state = self.world.wait(state, me.thread, Waits::Sources, None);
        }
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
