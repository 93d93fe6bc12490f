//! The client's end of calls over UDP. One socket calls all servers, and one of the threads that wait for
//! replies receives from it, for all of them.
//!
//! ```text
//! call             a call whose thread waits for it;  request: what is called
//! brief            the fast path for a short call while no other thread uses the endpoint
//! started          a started call, for which no thread waits
//! arriving         a started call whose reply goes to a recipient
//! exchanges        the signals and streams of a started call;  news: what its caller is to learn of them
//! gathered         a thread that waits for the first of several started calls
//! bind             asks servers for an export;  bind_answers: their answers
//! service          the thread that receives and sends while no caller waits
//! drive            receives: passes datagrams to conversations, outcomes to callers, acts on timers
//! caller           what a thread keeps from one call to the next
//! own_call         the call of the receiving thread itself, and the delivery of outcomes to callers
//! peer             a server and the conversation with it;  owners: the waiter for each call
//! waiter           a thread that waits;  result_slot: where outcomes stay until they are fetched
//! awake            whether polling pays
//! ```
//!
//! A thread may hold the lock of `active` and then take a peer's lock, but not the reverse. No thread is
//! woken and no user code runs while a lock is held.

mod arriving;
mod awake;
mod bind;
mod bind_answers;
mod brief;
mod call;
mod caller;
mod drive;
mod exchanges;
mod gathered;
mod news;
mod own_call;
mod owners;
mod peer;
mod request;
mod result_slot;
mod service;
mod started;
mod waiter;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
#[cfg(feature = "secure")]
use std::hash::DefaultHasher;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use farcall_proto::client::Conversation;
use farcall_proto::{ClientConfig, Obstacle, SharedPath, Spares};

pub(crate) use bind::{Answered, Asking, Questions};
pub(crate) use exchanges::CallExchanges;
pub(crate) use peer::{Peer, Standing};
pub(crate) use request::{CallRequest, Hurry};
pub(crate) use result_slot::Taker;
pub(crate) use started::{Started, breaks_binding, over_budget};

use crate::env::{Env, Socket};
use crate::sys::fork;
use crate::wait::{FlushSignal, Lead, Timers};
use crate::{CallFailed, stats};
use awake::Awake;
use service::Service;
use waiter::Waiter;

/// A socket for calls to servers, with the state of all calls through it.
pub(crate) struct Endpoint {
    /// Whether servers must have keys, and datagrams are sealed.
    has_keys: bool,
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    config: ClientConfig,
    /// The path by which replies come from all servers of other machines.
    path: Option<Arc<SharedPath>>,
    /// The fork generation of the process that made the endpoint.
    generation: u64,
    peers: RwLock<Peers>,
    lead: Lead<Waiter>,
    timers: Timers,
    /// The peers that may have timers.
    active: Mutex<Vec<Arc<Peer>>>,
    /// The length of `active`.
    active_count: AtomicUsize,
    service: OnceLock<Arc<Service>>,
    flush_signal: FlushSignal,
    awake: Awake,
    /// The peers that have queued calls. `left` counts how often a peer was added.
    unsent: Mutex<Vec<Arc<Peer>>>,
    left: AtomicU64,
    /// Whether any thread has led, which means received for all, since the service thread last looked.
    led: AtomicBool,
    /// The number of tasks that wait for started calls or for answers to binds.
    ///
    /// SeqCst, here and in `busy`. A thread writes `tasks` or `busy` and then summons the service thread. The
    /// service thread announces that it rests and then reads both (`FlushSignal::rest`). At least one of the
    /// two threads sees what the other wrote.
    tasks: AtomicUsize,
    /// The number of peers with unfinished started calls, or with binds that tasks wait for.
    busy: AtomicUsize,
}

#[derive(Default)]
struct Peers {
    by_address: HashMap<SocketAddr, Arc<Peer>>,
    /// Further peers at these addresses. A client whose names need different grants has some: one for each of
    /// what it shows.
    further: Vec<Arc<Peer>>,
    by_id: HashMap<u64, Arc<Peer>, BuildHasherDefault<Random>>,
    /// When there are this many peers, unused ones are removed.
    sweep_at: usize,
}

impl Endpoint {
    pub(crate) fn new(env: Arc<dyn Env>, socket: Arc<dyn Socket>, mut config: ClientConfig) -> Arc<Endpoint> {
        // More outstanding bytes than the receive buffer holds would only cause losses. Half of the buffer is
        // left, because the kernel charges small datagrams more than their own length.
        let window = u32::try_from(socket.receive_buffer() / 2).unwrap_or(u32::MAX);
        config.window = config.window.min(window.max(farcall_proto::BASE_DATAGRAM as u32));
        // A datagram that does not leave the machine crosses no router's queue.
        let path = (!socket.local_address().ip().is_loopback()).then(|| config.path.clone());
        Arc::new(Endpoint {
            has_keys: config.has_keys(),
            path,
            env,
            socket,
            config,
            generation: fork::generation(),
            peers: RwLock::default(),
            lead: Lead::default(),
            timers: Timers::default(),
            active: Mutex::default(),
            active_count: AtomicUsize::new(0),
            service: OnceLock::new(),
            flush_signal: FlushSignal::default(),
            awake: Awake::default(),
            unsent: Mutex::default(),
            left: AtomicU64::new(0),
            led: AtomicBool::new(false),
            tasks: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
        })
    }

