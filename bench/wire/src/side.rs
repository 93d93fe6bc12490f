//! The processes at both ends of the wire, each in a network namespace of its own: one serves, the other
//! moves things and says how long that took.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farcall::Export;
use farcall_bench_method::network;
use farcall_bench_method::process::{self, Answer};
use serde::{Deserialize, Serialize};

use super::kinds::{Kind, Peer};
use super::{files, ours, tcp};

/// The command line of a side. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {
    /// The bytes of the longest result.
    longest: usize,
    /// The directory of files that are copied.
    files: PathBuf,
}

/// Where the server is, by each protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Places {
    pub farcall: String,
    pub files: String,
    pub tcp: SocketAddr,
}

/// What a side is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Serve. The network exists now.
    Serve,
    /// Move `kind` this often, by a new connection or conversation. Begin no further time after `within`.
    Run { peer: Peer, kind: Kind, times: usize, within: Duration, places: Places },
    /// Let these flows run at once for this time, and count their bytes in its last three quarters.
    Share { flows: Vec<Peer>, time: Duration, places: Places },
    /// Keep echoes outstanding for this time, and count those that end in its last three quarters.
    Crowd { peer: Peer, outstanding: usize, bytes: usize, time: Duration, places: Places },
}

/// What a side says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    Ready,
    Serving(Places),
    /// How long each time took, in nanoseconds.
    Took(Vec<u64>),
    /// What each flow moved or ended, and the time in which it did.
    Counted {
        each: Vec<u64>,
        time: Duration,
    },
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

/// Runs a side until standard input ends.
pub fn side(side: &Side) -> Result<()> {
    let mut exports = Vec::new();
    process::obey(None, &Said::Ready, Said::Failed, |order| match serde_json::from_str(order)? {
        Order::Serve => serve(side, &mut exports),
        Order::Run { peer, kind, times, within, places } => {
            let mut times = Times::new(times, within);
            match peer {
                Peer::Farcall if kind.is_by_command() => {
                    files::run(&places.files, &side.files, kind, || times.next())?;
                }
                Peer::Farcall => ours::run(&places.farcall, kind, || times.next())?,
                Peer::Cubic | Peer::Bbr => tcp::run(places.tcp, peer, kind, || times.next())?,
            }
            Ok(Said::Took(times.took))
        }
        Order::Share { flows, time, places } => {
            let run = |peer, moved: Arc<AtomicU64>, places: Places| match peer {
                Peer::Farcall => ours::flow(&places.farcall, &moved),
                Peer::Cubic | Peer::Bbr => tcp::flow(places.tcp, peer, &moved),
            };
            counted(&flows, time, &places, run)
        }
        Order::Crowd { peer, outstanding, bytes, time, places } => {
            let each = (outstanding, bytes);
            let run = move |peer, ended: Arc<AtomicU64>, places: Places| match peer {
                Peer::Farcall => ours::crowd(&places.farcall, each, 2 * time, &ended),
                Peer::Cubic | Peer::Bbr => tcp::crowd(places.tcp, peer, each, 2 * time, &ended),
            };
            counted(&[peer], time, &places, run)
        }
    })?;
    // Exits without waiting for threads whose transfers have not ended.
    std::process::exit(0)
}

fn serve(side: &Side, exports: &mut Vec<Export>) -> Result<Said> {
    let address = SocketAddr::new(network::SERVER.parse()?, 0);
    let farcall = ours::serve(address, side.longest)?;
    let files = files::serve(address, &side.files)?;
    let places = Places { farcall: farcall.url(), files: files.url(), tcp: tcp::serve(address)? };
    exports.extend([farcall, files]);
    Ok(Said::Serving(places))
}

/// Runs the flows of all peers at once, and counts what they do after a quarter of the time. They go on when
/// this returns: the process is then ended.
fn counted(
    flows: &[Peer],
    time: Duration,
    places: &Places,
    run: impl Fn(Peer, Arc<AtomicU64>, Places) -> Result<()> + Clone + Send + 'static,
) -> Result<Said> {
    let (failed, failures) = mpsc::channel();
    let counters: Vec<Arc<AtomicU64>> = flows.iter().map(|_| Arc::default()).collect();
    for (&peer, counter) in flows.iter().zip(&counters) {
        let (run, failed, counter, places) = (run.clone(), failed.clone(), counter.clone(), places.clone());
        std::thread::spawn(move || {
            if let Err(why) = run(peer, counter, places) {
                // Nobody listens any more once the time is over.
                let _ = failed.send(format!("{}: {why:#}", peer.name()));
            }
        });
    }
    let wait = |time| match failures.recv_timeout(time) {
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(()),
        Ok(why) => bail!(why),
        Err(mpsc::RecvTimeoutError::Disconnected) => bail!("all flows have ended"),
    };
    let read = || counters.iter().map(|counter| counter.load(Relaxed)).collect::<Vec<_>>();
    wait(time / 4)?;
    let (before, began) = (read(), Instant::now());
    wait(time - time / 4)?;
    let (after, time) = (read(), began.elapsed());
    Ok(Said::Counted {
        each: after.iter().zip(&before).map(|(after, before)| after - before).collect(),
        time,
    })
}

/// Times what is done again and again.
struct Times {
    took: Vec<u64>,
    times: usize,
    within: Duration,
    start: Option<Instant>,
    began: Option<Instant>,
}

impl Times {
    fn new(times: usize, within: Duration) -> Times {
        Times { took: Vec::with_capacity(times), times, within, start: None, began: None }
    }

    /// Ends one time and begins the next. Returns false if there is none.
    fn next(&mut self) -> bool {
        let now = Instant::now();
        if let Some(began) = self.began {
            self.took.push((now - began).as_nanos() as u64);
        }
        let start = *self.start.get_or_insert(now);
        self.began = Some(now);
        self.took.len() < self.times && now - start < self.within
    }
}

/// Runs a command to its end, and fails if it fails.
pub fn command(program: &Path, words: &[&str]) -> Result<()> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{} does not run", program.display()))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {}", program.display(), words.join(" "), why.trim());
    Ok(())
}
