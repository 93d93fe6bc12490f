//! The calling end: one socket for all servers, received from by whoever waits.
//!
//! ```text
//! call             a call that its thread waits for;  request: what is called
//! brief            a short call of a thread that has the endpoint to itself
//! started          a call under way without a thread
//! gathered         calls under way whose ends one thread waits for
//! bind             asks servers for an export;  bind_answers: what they say
//! service          the thread that receives and sends when no caller does
//! drive            receives: datagrams to conversations, ends of calls to their callers, timers
//! exchanges        what passes inside a started call
//! caller           what a thread keeps from one call to the next
//! own_call         the call of the receiving thread itself, and how each end reaches its caller
//! peer             a server endpoint and the conversation with it;  owners: who waits for what in it
//! waiter           a thread that waits;  result_slot: where outcomes stay until they are fetched
//! awake            whether polling pays
//! ```
//!
//! Locks, in the order in which they may be held together: `active`, then a peer's. Nobody is woken
//! and no user code runs under one.

mod awake;
mod bind;
mod bind_answers;
mod brief;
mod call;
mod caller;
mod drive;
mod exchanges;
mod gathered;
mod own_call;
mod owners;
mod peer;
mod request;
mod result_slot;
mod service;
mod started;
mod waiter;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use farcall_proto::client::Conversation;
use farcall_proto::{ClientConfig, Spares};

pub(crate) use bind::Asking;
pub(crate) use exchanges::CallExchanges;
pub(crate) use peer::Peer;
pub(crate) use request::CallRequest;
pub(crate) use result_slot::Taker;
pub(crate) use started::Started;

use crate::env::{Env, Socket};
use crate::sys::fork;
use crate::wait::{FlushSignal, Lead, Timers};
use crate::{CallFailed, stats};
use awake::Awake;
use service::Service;
use waiter::Waiter;

/// A socket from which servers are called.
pub(crate) struct Endpoint {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    config: ClientConfig,
    /// The process it was made in.
    generation: u64,
    peers: RwLock<Peers>,
    lead: Lead<Waiter>,
    timers: Timers,
    /// Peers that may have timers.
    active: Mutex<Vec<Arc<Peer>>>,
    /// How many they are.
    active_count: AtomicUsize,
    service: OnceLock<Arc<Service>>,
    flush_signal: FlushSignal,
    awake: Awake,
    /// Peers whose calls wait to be sent, and how often there was one.
    unsent: Mutex<Vec<Arc<Peer>>>,
    left: AtomicU64,
    /// Somebody has led since the service thread last looked.
    led: AtomicBool,
    /// How many waits of tasks there are, for calls that were started or answers to binds. SeqCst, here and in
    /// `busy`: a thread writes one of them and then summons the service thread, which says that it rests and
    /// then reads them (`FlushSignal::rest`).
    tasks: AtomicUsize,
    /// Peers with calls that were started and have not ended, or that tasks ask for an export.
    busy: AtomicUsize,
}

#[derive(Default)]
struct Peers {
    by_address: HashMap<SocketAddr, Arc<Peer>>,
    by_id: HashMap<u64, Arc<Peer>, BuildHasherDefault<Random>>,
    /// Look for peers that nobody uses when there are that many.
    sweep_at: usize,
}

impl Endpoint {
    pub(crate) fn new(env: Arc<dyn Env>, socket: Arc<dyn Socket>, mut config: ClientConfig) -> Arc<Endpoint> {
        // A sender that may have more under way than the buffer holds only makes losses. The
        // kernel charges small datagrams more than their bytes: leave half.
        let window = u32::try_from(socket.receive_buffer() / 2).unwrap_or(u32::MAX);
        config.window = config.window.min(window.max(farcall_proto::BASE_DATAGRAM as u32));
        Arc::new(Endpoint {
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

    /// The peer at an address, new if need be.
    pub(crate) fn peer(&self, address: SocketAddr) -> Arc<Peer> {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.by_address.get(&address) {
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
        let config = ClientConfig { loopback: self.env.is_loopback(address), ..self.config.clone() };
        let peer = Arc::new(Peer::new(Conversation::new(config, id), address));
        peers.by_address.insert(address, peer.clone());
        peers.by_id.insert(id, peer.clone());
        // On its way to others a machine may change its own address, which a connected socket does not.
        let alone = peers.by_id.len() == 1 && address.ip().is_loopback();
        self.socket.connect(alone.then_some(address));
        peer
    }

    /// Fails in a child of the process that made the endpoint: the socket is its parent's.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    /// What is counted of each peer.
    pub(crate) fn stats(&self, all: &mut Vec<stats::Peer>) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(peers.by_id.values().map(|peer| peer.stats()));
    }

    /// Long buffers that were used.
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
    /// Forgets peers that nobody else holds: no binding, and no timers.
    fn sweep(&mut self) {
        if self.by_id.len() < self.sweep_at.max(64) {
            return;
        }
        // The maps hold two.
        self.by_address.retain(|_, peer| Arc::strong_count(peer) > 2);
        let kept = &self.by_address;
        self.by_id.retain(|_, peer| kept.contains_key(&peer.address));
        self.sweep_at = self.by_id.len() * 2;
    }
}

/// Identifiers of peers are random: each is its hash. They are this side's, so nobody else chooses what
/// stands in the table.
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

/// Whether this thread may wait for a call: it must not if it might be what all others wait for.
#[cold]
pub(crate) fn may_wait(env: &Arc<dyn Env>) -> Result<(), CallFailed> {
    caller::Caller::take_to_wait(env).map(caller::Caller::keep)
}

/// The socket that the loopback addresses, or all others, of one family are called from.
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
