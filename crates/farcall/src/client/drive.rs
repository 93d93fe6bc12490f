//! Receives: passes datagrams to their conversations and outcomes to their callers, and acts on due timers.
//!
//! Of all threads that wait at an endpoint, which is a socket, one is the leader: it receives for all, and
//! the others follow. A peer is a server, and a conversation is the state of the protocol with that server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use farcall_proto::client::Event;
use farcall_proto::secure::{self, Opened};
use farcall_proto::{Route, Time, route};

use super::awake::LULL;
use super::caller::Tools;
use super::own_call::{OwnCall, deliver, pass_news};
use super::owners::Owners;
use super::peer::PeerState;
use super::waiter::Waiter;
use super::{Endpoint, Peer};
use crate::depart::{Departing, depart};
use crate::env::{Received, Wait, train};
use crate::lock;
use crate::receive_buffers::{ReceiveBuffers, SharedBuffer};
use crate::serving::WaitGuard;
use crate::wait::NEVER;

/// The most datagrams that are received in a row while a timer is due. After these, the thread acts on the
/// timer.
const DRAIN: usize = 1024;

/// How long to wait after a socket error of an unknown kind before receiving again.
const PAUSE: Duration = Duration::from_millis(10);

/// The state of a leading thread: its receive buffer, and the earliest timer. Dropping this keeps the timer
/// for the next leader.
pub(super) struct Reception<'a> {
    endpoint: &'a Endpoint,
    buffer: Box<[u8]>,
    /// A time no later than any peer's timer. Timers that other threads have set meanwhile are not included.
    earliest: Time,
    /// The time at which to check whether the wait is over, even if nothing has arrived.
    look: Time,
    /// For each datagram in `buffer`, whether it was sealed and has been opened. Empty if this end has no
    /// keys.
    pub(super) opened: Vec<Option<Opened>>,
}

impl<'a> Reception<'a> {
    #[inline(always)]
    pub(super) fn new(endpoint: &'a Endpoint, tools: &mut Tools, timer: Time, look: Option<Time>) -> Self {
        let (earliest, look) = (endpoint.begin_lead(timer), look.unwrap_or(NEVER));
        let mut buffer = std::mem::take(&mut tools.buffer);
        if buffer.is_empty() {
            buffer = ReceiveBuffers::buffer();
        }
        // What was known of another socket's datagrams must not count here.
        let mut opened = std::mem::take(&mut tools.opened);
        opened.clear();
        Reception { endpoint, buffer, earliest, look, opened }
    }

    /// Puts the buffers back into `tools`.
    #[inline(always)]
    pub(super) fn give_back(mut self, tools: &mut Tools) {
        tools.buffer = std::mem::take(&mut self.buffer);
        tools.opened = std::mem::take(&mut self.opened);
    }
}

impl Drop for Reception<'_> {
    fn drop(&mut self) {
        self.endpoint.timers.keep(self.earliest);
    }
}

/// A thread that waits at the endpoint, as the leader or as a follower. Dropping this passes the lead on,
/// even if a type's encoding or decoding panics.
pub(super) struct Attendance<'a> {
    endpoint: &'a Endpoint,
    waiter: &'a Arc<Waiter>,
    leads: bool,
    /// The time at which the thread checks whether its wait is over.
    deadline: Option<Time>,
    _waiting: WaitGuard,
}

impl Drop for Attendance<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.leads {
            return self.endpoint.end_lead();
        }
        self.endpoint.lead.leave(self.waiter);
        self.endpoint.hasten_for_tasks();
    }
}

impl Endpoint {
    /// Begins to lead, and returns the earliest timer that is [known](crate::wait::Timers::begin).
    #[inline(always)]
    pub(super) fn begin_lead(&self, timer: Time) -> Time {
        self.note_lead();
        self.timers.begin(timer)
    }

    #[inline(always)]
    fn note_lead(&self) {
        if !self.led.load(Ordering::Relaxed) {
            self.led.store(true, Ordering::Relaxed);
        }
    }

    /// Passes the lead on.
    #[inline(always)]
    pub(super) fn end_lead(&self) {
        self.lead.pass();
        self.hasten_for_tasks();
    }

    /// Makes the service thread act at once if tasks wait, because perhaps no thread leads now, and a task
    /// cannot lead.
    #[inline(always)]
    fn hasten_for_tasks(&self) {
        if self.tasks.load(Ordering::Relaxed) > 0 {
            self.hasten();
        }
    }

