//! The demo's bad network: calls through loss and repetition, counted on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farcall::Runtime;

use super::forward::{self, Counts};
use super::interface::{Demo, DemoClient};
use super::process::Process;
use crate::failure::Outcome;

/// The number of calls.
const CALLS: u32 = 20_000;
/// The number of calling threads. Most of the time each waits for a retransmission.
const CALLERS: usize = 300;
/// How long a call may stay unanswered: about thirty transmissions. A transmission or its answer is lost with
/// probability 0.36, so ten in a row are lost once in 27,000 calls, which is too often here.
const PATIENCE: Duration = Duration::from_secs(30);

/// The results of the calls.
pub struct Lossy {
    pub sent: u32,
    /// The number of calls that the server counted.
    pub executed: u32,
    /// The number of those calls that were executed again.
    pub repeated: u32,
    /// The number of calls with the right result.
    pub answered: u32,
    pub time: Duration,
    /// The forwarder's counts.
    pub datagrams: Arc<Counts>,
}

/// The name of a server that is called through the forwarder.
const NAME: &str = "Lossy/main";

/// Makes the calls through a forwarder, at a server of their own.
pub fn run(seed: u64, has_keys: bool) -> Outcome<Lossy> {
    // Without keys a client proves for the address to which it sends that it is of the server's user. A
    // forwarder's address is not the server's, so this server lets everybody call.
    let arguments = ["server".as_ref(), NAME.as_ref()];
    let server = match has_keys {
        true => Process::start(&arguments)?,
        false => Process::start_with(Some(("FARCALL_OPEN", "1".into())), &arguments)?,
    };
    let runtime = Runtime::builder().patience(PATIENCE).build()?;
    let direct = runtime.import::<dyn Demo>(NAME)?;
    let (address, datagrams) = forward::start(server.address("address")?, seed)?;
    let demo = runtime.import::<dyn Demo>(&format!("udp://{address}/{NAME}"))?;
    let start = Instant::now();
    let answered = call_all(&demo);
    let time = start.elapsed();
    let counted = direct.counted()?;
    let (executed, repeated) = (counted.executions, counted.repeated);
    Ok(Lossy { sent: CALLS, executed, repeated, answered, time, datagrams })
}

/// Makes all calls, and returns the number of right answers. A failed call reduces it.
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
