//! A server and a client: on one machine, or in two network namespaces.

use anyhow::{Context, Result, bail};
use farcall_bench_method::process::Process;
use farcall_bench_method::{Pin, network};

use crate::local::Body;
use crate::side::{Order, Run, Said};
use crate::ways::{Language, Size, Way};

/// Where the server is, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the same machine, over loopback.
    Local,
    /// In another network namespace, by a cable (veth) without a limit to its rate.
    Remote,
}

impl Place {
    /// Both places, in the order of table 3.
    pub const ALL: [Place; 2] = [Place::Local, Place::Remote];

    /// Returns the paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Place::Local => "Local",
            Place::Remote => "Remote",
        }
    }
}

/// A server and a client.
pub struct Ends {
    pub server: Process<Said>,
    pub client: Process<Said>,
}

impl Ends {
    /// Starts both, and connects them.
    ///
    /// # Errors
    /// A process does not start, or the cable cannot be laid.
    pub fn start(place: Place, pin: Pin) -> Result<Ends> {
        let cores = pin.cores().unzip();
        let (mut server, mut client) = (start(place, cores.1)?, start(place, cores.0)?);
        let at = match place {
            Place::Local => "127.0.0.1",
            Place::Remote => {
                network::connect((server.id(), client.id()), None)?;
                network::SERVER
            }
        };
        let Said::Serves(addresses) = order(&mut server, Order::Serve(at.parse()?))? else {
            bail!("the server does not serve");
        };
        order(&mut client, Order::Connect(addresses))?;
        Ok(Ends { server, client })
    }

    /// Makes calls.
    pub fn run(&mut self, way: Way, size: Size, calls: u32) -> Result<Run> {
        ran(order(&mut self.client, Order::Run(way, size, calls))?)
    }

    /// Executes a loop of local calls in the client.
    pub fn local(&mut self, language: Language, body: Body, iterations: u32) -> Result<Run> {
        ran(order(&mut self.client, Order::Local(language, body, iterations))?)
    }

    /// Returns the processor time of the server so far, in seconds.
    pub fn spent(&mut self) -> Result<f64> {
        match order(&mut self.server, Order::Spent)? {
            Said::Spent(seconds) => Ok(seconds),
            said => bail!("it said {said:?}"),
        }
    }

    /// Makes calls for this long, while something else is done. Returns what both gave.
    pub fn run_while<T>(
        &mut self,
        way: Way,
        milliseconds: u64,
        other: impl FnOnce(&mut Ends) -> Result<T>,
    ) -> Result<(Run, T)> {
        self.client.tell(&serde_json::to_string(&Order::Repeat(way, milliseconds))?)?;
        let other = other(self);
        // The answer must be heard in any case, or it is taken for that to the next order.
        let run = ran(self.client.hear()?)?;
        Ok((run, other?))
    }
}

fn ran(said: Said) -> Result<Run> {
    match said {
        Said::Ran(run) => Ok(run),
        said => bail!("it said {said:?}"),
    }
}

fn order(process: &mut Process<Said>, order: Order) -> Result<Said> {
    process.order(&serde_json::to_string(&order)?)
}

fn start(place: Place, core: Option<usize>) -> Result<Process<Said>> {
    let itself = std::env::current_exe()?;
    let mut words = vec!["side".to_owned()];
    words.extend(core.map(|core| format!("--core={core}")));
    let mut process = match place {
        Place::Local => Process::start(&itself, &words)?,
        Place::Remote => network::start(&itself, &words)?,
    };
    match process.hear().context("the process does not start")? {
        Said::Ready => Ok(process),
        said => bail!("it said {said:?}"),
    }
}
