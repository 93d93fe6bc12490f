//! Handshakes: the time that each end needs, the messages, and what the server keeps between them.
use anyhow::{Context, Result, ensure};
use farcall_bench_method::counters::processor_time;
use farcall_bench_method::{Options, Row, alloc};

use crate::callgrind::{self, Count, counted_region};
use crate::interleaved::{median, ratio};
use crate::{noise, tls};

/// Handshakes of one kind in a round.
const BLOCK: usize = 20;

/// What the conditions say.
pub const METHOD: &str = "a handshake ends when both ends have expanded the keys of datagrams; payloads and \
     transport parameters are empty; ratio: the server's time to Noise IK's; kept: heap that the server asks \
     of its allocator and has between its first message and its last (not what aws-lc takes by malloc)";

/// An end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

/// One kind of handshake.
pub trait Handshake {
    fn name(&self) -> &'static str;
    /// Makes a handshake. Each end does its work in steps of `clock`.
    fn run(&mut self, clock: &mut Clock) -> Result<()>;
}

/// What is measured of handshakes.
#[derive(Default)]
pub struct Clock {
    client: u64,
    server: u64,
    /// The lengths of the messages of the latest handshake.
    pub messages: Vec<usize>,
    /// The bytes that the server has kept after its first step.
    kept: Option<i64>,
    mode: Mode,
}

#[derive(Default)]
enum Mode {
    #[default]
    Time,
    /// The server's heap.
    Heap,
    /// The instructions of one end.
    Count(&'static str),
}

impl Clock {
    fn of(mode: Mode) -> Clock {
        Clock { mode, ..Clock::default() }
    }

    /// Executes a step of one end.
    pub fn step<T>(&mut self, end: End, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (mut work, mut done) = (Some(work), None);
        let mut once = || done = work.take().map(|work| work());
        match self.mode {
            // The processor time cannot be read under valgrind.
            Mode::Count(name) if end.name() == name => counted_region(&mut once),
            Mode::Count(_) => once(),
            Mode::Heap if end == End::Server => {
                let before = alloc::live_bytes();
                alloc::counting(true);
                once();
                alloc::counting(false);
                self.kept.get_or_insert(alloc::live_bytes() - before);
            }
            Mode::Heap => once(),
            Mode::Time => {
                let began = processor_time();
                once();
                let took = processor_time() - began;
                *(if end == End::Client { &mut self.client } else { &mut self.server }) += took;
            }
        }
        done.context("the step was not executed")?
    }
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Client => "client",
            End::Server => "server",
        }
    }
}

fn all() -> Result<Vec<Box<dyn Handshake>>> {
    Ok(vec![
        Box::new(noise::Noise::new()?),
        Box::new(tls::Tls::new("TLS 1.3, ring, X25519", rustls::crypto::ring::default_provider(), None)?),
        Box::new(tls::Tls::new(
            "TLS 1.3, aws-lc, X25519",
            rustls::crypto::aws_lc_rs::default_provider(),
            Some(rustls::crypto::aws_lc_rs::kx_group::X25519),
        )?),
        Box::new(tls::Tls::new(
            "TLS 1.3, aws-lc, X25519MLKEM768",
            rustls::crypto::aws_lc_rs::default_provider(),
            Some(rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768),
        )?),
    ])
}

/// The time of each end in each round, in nanoseconds.
#[derive(Clone, Default)]
struct Times {
    client: Vec<f64>,
    server: Vec<f64>,
}

/// Measures all kinds.
pub fn rows(options: &Options) -> Result<Vec<Row>> {
    let mut kinds = all()?;
    let mut times = vec![Times::default(); kinds.len()];
    for round in 0..options.groups() {
        let order = 0..kinds.len();
        let order: Vec<usize> = if round % 2 == 0 { order.collect() } else { order.rev().collect() };
        for at in order {
            let mut clock = Clock::default();
            (0..BLOCK).try_for_each(|_| kinds[at].run(&mut clock))?;
            times[at].client.push(clock.client as f64 / BLOCK as f64);
            times[at].server.push(clock.server as f64 / BLOCK as f64);
        }
    }
    let enter = |(kind, Times { client, server }): (&mut Box<dyn Handshake>, &Times)| {
        let mut clock = Clock::of(Mode::Heap);
        kind.run(&mut clock)?;
        let lengths: Vec<String> = clock.messages.iter().map(usize::to_string).collect();
        let count = |end: End| callgrind::count("handshakes", kind.name(), end.name());
        let (by_client, by_server) = (count(End::Client)?, count(End::Server)?);
        let mut row = Row {
            bench: "handshakes".into(),
            peer: kind.name().into(),
            operation: Some("handshake".into()),
            client_per_second: median(client).map(per_second),
            server_per_second: median(server).map(per_second),
            messages: Some(lengths.join(" + ")),
            flights: Some(lengths.len()),
            kept_bytes: clock.kept,
            user_instructions: by_client.zip(by_server).map(|(client, server)| client + server),
            server_user_instructions: by_server,
            ..Row::default()
        };
        ratio(server, &times[0].server).into_iter().for_each(|ratio| row.set_ratio(ratio));
        Ok(row)
    };
    kinds.iter_mut().zip(&times).map(enter).collect()
}

fn per_second(nanoseconds: f64) -> f64 {
    (1e9 / nanoseconds).round()
}

/// Makes handshakes of which one end is counted.
pub fn count(count: &Count) -> Result<()> {
    let end = [End::Client, End::Server].into_iter().find(|end| end.name() == count.what);
    let mut clock = Clock::of(Mode::Count(end.context("no such end")?.name()));
    let mut kinds = all()?;
    let kind = kinds.iter_mut().find(|kind| kind.name() == count.part).context("no such handshake")?;
    kind.run(&mut Clock::of(Mode::Heap))?;
    (0..count.times).try_for_each(|_| kind.run(&mut clock))?;
    ensure!(!clock.messages.is_empty(), "no message was sent");
    Ok(())
}
