//! The server's memory per idle conversation.
//!
//! It runs real conversations of the protocol's core, without sockets. Simulated clients bind, make one call
//! each, and disappear. The simulated time advances until the server holds no more results; then the
//! allocator reports the remaining memory.
//!
//! With `--streams` it measures idle streams instead, of real processes (`idle/streams.rs`).
pub mod streams;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use farcall_bench_method::{Options, Row, alloc, chart, conditions, report};
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, MAX_DATAGRAM, ServerConfig, Time};
use indicatif::ProgressBar;

/// The least number of conversations. With fewer, the server's fixed memory counts too much.
const FIRST_SAMPLE: usize = 10_000;
/// The number of clients that stay, and are idle for an hour together with the server.
const STAYING: usize = 100;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
pub struct Idle {
    #[command(flatten)]
    options: Options,
    /// The number of conversations.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(FIRST_SAMPLE as i64..))]
    conversations: u32,
    /// Measures that many idle streams instead.
    #[arg(long)]
    streams: Option<usize>,
    /// The number of conversations that have the streams.
    #[arg(long, default_value_t = 100)]
    over: usize,
}

/// Measures, and shows one row.
pub fn run(idle: &Idle) -> Result<()> {
    let count = idle.conversations as usize;
    alloc::counting(true);
    if let Some(streams) = idle.streams {
        let row = streams::measure(streams, idle.over)?;
        let mut conditions = conditions::conditions(&[]);
        conditions.push("open, unencrypted; bytes as asked of the allocator; loopback; async server".into());
        return report(vec![row], &conditions, &[], &idle.options).map(drop);
    }
    let gentle = one_by_one(count)?;
    let row = Row {
        bench: "idle".into(),
        peer: "farcall".into(),
        conversations: Some(count),
        bytes_each: Some(at_once(count)?.max(gentle.last)),
        worst_bytes_each: Some(at_once(gentle.worst.0)?.max(gentle.worst.1)),
        worst_at: Some(gentle.worst.0),
        peak_bytes_each: Some(gentle.peak),
        idle_datagrams: Some(gentle.idle_datagrams),
        ..Row::default()
    };
    let mut conditions = conditions::conditions(&[]);
    conditions.push("open, unencrypted; bytes as asked of the allocator; simulated network and time".into());
    report(vec![row], &conditions, &[], &idle.options)?;
    match &idle.options.svg {
        Some(path) => {
            let axes = ("conversations", "bytes of server memory each");
            chart::line(path, "Memory of idle conversations", axes, &gentle.samples, &conditions)
        }
        None => Ok(()),
    }
}

/// The bytes per conversation, if each conversation begins when those before it are idle.
struct Gentle {
    samples: Vec<(f64, f64)>,
    last: f64,
    worst: (usize, f64),
    peak: f64,
    idle_datagrams: u64,
}

/// Measures the steps of the table: the memory for each number of conversations up to `count`, all of them
/// idle.
fn one_by_one(count: usize) -> Result<Gentle> {
    // The vector must not grow during the measurement.
    let mut samples = Vec::with_capacity(count);
    let mut world = World::new();
    let (mut last, mut worst, mut peak) = (0.0, (0, 0.0), 0.0);
    let progress = ProgressBar::new(count as u64);
    for n in 1..=count {
        world.converse()?;
        world.settle()?;
        let most = world.each(alloc::peak_bytes(), n);
        if n >= FIRST_SAMPLE {
            last = world.each(alloc::live_bytes(), n);
            samples.push((n as f64, last));
            worst = if last > worst.1 { (n, last) } else { worst };
            peak = most.max(peak);
        }
        if n % 1000 == 0 {
            progress.set_position(n as u64);
        }
    }
    progress.finish_and_clear();
    world.all_there(count)?;
    Ok(Gentle { samples, last, worst, peak, idle_datagrams: world.an_hour()? })
}

/// Returns the bytes per conversation, if all conversations were busy at the same time before they were idle.
/// Memory that the server needed then, and keeps, counts.
fn at_once(count: usize) -> Result<f64> {
    let mut world = World::new();
    for _ in 0..count {
        world.converse()?;
    }
    ensure!(world.server.held_bytes() > 0, "no result was held: they were not all busy together");
    world.settle()?;
    world.all_there(count)?;
    Ok(world.each(alloc::live_bytes(), count))
}

/// A server, the time, and the buffers through which datagrams pass.
struct World {
    server: Server,
    now: Time,
    clients: u32,
    /// The datagram that is on its way to the server, and the datagram to the client.
    up: Vec<u8>,
    down: Vec<u8>,
    /// The live bytes before the server existed.
    before: i64,
}

impl World {
    fn new() -> World {
        let now = Time::from_nanos(1_000_000_000);
        let (up, down) = (vec![0; MAX_DATAGRAM], vec![0; MAX_DATAGRAM]);
        let before = alloc::live_bytes();
        let mut server = Server::new(ServerConfig::default(), now, [7; 32]);
        let procedures = vec![farcall_proto::Fingerprint { number: 0, types: 1, name: 2 }];
        server.export(Export { id: 42, type_name: "Echo".into(), instance: String::new(), procedures });
        World { server, now, clients: 0, up, down, before }
    }

