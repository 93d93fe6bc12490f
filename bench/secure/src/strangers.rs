//! Honest clients that join beside strangers who ask a server with keys for handshakes without end.
//!
//! The server is a process of its own with default settings, keys and an authority. The strangers are another
//! process with sockets at many addresses, the clients a third one. Clients join at fixed times, whatever became
//! of those before (an open loop): newcomers, and clients that keep the ticket of a conversation and come from
//! another port.
use std::collections::HashMap;
use std::io::BufRead;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use farcall::key_files::{Grant, Identity, Keyring, Presentation, PrincipalName, Rights, Scope, Terms};
use farcall::{Keys, Runtime, names};
use farcall_base::Principal;
use farcall_bench_method::conditions;
use farcall_bench_method::process::{self, Answer, Process, say};
use farcall_proto::client::{Conversation, Event};
use farcall_proto::secure::{Accepted, Trust};
use farcall_proto::{ClientConfig, Time};
use zeroize::Zeroizing;

use crate::flood::{Procedures, Target};

const NAME: &str = "Target";
/// The identities of the server, of honest clients, of strangers and of the authority. They are secret from
/// nobody.
const SERVER: u8 = 7;
const HONEST: u8 = 3;
const STRANGER: u8 = 9;
const AUTHORITY: u8 = 11;

/// The longest times in which 99 of 100 clients join.
const KNOWN: Duration = Duration::from_millis(500);
const NEW: Duration = Duration::from_secs(2);
/// When a client that has not joined counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most of a processor that the server takes for strangers.
const MOST_PROCESSOR: f64 = 2.0 / 3.0;

