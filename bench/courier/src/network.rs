//! The networks: loopback, and two network namespaces with a slow cable between them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use farcall_bench_method::process::Process;
use farcall_bench_method::{Pin, network};

use crate::interface::Test;
use crate::side::{Profile, Run, Said};
use crate::ways::{Addresses, Way};

/// A network between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Network {
    /// 3 Mbit/s, as between ucbkim and ucbarpa.
    #[value(name = "3")]
    Three,
    /// 10 Mbit/s, as between ucbkim and ucbrob or ucbchip.
    #[value(name = "10")]
    Ten,
    /// The machine's own loopback.
    Loopback,
}

impl Network {
    /// All networks, in the order of the tables.
    pub const ALL: [Network; 3] = [Network::Three, Network::Ten, Network::Loopback];

    /// Returns the network's name.
    pub fn name(self) -> &'static str {
        match self {
            Network::Three => "3 Mbit/s",
            Network::Ten => "10 Mbit/s",
            Network::Loopback => "loopback",
        }
    }

    fn rate(self) -> Option<&'static str> {
        match self {
            Network::Three => Some("3mbit"),
            Network::Ten => Some("10mbit"),
            Network::Loopback => None,
        }
    }
}

/// How long an order may take, besides the time that its calls take.
const ORDER: Duration = Duration::from_secs(60);
/// The longest time that lost replies may take together.
const TIMEOUTS: Duration = Duration::from_secs(900);
/// The longest time for one call that loses nothing.
const CALL: Duration = Duration::from_millis(200);

/// A server and a client, with a network between them.
pub struct Ends {
    server: Process<Said>,
    client: Process<Said>,
}

impl Ends {
    /// Starts both processes, and connects them.
    ///
    /// # Errors
    /// The network cannot be made, for example because this process may not make one.
    pub fn start(network: Network, pin: Pin) -> Result<Ends> {
        let cores = pin.cores().unzip();
        let mut server = start("server", network, cores.1)?;
        let mut client = start("client", network, cores.0)?;
        let at = match network.rate() {
            None => "127.0.0.1",
            Some(rate) => {
                network::connect((server.id(), client.id()), Some(rate))?;
                network::SERVER
            }
        };
        let Said::Serves(addresses) = server.order(&format!("serve {at}"))? else {
            bail!("the server does not serve");
        };
        tell(&mut client, &addresses)?;
        Ok(Ends { server, client })
    }

    /// Makes calls. Returns how they went, and how many of them the server has not received.
    pub fn run(&mut self, way: Way, test: Test, calls: u32) -> Result<Ran> {
        self.executed()?;
        match self.order("run", way, test, calls)? {
            Said::Ran(run) => {
                let lost = if way.loses() { run.made.saturating_sub(self.executed()?) } else { 0 };
                Ok(Ran::Ran(run, lost))
            }
            Said::Refused(why) => Ok(Ran::Refused(why)),
            said => bail!("it said {said:?}"),
        }
    }

    /// Measures where the client's processor time goes.
    pub fn profile(&mut self, way: Way, test: Test, calls: u32) -> Result<Option<Profile>> {
        match self.order("profile", way, test, calls)? {
            Said::Profiled(profile) => Ok(Some(profile)),
            Said::Refused(_) => Ok(None),
            said => bail!("it said {said:?}"),
        }
    }

    fn order(&mut self, verb: &str, way: Way, test: Test, calls: u32) -> Result<Said> {
        let order = format!("{verb} {} {} {calls}", way.name(), test.procedure());
        self.client.order_within(&order, ORDER + TIMEOUTS + CALL * calls)
    }

    /// Returns how many calls the server has executed since this was asked last.
    fn executed(&mut self) -> Result<u64> {
        match self.server.order("executed")? {
            Said::Executed(calls) => Ok(calls),
            said => bail!("it said {said:?}"),
        }
    }
}

/// How an order to make calls ended.
pub enum Ran {
    /// The calls were made, and the server has not received this many of them.
    Ran(Run, u64),
    /// They cannot be made in this way.
    Refused(String),
}

fn start(role: &str, network: Network, core: Option<usize>) -> Result<Process<Said>> {
    let itself = std::env::current_exe()?;
    let mut words = vec!["side".to_owned(), role.to_owned()];
    words.extend(core.map(|core| format!("--core={core}")));
    let mut process = match network.rate() {
        None => Process::start(&itself, &words)?,
        Some(_) => network::start(&itself, &words)?,
    };
    match process.hear().context("the process does not start")? {
        Said::Ready => Ok(process),
        said => bail!("it said {said:?}"),
    }
}

fn tell(client: &mut Process<Said>, addresses: &Addresses) -> Result<()> {
    client.order(&format!("addresses {}", serde_json::to_string(addresses)?)).map(drop)
}
