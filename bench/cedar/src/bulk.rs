//! Section 4: much data in one direction, by parallel calls and by a stream, on a cable of 3 Mbit/s.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::process::Process;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Pin, network};
use indicatif::ProgressBar;

use crate::side::{Addresses, Said};

/// The cable's rate, as `tc` writes it, and in Mbit/s.
const RATE: &str = "3mbit";
pub const RAW_RATE: f64 = 3.0;
/// The bytes of a call: as many as one packet carries beside the headers.
pub const CALL_BYTES: usize = 1_400;
/// How long a transfer may take: some hundred times as long as the cable needs.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most by which the stream may differ from itself.
const TOLERANCE: f64 = 0.02;

/// How data is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A TCP stream.
    Stream,
    /// Calls of so many threads, each of which makes one call after the other.
    Calls(u32),
    /// The same, between ends that have keys.
    CallsWithKeys(u32),
    /// One call, whose argument is all the data.
    OneCall,
}

impl Way {
    /// All ways. The first is the one beside which the others are measured, and the second its control.
    pub const ALL: [Way; 9] = [
        Way::Stream,
        Way::Stream,
        Way::Calls(1),
        Way::Calls(2),
        Way::Calls(4),
        Way::Calls(8),
        Way::CallsWithKeys(1),
        Way::CallsWithKeys(8),
        Way::OneCall,
    ];

    /// Returns what people call it.
    pub fn name(self) -> String {
        match self {
            Way::Stream => "byte stream".into(),
            Way::Calls(1) => "calls of 1 process".into(),
            Way::Calls(threads) => format!("parallel calls of {threads} processes"),
            Way::CallsWithKeys(1) => "calls of 1 process, with keys".into(),
            Way::CallsWithKeys(threads) => format!("parallel calls of {threads} processes, with keys"),
            Way::OneCall => "1 call with all data".into(),
        }
    }

    /// Returns the order to the client, without the number of bytes.
    fn order(self) -> String {
        match self {
            Way::Stream => "stream 1".into(),
            Way::Calls(threads) => format!("calls {threads}"),
            Way::CallsWithKeys(threads) => format!("sealed {threads}"),
            Way::OneCall => "whole 1".into(),
        }
    }
}

/// What was measured of one way.
pub struct Rate {
    pub way: Way,
    /// Mbit/s of data, and how far it varied.
    pub mbits: Estimate,
    /// The rate ÷ that of the stream in neighbouring transfers. The first stream's is that to the second.
    pub to_stream: Option<Estimate>,
}

impl Rate {
    /// Returns why the measurement does not count, if this is the stream, and it does not.
    pub fn void(&self) -> Option<String> {
        let median = self.to_stream.filter(|_| self.way == Way::Stream)?.median;
        let is_off = (median - 1.0).abs() > TOLERANCE;
        is_off.then(|| format!("the byte stream is {median:.3} of itself"))
    }
}

/// Measures all ways: `groups` times two transfers of so many bytes each.
///
/// # Errors
/// When there is no cable, for example because this process may not lay one, or a transfer fails.
pub fn measure(groups: u32, bytes: usize, pin: Pin, progress: &ProgressBar) -> Result<Vec<Rate>> {
    let (_server, mut client) = ends(pin)?;
    let [anchor, others @ ..] = Way::ALL;
    let mut figures: Vec<(Vec<f64>, Vec<f64>)> = others.iter().map(|_| Default::default()).collect();
    // The first transfers let each way find its window.
    for way in Way::ALL {
        seconds(&mut client, way, bytes)?;
    }
    for _ in 0..groups {
        for (way, (mbits, ratios)) in others.iter().zip(&mut figures) {
            progress.set_message(way.name());
            let both = std::cell::RefCell::new(&mut client);
            let transfer = |way| seconds(&mut both.borrow_mut(), way, bytes);
            let [one, two] = abba(
                || transfer(anchor),
                || {
                    let seconds = transfer(*way)?;
                    mbits.push(bytes as f64 * 8.0 / seconds / 1e6);
                    Ok(seconds)
                },
            )?;
            ratios.extend([one, two].map(|ratio| 1.0 / ratio));
        }
        progress.inc(1);
    }
    let rate = |(way, (mbits, ratios)): (&Way, (Vec<f64>, Vec<f64>))| {
        let mbits = estimate(mbits).context("nothing was transferred")?;
        Ok(Rate { way: *way, mbits, to_stream: estimate(ratios) })
    };
    others.iter().zip(figures).map(rate).collect()
}

/// Starts both processes, with a cable between them.
fn ends(pin: Pin) -> Result<(Process<Said>, Process<Said>)> {
    let cores = pin.cores().unzip();
    let [mut server, mut client] = [start("server", cores.1)?, start("client", cores.0)?];
    network::connect((server.id(), client.id()), Some(RATE))?;
    let Said::Serves(addresses) = server.order(&format!("serve {}", network::SERVER))? else {
        bail!("the server does not serve");
    };
    let Addresses { stream, open, sealed } = addresses;
    client.order(&format!("connect {stream} {open} {sealed}"))?;
    Ok((server, client))
}

fn start(role: &str, core: Option<usize>) -> Result<Process<Said>> {
    let mut words = vec!["side".to_owned(), role.to_owned()];
    words.extend(core.map(|core| format!("--core={core}")));
    let mut process = network::start(&std::env::current_exe()?, &words)?;
    match process.hear().context("the process does not start")? {
        Said::Ready => Ok(process),
        said => bail!("it said {said:?}"),
    }
}

fn seconds(client: &mut Process<Said>, way: Way, bytes: usize) -> Result<f64> {
    match client.order_within(&format!("{} {bytes}", way.order()), PATIENCE).with_context(|| way.name())? {
        Said::Took(seconds) => Ok(seconds),
        said => bail!("it said {said:?}"),
    }
}
