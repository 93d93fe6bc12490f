//! The common state of all machines in a run: the network, the random generator, the oracle, and the trace.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farcall_proto::fuzzing::kinds::{CHALLENGE, STALE, WELCOME};
use xxhash_rust::xxh3::xxh3_64;

#[cfg(feature = "soak")]
use crate::attacker::Attacker;
use crate::net::{MICROS, Nanos, Net, SECS, host};
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::rng::{Rng, mix};

/// An event of the run other than the arrival of a datagram.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A machine's timer may be due.
    Wake(usize),
    /// A client does something.
    Act {
        /// Which client.
        client: usize,
        /// In which of its lives (it gets a new one at each start).
        life: u32,
    },
    /// A client cancels a call, if it has not ended.
    Cancel {
        /// Which client.
        client: usize,
        /// Which call.
        call: usize,
    },
    /// A client's program acts in the exchanges (signals and streams) of a call.
    Inside {
        /// Which client.
        client: usize,
        /// Which call.
        call: usize,
    },
    /// A server's procedure ends, or acts in the exchanges (signals and streams) of its call.
    Done {
        /// Which server.
        server: usize,
        /// Which of the calls that it took.
        job: u64,
    },
    /// The thread of a server that computes handshakes goes on.
    #[cfg(feature = "soak")]
    Compute(usize),
    /// Something happens to a machine or a path.
    Chaos,
    /// A machine's process crashes.
    Crash(usize),
    /// The hostile peer does something.
    Harm,
    /// A machine that crashed comes back.
    Restart(usize),
    /// A stopped process continues.
    Resume(usize),
    /// The address of this host moves to another server.
    Move(usize),
    /// Faults end.
    Heal,
    /// Checks that every call ended soon after the faults did.
    Judge,
}

/// The kinds of the frames that are hints.
const HINTS: [u8; 2] = [CHALLENGE, STALE];

/// The bytes that a server has exchanged with an address that has not proven yet that it receives.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    received: u64,
    sent: u64,
}

/// The common state of all machines in one run.
pub struct Ground {
    /// The network.
    pub net: Net<Event>,
    /// The random generator for everything but the network.
    pub rng: Rng,
    /// The invariants.
    pub oracle: Oracle,
    /// The seed's decisions.
    pub plan: Plan,
    /// A buffer for a datagram of any size.
    pub scratch: Vec<u8>,
    /// Whether faults have ended.
    pub healed: bool,
    /// Calls that may still be started.
    pub budget: u64,
    /// The last time when a server's procedure ended, or a program acted in an exchange.
    pub last_done: Nanos,
    /// Datagrams sent.
    pub sent: u64,
    accounts: HashMap<(usize, SocketAddr), Account>,
    /// The present life of each server. A restored server lives its earlier life again.
    lives: Vec<u32>,
    /// How many lives have begun.
    began: u32,
    /// The addresses at which a datagram of a server's life has arrived. They may hold a ticket of that life.
    reached: HashSet<(u32, SocketAddr)>,
    /// The bytes that each server received from the hostile peer.
    harm: Vec<usize>,
    /// The sealed datagrams that each machine acted upon.
    acted_upon: HashSet<(usize, u64)>,
    #[cfg(feature = "soak")]
    attacker: Attacker,
    hash: u64,
    verbose: bool,
}