#[derive(Debug, clap::Args)]
pub struct Strangers {
    /// How many seconds clients join, beside each kind of stranger.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many datagrams all strangers send in a second.
    #[arg(long, default_value_t = 12_000)]
    rate: u64,
    /// How many clients join in a second: as many newcomers as others.
    #[arg(long, default_value_t = 40)]
    joins: u64,
    /// Prints one line of JSON for each row, too.
    #[arg(long)]
    json: bool,
    /// Set in the run in a network of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Debug, clap::Args)]
pub struct Side {
    role: Role,
    #[arg(long)]
    server: SocketAddr,
    #[arg(long, default_value_t = 0)]
    rate: u64,
    #[arg(long, default_value_t = 0)]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Role {
    Server,
    Honest,
    Strangers,
}

/// What strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

const KINDS: [(&str, Kind); 6] = [
    ("nothing", Kind::Nothing),
    ("repeated", Kind::Repeated),
    ("unknown", Kind::Unknown),
    ("forged", Kind::Forged),
    ("garbage", Kind::Garbage),
    ("mixed", Kind::Mixed),
];

#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Said {
    Ready(SocketAddr),
    /// The microseconds that clients took to join, and how many did not: newcomers, and those that have been
    /// here before.
    Joined([Vec<u64>; 2], [u64; 2]),
    Sent(u64),
    Failed(String),
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// Measures, prints, and fails if a requirement is not met.
pub fn run(strangers: &Strangers) -> Result<()> {
    if !strangers.inside {
        use std::os::unix::process::CommandExt;
        let prepare = "ip link set lo up && ip -6 address add 2001:db8:1::1/128 dev lo nodad && \
                       ip -6 route add local 2001:db8:7::/48 dev lo && \
                       echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind && exec \"$0\" \"$@\" --inside";
        let why = std::process::Command::new("unshare")
            .args(["-n", "sh", "-c", prepare])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .exec();
        bail!("there is no network of its own, which takes root and unshare: {why}");
    }
    let mut failures = Vec::new();
    for (place, server) in [
        ("8 loopback addresses", SocketAddr::from(([127, 0, 0, 1], 0))),
        ("1,000 addresses of a /48", "[2001:db8:1::1]:0".parse()?),
    ] {
        measure(strangers, place, server, &mut failures)?;
    }
    conditions::conditions(&[]).iter().for_each(|line| println!("{line}"));
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

fn measure(strangers: &Strangers, place: &str, server: SocketAddr, failures: &mut Vec<String>) -> Result<()> {
    let mut serving = start("server", server, strangers)?;
    let Said::Ready(server) = serving.hear()? else { bail!("the server is not ready") };
    let mut honest = start("honest", server, strangers)?;
    honest.hear()?;
    let mut hostile = start("strangers", server, strangers)?;
    hostile.hear()?;
    let mut idle = 0.0;
    for (name, kind) in KINDS {
        hostile.order_within(&format!("prepare {name}"), Duration::from_secs(120))?;
        hostile.tell("begin")?;
        let before = processor(serving.id());
        let began = Instant::now();
        let joined = honest.order_within("join", Duration::from_secs(strangers.seconds) + 2 * PATIENCE)?;
        let busy = (processor(serving.id()) - before).as_secs_f64() / began.elapsed().as_secs_f64();
        let Said::Sent(sent) = hostile.order_within("end", PATIENCE)? else { bail!("nothing was sent") };
        let rate = sent as f64 / began.elapsed().as_secs_f64();
        let Said::Joined(mut times, lost) = joined else { bail!("nobody joined") };
        times.iter_mut().for_each(|times| times.sort_unstable());
        let at = |which: usize, part: f64| {
            let times: &Vec<u64> = &times[which];
            let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            Duration::from_micros(times.get(at).copied().unwrap_or(u64::MAX))
        };
        idle = if kind == Kind::Nothing { busy } else { idle };
        println!(
            "{place}, {name}: {rate:.0} datagrams a second; newcomers: {} joined, half in {:?}, 99 of 100 in {:?}, all \
             in {:?}, {} failed; been here before: {} joined, half in {:?}, 99 of 100 in {:?}, all in {:?}, {} failed; \
             the server's processor {busy:.2}, {:.2} more than beside nothing",
            times[0].len(),
            at(0, 0.5),
            at(0, 0.99),
            at(0, 1.0),
            lost[0],
            times[1].len(),
            at(1, 0.5),
            at(1, 0.99),
            at(1, 1.0),
            lost[1],
            busy - idle
        );
        if strangers.json {
            let row = serde_json::json!({
                "bench": "strangers", "place": place, "kind": name, "rate": rate.round(),
                "new_p50_us": at(0, 0.5).as_micros() as u64, "new_p99_us": at(0, 0.99).as_micros() as u64,
                "known_p50_us": at(1, 0.5).as_micros() as u64, "known_p99_us": at(1, 0.99).as_micros() as u64,
                "joined": times[0].len() + times[1].len(), "failed": lost[0] + lost[1], "processor": busy - idle,
            });
            println!("{row}");
        }
        let mut must = |is: bool, what: String| {
            if !is {
                failures.push(format!("{place}, {name}: {what}"));
            }
        };
        must(lost == [0, 0], format!("{lost:?} clients did not join"));
        must(at(0, 0.99) <= NEW, format!("newcomers take {:?}", at(0, 0.99)));
        must(at(1, 0.99) <= KNOWN, format!("those who have been here before take {:?}", at(1, 0.99)));
        must(busy - idle <= MOST_PROCESSOR, format!("the server takes {:.2} of a processor", busy - idle));
    }
    Ok(())
}

fn start(role: &str, server: SocketAddr, strangers: &Strangers) -> Result<Process<Said>> {
    let rate = if role == "honest" { strangers.joins } else { strangers.rate };
    let words =
        ["strangers-side".into(), role.into(), format!("--server={server}"), format!("--rate={rate}")];
    let words = [&words[..], &[format!("--seconds={}", strangers.seconds)]].concat();
    Process::start(&std::env::current_exe()?, &words)
}

/// Returns the processor time of a process.
fn processor(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Runs one side, until standard input ends.
pub fn side(side: &Side) -> Result<()> {
    let ran = match side.role {
        Role::Server => serve(side),
        Role::Honest => join_all(side),
        Role::Strangers => ask(side),
    };
    ran.or_else(|why| say(&Said::Failed(format!("{why:#}"))))
}

fn identity(secret: u8) -> Identity {
    Identity::from_entropy([secret; 32])
}

fn serve(side: &Side) -> Result<()> {
    let keyring = Keyring::new(identity(SERVER))
        .with_authorized_key(format!("{} honest", identity(HONEST).public()).parse()?)?
        .with_authority(identity(AUTHORITY).public());
    let runtime = Runtime::builder()
        .registry(names::Memory::new())
        .address(side.server)
        .keys(Keys::new(keyring))
        .build()?;
    let _export = runtime.export::<dyn Target>(NAME, Arc::new(Procedures))?;
    let port = runtime.address().context("the server has no address")?.port();
    say(&Said::Ready(SocketAddr::new(side.server.ip(), port)))?;
    std::io::stdin().lock().lines().for_each(drop);
    Ok(())
}

/// What a client knows of keys.
#[derive(Debug)]
struct Gate {
    keyring: Keyring,
    shows: Vec<u8>,
}

impl Gate {
    fn new(secret: u8, grants: Vec<Grant>) -> Result<Arc<Gate>> {
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

fn conversation(gate: &Arc<Gate>) -> Conversation {
    let mut id = [0; 8];
    gate.entropy(&mut id);
    let config = ClientConfig { trust: Some(gate.clone()), ..ClientConfig::default() };
    Conversation::new(config, u64::from_le_bytes(id) | 1)
}

fn now(began: Instant) -> Time {
    Time::from_nanos(1_000_000_000 + began.elapsed().as_nanos() as u64)
}

/// Has a client ask for the export's name at a socket of its own. Returns how long that took.
fn join(conversation: &mut Conversation, server: SocketAddr, clock: Instant) -> Result<Duration> {
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

/// Has clients join at fixed times, when it is told to.
fn join_all(side: &Side) -> Result<()> {
    let (clock, gate, server) = (Instant::now(), Gate::new(HONEST, Vec::new())?, side.server);
    let count = side.rate * side.seconds;
    let mut known = Vec::new();
    for _ in 0..count / 2 {
        let mut client = conversation(&gate);
        join(&mut client, server, clock)?;
        known.push(client);
    }
    say(&Said::Ready(server))?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let (began, mut joining) = (Instant::now(), Vec::new());
        let mut left = std::mem::take(&mut known);
        for nth in 0..count {
            let due = Duration::from_secs(1) / side.rate as u32 * nth as u32;
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            let before = if nth % 2 == 1 { left.pop() } else { None };
            let which = usize::from(before.is_some());
            let mut client = before.unwrap_or_else(|| conversation(&gate));
            joining.push(std::thread::spawn(move || {
                let took = join(&mut client, server, clock);
                (which, took, client)
            }));
        }
        let (mut times, mut lost) = ([Vec::new(), Vec::new()], [0, 0]);
        for joined in joining {
            let Ok((which, took, client)) = joined.join() else { bail!("a client panicked") };
            match took {
                Ok(took) => times[which].push(took.as_micros() as u64),
                Err(_) => lost[which] += 1,
            }
            if which == 1 {
                known.push(client);
            }
        }
        say(&Said::Joined(times, lost))?;
    }
    Ok(())
}

/// Where a BIND has the client, the nonce and the proof, and a WELCOME the proof.
const CLIENT: usize = 24;
const NONCE: usize = 32;
const PROOF: std::ops::Range<usize> = 52..104;
const SHOWN: std::ops::Range<usize> = 32..84;

/// The strangers.
struct Crowd {
    sockets: Vec<UdpSocket>,
    server: SocketAddr,
    clock: Instant,
    /// Datagrams to be sent, with their sockets, and a template of a question and of a message.
    stock: Vec<(usize, Vec<u8>)>,
    hello: Vec<u8>,
    message: Vec<u8>,
    out: Vec<u8>,
    id: u64,
}

fn ask(side: &Side) -> Result<()> {
    let addresses: Vec<IpAddr> = if side.server.is_ipv4() {
        (2..10).map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host))).collect()
    } else {
        let at = |host: u128| Ipv6Addr::from(0x2001_0db8_0007_u128 << 80 | host << 64 | 1);
        (0..1_000).map(|host| IpAddr::V6(at(host))).collect()
    };
    let mut sockets = Vec::new();
    for address in addresses {
        let socket = UdpSocket::bind((address, 0))?;
        socket.connect(side.server)?;
        socket.set_nonblocking(true)?;
        sockets.push(socket);
    }
    let (stock, hello, message) = Default::default();
    let (clock, out) = (Instant::now(), vec![0; 65_536]);
    let mut crowd = Crowd { sockets, server: side.server, clock, stock, hello, message, out, id: 1 };
    say(&Said::Ready(side.server))?;
    let (orders, hear) = channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).for_each(|line| drop(orders.send(line)));
    });
    let mut kind = Kind::Nothing;
    while let Ok(order) = hear.recv() {
        if let Some(name) = order.strip_prefix("prepare ") {
            let named = KINDS.iter().find(|(one, _)| *one == name);
            kind = named.map_or(Kind::Nothing, |(_, kind)| *kind);
            crowd.prepare(kind, side)?;
            say(&Said::Ready(side.server))?;
            continue;
        }
        let sent = crowd.send(kind, side.rate, &hear);
        say(&Said::Sent(sent))?;
    }
    Ok(())
}

