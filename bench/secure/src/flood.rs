//! Honest callers beside a flood of forged first packets, at the most that one core can send.
//!
//! The server is a process of its own with default settings and keys. The flood is another one. It sends what
//! a client sends first, taken from conversations with another server that has the same key: the question who
//! answers, a handshake's first message with a proof of another incarnation, a resumption with a ticket of
//! another incarnation, and a sealed call with such a ticket. Each datagram has another client's identifier
//! and a right checksum. Beside the honest calls, and in turn with them, a bare ping-pong is measured at a
//! socket of its own, which the flood does not reach.
use std::io::BufRead;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farcall::key_files::{Identity, Keyring};
use farcall::{Keys, Runtime, names};
use farcall_bench_method::process::{self, Answer, Process, say};
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{alloc, conditions};

use crate::world;

/// The fraction of the ping-pong's share that honest callers must keep.
const LEAST_RATIO: f64 = 0.8;

/// How long calls, or the ping-pong, are measured at a time.
const SPELL: Duration = Duration::from_secs(1);

/// The longest time that the ping-pong waits for a datagram. One that is lost is sent again.
const LOST: Duration = Duration::from_millis(100);

#[farcall::interface]
pub trait Target {
    /// The null call.
    #[procedure(1)]
    fn null(&self) -> farcall::Result<()>;
}

pub struct Procedures;

impl Target for Procedures {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub struct Flood {
    /// How often calls and ping-pong are measured beside the flood and without it.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// At most how many datagrams the flood has in a second; 0: as many as one core can send.
    #[arg(long, default_value_t = 0)]
    rate: u64,
}

#[derive(Debug, clap::Args)]
pub struct Side {
    role: Role,
    /// The core to stay on.
    #[arg(long)]
    core: usize,
    /// The server's address, and that of the ping-pong's other end.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<SocketAddr>,
    #[arg(long, default_value_t = 0)]
    rate: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Role {
    Server,
    Honest,
    Flood,
}

/// The answers of such a process.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Said {
    Ready(Vec<SocketAddr>),
    /// The bytes that the server's process has allocated.
    Kept(i64),
    /// Round trips in a second, and the calls that failed.
    Rate(f64, Vec<String>),
    /// Datagrams that were sent, and answers that a handshake was computed for.
    Sent(u64, u64),
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
pub fn run(flood: &Flood) -> Result<()> {
    let mut server = start("server", 1, &[], 0)?;
    let Said::Ready(servers) = server.hear()? else { bail!("the server is not ready") };
    let mut honest = start("honest", 1, &servers, 0)?;
    honest.hear()?;
    let mut hostile = start("flood", 0, &servers, flood.rate)?;
    hostile.hear()?;
    let [mut calls, mut pings] = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    let (mut failed, mut made, mut sent, mut answered) = (Vec::new(), 0.0, 0, 0);
    honest.order("call")?;
    let before = kept(&mut server)?;
    for round in 0..flood.rounds {
        for beside in [round % 2 == 0, round % 2 != 0] {
            if beside {
                hostile.tell("begin")?;
            }
            for (what, rates) in [("call", &mut calls), ("ping", &mut pings)] {
                let Said::Rate(rate, why) = honest.order(what)? else { bail!("no rate") };
                rates[usize::from(beside)].push(rate);
                made += if what == "call" { rate * SPELL.as_secs_f64() } else { 0.0 };
                failed.extend(why);
            }
            if beside {
                let Said::Sent(datagrams, computed) = hostile.order("end")? else { bail!("nothing sent") };
                (sent, answered) = (sent + datagrams, answered + computed);
            }
        }
    }
    let after = kept(&mut server)?;
    let share = |rates: &[Vec<f64>; 2]| -> Vec<f64> {
        rates[1].iter().zip(&rates[0]).map(|(beside, quiet)| beside / quiet).collect()
    };
    let (of_calls, of_pings) = (share(&calls), share(&pings));
    let ratios = of_calls.iter().zip(&of_pings).map(|(calls, pings)| calls / pings).collect();
    let middle = |rates: &[f64]| shown(estimate(rates.to_vec()));
    println!(
        "flood of forged first packets: {:.0} a second in {} spells of {SPELL:?}, {sent} in all; of the answers that \
         came back {answered} needed a handshake; the server kept {} bytes more than before",
        sent as f64 / (2.0 * SPELL.as_secs_f64() * flood.rounds as f64),
        2 * flood.rounds,
        after - before
    );
    println!(
        "honest null calls a second: {} quiet, {} beside the flood, share {}; {made:.0} calls, {} failed",
        middle(&calls[0]),
        middle(&calls[1]),
        middle(&of_calls),
        failed.len()
    );
    println!(
        "bare ping-pong at a socket of its own: {} quiet, {} beside the flood, share {}",
        middle(&pings[0]),
        middle(&pings[1]),
        middle(&of_pings)
    );
    let ratio = estimate(ratios);
    println!("the callers' share in proportion to the ping-pong's: {}", shown(ratio));
    conditions::conditions(&[]).iter().for_each(|line| println!("{line}"));
    failed.iter().take(5).for_each(|why| println!("failed: {why}"));
    ensure!(failed.is_empty(), "{} honest calls failed", failed.len());
    let median = ratio.map_or(0.0, |ratio| ratio.median);
    ensure!(median >= LEAST_RATIO, "honest callers keep {median:.3} of the ping-pong's share");
    Ok(())
}

fn shown(estimate: Option<Estimate>) -> String {
    estimate.map_or("?".into(), |e| format!("{:.3} [{:.3}, {:.3}]", e.median, e.low, e.high))
}

fn kept(server: &mut Process<Said>) -> Result<i64> {
    match server.order("look")? {
        Said::Kept(bytes) => Ok(bytes),
        said => bail!("the server says {said:?}"),
    }
}

fn start(role: &str, core: usize, servers: &[SocketAddr], rate: u64) -> Result<Process<Said>> {
    let mut words = vec!["side".into(), role.into(), format!("--core={core}"), format!("--rate={rate}")];
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    words.extend((!servers.is_empty()).then(|| format!("--servers={}", servers.join(","))));
    Process::start(&std::env::current_exe()?, &words)
}

/// Runs one side, until standard input ends.
pub fn side(side: &Side) -> Result<()> {
    process::stay_on(side.core)?;
    let ran = match side.role {
        Role::Server => serve(),
        Role::Honest => call(side),
        Role::Flood => send(side),
    };
    ran.or_else(|why| say(&Said::Failed(format!("{why:#}"))))
}

/// Returns the keys of both ends. They are secret from nobody.
fn keys() -> Result<Keys> {
    let identity = Identity::from_entropy([7; 32]);
    let public = identity.public();
    let keyring = Keyring::new(identity)
        .with_authorized_key(format!("{public} bench").parse()?)?
        .with_known_server(format!("* {public}").parse()?);
    Ok(Keys::new(keyring))
}

fn serve() -> Result<()> {
    alloc::counting(true);
    let runtime = Runtime::builder().registry(names::Memory::new()).keys(keys()?).build()?;
    let _export = runtime.export::<dyn Target>("Target", Arc::new(Procedures))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = runtime.address().context("the server has no address")?;
    let target = SocketAddr::from(([127, 0, 0, 1], address.port()));
    say(&Said::Ready(vec![target, socket.local_addr()?]))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&Said::Kept(alloc::live_bytes()))?;
    }
    Ok(())
}

