//! Honest callers of every protocol: each makes one call after the other, and each call must succeed.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farcall::key_files::Keyring;
use farcall::{Keys, Runtime, names};
use farcall_bench_secure::crowd::{self, Gate, HONEST, SERVER, identity};

use super::servers::{Doubling, DoublingClient, Places, SUBSYSTEM, Work, WorkClient};
use crate::hostile::honest::Callers;

/// How long a caller of another protocol waits between two calls, so that the processors have time left.
const CALL_PAUSE: Duration = Duration::from_millis(1);
/// How long a caller waits between two handshakes of newcomers, and between two requests of the page.
const JOIN_PAUSE: Duration = Duration::from_millis(200);
const PAGE_PAUSE: Duration = Duration::from_millis(20);
/// How many calls are made on a new connection of a protocol over TCP.
const CALLS_OF_A_CONNECTION: u64 = 200;
/// The most failures that are reported with their reasons.
const TOLD: usize = 3;

/// The kinds of callers. The ratio is that of the first [`RATED`]. The page is rather drawn than called, and
/// newcomers wait for their turn.
pub const NAMES: [&str; 9] = [
    "native",
    "native, keys",
    "ONC over UDP",
    "ONC over UDP, IPv6",
    "ONC over TCP",
    "Courier",
    "RPC2",
    "page",
    "join, keys",
];
pub const RATED: usize = 7;

/// What a caller has done.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Called {
    pub calls: u64,
    pub per_second: f64,
    pub longest: Duration,
    pub failures: Vec<String>,
}

/// The callers of one server.
pub struct All {
    native: Callers,
    keyed: Callers,
    onc: [(farcall_onc::Client, WorkClient); 2],
    places: Places,
    rpc2: DoublingClient,
    number: u16,
}

impl All {
    pub fn bind(places: &Places) -> Result<All> {
        let known = format!("* {}", identity(SERVER).public()).parse()?;
        let keyring = Keyring::new(identity(HONEST)).with_known_server(known);
        let runtime = Runtime::builder().registry(names::Memory::new()).keys(Keys::new(keyring));
        let onc = |at: SocketAddr| -> Result<_> {
            let client = farcall_onc::Client::connect(&format!("udp://{at}"))?;
            let work = client.bind::<dyn Work>();
            Ok((client, work))
        };
        Ok(All {
            native: Callers::bind(&places.open).context("native")?,
            keyed: Callers::one_of(runtime.shared_memory(false).build()?, places.keyed).context("keys")?,
            onc: [onc(places.onc[0])?, onc(places.onc[1])?],
            places: places.clone(),
            rpc2: farcall_rpc2::import::<dyn Doubling>(&format!("rpc2://{}/{SUBSYSTEM}", places.rpc2))?,
            number: 0,
        })
    }

    /// Makes all callers call for that time. Returns what each has done, in the order of [`NAMES`].
    pub fn call(&mut self, time: Duration) -> Result<Vec<Called>> {
        self.number = self.number.wrapping_add(1);
        let All { native, keyed, onc, places, rpc2, number } = self;
        let number = *number;
        std::thread::scope(|scope| {
            let native = scope.spawn(|| of(native, time));
            let keyed = scope.spawn(|| of(keyed, time));
            let udp = onc.each_ref().map(|(_, work)| {
                scope.spawn(move || {
                    repeat(time, CALL_PAUSE, || next(work, number).context("an ONC call over UDP"))
                })
            });
            let others: [(Duration, Box<dyn FnMut() -> Result<()> + Send + '_>); 5] = [
                (CALL_PAUSE, over_tcp(|| onc_tcp(places.onc_tcp), number)),
                (CALL_PAUSE, over_tcp(|| courier(places.courier), number)),
                (CALL_PAUSE, Box::new(|| double(rpc2))),
                (PAGE_PAUSE, Box::new(|| page(places))),
                (JOIN_PAUSE, Box::new(|| join(places.keyed))),
            ];
            let others = others.map(|(pause, one)| scope.spawn(move || repeat(time, pause, one)));
            let threads = [native, keyed].into_iter().chain(udp).chain(others);
            threads.map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a caller panicked"))?).collect()
        })
    }
}

/// Makes the callers of a native server call.
fn of(callers: &mut Callers, time: Duration) -> Result<Called> {
    let done = callers.call(time)?;
    let longest = done.longest.into_iter().max().unwrap_or_default();
    Ok(Called { calls: done.calls, per_second: done.rates.iter().sum(), longest, failures: done.failures })
}

/// Makes a call again and again for that time. The pauses do not count in the rate.
fn repeat(time: Duration, pause: Duration, mut one: impl FnMut() -> Result<()>) -> Result<Called> {
    let (began, mut called, mut busy) = (Instant::now(), Called::default(), Duration::ZERO);
    while began.elapsed() < time {
        let start = Instant::now();
        if let Err(why) = one() {
            let why = if called.failures.len() < TOLD { format!("{why:#}") } else { "another".into() };
            called.failures.push(why);
        }
        let took = start.elapsed();
        busy += took;
        called.longest = called.longest.max(took);
        called.calls += 1;
        std::thread::sleep(pause);
    }
    called.per_second = called.calls as f64 / busy.as_secs_f64().max(1e-9);
    Ok(called)
}

fn next(work: &WorkClient, number: u16) -> Result<()> {
    ensure!(work.next(number)? == number.wrapping_add(1), "a wrong result");
    Ok(())
}

fn double(rpc2: &DoublingClient) -> Result<()> {
    ensure!(rpc2.double(21).context("an RPC2 call")? == 42, "a wrong result");
    Ok(())
}

pub fn onc_tcp(at: SocketAddr) -> Result<WorkClient> {
    Ok(farcall_onc::Client::connect(&format!("tcp://{at}"))?.bind::<dyn Work>())
}

pub fn courier(at: SocketAddr) -> Result<WorkClient> {
    Ok(farcall_courier::import::<dyn Work>(&format!("tcp://{at}"))?)
}

/// Returns a caller that makes a new connection from time to time.
fn over_tcp<'a>(
    connect: impl Fn() -> Result<WorkClient> + Send + 'a,
    number: u16,
) -> Box<dyn FnMut() -> Result<()> + Send + 'a> {
    let (mut work, mut calls) = (None, 0);
    Box::new(move || {
        if calls % CALLS_OF_A_CONNECTION == 0 {
            work = None;
        }
        calls += 1;
        let work = match &mut work {
            Some(work) => work,
            none => none.insert(connect().context("a new connection")?),
        };
        next(work, number).context("a call over TCP")
    })
}

/// Asks for the graph, on a connection of its own.
pub fn page(places: &Places) -> Result<()> {
    let answer = exchange(places.page, &request(places, &places.token))?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "the page: {}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// Returns a request for the graph with this token.
pub fn request(places: &Places, token: &str) -> String {
    format!(
        "GET /api/graph HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n",
        places.page
    )
}

/// Sends a request and returns the answer.
fn exchange(at: SocketAddr, request: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at).context("connecting to the page")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes()).context("writing to the page")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("reading from the page")?;
    Ok(answer)
}

/// Joins the server with keys as a newcomer.
fn join(server: SocketAddr) -> Result<()> {
    let gate = Gate::new(HONEST, Vec::new())?;
    crowd::join(&mut crowd::conversation(&gate), server, Instant::now()).context("joining")?;
    Ok(())
}