    /// Begins to wait. The thread becomes the leader if there is none.
    #[inline(always)]
    pub(super) fn attend<'a>(&'a self, waiter: &'a Arc<Waiter>) -> Attendance<'a> {
        let _waiting = crate::serving::wait_guard();
        Attendance { endpoint: self, waiter, leads: self.lead.join(waiter), deadline: None, _waiting }
    }

    /// Begins to wait, as [`Endpoint::attend`] does, but leads only while no other thread wants to.
    pub(super) fn stand_by<'a>(&'a self, waiter: &'a Arc<Waiter>) -> Attendance<'a> {
        let _waiting = crate::serving::wait_guard();
        Attendance { endpoint: self, waiter, leads: self.lead.stand_by(waiter), deadline: None, _waiting }
    }
}

impl Attendance<'_> {
    #[inline]
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Makes the thread also check whether its wait is over when the deadline has passed.
    pub(super) fn by(&mut self, deadline: Option<Time>) -> &mut Self {
        self.deadline = deadline;
        self
    }

    /// Waits until `done` returns true, as the leader or as a follower. Returns the time.
    #[inline(never)]
    pub(super) fn until(&mut self, tools: &mut Tools, now: Time, done: &dyn Fn() -> bool) -> Time {
        self.until_either(tools, now, NEVER, None, done)
    }

    /// Waits until this thread's call `mine` has ended or, without such a call, until `done` returns true.
    /// The thread is the leader or a follower. `timer` is a timer of which the leader was not told yet by
    /// [`Endpoint::set_timer`]. Returns the time.
    #[inline(always)]
    pub(super) fn until_either(
        &mut self,
        tools: &mut Tools,
        mut now: Time,
        timer: Time,
        mine: Option<&mut OwnCall<'_>>,
        done: &dyn Fn() -> bool,
    ) -> Time {
        let endpoint = self.endpoint;
        if !self.leads {
            endpoint.set_timer(Some(timer));
            while !self.leads {
                if done() {
                    return endpoint.env.now();
                }
                self.waiter.wait(self.deadline.map(|deadline| deadline.since(endpoint.env.now())));
                self.leads = endpoint.lead.accept(self.waiter);
            }
            now = endpoint.env.now();
        }
        let mut reception = Reception::new(endpoint, tools, timer, self.deadline);
        let now = endpoint.lead_until(&mut reception, tools, now, mine, done);
        reception.give_back(tools);
        now
    }

    /// Receives as the leader by polling, without sleeping, if that is worth its cost. Ends when `done`
    /// returns true, a timer is due, or nothing has arrived for [`LULL`]. Returns the time.
    pub(super) fn look_on(&mut self, tools: &mut Tools, mut now: Time, done: &dyn Fn() -> bool) -> Time {
        let endpoint = self.endpoint;
        if !self.leads || !endpoint.awake.is_worth() {
            return now;
        }
        let mut reception = Reception::new(endpoint, tools, NEVER, None);
        let (mut replies, mut in_vain) = (0, false);
        while !in_vain && !done() && !endpoint.timers.is_due(reception.earliest, now) {
            let received = endpoint.socket.receive_awake(&mut reception.buffer, LULL);
            endpoint.unseal(&received, &mut reception, None, None);
            now = endpoint.env.now();
            match received {
                Ok(Received::Datagrams { .. }) => replies += 1,
                _ => in_vain = true,
            }
            endpoint.take_in(now, &received, &mut reception, None, tools);
        }
        endpoint.awake.learn(replies, in_vain);
        reception.give_back(tools);
        now
    }

    /// Receives, as the leader, the datagrams that have arrived already.
    pub(super) fn look(&mut self, tools: &mut Tools) {
        let endpoint = self.endpoint;
        if !self.leads {
            return;
        }
        let mut reception = Reception::new(endpoint, tools, NEVER, None);
        for _ in 0..DRAIN {
            let received = endpoint.socket.receive(&mut reception.buffer, Wait::No);
            let Ok(Received::Datagrams { .. }) = received else { break };
            endpoint.unseal(&received, &mut reception, None, None);
            endpoint.take_in(endpoint.env.now(), &received, &mut reception, None, tools);
        }
        reception.give_back(tools);
    }
}

