//! A wire between two processes.
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall_bench_method::network;
use farcall_bench_method::process::Process;

use super::carrier::Carrier;
use super::path::{Counts, Shape};
use super::side::{Order, Places, Said};
use super::tun;

/// How much longer than ordered a side may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Two processes, each in a network namespace of its own, and the wire between them.
pub struct Link {
    _server: Process<Said>,
    client: Process<Said>,
    pub places: Places,
    carrier: Carrier,
}

impl Link {
    /// Starts the processes and lays the wire. `longest` are the bytes of the longest result, and `files` is
    /// the directory of files that are copied.
    pub fn start(shape: Shape, seed: u64, longest: u64, files: &Path) -> Result<Link> {
        static LINKS: AtomicUsize = AtomicUsize::new(0);
        let program = std::env::current_exe().context("cannot find this program")?;
        let words = ["side".to_owned(), longest.to_string(), files.display().to_string()];
        let start = || -> Result<Process<Said>> {
            let mut process = network::start(&program, &words)?;
            match process.hear()? {
                Said::Ready => Ok(process),
                said => bail!("it is not ready, but says {said:?}"),
            }
        };
        let (mut server, client) = (start()?, start()?);
        let link = LINKS.fetch_add(1, Relaxed) % 100;
        let device = |end: &str| format!("fw{}{end}{link}", std::process::id() % 1_000_000_000);
        let [far, near] = [("s", &server, network::SERVER), ("c", &client, network::CLIENT)].map(
            |(end, process, address)| {
                let name = device(end);
                let file = tun::open(&name)?;
                network::adopt(process.id(), &name, address)?;
                anyhow::Ok(file)
            },
        );
        let carrier = Carrier::start(shape, seed, [far?, near?])?;
        let places = match server.order(&serde_json::to_string(&Order::Serve)?)? {
            Said::Serving(places) => places,
            said => bail!("the server does not serve, but says {said:?}"),
        };
        Ok(Link { _server: server, client, places, carrier })
    }

    /// Tells the client what to do. Returns `None` if it has not done so within this time. Then the link is
    /// of no use any more.
    pub fn run(&mut self, order: &Order, within: Duration) -> Result<Option<Said>> {
        self.client.tell(&serde_json::to_string(order)?)?;
        match self.client.answer_within(within + PATIENCE)? {
            Some(said) => Ok(Some(said)),
            None => {
                self.client.child().kill().context("it does not end")?;
                Ok(None)
            }
        }
    }

    /// Returns what has happened so far: to packets of the server, and to those of the client.
    pub fn counts(&self) -> [Counts; 2] {
        self.carrier.counts()
    }
}
