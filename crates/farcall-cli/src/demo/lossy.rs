//! The demo's bad network: calls through loss and repetition, counted on both sides.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farcall::Runtime;

use super::interface::{Demo, DemoClient};
use super::process::Process;
use crate::failure::{Failure, Outcome};

/// Calls that are made.
const CALLS: u32 = 20_000;
/// Threads that call: most of the time each waits for a lost packet to be sent again.
const CALLERS: usize = 300;
/// Of a hundred datagrams, each way.
pub const LOSS: u8 = 20;
pub const REPETITION: u8 = 20;
/// Of a try and its answer one is lost with probability 0.36. Ten tries in a row are in vain once in 27,000 calls: too
/// often here. Thirty are not.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of the calls.
pub struct Lossy {
    pub sent: u32,
    /// As the server counted.
    pub executed: u32,
    /// Of those, calls that were executed again.
    pub repeated: u32,
    /// With the right result.
    pub answered: u32,
    pub time: Duration,
    pub datagrams: Datagrams,
}

/// As the forwarder counted.
pub struct Datagrams {
    pub received: u64,
    pub lost: u64,
    pub repeated: u64,
}

/// Calls through a forwarder; `direct` asks the server afterwards.
pub fn run(direct: &DemoClient, server: &Process, seed: u64) -> Outcome<Lossy> {
    let runtime = Runtime::builder().patience(PATIENCE).build()?;
    let forwarder = forwarder(server, seed)?;
    let name = format!("udp://{}/Demo/main", forwarder.address("address")?);
    let demo = runtime.import::<dyn Demo>(&name)?;
    let start = Instant::now();
    let answered = call_all(&demo);
    let time = start.elapsed();
    let counted = direct.counted()?;
    let datagrams = Datagrams::told(forwarder)?;
    Ok(Lossy {
        sent: CALLS,
        executed: counted.executions,
        repeated: counted.repeated,
        answered,
        time,
        datagrams,
    })
}

/// Makes all calls, and gives the number of those that were answered rightly. One that failed shows in it.
fn call_all(demo: &DemoClient) -> u32 {
    let next = AtomicU32::new(0);
    let call_some = || {
        let numbers =
            std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)).filter(|number| *number < CALLS));
        numbers.filter(|number| demo.count(*number).is_ok_and(|result| result == *number)).count()
    };
    let answered = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call_some)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap_or(0)).sum::<usize>()
    });
    answered as u32
}

fn forwarder(server: &Process, seed: u64) -> Outcome<Process> {
    let to = server.address("address")?.to_string();
    let numbers = [seed, LOSS.into(), REPETITION.into()].map(|number| number.to_string());
    let [seed, loss, repetition] = &numbers;
    let arguments = ["forward", &to, "--seed", seed, "--loss", loss, "--repetition", repetition];
    Process::start(&arguments.map(OsStr::new))
}

impl Datagrams {
    fn told(forwarder: Process) -> Outcome<Datagrams> {
        let told = forwarder.finish()?;
        let count =
            |name: &str| told[name].as_u64().ok_or_else(|| Failure::new(format!("no {name} in {told}")));
        Ok(Datagrams { received: count("received")?, lost: count("lost")?, repeated: count("repeated")? })
    }
}
