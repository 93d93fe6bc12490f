//! The simulated network: virtual time, one queue of events, and paths with faults.
//!
//! The low half of an address `10.0.h.h` is the host. Between two hosts there is one [`Path`] each way. Each
//! datagram meets the faults of its path by chance. [`Net::step`] returns arriving datagrams, and the events
//! that [`Net::after`] put into the queue, in the order of time. No UDP checksum is simulated, so a corrupted
//! datagram arrives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::counts::counts;
use crate::rng::Rng;

/// Nanoseconds of virtual time.
pub type Nanos = u64;
/// A microsecond.
pub const MICROS: Nanos = 1_000;
/// A millisecond.
pub const MILLIS: Nanos = 1_000_000;
/// The number of bytes of a datagram that an ICMP error quotes.
const QUOTED: usize = 48;

/// A second.
pub const SECS: Nanos = 1_000_000_000;

/// The path from one host to another. Chances are in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The time that any datagram takes.
    pub delay: Nanos,
    /// The greatest time that a datagram takes in addition. Each datagram draws a time up to this.
    pub jitter: Nanos,
    /// The chance that a datagram vanishes.
    pub loss: u32,
    /// The chance that a datagram arrives twice.
    pub duplicate: u32,
    /// The chance that a datagram is so late that others overtake it: by up to a hundred times the delay.
    pub reorder: u32,
    /// The chance that a copy of a datagram comes seconds to hours later.
    pub late: u32,
    /// The chance that a datagram is changed on its way.
    pub corrupt: u32,
    /// The chance that a copy of a datagram comes from an address that did not send it.
    pub spoof: u32,
    /// Changes a spoofed copy, in ways that are open to the forger.
    pub forge: Option<fn(&mut Rng, &mut Vec<u8>)>,
    /// Whether the forger is on the path. If so, spoofed copies come from the address that did send the
    /// datagram.
    pub impostor: bool,
    /// The chance that an ICMP error tells the sender that its datagram reached no process.
    pub icmp: u32,
    /// The chance that, after a datagram, a process that has not seen it forges an ICMP error.
    pub forged_icmp: u32,
    /// The largest datagram that passes; a larger one vanishes.
    pub mtu: usize,
    /// Bytes per second; 0 is no limit.
    pub rate: u64,
    /// How long a datagram may wait for its turn at `rate` before it is dropped.
    pub queue: Nanos,
    /// The time until which nothing passes.
    pub cut_until: Nanos,
    /// The time at which the path, at its rate, will have sent the last datagram.
    free_at: Nanos,
}

impl Path {
    /// Returns a path without faults.
    pub fn clean(delay: Nanos) -> Path {
        Path { delay, mtu: usize::MAX, ..Path::default() }
    }

    /// Removes every fault, but keeps delay, rate and size.
    pub fn heal(&mut self) {
        *self = Path {
            mtu: self.mtu,
            rate: self.rate,
            queue: self.queue.max(SECS),
            free_at: self.free_at,
            icmp: self.icmp,
            ..Path::clean(self.delay.min(50 * MILLIS))
        };
    }
}

/// A slow router before a host. Every datagram to the host passes through it.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// How long the router takes for a datagram of any length.
    pub each: Nanos,
    /// How many datagrams it queues. It drops those for which the queue has no room.
    pub queue: u64,
    /// When it will have forwarded the last datagram.
    free_at: Nanos,
}

impl Router {
    /// Returns a router that forwards a datagram in each `each` nanoseconds, and queues `queue` datagrams.
    pub fn new(each: Nanos, queue: u64) -> Router {
        Router { each, queue, free_at: 0 }
    }

    /// Returns how long a datagram that comes now takes to pass, or `None` if it is dropped.
    fn admit(&mut self, now: Nanos) -> Option<Nanos> {
        let wait = self.free_at.saturating_sub(now);
        if wait > self.queue.saturating_mul(self.each) {
            return None;
        }
        self.free_at = self.free_at.max(now) + self.each;
        Some(wait + self.each)
    }
}

