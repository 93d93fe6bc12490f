//! The processes that take part in a siege: the servers, the honest callers, the strangers, and the readers.
use std::io::BufRead;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcall_bench_method::process::{self, Answer, Process, say};

use super::callers::{All, Called};
use super::readers;
use super::servers::{Places, Servers};
use super::strangers::{self, Stranger};
use crate::hostile::harm::Kind;
use crate::hostile::load::Load;

/// How many datagrams of the kinds of `hostile` are sent in a second, and silent connections opened.
const NATIVE: f64 = 1_000.0;
/// The pause after which strangers see what is due.
const STEP: Duration = Duration::from_millis(2);
/// Descriptions of a mebibyte, which is the most, and of an ordinary size.
const LARGE: usize = 8_000;
const ORDINARY: usize = 40;

/// The command line of such a process. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {
    role: Role,
    #[arg(long)]
    core: Option<usize>,
    /// The servers that are attacked, and the others, as JSON.
    #[arg(long, default_value = "")]
    attacked: String,
    #[arg(long, default_value = "")]
    spared: String,
    /// Whether the kinds of `hostile` are among the strangers.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Role {
    Servers,
    Honest,
    Strangers,
    Readers,
}

/// The answers of such a process.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Said {
    Serving(Places),
    Ready,
    Called(Vec<Called>),
    Sent(Vec<Sent>),
    Read(readers::Done),
    Failed(String),
}

/// What strangers of a kind did.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sent {
    pub name: String,
    pub units: u64,
    /// Well-formed ones that failed.
    pub failed: u64,
}

impl Answer for Said {
    fn checked(self) -> Result<Said> {
        match self {
            Said::Failed(why) => bail!(why),
            said => Ok(said),
        }
    }
}

/// Starts a side.
pub fn start(
    role: &str,
    core: Option<usize>,
    servers: Option<[&Places; 2]>,
    without: &[String],
) -> Result<Process<Said>> {
    let mut words = vec!["siege-side".to_owned(), role.to_owned()];
    words.extend(core.map(|core| format!("--core={core}")));
    if let Some([attacked, spared]) = servers {
        words.push(format!("--attacked={}", serde_json::to_string(attacked)?));
        words.push(format!("--spared={}", serde_json::to_string(spared)?));
    }
    if !without.is_empty() {
        words.push(format!("--without={}", without.join(",")));
    }
    Process::start(&std::env::current_exe()?, &words)
}

/// Runs one side, until standard input ends.
pub fn main(side: &Side) -> Result<()> {
    if let Some(core) = side.core {
        process::stay_on(core)?;
    }
    let ran = match side.role {
        Role::Servers => serve(),
        Role::Honest => call(side),
        Role::Strangers => attack(side),
        Role::Readers => read(),
    };
    ran.or_else(|why| say(&Said::Failed(format!("{why:#}"))))?;
    // Exits without joining a thread that waits.
    std::process::exit(0);
}

fn serve() -> Result<()> {
    let servers = Servers::start()?;
    say(&Said::Serving(servers.places.clone()))?;
    obey(|order, _| bail!("unknown order {order:?}"))
}

fn places(side: &Side) -> Result<(Places, Places)> {
    Ok((serde_json::from_str(&side.attacked)?, serde_json::from_str(&side.spared)?))
}

fn call(side: &Side) -> Result<()> {
    let (attacked, spared) = places(side)?;
    let (mut attacked, mut spared) = (All::bind(&attacked)?, All::bind(&spared)?);
    say(&Said::Ready)?;
    obey(|order, time| match order {
        "attacked" => Ok(Said::Called(attacked.call(time)?)),
        "spared" => Ok(Said::Called(spared.call(time)?)),
        _ => bail!("unknown order {order:?}"),
    })
}

fn read() -> Result<()> {
    let registries = [readers::registry(false)?, readers::registry(true)?];
    let descriptions = [readers::description(ORDINARY)?, readers::description(LARGE)?];
    say(&Said::Ready)?;
    obey(|order, time| {
        let hostile = usize::from(order == "hostile");
        Ok(Said::Read(readers::read(registries[hostile], hostile == 1, &descriptions[hostile], time)))
    })
}

/// A kind of stranger, and what it did in the last hostile phase.
struct Kept {
    name: &'static str,
    rate: f64,
    stranger: Box<dyn Stranger>,
    nth: usize,
    last: u64,
}

fn attack(side: &Side) -> Result<()> {
    let (attacked, spared) = places(side)?;
    let is_wanted = |name: &str| !side.without.iter().any(|other| name.starts_with(other.as_str()));
    let kinds = <Kind as clap::ValueEnum>::value_variants();
    let mut native =
        if is_wanted("native") { Some(Load::new(&attacked.open, &spared.open, kinds)?) } else { None };
    let mut all: Vec<Kept> = strangers::all(&attacked, &spared)?
        .into_iter()
        .filter(|(name, ..)| is_wanted(name))
        .map(|(name, rate, stranger)| Kept { name, rate, stranger, nth: 0, last: 0 })
        .collect();
    say(&Said::Ready)?;
    obey(|order, time| {
        if order == "prepare" {
            let due = |kept: &Kept| (kept.rate * time.as_secs_f64()) as usize;
            all.iter_mut().try_for_each(|kept| kept.stranger.prepare(due(kept)))?;
            return Ok(Said::Ready);
        }
        let is_hostile = order == "harm";
        let mut sent = std::thread::scope(|scope| -> Result<Vec<Sent>> {
            let native = scope.spawn(|| match &mut native {
                Some(load) if is_hostile => load.harm(NATIVE, time).map(Some),
                Some(load) => load.formed(time).map(Some),
                None => Ok(None),
            });
            let threads: Vec<_> =
                all.iter_mut().map(|kept| scope.spawn(move || phase(kept, is_hostile, time))).collect();
            let mut sent = Vec::new();
            let died = || anyhow::anyhow!("a stranger panicked");
            for thread in threads {
                sent.push(thread.join().map_err(|_| died())??);
            }
            if let Some(done) = native.join().map_err(|_| died())?? {
                let units = done.datagrams + done.connected;
                sent.push(Sent { name: "native".into(), units, failed: done.lost });
            }
            Ok(sent)
        })?;
        sent.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Said::Sent(sent))
    })
}

/// Makes strangers of a kind do harm, or as much that is well-formed, for that time.
fn phase(kept: &mut Kept, is_hostile: bool, time: Duration) -> Result<Sent> {
    let began = Instant::now();
    let rate = if is_hostile { kept.rate } else { kept.last as f64 / time.as_secs_f64() };
    let (mut units, mut failed) = (0_u64, 0);
    while began.elapsed() < time {
        kept.stranger.tend();
        let due = (rate * began.elapsed().as_secs_f64()) as u64;
        while units < due && began.elapsed() < time {
            kept.nth += 1;
            let done = match is_hostile {
                true => kept.stranger.harm(kept.nth),
                false => kept.stranger.form(kept.nth),
            };
            failed += u64::from(done.is_err());
            units += 1;
        }
        std::thread::sleep(STEP);
    }
    if is_hostile {
        kept.last = units;
    }
    Ok(Sent { name: kept.name.into(), units, failed })
}

/// Executes orders, line by line: a word and milliseconds.
fn obey(mut does: impl FnMut(&str, Duration) -> Result<Said>) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (order, time) = line.split_once(' ').context("an order is a word and a time")?;
        say(&does(order, Duration::from_millis(time.parse::<u64>()?))?)?;
    }
    Ok(())
}
