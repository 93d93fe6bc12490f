//! The processes that take part: the servers, the honest callers, and the load, hostile or well-formed.
use std::io::BufRead;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall_bench_method::counters::processor_time;
use farcall_bench_method::process::{self, Answer, Process, say};

use super::harm::Kind;
use super::honest::Callers;
use super::load::Load;
use super::target::Server;

/// The command line of such a process. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {
    role: Role,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// Some addresses are not loopback addresses.
    #[arg(long)]
    outside: bool,
    /// The addresses of the attacked server.
    #[arg(long, value_delimiter = ',')]
    attacked: Vec<SocketAddr>,
    /// The addresses of the other server.
    #[arg(long, value_delimiter = ',')]
    spared: Vec<SocketAddr>,
    /// The kinds of hostile datagrams.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Role {
    Server,
    Honest,
    Load,
}

/// The answers of such a process.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Said {
    /// The process is ready, and says so without an order. A server also sends its address.
    Ready(Vec<SocketAddr>),
    /// The process has done what it was ordered to do.
    Done(Done),
    Failed(String),
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// What was done in a phase.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Done {
    /// The calls that each caller made per second.
    pub rates: Vec<f64>,
    /// The number of these calls.
    pub calls: u64,
    /// The number of failed calls, and the reasons.
    pub failures: Vec<String>,
    /// The longest call of each kind.
    pub longest: Vec<Duration>,
    /// What the load has sent.
    pub datagrams: u64,
    pub bytes: u64,
    /// The conversations that hostile clients began, and the connections for shared memory that they opened.
    pub met: u64,
    pub connected: u64,
    /// The calls of the well-formed load that did not return a result.
    pub lost: u64,
    /// The processor time of the process and of the server.
    pub processor: Duration,
    pub server: Duration,
}

/// A side, as the bench sees it.
pub struct Remote {
    process: Process<Said>,
    pub addresses: Vec<SocketAddr>,
}

impl Remote {
    pub fn start(words: Vec<String>) -> Result<Remote> {
        let mut process = Process::start(&std::env::current_exe()?, &words)?;
        match process.hear()? {
            Said::Ready(addresses) => Ok(Remote { process, addresses }),
            said => bail!("it is not ready, but says {said:?}"),
        }
    }

    /// Orders the process to do something that takes time. The caller must then call [`done`](Remote::done).
    pub fn begin(&mut self, order: &str, time: Duration) -> Result<()> {
        self.process.tell(&format!("{order} {}", time.as_millis()))
    }

    pub fn done(&mut self) -> Result<Done> {
        match self.process.hear()? {
            Said::Done(done) => Ok(done),
            said => bail!("it is not done, but says {said:?}"),
        }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Returns the arguments that start a side of these two servers.
pub fn words(role: &str, outside: bool, core: Option<usize>, servers: &[&[SocketAddr]]) -> Vec<String> {
    let mut words = vec!["hostile-side".to_owned(), role.to_owned()];
    words.extend(outside.then(|| "--outside".to_owned()));
    words.extend(core.map(|core| format!("--core={core}")));
    for (name, addresses) in ["attacked", "spared"].into_iter().zip(servers) {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        words.push(format!("--{name}={}", addresses.join(",")));
    }
    words
}

/// Runs one side, until standard input ends.
pub fn main(side: &Side) -> Result<()> {
    if let Some(core) = side.core {
        process::stay_on(core)?;
    }
    let ran = match side.role {
        Role::Server => serve(side),
        Role::Honest => call(side),
        Role::Load => load(side),
    };
    ran.or_else(|why| say(&Said::Failed(format!("{why:#}"))))?;
    // Exits without joining a thread that waits.
    std::process::exit(0);
}

fn serve(side: &Side) -> Result<()> {
    let server = Server::start(side.outside)?;
    say(&Said::Ready(server.addresses(side.outside)?))?;
    obey(|order, _| bail!("unknown order {order:?}"))
}

fn call(side: &Side) -> Result<()> {
    let (mut attacked, mut spared) = (Callers::bind(&side.attacked)?, Callers::bind(&side.spared)?);
    say(&Said::Ready(Vec::new()))?;
    obey(|order, time| match order {
        "attacked" => attacked.call(time),
        "spared" => spared.call(time),
        _ => bail!("unknown order {order:?}"),
    })
}

fn load(side: &Side) -> Result<()> {
    let mut load = Load::new(&side.attacked, &side.spared, &side.kinds)?;
    say(&Said::Ready(Vec::new()))?;
    obey(|order, time| {
        if let Some(rate) = order.strip_prefix("harm=") {
            return load.harm(rate.parse()?, time);
        }
        match order {
            "formed" => load.formed(time),
            _ => bail!("unknown order {order:?}"),
        }
    })
}

/// Executes orders, line by line: a word and milliseconds.
fn obey(mut does: impl FnMut(&str, Duration) -> Result<Done>) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (order, time) = line.split_once(' ').context("an order is a word and a time")?;
        let before = processor_time();
        let done = does(order, Duration::from_millis(time.parse()?))?;
        let processor = Duration::from_nanos(processor_time() - before);
        say(&Said::Done(Done { processor, ..done }))?;
    }
    Ok(())
}