counts! {
    /// The number of faults of each sort.
    Faults {
        /// Datagrams lost by chance.
        lost,
        /// Datagrams that came twice.
        duplicated,
        /// Copies that came seconds to hours later.
        late,
        /// Forged ICMP errors.
        forged_icmp,
        /// Datagrams that later ones overtook.
        reordered,
        /// Datagrams changed on the way.
        corrupted,
        /// Copies that came from an address that did not send them.
        spoofed,
        /// Datagrams larger than their path lets pass.
        oversize,
        /// Datagrams dropped from a full queue.
        congested,
        /// Datagrams lost in a partition.
        partitioned,
        /// Datagrams to an address at which there was no process any more.
        undeliverable,
        /// One-way partitions.
        partitions,
        /// Servers that crashed and came back.
        server_crashes,
        /// Clients that crashed and came back.
        client_crashes,
        /// Processes that were stopped for a while, so that to them the clock stepped forward.
        clock_steps,
        /// Clients stopped between reading their clock and sending.
        gaps,
        /// Machines that were paused with their clocks.
        pauses,
        /// Servers that were restored from a snapshot.
        restorations,
        /// Addresses that moved between two servers.
        address_moves,
        /// Clients that moved to another address in the middle of a conversation.
        address_changes,
        /// Exports that were withdrawn and offered again.
        reexports,
        /// Paths that began to let only smaller datagrams pass.
        mtu_changes,
        /// Old datagrams that the attacker on the path sent again.
        repeated,
        /// Datagrams that it sent back to their senders.
        reflected,
        /// Datagrams that it put together from two.
        spliced,
        /// Datagrams that it shortened.
        shortened,
        /// Sealed datagrams that it sent in the open scheme or in another one.
        downgraded,
        /// Datagrams that it sent to others, or in the name of others.
        misdirected,
        /// Datagrams that it made by itself.
        invented,
        /// First messages of handshakes that it sent again.
        asked_again,
        /// Datagrams that it kept from going on.
        swallowed,
        /// Datagrams that a member answered whose key is granted for another name.
        intrusions,
        /// Datagrams of hostile peers.
        hostile,
        /// Conversations that servers forgot.
        evictions,
    }
}

/// An event that comes out of the network.
#[derive(Debug)]
pub enum Step<E> {
    /// A datagram arrives. Give the bytes back with [`Net::recycle`].
    Datagram {
        /// The address that seems to have sent the datagram.
        from: SocketAddr,
        /// The address where the datagram arrives.
        to: SocketAddr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// An ICMP error tells `sender` that a datagram has not reached `peer`.
    Refused {
        /// The address that sent the refused datagram.
        sender: SocketAddr,
        /// The address to which it was sent.
        peer: SocketAddr,
        /// The beginning of the datagram, as the error quotes it.
        quoted: Vec<u8>,
        /// Whether the error is forged, by a process that has not seen the datagram.
        forged: bool,
        /// Whether the error says that no process is at `peer`. There are many other kinds.
        is_closed: bool,
    },
    /// An event of the network's user.
    Event(E),
}

/// An entry of the queue, ordered by time and then by the order of insertion.
type Entry = Reverse<(Nanos, u64, u32)>;

/// The network and its clock.
pub struct Net<E> {
    now: Nanos,
    asked: u64,
    queue: BinaryHeap<Entry>,
    /// The events of the queue's entries; `free` lists the unused places.
    slots: Vec<Option<Step<E>>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    hosts: usize,
    paths: Vec<Path>,
    routers: BTreeMap<usize, Router>,
    bound: Vec<SocketAddr>,
    rng: Rng,
    in_flight: usize,
    last_arrival: Nanos,
    /// Counts of the faults so far.
    pub faults: Faults,
}

/// Returns the address of a host, at a port.
pub fn address(host: usize, port: u16) -> SocketAddr {
    let [.., high, low] = host.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), port)
}

/// Returns the address of one of the many hosts that one machine is in a network of its own.
pub fn address_in_network(machine: usize, host: u8, port: u16) -> SocketAddr {
    let [.., low] = machine.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, host, low)), port)
}

/// The first of the ports from which forged copies come.
pub const FORGER: u16 = 60_000;

/// Returns the host of an address made by [`address`], or the machine of one made by [`address_in_network`].
pub fn host(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[1] != 0 => ip.octets()[3].into(),
        IpAddr::V4(ip) => usize::from(u16::from_be_bytes([ip.octets()[2], ip.octets()[3]])),
        IpAddr::V6(_) => usize::MAX,
    }
}

/// Returns a number for the network of an address, as servers see it: an IPv4 /16, or all loopback addresses.
pub fn network(ip: IpAddr) -> u16 {
    match ip {
        IpAddr::V4(ip) if !ip.is_loopback() => u16::from_be_bytes([ip.octets()[0], ip.octets()[1]]),
        _ => 0,
    }
}