impl Endpoint {
    /// Receives as the leader, until this thread's call `mine` has ended or, without such a call, until
    /// `done` returns true. Returns the time of the last reading of the clock.
    #[inline(always)]
    pub(super) fn lead_until(
        &self,
        reception: &mut Reception<'_>,
        tools: &mut Tools,
        mut time: Time,
        mut mine: Option<&mut OwnCall<'_>>,
        done: &dyn Fn() -> bool,
    ) -> Time {
        let mut drained = 0;
        if done() {
            return time;
        }
        loop {
            let wait = self.wait(&mut reception.earliest, reception.look, time);
            let received = match wait {
                Wait::No if drained >= DRAIN => Ok(Received::TimedOut),
                _ => self.socket.receive(&mut reception.buffer, wait),
            };
            self.timers.awake();
            // The usual case is the result of this thread's own call. It mostly needs no reading of the
            // clock.
            let mut opened = None;
            if let (Ok(Received::Datagrams { len, each, .. }), Some(mine)) = (&received, &mut mine)
                && len == each
                && let datagram = (&mut reception.buffer[..*len], &mut opened)
                && let Some((timer, listed)) = mine.take(|| self.env.now(), datagram)
            {
                self.expect(&mut reception.earliest, timer, listed);
                return time;
            }
            self.unseal(&received, reception, mine.as_ref().map(|mine| mine.peer), opened);
            time = self.env.now();
            if let Some(mine) = &mut mine {
                mine.go_on(time, &tools.arguments);
            }
            drained = if wait == Wait::No { drained + 1 } else { 0 };
            if let Ok(Received::TimedOut) = received {
                drained = 0;
            }
            self.take_in(time, &received, reception, mine.as_deref_mut(), tools);
            let over = match &mine {
                Some(mine) => mine.done,
                None => done(),
            };
            if over {
                return time;
            }
        }
    }

    /// Opens the sealed datagrams that have arrived, in place. `mine` is the server that the thread waits for.
    /// `opened` says whether there is only one, which was opened before.
    #[inline(always)]
    pub(super) fn unseal(
        &self,
        received: &io::Result<Received>,
        reception: &mut Reception<'_>,
        mine: Option<&Arc<Peer>>,
        opened: Option<Opened>,
    ) {
        if self.has_keys
            && let Ok(Received::Datagrams { ref from, len, each }) = *received
        {
            reception.opened.clear();
            match opened {
                Some(_) => reception.opened.push(opened),
                None => self.unseal_each(from, (len, each), reception, mine),
            }
        }
    }

    #[inline(never)]
    fn unseal_each(
        &self,
        from: &SocketAddr,
        (len, each): (usize, usize),
        reception: &mut Reception<'_>,
        mine: Option<&Arc<Peer>>,
    ) {
        for place in train(len, each) {
            let opened = self.unseal_one(from, &mut reception.buffer[place], mine);
            reception.opened.push(opened);
        }
    }

    /// Opens a datagram in place, if it is sealed.
    pub(super) fn unseal_one(
        &self,
        from: &SocketAddr,
        datagram: &mut [u8],
        mine: Option<&Arc<Peer>>,
    ) -> Option<Opened> {
        if !secure::is_sealed(datagram) {
            return None;
        }
        let route = route(datagram)?;
        let cipher = match mine {
            Some(mine) if route == Route::Conversation(mine.id) => mine.lock().conversation.cipher(),
            _ => self.find(from, route, datagram)?.lock().conversation.cipher(),
        };
        secure::open(&*cipher?, datagram)
    }