/// Makes honest calls, or plays ping-pong, for a spell.
fn call(side: &Side) -> Result<()> {
    let [server, echo] = side.servers[..] else { bail!("two addresses") };
    let runtime = Runtime::builder().registry(names::Memory::new()).keys(keys()?).build()?;
    let target = runtime.import::<dyn Target>(&format!("udp://{server}/Target"))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(echo)?;
    socket.set_read_timeout(Some(LOST))?;
    say(&Said::Ready(Vec::new()))?;
    for line in std::io::stdin().lock().lines() {
        let (line, began) = (line?, Instant::now());
        let (mut count, mut failed) = (0, Vec::new());
        while began.elapsed() < SPELL {
            if line == "call" {
                match target.null() {
                    Ok(()) => count += 1,
                    Err(why) => failed.push(why.to_string()),
                }
                continue;
            }
            // As long as the datagrams of a null call.
            let mut ping = [7; 68];
            socket.send(&ping)?;
            count += u64::from(socket.recv(&mut ping).is_ok());
        }
        say(&Said::Rate(count as f64 / began.elapsed().as_secs_f64(), failed))?;
    }
    Ok(())
}

/// Sends forged datagrams from "begin" to "end".
fn send(side: &Side) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(side.servers[0])?;
    socket.set_nonblocking(true)?;
    let mut kinds = world::first_packets()?;
    say(&Said::Ready(Vec::new()))?;
    let (orders, hear) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = orders.send(line);
        }
    });
    let mut identifier = 1_u64;
    while hear.recv().is_ok() {
        let (began, mut sent, mut computed) = (Instant::now(), 0_u64, 0);
        let mut answer = [0; 2048];
        while hear.try_recv().is_err() {
            for kind in &mut kinds {
                for _ in 0..16 {
                    identifier = identifier.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    kind.forge(identifier);
                    sent += u64::from(socket.send(kind.bytes()).is_ok());
                    identifier = identifier.wrapping_add(2);
                }
            }
            // Only some of the answers are looked at. Reading all takes time in which the flood could send.
            if socket.recv(&mut answer).is_ok() {
                computed += u64::from(answer[1] > 1);
            }
            while side.rate > 0 && sent as f64 > began.elapsed().as_secs_f64() * side.rate as f64 {
                std::hint::spin_loop();
            }
        }
        say(&Said::Sent(sent, computed))?;
    }
    drop(reader);
    Ok(())
}