impl<E> Net<E> {
    /// Makes a network of `hosts` hosts, at time 0, with clean paths of `delay`.
    pub fn new(rng: Rng, hosts: usize, delay: Nanos) -> Net<E> {
        Net {
            now: 0,
            asked: 0,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            hosts,
            paths: vec![Path::clean(delay); hosts * hosts],
            routers: BTreeMap::new(),
            bound: Vec::new(),
            rng,
            in_flight: 0,
            last_arrival: 0,
            faults: Faults::default(),
        }
    }

    /// Adds a host; the paths between it and the others, and to itself, begin as `path`.
    pub fn add_host(&mut self, path: Path) -> usize {
        let hosts = self.hosts + 1;
        let mut paths = vec![path; hosts * hosts];
        for (from, row) in self.paths.chunks(self.hosts.max(1)).enumerate() {
            paths[from * hosts..][..row.len()].copy_from_slice(row);
        }
        (self.paths, self.hosts) = (paths, hosts);
        hosts - 1
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the path from one host to another.
    pub fn path(&mut self, from: usize, to: usize) -> &mut Path {
        &mut self.paths[from * self.hosts + to]
    }

    /// Returns every path.
    pub fn paths(&mut self) -> &mut [Path] {
        &mut self.paths
    }

    /// Puts a router before a host.
    pub fn set_router(&mut self, host: usize, router: Router) {
        self.routers.insert(host, router);
    }

    /// Notes that a process is at this address from now on.
    pub fn bind(&mut self, address: SocketAddr) {
        if !self.bound.contains(&address) {
            self.bound.push(address);
        }
    }

    /// Notes that no process is at this address any more.
    pub fn unbind(&mut self, address: SocketAddr) {
        self.bound.retain(|a| *a != address);
    }

    /// Makes [`Net::step`] return an event when `delay` has passed.
    pub fn after(&mut self, delay: Nanos, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Makes [`Net::step`] return an event at `time`, or now if that time has passed.
    pub fn at(&mut self, time: Nanos, event: E) {
        self.push(time.max(self.now), Step::Event(event));
    }

    /// Returns the number of datagrams that have not arrived yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns when the last of the datagrams that were sent so far arrives or has arrived.
    pub fn last_arrival(&self) -> Nanos {
        self.last_arrival
    }

    /// Sends a datagram, subject to the chances of its path.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.send_after(0, from, to, bytes);
    }

    /// Sends a datagram that leaves after `gap`, subject to the chances of its path.
    pub fn send_after(&mut self, gap: Nanos, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let (source, target) = (host(from), host(to));
        if source >= self.hosts || target >= self.hosts {
            self.faults.undeliverable += 1;
            return;
        }
        let index = source * self.hosts + target;
        let path = self.paths[index];
        let Some(wait) = self.admit(index, path, bytes.len()).map(|wait| wait + gap) else {
            return;
        };
        if self.rng.chance(path.spoof) {
            self.faults.spoofed += 1;
            let elsewhere = address(source, FORGER + self.rng.below(4) as u16);
            let victim = if path.impostor { from } else { elsewhere };
            let later = self.rng.spread(path.delay, 10 * SECS);
            let mut bytes = bytes.to_vec();
            if let Some(forge) = path.forge {
                forge(&mut self.rng, &mut bytes);
            }
            self.deliver(path, victim, to, &bytes, wait + later);
        }
        if self.rng.chance(path.forged_icmp) {
            self.forge_icmp(path, from, to, bytes);
        }
        if self.rng.chance(path.late) {
            self.faults.late += 1;
            let later = self.rng.spread(SECS, 6 * 3600 * SECS);
            self.deliver(path, from, to, bytes, gap + later);
        }
        if self.rng.chance(path.duplicate) {
            self.faults.duplicated += 1;
            let later = self.rng.spread(MICROS, 100 * MILLIS);
            self.deliver(path, from, to, bytes, wait + path.delay + later);
        }
        if self.rng.chance(path.loss) {
            self.faults.lost += 1;
            return;
        }
        let mut delay = wait + path.delay + self.rng.below(path.jitter);
        if self.rng.chance(path.reorder) {
            self.faults.reordered += 1;
            delay += self.rng.spread(path.delay, path.delay.saturating_mul(100));
        }
        self.deliver(path, from, to, bytes, delay);
    }

    /// Moves time to the next event, and returns it. Returns `None` if there will be no further event.
    pub fn step(&mut self) -> Option<(Nanos, Step<E>)> {
        loop {
            let Reverse((time, _, slot)) = self.queue.pop()?;
            self.now = time;
            let step = self.slots[slot as usize].take()?;
            self.free.push(slot);
            let Step::Datagram { from, to, bytes } = step else {
                return Some((time, step));
            };
            self.in_flight -= 1;
            if self.bound.contains(&to) {
                return Some((time, Step::Datagram { from, to, bytes }));
            }
            self.undeliverable(from, to, &bytes);
            self.recycle(bytes);
        }
    }

    /// Takes a buffer back, to be used again.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < 256 {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Returns how long a datagram waits on the path for earlier ones, or `None` if it is dropped.
    fn admit(&mut self, index: usize, path: Path, len: usize) -> Option<Nanos> {
        if path.cut_until > self.now {
            self.faults.partitioned += 1;
            return None;
        }
        if len > path.mtu {
            self.faults.oversize += 1;
            return None;
        }
        let routed = match self.routers.get_mut(&(index % self.hosts)) {
            Some(router) => router.admit(self.now),
            None => Some(0),
        };
        let Some(routed) = routed else {
            self.faults.congested += 1;
            return None;
        };
        if path.rate == 0 {
            return Some(routed);
        }
        let wait = path.free_at.saturating_sub(self.now);
        if wait > path.queue {
            self.faults.congested += 1;
            return None;
        }
        let takes = (len as u64).saturating_mul(SECS) / path.rate;
        self.paths[index].free_at = path.free_at.max(self.now) + takes;
        Some(routed + wait + takes)
    }

    fn deliver(&mut self, path: Path, from: SocketAddr, to: SocketAddr, sent: &[u8], delay: Nanos) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(sent);
        if self.rng.chance(path.corrupt) {
            self.faults.corrupted += 1;
            corrupt(&mut self.rng, &mut bytes);
        }
        let time = self.now + delay;
        self.last_arrival = self.last_arrival.max(time);
        self.in_flight += 1;
        self.push(time, Step::Datagram { from, to, bytes });
    }

