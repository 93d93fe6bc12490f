//! Strangers who ask a server with keys for handshakes without end, and what honest clients know.
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use farcall::key_files::{Grant, Identity, Keyring, Presentation, PrincipalName, Rights, Scope, Terms};
use farcall_base::Principal;
use farcall_proto::client::{Conversation, Event};
use farcall_proto::secure::{Accepted, Trust};
use farcall_proto::{ClientConfig, Time};
use zeroize::Zeroizing;

/// The export that is asked for.
pub const NAME: &str = "Target";
/// When a client that has not joined counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The identity of the server. These identities are secret from nobody.
pub const SERVER: u8 = 7;
/// The identity of honest clients.
pub const HONEST: u8 = 3;
/// The identity of strangers.
pub const STRANGER: u8 = 9;
/// The identity of the authority.
pub const AUTHORITY: u8 = 11;

/// What strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Nothing,
    /// One message that was computed, with one proof, under other nonces.
    Repeated,
    /// Handshakes by a key that nobody has granted anything.
    Unknown,
    /// Handshakes that show forged grants of the authority.
    Forged,
    /// Messages that do not open, with proofs of their own, and random bytes.
    Garbage,
    /// All of these.
    Mixed,
}

/// The kinds by name.
pub const KINDS: [(&str, Kind); 6] = [
    ("nothing", Kind::Nothing),
    ("repeated", Kind::Repeated),
    ("unknown", Kind::Unknown),
    ("forged", Kind::Forged),
    ("garbage", Kind::Garbage),
    ("mixed", Kind::Mixed),
];

/// Returns the identity of this secret.
pub fn identity(secret: u8) -> Identity {
    Identity::from_entropy([secret; 32])
}

/// What a client knows of keys.
#[derive(Debug)]
pub struct Gate {
    keyring: Keyring,
    shows: Vec<u8>,
}

impl Gate {
    /// Returns what a client knows that has this secret and shows these grants.
    ///
    /// # Errors
    /// Never, as the texts are well-formed.
    pub fn new(secret: u8, grants: Vec<Grant>) -> Result<Arc<Gate>> {
        let shows = Presentation::new(identity(secret).public(), grants).encode();
        let known = format!("* {}", identity(SERVER).public()).parse()?;
        Ok(Arc::new(Gate { keyring: Keyring::new(identity(secret)).with_known_server(known), shows }))
    }
}

impl Trust for Gate {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        self.keyring.identity().exchange_secret()
    }

    fn presentation(&self, _: &[u8]) -> Vec<u8> {
        self.shows.clone()
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        let name = std::str::from_utf8(name).unwrap_or_default();
        let (type_name, instance) = name.split_once('/').unwrap_or((name, ""));
        let server = self.keyring.check_server(type_name, instance, presentation, unix());
        let key = server.map_err(|why| why.to_string())?.key.exchange_key();
        Ok(Accepted { key, principal: Arc::new(Principal::new("server", key)) })
    }

    fn accept_client(&self, _: &[u8; 32], _: &[u8]) -> Result<Vec<u8>, String> {
        Err("a client serves nobody".into())
    }

    fn recall(&self, _: &[u8]) -> Result<Arc<Principal>, String> {
        Err("a client serves nobody".into())
    }

    fn entropy(&self, out: &mut [u8]) {
        let mut file = std::fs::File::open("/dev/urandom").expect("random bytes");
        std::io::Read::read_exact(&mut file, out).expect("random bytes");
    }
}

fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns a grant for the strangers that the authority has not signed.
fn forged(serial: u64) -> Result<Grant> {
    let terms = Terms {
        key: identity(STRANGER).public(),
        principal: "ops".parse::<PrincipalName>()?,
        rights: Rights::IMPORT,
        scope: Scope::any(),
        serial,
        expires: unix() + 3_600,
    };
    let grant = identity(AUTHORITY).grant(terms);
    let mut bytes = grant.map_err(|why| anyhow::anyhow!("{why:?}"))?.encode();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    let forged = Grant::decode(&bytes).map_err(|why| anyhow::anyhow!("{why:?}"))?;
    ensure!(!forged.is_genuine() && forged.authority() == identity(AUTHORITY).public());
    Ok(forged)
}