    /// Acts on what [`Socket::receive`](crate::env::Socket::receive) returned.
    #[inline(never)]
    pub(super) fn take_in(
        &self,
        time: Time,
        received: &io::Result<Received>,
        reception: &mut Reception<'_>,
        mut mine: Option<&mut OwnCall<'_>>,
        tools: &mut Tools,
    ) {
        match *received {
            Ok(Received::Datagrams { ref from, len, each }) => {
                let started = self.busy.load(Ordering::Relaxed) > 0;
                let shared =
                    if started { tools.shared_buffers.share(&mut reception.buffer, len) } else { None };
                for (which, place) in train(len, each).enumerate() {
                    let datagram = &shared.as_deref().unwrap_or(&reception.buffer)[place];
                    let opened = reception.opened.get(which).copied().flatten();
                    let datagram = (datagram, opened, shared.as_ref());
                    let (timer, listed) = self.accept(time, from, datagram, mine.as_deref_mut(), tools);
                    self.expect(&mut reception.earliest, timer, listed);
                }
            }
            Ok(Received::TimedOut) if time >= reception.earliest => {
                reception.earliest = self.run_timers(time, mine, tools);
            }
            Ok(Received::TimedOut | Received::Woken) => {}
            Ok(Received::Unreachable(address, obstacle)) => {
                let timer = self.hint(address, |conversation| {
                    conversation.handle_unreachable(time);
                    obstacle.into_iter().for_each(|what| conversation.note_obstacle(what));
                });
                self.expect(&mut reception.earliest, timer, false);
            }
            Ok(Received::Refused(address, len)) => {
                let quoted = reception.buffer.get(..len).unwrap_or_default();
                let timer = self.hint(address, |conversation| conversation.handle_refused(time, quoted));
                self.expect(&mut reception.earliest, timer, false);
            }
            Err(_) => drop(self.env.event().wait(Some(PAUSE))),
        }
    }

    /// Notes a peer's next timer in `earliest`. `listed` says whether the peer is in the list of peers that
    /// have timers. If it is the only one there, `earliest` becomes exact. Otherwise `earliest` may be a
    /// former timer of some peer, which only causes one needless look.
    #[inline(always)]
    pub(super) fn expect(&self, earliest: &mut Time, timer: Option<Time>, listed: bool) {
        let timer = timer.unwrap_or(NEVER);
        let exactly = listed && self.active_count.load(Ordering::Relaxed) == 1;
        *earliest = if exactly { timer } else { timer.min(*earliest) };
    }

    /// Returns how long to wait for a datagram: until the earliest timer or until `look`. If that time has
    /// passed, returns `Wait::No`: arrived datagrams are taken in before a timer is acted on.
    #[inline(always)]
    pub(super) fn wait(&self, earliest: &mut Time, look: Time, now: Time) -> Wait {
        match self.timers.sleep(earliest, look, now) {
            None => Wait::No,
            Some(NEVER) => Wait::Forever,
            Some(until) => Wait::Nanos(until.nanos_since(now)),
        }
    }

    /// Returns how long a leader may wait for a datagram, if it knows of no timer and has not read the clock:
    /// `nanos` nanoseconds, or not at all if another thread has set a timer.
    #[inline(always)]
    pub(super) fn nap(&self, nanos: u64) -> Wait {
        self.note_lead();
        if self.timers.nap(nanos) { Wait::Nanos(nanos) } else { Wait::No }
    }

    /// Makes the leader act on a timer in time.
    pub(super) fn set_timer(&self, timer: Option<Time>) {
        if timer.is_some_and(|timer| self.timers.set(timer, || self.env.now())) {
            self.socket.wake();
        }
    }