    /// Drops a datagram that reached no process, and perhaps tells its sender by ICMP.
    fn undeliverable(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.faults.undeliverable += 1;
        let back = *self.path(host(to), host(from));
        if self.bound.contains(&from) && self.rng.chance(back.icmp) {
            let quoted = bytes[..bytes.len().min(QUOTED)].to_vec();
            // Some of these errors come long afterwards.
            let late = if self.rng.chance(back.late) { self.rng.spread(SECS, 600 * SECS) } else { 0 };
            let refused = Step::Refused { sender: from, peer: to, quoted, forged: false, is_closed: true };
            self.push(self.now + back.delay + late, refused);
        }
    }

    /// Sends a forged ICMP error, from a process that knows the addresses and guesses the rest of the
    /// datagram.
    fn forge_icmp(&mut self, path: Path, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.faults.forged_icmp += 1;
        let mut quoted = bytes[..bytes.len().min(QUOTED)].to_vec();
        // The guess replaces the number of the conversation or, in a BIND, the client's identifier. It may
        // also replace the identifier with which the datagrams of ONC RPC begin.
        let others = usize::from(self.rng.chance(500_000));
        for at in [4, 24].into_iter().chain(std::iter::repeat_n(0, others)) {
            let word = self.rng.next().to_be_bytes();
            quoted.iter_mut().skip(at).zip(word).for_each(|(byte, guess)| *byte = guess);
        }
        let later = self.rng.spread(path.delay, SECS);
        let is_closed = self.rng.chance(500_000);
        let report = Step::Refused { sender: from, peer: to, quoted, forged: true, is_closed };
        self.push(self.now + later, report);
    }

    fn push(&mut self, time: Nanos, step: Step<E>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(step);
        self.asked += 1;
        self.queue.push(Reverse((time, self.asked, slot)));
    }
}

/// Changes a datagram as faulty memory, cables and tunnels do.
fn corrupt(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.below(4) {
        0 | 1 if !bytes.is_empty() => {
            for _ in 0..rng.spread(1, 16) {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        2 => bytes.truncate(rng.index(bytes.len())),
        _ => {
            let more = rng.spread(1, 64) as usize;
            let old = bytes.len();
            bytes.resize(old + more, 0);
            rng.fill(&mut bytes[old..]);
        }
    }
}