    /// Returns the part of `live` bytes that each of `count` conversations has.
    fn each(&self, live: i64, count: usize) -> f64 {
        (live - self.before) as f64 / count as f64
    }

    fn all_there(&self, count: usize) -> Result<()> {
        let (there, held) = (self.server.conversations(), self.server.held_bytes());
        ensure!(there == count, "the server remembers {there} conversations of {count}");
        ensure!(held == 0, "the server still holds {held} bytes of results");
        Ok(())
    }

    /// Adds a client, which binds and makes one call.
    fn converse(&mut self) -> Result<(SocketAddr, Conversation)> {
        self.clients += 1;
        let number = self.clients;
        // Each client has an address of its own.
        let host = Ipv4Addr::from(0x0a00_0000 + number / 50_000);
        let from = SocketAddr::from((host, 1024 + (number % 50_000) as u16));
        // Any identifiers will do that are distributed like random ones.
        let id = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut client = Conversation::new(ClientConfig::default(), id);

        client.bind(self.now, "Echo", 0);
        let bound = self.exchange(from, &mut client)?;
        let Some(Ended::Bound(export)) = bound else { bail!("client {number} could not bind") };
        let call = Call { export, procedure: 0, deadline: None, trace: None, token: 0 };
        if let Err(why) = client.start(|| self.now, &call, &mut vec![0; 32]) {
            bail!("client {number} could not start its call: {why:?}");
        }
        match self.exchange(from, &mut client)? {
            Some(Ended::Result(32)) => Ok((from, client)),
            _ => bail!("client {number} did not get its result"),
        }
    }

    /// Carries datagrams both ways until no side has any.
    fn exchange(&mut self, from: SocketAddr, client: &mut Conversation) -> Result<Option<Ended>> {
        let mut ended = None;
        loop {
            let before = self.now;
            while let Some(length) = client.transmit(self.now, &mut self.up) {
                self.now = self.now + Duration::from_micros(10);
                for datagram in self.serve(from, length) {
                    client.receive(self.now, &datagram, &mut |event| ended = Some(Ended::of(event)));
                }
            }
            if self.now == before {
                return Ok(ended);
            }
        }
    }

    /// Gives the server the datagram that is on its way, executes the calls that result (an echo), and
    /// returns the datagrams that the server sends.
    fn serve(&mut self, from: SocketAddr, length: usize) -> Vec<Vec<u8>> {
        let mut calls = Vec::new();
        self.server.receive(self.now, from, &self.up[..length], &mut |request| {
            if let Request::Call(call) = request {
                calls.push((call.key, call.args.into_owned()));
            }
        });
        let mut sent = Vec::new();
        for (key, args) in calls {
            let mut result = self.server.buffer(self.now, args.len());
            result.extend_from_slice(&args);
            let datagram = self.server.finish(self.now, key, Finish::Result, &mut result, &mut self.down);
            sent.extend(datagram.map(|datagram| self.down[..datagram.len].to_vec()));
        }
        while let Some(datagram) = self.server.transmit(self.now, &mut self.down) {
            sent.push(self.down[..datagram.len].to_vec());
        }
        sent
    }

    /// Advances the time until the server waits for nothing.
    fn settle(&mut self) -> Result<()> {
        for _ in 0..1_000 {
            let Some(due) = self.server.timeout() else {
                return Ok(());
            };
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
        }
        bail!("the server's timers never end")
    }

    /// Returns the datagrams that some clients and the server send in an hour without calls.
    fn an_hour(&mut self) -> Result<u64> {
        let mut clients = (0..STAYING).map(|_| self.converse()).collect::<Result<Vec<_>>>()?;
        let end = self.now + HOUR;
        let mut datagrams = 0;
        for _ in 0..1_000_000 {
            let timers = clients.iter().filter_map(|(_, client)| client.timeout());
            match timers.chain(self.server.timeout()).min().filter(|due| *due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => return Ok(datagrams),
            }
            self.server.handle_timeout(self.now);
            while self.server.transmit(self.now, &mut self.down).is_some() {
                datagrams += 1;
            }
            for (from, client) in &mut clients {
                client.handle_timeout(self.now, &mut |_| {});
                while let Some(length) = client.transmit(self.now, &mut self.up) {
                    datagrams += 1;
                    for datagram in self.serve(*from, length) {
                        datagrams += 1;
                        client.receive(self.now, &datagram, &mut |_| {});
                    }
                }
            }
        }
        bail!("somebody's timers never end")
    }
}

/// What a client waited for.
enum Ended {
    Bound(u64),
    Result(usize),
    Failed,
}

impl Ended {
    fn of(event: Event<'_>) -> Ended {
        match event {
            Event::Bound { answer: Ok(bound), .. } => Ended::Bound(bound.export),
            Event::Ended { outcome: Outcome::Result(bytes), .. } => Ended::Result(bytes.len()),
            _ => Ended::Failed,
        }
    }
}
