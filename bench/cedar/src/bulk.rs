//! Section 4: much data in one direction, by parallel calls and by a stream, on a cable of 3 Mbit/s.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall_bench_method::interleave::abba;
use farcall_bench_method::process::Process;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Pin, network};
use indicatif::ProgressBar;

use crate::side::{Addresses, Said, Transfer};

/// The cable's rate, as `tc` writes it, and in Mbit/s.
const RATE: &str = "3mbit";
pub const RAW_RATE: f64 = 3.0;
/// The bytes of a call's argument. One datagram carries them on a path of which nothing is known yet.
pub const CALL_BYTES: usize = 1_024;
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
    /// Calls of so many threads between ends that have keys.
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
    /// Mbit/s of data.
    pub mbits: f64,
    /// The bytes of the frames that the client sent, for each byte of data.
    pub sent: f64,
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
    let mut figures: Vec<Figures> = others.iter().map(|_| Figures::default()).collect();
    // The first transfers let each way find its window.
    for way in Way::ALL {
        transfer(&mut client, way, bytes)?;
    }
    for _ in 0..groups {
        for (way, figures) in others.iter().zip(&mut figures) {
            progress.set_message(way.name());
            let client = RefCell::new(&mut client);
            let ratios = abba(
                || Ok(transfer(&mut client.borrow_mut(), anchor, bytes)?.seconds),
                || {
                    let Transfer { seconds, sent } = transfer(&mut client.borrow_mut(), *way, bytes)?;
                    figures.mbits.push(bytes as f64 * 8.0 / seconds / 1e6);
                    figures.sent.push(sent as f64 / bytes as f64);
                    Ok(seconds)
                },
            )?;
            // A rate is the inverse of a time.
            figures.ratios.extend(ratios.map(|ratio| 1.0 / ratio));
        }
        progress.inc(1);
    }
    others.into_iter().zip(figures).map(|(way, figures)| figures.rate(way)).collect()
}

/// What was measured of one way, transfer by transfer.
#[derive(Default)]
struct Figures {
    mbits: Vec<f64>,
    sent: Vec<f64>,
    ratios: Vec<f64>,
}

impl Figures {
    fn rate(self, way: Way) -> Result<Rate> {
        let median = |values| estimate(values).map(|estimate| estimate.median);
        Ok(Rate {
            way,
            mbits: median(self.mbits).context("nothing was transferred")?,
            sent: median(self.sent).context("nothing was transferred")?,
            to_stream: estimate(self.ratios),
        })
    }
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

fn transfer(client: &mut Process<Said>, way: Way, bytes: usize) -> Result<Transfer> {
    match client.order_within(&format!("{} {bytes}", way.order()), PATIENCE).with_context(|| way.name())? {
        Said::Took(transfer) => Ok(transfer),
        said => bail!("it said {said:?}"),
    }
}
