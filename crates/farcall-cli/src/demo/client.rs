//! The demonstration itself: starts the servers, calls them, and reports the results.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use farcall::Runtime;

use super::interface::{Demo, DemoClient};
use super::process::Process;
use super::report::Report;
#[cfg(feature = "secure")]
use super::secure;
use super::{files, killed, latency, lossy, signal};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::duration;

/// The client.
#[derive(Debug, Args)]
pub struct Client {
    dir: PathBuf,
    #[arg(long)]
    seed: u64,
}

/// The patience of the demo's calls. It is shorter than the slow procedure, whose caller therefore waits only
/// because the server answers probes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The duration of the slow procedure.
const SLOW: Duration = Duration::from_secs(2);

/// A server that offers files and the procedures of [`Demo`].
const MAIN: &str = "Demo/main";

impl Client {
    pub fn run(&self, output: &Output) -> Outcome {
        super::end_with_parent();
        let start = Instant::now();
        #[cfg(feature = "secure")]
        let keys = super::keys::own_keys();
        #[cfg(not(feature = "secure"))]
        let keys: Option<PathBuf> = None;
        let mut report = Report::begin(*output, self.seed, &self.dir, keys.is_some())?;
        let runtime = Runtime::builder().patience(PATIENCE).build()?;
        let _server =
            Process::start(&["server".as_ref(), MAIN.as_ref(), "--dir".as_ref(), self.dir.as_os_str()])?;
        let demo = runtime.import::<dyn Demo>(MAIN)?;

        hello(&demo, &mut report)?;
        report.signal(&signal::run(&runtime)?)?;
        report.files(&files::read(&runtime, &self.dir)?)?;
        report.lossy(&lossy::run(self.seed, keys.is_some())?)?;
        report.killed(&killed::run(&runtime)?)?;
        report.slow(slow(&demo)?, PATIENCE)?;
        #[cfg(feature = "secure")]
        if let Some(keys) = &keys {
            report.secured(&secure::run(keys)?)?;
        }
        report.latency(&latency::run()?)?;
        report.end(start.elapsed())
    }
}

fn hello(demo: &DemoClient, report: &mut Report) -> Outcome {
    let start = Instant::now();
    let said = demo.hello("world")?;
    report.hello(&said, &duration(start.elapsed()))
}

/// Measures a call of the slow procedure.
fn slow(demo: &DemoClient) -> Outcome<Duration> {
    let start = Instant::now();
    demo.sleep(SLOW.as_millis() as u32)?;
    Ok(start.elapsed())
}