/// Returns a conversation that has not begun.
pub fn conversation(gate: &Arc<Gate>) -> Conversation {
    let mut id = [0; 8];
    gate.entropy(&mut id);
    let config = ClientConfig { trust: Some(gate.clone()), ..ClientConfig::default() };
    Conversation::new(config, u64::from_le_bytes(id) | 1)
}

/// Returns the time of a conversation.
pub fn now(began: Instant) -> Time {
    Time::from_nanos(1_000_000_000 + began.elapsed().as_nanos() as u64)
}

/// Has a client ask for the export's name at a socket of its own. Returns how long that took.
///
/// # Errors
/// If the server refuses, or does not answer.
pub fn join(conversation: &mut Conversation, server: SocketAddr, clock: Instant) -> Result<Duration> {
    let any =
        if server.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    let (began, mut out, mut bound) = (Instant::now(), vec![0; 65_536], None);
    conversation.bind(now(clock), NAME, 0);
    while began.elapsed() < PATIENCE {
        let mut note = |event: Event<'_>| {
            if let Event::Bound { answer, .. } = event {
                bound = Some(answer.map(drop).map_err(|why| why.to_string()));
            }
        };
        conversation.handle_timeout(now(clock), &mut note);
        while let Some(len) = conversation.transmit(now(clock), &mut out) {
            let _ = socket.send(&out[..len]);
        }
        let due = conversation.timeout().map_or(PATIENCE, |due| due.since(now(clock)));
        socket.set_read_timeout(Some(due.clamp(Duration::from_millis(1), PATIENCE)))?;
        if let Ok(len) = socket.recv(&mut out) {
            conversation.receive_any(now(clock), &mut out[..len], &mut note);
        }
        match bound {
            Some(Ok(())) => return Ok(began.elapsed()),
            Some(Err(why)) => bail!(why),
            None => {}
        }
    }
    bail!("the server did not answer")
}

/// Where a BIND has the client, the nonce and the proof, and a WELCOME the proof.
const CLIENT: usize = 24;
const NONCE: usize = 32;
const PROOF: std::ops::Range<usize> = 52..104;
const SHOWN: std::ops::Range<usize> = 32..84;

/// The strangers.
pub struct Crowd {
    sockets: Vec<UdpSocket>,
    server: SocketAddr,
    clock: Instant,
    /// Datagrams to be sent, with their sockets, and a template of a question and of a message.
    stock: Vec<(usize, Vec<u8>)>,
    repeated: (usize, Vec<u8>),
    hello: Vec<u8>,
    message: Vec<u8>,
    out: Vec<u8>,
    id: u64,
}

