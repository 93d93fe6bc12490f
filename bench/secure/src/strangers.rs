//! Honest clients that join beside strangers who ask a server with keys for handshakes without end.
//!
//! The server is a process of its own with default settings, keys and an authority. The strangers are another
//! process with sockets at many addresses, the clients a third one. Clients join at fixed times, whatever
//! became of those before (an open loop): newcomers, and clients that keep the ticket of a conversation and
//! come from another port.
use std::io::BufRead;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farcall::key_files::Keyring;
use farcall::{Keys, Runtime, names};
use farcall_bench_method::conditions;
use farcall_bench_method::process::{Answer, Process, say};
use farcall_bench_secure::crowd::{
    AUTHORITY, Crowd, Gate, HONEST, KINDS, Kind, NAME, PATIENCE, SERVER, conversation, identity, join,
};

use crate::flood::{Procedures, Target};

/// The longest times in which 99 of 100 clients join.
const KNOWN: Duration = Duration::from_millis(500);
const NEW: Duration = Duration::from_secs(2);
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

fn ask(side: &Side) -> Result<()> {
    let addresses: Vec<IpAddr> = if side.server.is_ipv4() {
        (2..10).map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host))).collect()
    } else {
        let at = |host: u128| Ipv6Addr::from(0x2001_0db8_0007_u128 << 80 | host << 64 | 1);
        (0..1_000).map(|host| IpAddr::V6(at(host))).collect()
    };
    let mut crowd = Crowd::new(&addresses, side.server)?;
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
            crowd.prepare(kind, (side.rate * side.seconds) as usize)?;
            say(&Said::Ready(side.server))?;
            continue;
        }
        let sent = send(&mut crowd, kind, side.rate, &hear);
        say(&Said::Sent(sent))?;
    }
    Ok(())
}

/// Sends until it is told to end. Returns how many datagrams were sent.
fn send(crowd: &mut Crowd, kind: Kind, rate: u64, hear: &Receiver<String>) -> u64 {
    let (began, mut sent, mut nth) = (Instant::now(), 0_u64, 0_usize);
    crowd.begin();
    while hear.try_recv().is_err() {
        std::thread::sleep(Duration::from_millis(1));
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        while kind != Kind::Nothing && sent < due.min(sent + 1_000) {
            nth += 1;
            sent += crowd.send(kind, nth);
        }
    }
    sent
}