impl Ground {
    /// Makes the state of a run of `calls` calls that follows `plan`.
    pub fn new(plan: Plan, mut rng: Rng, calls: u64, verbose: bool) -> Ground {
        let hosts = plan.servers + plan.clients + usize::from(plan.hostile);
        let mut net = Net::new(rng.fork(), hosts, plan.path.delay);
        for path in net.paths() {
            *path = plan.own_path(&mut rng);
        }
        for (client, server) in (plan.servers..hosts).flat_map(|c| (0..plan.servers).map(move |s| (c, s))) {
            // In the open scheme a process that saw a conversation can answer in the server's name. It cannot
            // call in the client's name from another address.
            net.path(client, server).forge = Some(|rng, bytes| forge(rng, bytes));
            if plan.scheme().is_some() {
                // In a scheme with secrets, a process on the path may try to forge in both directions, and
                // from the true address.
                for (from, to) in [(client, server), (server, client)] {
                    let path = net.path(from, to);
                    path.forge = Some(forge_sealed);
                    path.impostor = true;
                }
            }
        }
        let servers = plan.servers;
        let patience = plan.client.patience.as_nanos() as Nanos;
        // With keys, tickets end with the keys that seal them (docs/protocol.md 11.6).
        let ticket_life = if plan.scheme().is_some() { 600 * SECS } else { Nanos::MAX };
        let mut oracle = Oracle::new(rng.next(), plan.calm, (patience, ticket_life), plan.servers);
        let asked = plan.client.server_patience.map_or(0, |asked| asked.as_nanos() as Nanos);
        // A clock that runs too fast makes the least silence shorter.
        oracle.silence = (patience.max(asked - asked / 10), (patience + patience / 5).max(asked));
        Ground {
            net,
            oracle,
            rng,
            plan,
            scratch: vec![0; 1 << 16],
            healed: false,
            budget: calls,
            last_done: 0,
            sent: 0,
            accounts: HashMap::new(),
            lives: vec![0; servers],
            began: 0,
            reached: HashSet::new(),
            harm: vec![0; servers],
            acted_upon: HashSet::new(),
            #[cfg(feature = "soak")]
            attacker: Attacker::default(),
            hash: 0,
            verbose,
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.net.now()
    }

    /// Returns the hash of everything that happened so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds an event to the hash of the run's trace, and prints it if the run is verbose.
    pub fn note(&mut self, facts: &[u64], say: impl FnOnce() -> String) {
        for fact in facts {
            self.hash = mix(self.hash ^ fact).wrapping_add(self.net.now());
        }
        if self.verbose {
            println!("{:>16.6}  {}", self.net.now() as f64 / MICROS as f64 / 1e6, say());
        }
    }

    /// Notes the arrival of a datagram.
    pub fn note_arrival(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let ports = u64::from(from.port()) << 48 | u64::from(to.port()) << 32;
        let facts = [ports ^ (host(from) as u64) << 16 ^ host(to) as u64, bytes.len() as u64, xxh3_64(bytes)];
        self.note(&facts, || format!("{from} -> {to}  {}", show(bytes)));
    }

    /// Sends the first `len` bytes of the scratch buffer.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, len: usize) {
        self.send_after(0, from, to, len);
    }

    /// Sends the first `len` bytes of the scratch buffer, which leave after `gap`.
    pub fn send_after(&mut self, gap: Nanos, from: SocketAddr, to: SocketAddr, len: usize) {
        self.sent += 1;
        let to = unmasked(to);
        // The hostile peer sends in any scheme, and is answered in it.
        if ![from, to].iter().any(|end| host(*end) == self.hostile()) {
            self.check_scheme(from, len);
        }
        if self.verbose {
            let now = self.net.now() as f64 / SECS as f64;
            println!("{now:>16.6}  {from} sends to {to}  {}", show(&self.scratch[..len]));
        }
        #[cfg(feature = "soak")]
        if let Some(keys) = &self.plan.secret {
            let chance = if self.healed { 0 } else { keys.attack };
            let by = (&mut self.rng, &mut self.net);
            if !self.attacker.see(by, chance, (from, to), &self.scratch[..len]) {
                return;
            }
        }
        self.net.send_after(gap, from, to, &self.scratch[..len]);
    }

    /// Sends a datagram that none of the run's clients and servers has made.
    #[cfg(feature = "soak")]
    pub fn inject(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.net.send(from, unmasked(to), datagram);
    }

    /// Notes that a machine acted upon a sealed datagram. It must never act upon it again.
    pub fn acted_upon(&mut self, node: usize, digest: u64) {
        if !self.acted_upon.insert((node, digest)) {
            let now = self.now();
            self.oracle.violate("no-replay-is-acted-upon", now, || format!("machine {node}, {digest:016x}"));
        }
    }

    /// Returns the address from which a datagram comes, as a server sees it.
    pub fn seen(&self, from: SocketAddr) -> SocketAddr {
        if self.plan.loopback.1 { with_first_octet(127, from) } else { from }
    }