    /// Passes a datagram to its conversation. `buffer` is the receive buffer that contains the datagram, if
    /// results may share it. Returns the conversation's next timer, and whether the peer is listed.
    fn accept(
        &self,
        now: Time,
        from: &SocketAddr,
        (datagram, opened, buffer): (&[u8], Option<Opened>, Option<&SharedBuffer>),
        mut mine: Option<&mut OwnCall<'_>>,
        tools: &mut Tools,
    ) -> (Option<Time>, bool) {
        let Some(route) = route(datagram) else { return (None, false) };
        let found;
        let peer = match &mine {
            Some(mine) if route == Route::Conversation(mine.peer.id) => mine.peer,
            _ => {
                found = self.find(from, route, datagram);
                let Some(peer) = &found else { return (None, false) };
                peer
            }
        };
        let (timer, listed, sent) = {
            let mut state = peer.lock();
            let state = &mut *state;
            let (owners, wakes) = (&mut state.owners, &mut tools.wakes);
            let busy = owners.any_started();
            // Queued calls stay queued, unless the conversation has something else to send.
            let left = if state.left { state.conversation.ready() } else { 0 };
            let sink = &mut |event: Event<'_>| {
                deliver(peer, owners, event, (datagram, buffer), mine.as_deref_mut(), wakes)
            };
            state.conversation.receive_opened(now, (datagram, opened), sink);
            if state.conversation.has_news() {
                pass_news(peer, state, mine.as_deref_mut(), wakes);
            }
            self.count_busy(busy, &state.owners);
            let quiet = state.conversation.is_quiet(left);
            let sent = if quiet { None } else { state.conversation.transmit(now, &mut tools.out) };
            (state.conversation.timeout(), state.listed, sent)
        };
        if let Some(mine) = &mut mine {
            mine.settle(datagram);
        }
        self.wake(tools);
        let Some(len) = sent else { return (timer, listed) };
        self.send(now, peer, &tools.out[..len]);
        (self.flush(now, peer, &mut tools.out), listed)
    }

    /// Wakes the threads and tasks whose calls have ended.
    #[inline]
    pub(super) fn wake(&self, tools: &mut Tools) {
        let tasks = tools.wakes.tasks();
        if tasks > 0 {
            self.tasks.fetch_sub(tasks, Ordering::SeqCst);
        }
        tools.wakes.run();
    }

    /// Updates the count of busy peers after a change of a peer's owners. `was` says whether the peer was
    /// busy before.
    #[inline]
    pub(super) fn count_busy(&self, was: bool, owners: &Owners) {
        match (was, owners.any_started()) {
            (false, true) => self.busy.fetch_add(1, Ordering::SeqCst),
            (true, false) => self.busy.fetch_sub(1, Ordering::SeqCst),
            _ => return,
        };
    }

    /// Returns the peer that a datagram comes from.
    fn find(&self, from: &SocketAddr, route: Route, datagram: &[u8]) -> Option<Arc<Peer>> {
        if let Route::Conversation(id) = route {
            let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
            return peers.by_id.get(&id).cloned();
        }
        let mut here = self.peers_at(*from);
        if here.len() > 1 {
            here.retain(|peer| peer.lock().conversation.is_hinted_by(datagram));
        }
        here.pop()
    }

    /// Sends everything that is ready, and returns the conversation's next timer.
    pub(super) fn flush(&self, now: Time, peer: &Peer, out: &mut [u8]) -> Option<Time> {
        self.flush_locked(now, peer, peer.lock(), out)
    }

    /// Sends everything that is ready in a conversation whose lock is held. Returns the conversation's next
    /// timer.
    pub(super) fn flush_locked(
        &self,
        now: Time,
        peer: &Peer,
        mut state: MutexGuard<'_, PeerState>,
        out: &mut [u8],
    ) -> Option<Time> {
        let first = state.conversation.transmit(now, out);
        let (timer, more) = (state.conversation.timeout(), !state.conversation.is_quiet(0));
        state.flushed = now;
        drop(state);
        let Some(len) = first else { return timer };
        if more {
            return self.flush_more(now, peer, len, out);
        }
        self.send(now, peer, &out[..len]);
        timer
    }

    /// Sends everything that is ready in a conversation. A first datagram of `len` bytes is in `out`
    /// already.
    #[inline(never)]
    fn flush_more(&self, now: Time, peer: &Peer, len: usize, out: &mut [u8]) -> Option<Time> {
        let (mut timer, mut first) = (None, Some(len));
        let write = |out: &mut [u8]| {
            if let Some(len) = first.take() {
                return Some(Departing { to: peer.address, len, insert: None, cipher: None, more: true });
            }
            let mut state = peer.lock();
            let sent = state.conversation.transmit(now, out);
            timer = state.conversation.timeout();
            let more = !state.conversation.is_quiet(0);
            sent.map(|len| Departing { to: peer.address, len, insert: None, cipher: None, more })
        };
        depart(&*self.socket, out, write, |len, why| peer.lock().not_sent(now, len, &why));
        timer
    }

    /// Returns whether calls are queued, and all peers with queued calls have sent something within this
    /// time.
    pub(super) fn has_fresh(&self, within: Duration) -> bool {
        if !self.flush_signal.has_queued() {
            return false;
        }
        let (now, unsent) = (self.env.now(), lock(&self.unsent));
        // Another thread may have sent the queued calls before the signal was set. Then `unsent` is empty,
        // and the signal does not count.
        !unsent.is_empty() && unsent.iter().all(|peer| now.since(peer.lock().flushed) < within)
    }

    /// Sends the queued calls. Returns whether the signal said that there are any.
    pub(super) fn send_unsent(&self, tools: &mut Tools) -> bool {
        if !self.flush_signal.take() {
            return false;
        }
        std::mem::swap(&mut *lock(&self.unsent), &mut tools.peers);
        let now = self.env.now();
        for peer in tools.peers.drain(..) {
            peer.lock().left = false;
            let timer = self.flush(now, &peer, &mut tools.out);
            self.set_timer(timer);
        }
        true
    }

    /// Sends a datagram. If the system refuses it, the datagram is lost, as it may be in a network, and the
    /// conversation is told that the server may be unreachable.
    #[inline(always)]
    pub(super) fn send(&self, now: Time, peer: &Peer, datagram: &[u8]) {
        if let Err(why) = self.socket.send(peer.address, datagram) {
            peer.lock().not_sent(now, datagram.len(), &why);
        }
    }

    /// Passes a network error about an address to the address's conversations. Returns their next timer.
    fn hint(
        &self,
        address: SocketAddr,
        tell: impl Fn(&mut farcall_proto::client::Conversation),
    ) -> Option<Time> {
        let timer = |peer: &Arc<Peer>| {
            let mut state = peer.lock();
            tell(&mut state.conversation);
            state.conversation.timeout()
        };
        self.peers_at(address).iter().filter_map(timer).min()
    }

    /// Acts on the timers that are due, and removes peers without timers from the list. Returns the next
    /// timer.
    fn run_timers(&self, now: Time, mut mine: Option<&mut OwnCall<'_>>, tools: &mut Tools) -> Time {
        let mut active = std::mem::take(&mut *lock(&self.active));
        let mut earliest = NEVER;
        active.retain(|peer| {
            let timer = self.run_timer(now, peer, mine.as_deref_mut(), tools);
            earliest = earliest.min(timer.unwrap_or(NEVER));
            timer.is_some()
        });
        let mut newer = lock(&self.active);
        active.append(&mut newer);
        self.active_count.store(active.len(), Ordering::Relaxed);
        // The list keeps its memory, so that timers allocate nothing.
        std::mem::swap(&mut *newer, &mut active);
        drop(newer);
        self.wake(tools);
        earliest
    }

    /// Acts on one peer's timers. Returns the peer's next timer, or `None` if it has none and is no longer
    /// listed.
    fn run_timer(
        &self,
        now: Time,
        peer: &Arc<Peer>,
        mut mine: Option<&mut OwnCall<'_>>,
        tools: &mut Tools,
    ) -> Option<Time> {
        {
            let mut state = peer.lock();
            let state = &mut *state;
            let timer = state.conversation.timeout();
            let Some(timer) = timer else {
                state.listed = false;
                return None;
            };
            if timer > now {
                return Some(timer);
            }
            let (owners, wakes) = (&mut state.owners, &mut tools.wakes);
            let busy = owners.any_started();
            let sink =
                &mut |event: Event<'_>| deliver(peer, owners, event, (&[], None), mine.as_deref_mut(), wakes);
            state.conversation.handle_timeout(now, sink);
            self.count_busy(busy, &state.owners);
        }
        if let Some(mine) = mine {
            mine.settle(&[]);
        }
        self.flush(now, peer, &mut tools.out);
        let mut state = peer.lock();
        let timer = state.conversation.timeout();
        state.listed = timer.is_some();
        timer
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::System;
    use crate::env::{Env, SocketOptions};

    #[test]
    fn calls_that_somebody_else_has_sent_are_not_waited_for() {
        let options = SocketOptions { spin: Duration::ZERO, buffer: 1 << 16, ..SocketOptions::default() };
        let socket = System.bind((Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
        let address = socket.local_address();
        let endpoint = Endpoint::new(Arc::new(System), socket, farcall_proto::ClientConfig::default());
        let (peer, tools) = (endpoint.peer(address, ""), &mut Tools::new());
        endpoint.unsent.lock().unwrap().push(peer.clone());
        endpoint.flush_signal.note_queued();
        assert!(!endpoint.has_fresh(Duration::ZERO), "they were left long ago");
        peer.lock().flushed = endpoint.env.now();
        assert!(endpoint.has_fresh(Duration::MAX));
        assert!(endpoint.send_unsent(tools));
        // Another thread queues a call to another peer at this moment.
        endpoint.flush_signal.note_queued();
        assert!(!endpoint.has_fresh(Duration::MAX), "or the service thread would nap for ever");
        assert!(endpoint.send_unsent(tools) && !endpoint.send_unsent(tools));
    }
}