    /// Returns the peer at an address that is to be asked for a name, or for none if it is empty. Adds the
    /// peer if it is new.
    ///
    /// A conversation has the rights of what the client has shown in its handshake, and no others. So names
    /// for which the client shows different grants belong to different conversations.
    pub(crate) fn peer(&self, address: SocketAddr, name: &str) -> Arc<Peer> {
        let shown = self.shows(name);
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.at(address).find(|peer| name.is_empty() || peer.shown == shown) {
            return peer.clone();
        }
        peers.sweep();
        let id = loop {
            let mut bytes = [0; 8];
            self.env.entropy(&mut bytes);
            let id = u64::from_ne_bytes(bytes);
            if id != 0 && !peers.by_id.contains_key(&id) {
                break id;
            }
        };
        let loopback = self.env.is_loopback(address);
        let same_user = self.config.same_user.as_ref().map(|same_user| same_user.at(address));
        let config = ClientConfig { loopback, same_user, ..self.config.clone() };
        let peer = Arc::new(Peer::new(Conversation::new(config, id), address, shown));
        match peers.by_address.entry(address) {
            Entry::Vacant(place) => _ = place.insert(peer.clone()),
            Entry::Occupied(_) => peers.further.push(peer.clone()),
        }
        peers.by_id.insert(id, peer.clone());
        // The socket is connected only if it calls a single server, on this machine. The machine's address
        // towards other hosts may change, and a connected socket would keep the old address.
        let alone = peers.by_id.values().all(|peer| peer.address == address) && address.ip().is_loopback();
        self.socket.connect(alone.then_some(address));
        peer
    }

    /// Returns a hash of what the client shows of itself for a name, if it has keys.
    #[cfg(feature = "secure")]
    fn shows(&self, name: &str) -> Option<NonZeroU64> {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.config.trust.as_ref()?.presentation(name.as_bytes()));
        Some(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
    }

    #[cfg(not(feature = "secure"))]
    fn shows(&self, _: &str) -> Option<NonZeroU64> {
        None
    }

    /// Returns the peers at an address.
    fn peers_at(&self, address: SocketAddr) -> Vec<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.at(address).cloned().collect()
    }

    /// Returns why the server at an address may be silent, if something was reported since it was last heard.
    pub(crate) fn obstacle(&self, address: SocketAddr) -> Option<Obstacle> {
        self.peers_at(address).iter().find_map(|peer| peer.obstacle())
    }

    /// Judges again what each server has shown in its conversation. Ends the calls of names for which a
    /// server is no longer accepted.
    #[cfg(feature = "secure")]
    pub(crate) fn recheck_servers(&self) {
        let peers: Vec<_> = {
            let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
            peers.by_id.values().cloned().collect()
        };
        for peer in peers {
            let timer = {
                let conversation = &mut peer.lock().conversation;
                if !conversation.recheck_server(self.env.now()) {
                    continue;
                }
                conversation.timeout()
            };
            self.set_timer(timer);
        }
    }

    /// Returns an error in a forked child of the process that made the endpoint, because the socket belongs
    /// to the parent.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    /// Adds the counters of each peer to `all`.
    pub(crate) fn stats(&self, all: &mut Vec<stats::Peer>) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(peers.by_id.values().map(|peer| peer.stats()));
    }

    /// Returns the pool of long buffers, which are used again.
    #[inline]
    pub(crate) fn spares(&self) -> &Arc<Spares> {
        &self.config.spares
    }

    /// Ends the service thread, if there is one.
    pub(crate) fn stop(&self) {
        if let Some(service) = self.service.get() {
            service.stop();
        }
    }
}

impl Peers {
    /// Returns the peers at an address.
    fn at(&self, address: SocketAddr) -> impl Iterator<Item = &Arc<Peer>> {
        let further = self.further.iter().filter(move |peer| peer.address == address);
        self.by_address.get(&address).into_iter().chain(further)
    }

    /// Removes peers that no binding and no list of timers refers to.
    fn sweep(&mut self) {
        if self.by_id.len() < self.sweep_at.max(64) {
            return;
        }
        // `by_id` and one of the others hold one reference each.
        self.by_id.retain(|_, peer| Arc::strong_count(peer) > 2);
        let kept = &self.by_id;
        self.by_address.retain(|_, peer| kept.contains_key(&peer.id));
        self.further.retain(|peer| kept.contains_key(&peer.id));
        self.sweep_at = self.by_id.len() * 2;
    }
}

/// A hasher for identifiers of peers. They are random and chosen by this process, so an identifier is its own
/// hash.
#[derive(Default)]
struct Random(u64);

impl Hasher for Random {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }
}

/// Returns an error if this thread must not wait for a call, because all other calls may depend on this
/// thread.
#[cold]
pub(crate) fn may_wait(env: &Arc<dyn Env>) -> Result<(), CallFailed> {
    caller::Caller::take_to_wait(env).map(caller::Caller::keep)
}

/// Marks this thread as being in a call for ever, because it receives for other threads. A waker that it runs
/// then gets an error if it tries to wait for a call.
pub(crate) fn never_waits() {
    caller::Caller::never_waits();
}

/// Returns the local address of the socket that calls the server at `to`. Each address family has one socket
/// for loopback addresses and one for all others.
pub(crate) fn bind_address(to: SocketAddr) -> SocketAddr {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let ip = match (to.ip(), to.ip().is_loopback()) {
        (IpAddr::V4(_), true) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        (IpAddr::V4(_), false) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (IpAddr::V6(_), true) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        (IpAddr::V6(_), false) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}