    /// Asserts that a datagram to be sent is of the local scheme if both ends are on one machine. Datagrams
    /// that ask for a ticket, or answer such a question, are exempt (docs/protocol.md 3.1).
    fn check_scheme(&mut self, from: SocketAddr, len: usize) {
        let datagram = &self.scratch[..len];
        let binding = match host(from) < self.plan.servers {
            true => datagram.get(20) == Some(&WELCOME),
            false => datagram.get(4..12) == Some(&[0; 8]),
        };
        if let Some(scheme) = self.plan.scheme() {
            // These are questions, hints, and answers that come before there is a key.
            let is_hint = datagram.get(20).is_some_and(|kind| HINTS.contains(kind));
            let may_be_open = is_hint || binding && export_of(datagram).is_none_or(|export| export == 0);
            // The server sends a hint in the scheme of the datagram that it answers, and a WELCOME in one
            // that the BIND offers. The network may have changed these.
            let is_open = datagram.get(1) == Some(&0) || is_hint && datagram.get(1) == Some(&1);
            let is_welcome = binding && host(from) < self.plan.servers && datagram.get(1) > Some(&1);
            if datagram.get(1) != Some(&scheme) && !(may_be_open && is_open) && !is_welcome {
                let what = format!("{from} sends without a key: {}", show(datagram));
                self.oracle.violate("scheme-is-the-right-one", self.net.now(), || what);
            }
            return;
        }
        let (local, is_local) = (self.plan.is_local() && !binding, datagram.get(1) == Some(&1));
        if local != is_local {
            let what = format!("{from} sends in scheme {:?}: {}", datagram.get(1), show(datagram));
            self.oracle.violate("scheme-is-the-right-one", self.net.now(), || what);
        }
    }

    /// Addresses a datagram to conversation zero, if it refuses a ticket.
    pub fn make_refusal_anonymous(&mut self, len: usize) {
        let datagram = &mut self.scratch[..len];
        if datagram[1] < 2 && datagram.get(20) == Some(&STALE) {
            datagram[4..12].fill(0);
            seal(datagram);
        }
    }

    /// Notes that a server received a datagram.
    pub fn server_received(&mut self, server: usize, from: SocketAddr, len: usize) {
        self.accounts.entry((server, from)).or_default().received += len as u64;
        if self.plan.hostile && host(from) == self.hostile() {
            self.harm[server] += len;
        }
    }

    /// Returns the host of the hostile peer, if there is one.
    pub fn hostile(&self) -> usize {
        self.plan.servers + self.plan.clients
    }

    /// Returns the bytes that a server received from the hostile peer.
    pub fn harm(&self, server: usize) -> usize {
        self.harm[server]
    }

    /// Checks a datagram that a server sends. An address that no datagram of the server has reached yet gets
    /// at most three times the bytes that came from it.
    pub fn server_sent(&mut self, server: usize, to: SocketAddr, len: usize) {
        let account = self.accounts.entry((server, to)).or_default();
        account.sent += len as u64;
        let account = *account;
        let is_proven = self.reached.contains(&(self.lives[server], to));
        if !is_proven && account.sent > 3 * account.received {
            let now = self.now();
            self.oracle.violate("no-amplification", now, || format!("server {server} to {to}: {account:?}"));
        }
    }

    /// Notes that a server's datagram reached an address, which can now prove that it receives.
    pub fn server_reached(&mut self, server: usize, to: SocketAddr) {
        // In a run in which addresses move, the datagram may have come from any server.
        let to = self.seen(to);
        let all = if self.plan.moves > 0 { 0..self.plan.servers } else { server..server + 1 };
        self.reached.extend(all.map(|server| (self.lives[server], to)));
    }

    /// Restores what a server knew about addresses when the snapshot was taken. The server also accepts a
    /// ticket that the same life issued later, as a proof of the address at which the ticket arrived.
    pub fn server_restored(&mut self, server: usize, snapshot: &Ground) {
        if self.lives[server] != snapshot.lives[server] {
            // Another life has received and sent these bytes. It may have had proofs that this one lacks.
            self.accounts.retain(|(s, _), _| *s != server);
        }
        for (key, then) in snapshot.accounts.iter().filter(|((s, _), _)| *s == server) {
            let account = self.accounts.entry(*key).or_default();
            account.received = account.received.max(then.received);
            account.sent = account.sent.max(then.sent);
        }
        self.lives[server] = snapshot.lives[server];
        // It has forgotten which datagrams have come since the snapshot.
        self.acted_upon.retain(|(node, _)| *node != server);
        self.harm[server] = self.harm[server].max(snapshot.harm[server]);
    }

    /// Forgets the addresses of a server that was restarted.
    pub fn server_forgot(&mut self, server: usize) {
        self.accounts.retain(|(s, _), _| *s != server);
        self.began += 1;
        self.lives[server] = self.began;
        self.harm[server] = 0;
    }
}

/// Forges half of the datagrams, as a process that has seen them can: changes some bytes, and computes the
/// tag anew. In the open scheme that needs no secret.
fn forge(rng: &mut Rng, bytes: &mut [u8]) {
    let Some(body) = bytes.len().checked_sub(8).filter(|body| *body > 4 && rng.chance(500_000)) else {
        return;
    };
    for _ in 0..rng.within(1, 4) {
        bytes[4 + rng.index(body - 4)] = rng.next() as u8;
    }
    seal(bytes);
}

