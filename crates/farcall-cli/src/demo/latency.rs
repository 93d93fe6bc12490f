//! The cost of a call compared with a bare UDP exchange of the same bytes between the same processes.
//!
//! Blocks of calls and of exchanges alternate as a, b, b, a, so that a change in the machine's speed affects
//! both alike. A ratio is the median over the pairs of neighbours, with its 95 % interval from order
//! statistics. Where the system can, each of the two processes is bound to a processor. Otherwise the
//! scheduler may run both on one processor, which is faster for one exchange at a time but not typical.

use std::ffi::OsStr;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farcall::Runtime;
use serde_json::{Value, json};

use super::interface::{Demo, DemoClient};
use super::pin;
use super::process::Process;
use crate::failure::{Failure, Outcome};
use crate::text::rounded;

/// The server that is called.
const NAME: &str = "Demo/timed";
/// The sizes of arguments and of results in bytes.
const SIZES: [usize; 3] = [0, 400, 4000];
/// The number of pairs of blocks for each size. With 40 pairs, the interval is from the 14th to the 27th
/// ratio.
const PAIRS: usize = 40;
/// The number of laps of a block. A lap is one call or one bare exchange.
const LAPS: usize = 150;
/// The number of laps before the first block that counts.
const WARM_UP: usize = 300;

/// The measurement for one size.
pub struct Measured {
    pub bytes: usize,
    pub call: Laps,
    pub raw: Laps,
    /// The low end, the median and the high end of the ratio of call to raw.
    pub ratio: [f64; 3],
}

/// The durations of laps, ascending.
pub struct Laps(Vec<Duration>);

/// The measurements, and their conditions.
pub struct Latency {
    pub measured: Vec<Measured>,
    /// The processors of client and server, or `none`.
    pub pin: String,
}

pub fn run() -> Outcome<Latency> {
    let pair = pin::two();
    let mut arguments = vec!["server".to_owned(), NAME.to_owned()];
    arguments.extend(pair.iter().map(|[_, server]| format!("--processor={server}")));
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let server = Process::start(&arguments)?;
    // A new thread measures, with a new runtime: only this thread, and no thread of another runtime, is bound
    // to the processor.
    let measuring = std::thread::spawn(move || -> Outcome<_> {
        pair.iter().for_each(|[client, _]| pin::pin(*client));
        // Calls use no shared memory, because there is no bare exchange to compare it with.
        let runtime = Runtime::builder().shared_memory(false).build()?;
        all(&runtime.import::<dyn Demo>(NAME)?, server.address("raw")?)
    });
    let measured = measuring.join().unwrap_or_else(|_| Err(Failure::new("measuring failed")))?;
    let pin = pair.map_or_else(|| "none".to_owned(), |[client, server]| format!("{client},{server}"));
    Ok(Latency { measured, pin })
}

fn all(demo: &DemoClient, raw: SocketAddr) -> Outcome<Vec<Measured>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(raw)?;
    // Loopback loses nothing, but a demo must not hang.
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    SIZES.into_iter().map(|bytes| measure(demo, &socket, bytes)).collect()
}

fn measure(demo: &DemoClient, socket: &UdpSocket, bytes: usize) -> Outcome<Measured> {
    let payload = vec![7; bytes];
    let mut buffer = vec![0; bytes.max(1)];
    let mut call = || -> Outcome {
        match bytes {
            0 => demo.null()?,
            _ => drop(demo.echo(&payload)?),
        }
        Ok(())
    };
    let mut raw = || -> Outcome {
        socket.send(&payload)?;
        match socket.recv(&mut buffer)? {
            length if length == bytes => Ok(()),
            length => Err(Failure::new(format!("{bytes} bytes came back as {length}"))),
        }
    };
    let (mut calls, mut raws, mut ratios) = (Vec::new(), Vec::new(), Vec::with_capacity(PAIRS));
    block(&mut call, WARM_UP, &mut Vec::new())?;
    block(&mut raw, WARM_UP, &mut Vec::new())?;
    for pair in 0..PAIRS {
        let (ours, bare) = match pair % 2 {
            0 => {
                let bare = block(&mut raw, LAPS, &mut raws)?;
                (block(&mut call, LAPS, &mut calls)?, bare)
            }
            _ => (block(&mut call, LAPS, &mut calls)?, block(&mut raw, LAPS, &mut raws)?),
        };
        ratios.push(ours / bare);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = [ratios[13], (ratios[19] + ratios[20]) / 2.0, ratios[26]];
    Ok(Measured { bytes, call: Laps::new(calls), raw: Laps::new(raws), ratio })
}

/// Runs one block. Returns the mean of the middle half of its laps, in seconds, so that a few interrupted
/// laps do not count.
fn block(lap: &mut dyn FnMut() -> Outcome, count: usize, laps: &mut Vec<Duration>) -> Outcome<f64> {
    let mut block = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        lap()?;
        block.push(start.elapsed());
    }
    laps.extend(&block);
    block.sort_unstable();
    let middle = &block[count / 4..count - count / 4];
    Ok(middle.iter().sum::<Duration>().as_secs_f64() / middle.len() as f64)
}

impl Laps {
    fn new(mut laps: Vec<Duration>) -> Laps {
        laps.sort_unstable();
        Laps(laps)
    }

    /// Returns a percentile of the laps, in microseconds: a `per_mille` of 990 is the 99th.
    pub fn us(&self, per_mille: usize) -> f64 {
        let at = (self.0.len() * per_mille / 1000).min(self.0.len() - 1);
        rounded(self.0[at].as_secs_f64() * 1e6, 2)
    }
}

impl Measured {
    /// Returns two JSON rows in the form of the benchmarks' rows: bare UDP, then calls.
    pub fn rows(&self, pin: &str) -> [Value; 2] {
        let row = |peer: &str, laps: &Laps| {
            let p50 = laps.us(500);
            json!({
                "bench": "demo", "peer": peer, "transport": "udp", "mode": "block", "bytes": self.bytes,
                "outstanding": 1, "pin": pin, "p50_us": p50, "p99_us": laps.us(990), "p999_us": laps.us(999),
                "per_second": (1e6 / p50).round(),
            })
        };
        let mut call = row("farcall", &self.call);
        let [low, median, high] = self.ratio.map(|ratio| rounded(ratio, 4));
        call["ratio"] = median.into();
        call["ratio_low"] = low.into();
        call["ratio_high"] = high.into();
        [row("raw", &self.raw), call]
    }
}