impl Crowd {
    /// Returns strangers at these addresses.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub fn new(addresses: &[IpAddr], server: SocketAddr) -> Result<Crowd> {
        let mut sockets = Vec::new();
        for address in addresses {
            let socket = UdpSocket::bind((*address, 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            sockets.push(socket);
        }
        let (stock, repeated, hello, message) = Default::default();
        let (clock, out) = (Instant::now(), vec![0; 65_536]);
        Ok(Crowd { sockets, server, clock, stock, repeated, hello, message, out, id: 1 })
    }

    /// Makes so many handshakes of a kind ready to be sent.
    ///
    /// # Errors
    /// If the server gives no proof of an address.
    pub fn prepare(&mut self, kind: Kind, all: usize) -> Result<()> {
        self.stock.clear();
        self.handshakes(1, &Gate::new(STRANGER, Vec::new())?)?;
        let forged = Gate::new(STRANGER, vec![forged(1)?, forged(2)?])?;
        let unknown = Gate::new(STRANGER, Vec::new())?;
        match kind {
            Kind::Unknown => self.handshakes(all, &unknown)?,
            Kind::Forged => self.handshakes(all, &forged)?,
            Kind::Mixed => {
                self.handshakes(all / 4, &unknown)?;
                self.handshakes(all / 4, &forged)?;
            }
            Kind::Nothing | Kind::Repeated | Kind::Garbage => {}
        }
        Ok(())
    }

    /// Begins handshakes, and keeps their first messages.
    fn handshakes(&mut self, count: usize, gate: &Arc<Gate>) -> Result<()> {
        let end = self.stock.len() + count;
        let began = Instant::now();
        while self.stock.len() < end && began.elapsed() < Duration::from_secs(25) {
            let mut asking = HashMap::new();
            for nth in 0..(end - self.stock.len()).min(200) {
                let which = (self.id as usize + nth) % self.sockets.len();
                let mut client = conversation(gate);
                client.bind(now(self.clock), NAME, 0);
                while let Some(len) = client.transmit(now(self.clock), &mut self.out) {
                    self.hello = self.out[..len].to_vec();
                    let _ = self.sockets[which].send(&self.out[..len]);
                    asking.insert(
                        self.out[CLIENT..CLIENT + 8].to_vec(),
                        (which, std::mem::replace(&mut client, conversation(gate))),
                    );
                    break;
                }
            }
            self.id += 200;
            let sent = Instant::now();
            while !asking.is_empty() && sent.elapsed() < Duration::from_millis(200) {
                for which in 0..self.sockets.len() {
                    while let Ok(len) = self.sockets[which].recv(&mut self.out) {
                        let Some((_, mut client)) = asking.remove(&self.out[4..12]) else { continue };
                        client.receive_any(now(self.clock), &mut self.out[..len], &mut |_| {});
                        if let Some(len) = client.transmit(now(self.clock), &mut self.out) {
                            self.message = self.out[..len].to_vec();
                            self.stock.push((which, self.message.clone()));
                        }
                    }
                }
            }
        }
        ensure!(!self.stock.is_empty(), "the strangers got no proof from {}", self.server);
        Ok(())
    }

    /// Sends a message that is computed, which is repeated later.
    pub fn begin(&mut self) {
        self.repeated = self.stock[0].clone();
        let _ = self.sockets[self.repeated.0].send(&self.repeated.1);
    }

    /// Sends the next datagram of a kind. Returns how many were sent.
    pub fn send(&mut self, kind: Kind, nth: usize) -> u64 {
        let what = match kind {
            Kind::Mixed => [Kind::Repeated, Kind::Unknown, Kind::Garbage, Kind::Forged][nth % 4],
            kind => kind,
        };
        self.send_one(what, nth)
    }

    fn send_one(&mut self, kind: Kind, nth: usize) -> u64 {
        self.id = self.id.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(3);
        match kind {
            Kind::Nothing => 0,
            Kind::Unknown | Kind::Forged if self.stock.len() > 1 => {
                // Those of a mixed stock are taken in the order of their making, from both ends.
                let at = if nth.is_multiple_of(2) { self.stock.len() - 1 } else { 1 };
                let (which, message) = self.stock.swap_remove(at);
                u64::from(self.sockets[which].send(&message).is_ok())
            }
            Kind::Garbage | Kind::Mixed => {
                // A question, and a message with the proof that came on an earlier one, or random bytes.
                let which = nth % self.sockets.len();
                let mut sent = 0;
                while let Ok(len) = self.sockets[which].recv(&mut self.out) {
                    if len > SHOWN.end && self.out[20] == 2 {
                        let mut message = self.message.clone();
                        message[PROOF].copy_from_slice(&self.out[SHOWN]);
                        message[CLIENT..CLIENT + 8].copy_from_slice(&self.out[4..12]);
                        sound(&mut message);
                        sent += u64::from(self.sockets[which].send(&message).is_ok());
                        break;
                    }
                }
                let mut hello = self.hello.clone();
                if nth.is_multiple_of(5) {
                    hello.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31) ^ self.id as u8);
                } else {
                    hello[CLIENT..CLIENT + 8].copy_from_slice(&(self.id | 1).to_be_bytes());
                    sound(&mut hello);
                }
                sent + u64::from(self.sockets[which].send(&hello).is_ok())
            }
            // Also when the stock is used up.
            Kind::Repeated | Kind::Unknown | Kind::Forged => {
                let mut again = self.repeated.1.clone();
                again[NONCE..NONCE + 8].copy_from_slice(&self.id.to_be_bytes());
                sound(&mut again);
                u64::from(self.sockets[self.repeated.0].send(&again).is_ok())
            }
        }
    }
}

fn sound(datagram: &mut [u8]) {
    if let Some((body, tag)) = datagram.split_last_chunk_mut::<8>() {
        *tag = xxhash_rust::xxh3::xxh3_64(body).to_be_bytes();
    }
}
