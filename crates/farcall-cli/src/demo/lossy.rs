//! The demo's bad network: calls through loss and repetition, counted on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farcall::Runtime;

use super::forward::{self, Counts};
use super::interface::{Demo, DemoClient};
use super::process::Process;
use crate::failure::Outcome;

/// Calls that are made.
const CALLS: u32 = 20_000;
/// Threads that call: most of the time each waits for a lost packet to be sent again.
const CALLERS: usize = 300;
/// Of a try and its answer one is lost with probability 0.36. Ten tries in a row are in vain once in 27,000
/// calls: too often here. Thirty are not.
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
    /// As the forwarder counted.
    pub datagrams: Arc<Counts>,
}

/// Calls through a forwarder; `direct` asks the server afterwards.
pub fn run(direct: &DemoClient, server: &Process, seed: u64) -> Outcome<Lossy> {
    let runtime = Runtime::builder().patience(PATIENCE).build()?;
    let (address, datagrams) = forward::start(server.address("address")?, seed)?;
    let demo = runtime.import::<dyn Demo>(&format!("udp://{address}/Demo/main"))?;
    let start = Instant::now();
    let answered = call_all(&demo);
    let time = start.elapsed();
    let counted = direct.counted()?;
    let (executed, repeated) = (counted.executions, counted.repeated);
    Ok(Lossy { sent: CALLS, executed, repeated, answered, time, datagrams })
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