impl Crowd {
    /// Makes handshakes ready to be sent.
    fn prepare(&mut self, kind: Kind, side: &Side) -> Result<()> {
        let all = (side.rate * side.seconds) as usize;
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

    /// Sends until it is told to end. Returns how many datagrams were sent.
    fn send(&mut self, kind: Kind, rate: u64, hear: &Receiver<String>) -> u64 {
        let (began, mut sent, mut nth) = (Instant::now(), 0_u64, 0_usize);
        // A message that was computed.
        let repeated = self.stock[0].clone();
        let _ = self.sockets[repeated.0].send(&repeated.1);
        while hear.try_recv().is_err() {
            std::thread::sleep(Duration::from_millis(1));
            let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            while kind != Kind::Nothing && sent < due.min(sent + 1_000) {
                nth += 1;
                let what = match kind {
                    Kind::Mixed => [Kind::Repeated, Kind::Unknown, Kind::Garbage, Kind::Forged][nth % 4],
                    kind => kind,
                };
                sent += self.send_one(what, nth, &repeated);
            }
        }
        sent
    }

    fn send_one(&mut self, kind: Kind, nth: usize, repeated: &(usize, Vec<u8>)) -> u64 {
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
                let mut again = repeated.1.clone();
                again[NONCE..NONCE + 8].copy_from_slice(&self.id.to_be_bytes());
                sound(&mut again);
                u64::from(self.sockets[repeated.0].send(&again).is_ok())
            }
        }
    }
}

fn sound(datagram: &mut [u8]) {
    if let Some((body, tag)) = datagram.split_last_chunk_mut::<8>() {
        *tag = xxhash_rust::xxh3::xxh3_64(body).to_be_bytes();
    }
}