/// Returns the export that a WELCOME names, or `None` for any other datagram.
fn export_of(datagram: &[u8]) -> Option<u64> {
    let welcome = datagram.get(24..).filter(|_| datagram[20] == WELCOME)?;
    // A nonce, the conversation and the ticket, whose rest has a length of its own.
    let rest = u32::from_be_bytes(*welcome.get(56..)?.first_chunk()?) as usize;
    Some(u64::from_be_bytes(*welcome.get(60 + rest + 8..)?.first_chunk()?))
}

/// Forges a datagram as a process on the path without the key can: repeats it unchanged, with some other
/// bytes, with another number, for another conversation, or in the open scheme with the right tag.
fn forge_sealed(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let Some(&scheme) = bytes.get(1).filter(|_| bytes.len() > 44) else { return };
    match rng.below(5) {
        0 => {}
        1 => (0..rng.within(1, 4)).for_each(|_| {
            let at = rng.index(bytes.len());
            bytes[at] = rng.next() as u8;
        }),
        2 => bytes[19] ^= 1 << rng.below(8),
        3 => bytes[11] ^= 1 << rng.below(8),
        _ if scheme >= 2 => {
            bytes[1] = 0;
            bytes.truncate(bytes.len() - 8);
        }
        _ => {
            let at = rng.within(20, bytes.len() as u64 - 9) as usize;
            bytes[at] = rng.next() as u8;
        }
    }
    if bytes[1] < 2 && rng.chance(800_000) {
        seal(bytes);
    }
}

/// Returns the true address for one that a server [sees](Ground::seen).
fn unmasked(seen: SocketAddr) -> SocketAddr {
    with_first_octet(10, seen)
}

fn with_first_octet(first: u8, address: SocketAddr) -> SocketAddr {
    let IpAddr::V4(ip) = address.ip() else { return address };
    let [_, rest @ ..] = ip.octets();
    SocketAddr::new(Ipv4Addr::new(first, rest[0], rest[1], rest[2]).into(), address.port())
}

/// Computes the tag of a changed datagram anew, in the datagram's scheme.
fn seal(datagram: &mut [u8]) {
    let (local, len) = (datagram.get(1) == Some(&1), datagram.len() as u64);
    if let Some((body, tag)) = datagram.split_last_chunk_mut::<8>() {
        *tag = if local { len.to_be_bytes() } else { xxh3_64(body).to_be_bytes() };
    }
}

/// Returns a datagram as one line of text.
fn show(bytes: &[u8]) -> String {
    match farcall_proto::dump::dump(bytes) {
        Ok(dump) => dump.to_string().lines().map(str::trim).collect::<Vec<_>>().join("; "),
        Err(why) => format!("{} bytes: {why}", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use farcall_proto::Mutant;

    use super::*;
    use crate::net::address;

    /// Returns a run in which one client's address, of one server's life, has sent 1,000 bytes and received
    /// 2,000.
    fn run() -> (Ground, SocketAddr) {
        let mut rng = Rng::new(1);
        let mut plan = Plan::draw(&mut rng, Mutant::NONE);
        (plan.moves, plan.hostile) = (0, false);
        let mut g = Ground::new(plan, rng, 1, false);
        let at = g.seen(address(g.plan.servers, 40_000));
        g.server_forgot(0);
        g.server_received(0, at, 1_000);
        g.server_sent(0, at, 2_000);
        (g, at)
    }

    /// Seed 9024 once failed: what a later life of the server had sent to a proven address was added to what
    /// the restored life had received from it.
    #[test]
    fn a_restored_server_has_the_account_of_the_life_that_goes_on() {
        let ((mut g, at), (snapshot, _)) = (run(), run());
        g.server_forgot(0);
        g.server_received(0, at, 100);
        g.server_reached(0, address(g.plan.servers, 40_000));
        g.server_sent(0, at, 50_000);
        g.server_restored(0, &snapshot);
        g.server_sent(0, at, 1_000);
        assert_eq!(g.oracle.violation, None);
        g.server_sent(0, at, 4);
        assert_eq!(g.oracle.violation.map(|violation| violation.rule), Some("no-amplification"));
    }

    #[test]
    fn a_server_that_is_restored_within_one_life_has_sent_what_it_sent_since() {
        let ((mut g, at), (snapshot, _)) = (run(), run());
        g.server_sent(0, at, 1_000);
        g.server_restored(0, &snapshot);
        g.server_sent(0, at, 4);
        assert_eq!(g.oracle.violation.map(|violation| violation.rule), Some("no-amplification"));
    }
}
