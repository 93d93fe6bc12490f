//! `farcall demo --etcd`: names in a cluster of etcd, whose leader is killed, then a server, and then most of
//! the cluster.

mod calls;
mod cluster;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use farcall::Runtime;
use farcall::names::{Label, Registry};

use super::interface::Demo;
use super::process::Process;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use calls::{Calls, Tally};
use cluster::Cluster;
use report::Report;

pub use cluster::Member;

/// How long calls are made before, between and after the deaths.
const CALLING: Duration = Duration::from_secs(1);

/// How long to wait for a new leader, and for the end of a name.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often etcd is asked for what is waited for.
const POLL: Duration = Duration::from_millis(20);

/// The names of the servers.
const SERVERS: [&str; 2] = ["Demo/one", "Demo/two"];

/// The client of the demonstration.
#[derive(Debug, Args)]
pub struct Client {
    /// Where etcd keeps its files
    scratch: PathBuf,
    /// The ports of the members: for clients, and then for one another
    #[arg(num_args = 1..)]
    ports: Vec<u16>,
}

/// What happened when a process was killed.
pub struct Death {
    /// The process that was killed.
    pub victim: String,
    /// From the kill until its consequence: another leader, or the end of the name.
    pub time: Duration,
    /// The calls that ended in that time.
    pub calls: Tally,
}

/// Adds the arguments of the client to a command, and names the registry that it uses.
pub fn set_client(command: &mut Command, scratch: &Path) -> Outcome {
    if !cluster::is_installed() {
        let why = Failure::new("etcd is not installed");
        return Err(why.hint("Debian and Ubuntu have it in the package etcd-server"));
    }
    let ports = cluster::free_ports()?;
    command.arg("etcd").arg(scratch).args(ports.iter().map(u16::to_string));
    command.env("FARCALL_REGISTRY", cluster::place(&ports));
    Ok(())
}

impl Client {
    pub fn run(&self, output: &Output) -> Outcome {
        super::end_with_parent();
        let start = Instant::now();
        let mut report = Report::begin(*output)?;
        let mut cluster = Cluster::start(&self.scratch, &self.ports)?;
        report.cluster(start.elapsed())?;
        let [mut one, _two] = [Process::server(SERVERS[0])?, Process::server(SERVERS[1])?];
        let runtime = Runtime::builder().build()?;
        let calls = Calls::start(runtime.import_all::<dyn Demo>("Demo")?.balancer().stub())?;
        std::thread::sleep(CALLING);
        report.calls(&calls.so_far(), CALLING)?;

        report.leader(&killed_leader(&mut cluster, &calls)?)?;
        report.server(&killed_server(&mut one, &cluster::place(&self.ports), &calls)?)?;
        // Nobody is sent to the dead server any more.
        let before = calls.so_far();
        std::thread::sleep(CALLING);
        report.after(&calls.so_far().since(&before))?;
        report.majority(&lost_majority(&mut cluster, &self.scratch, &runtime, &calls)?)?;
        report.end(&calls.end(), start.elapsed())
    }
}

/// Kills the member that leads, and waits until another one does.
fn killed_leader(cluster: &mut Cluster, calls: &Calls) -> Outcome<Death> {
    let leader = until("etcd has no leader", || Ok(cluster.leader()))?;
    let (kill, before) = (Instant::now(), calls.so_far());
    cluster.kill(leader);
    until("etcd has no new leader", || Ok(cluster.leader()))?;
    let time = kill.elapsed();
    // Calls are made for a while, so that there are some after a short election, too.
    std::thread::sleep(CALLING);
    Ok(Death { victim: format!("member {}", leader + 1), time, calls: calls.so_far().since(&before) })
}

/// Kills a server, and waits until its name is not in the registry any more.
fn killed_server(server: &mut Process, place: &str, calls: &Calls) -> Outcome<Death> {
    let registry = farcall::names::open(place, |_| None).map_err(|why| Failure::new(why.to_string()))?;
    let (type_name, instance) = SERVERS[0].split_once('/').unwrap_or_default();
    let label = |text: &str| text.parse::<Label>().map_err(|why| Failure::new(why.to_string()));
    let (type_name, instance) = (label(type_name)?, label(instance)?);
    let (kill, before) = (Instant::now(), calls.so_far());
    server.kill()?;
    until("the name of the killed server stays", || is_gone(&registry, &type_name, &instance))?;
    Ok(Death { victim: SERVERS[0].to_owned(), time: kill.elapsed(), calls: calls.so_far().since(&before) })
}

/// What happened while most members of etcd were away.
pub struct Outage {
    /// The calls that ended meanwhile.
    pub calls: Tally,
    /// Why a new import failed; `None` if it did not.
    pub import: Option<String>,
    /// From the restart of a member until names could be asked for again.
    pub time: Duration,
}

/// Kills another member, so that the rest has no majority, tries to import, and starts the member again.
fn lost_majority(cluster: &mut Cluster, scratch: &Path, runtime: &Runtime, calls: &Calls) -> Outcome<Outage> {
    let (leader, before) = (until("etcd has no leader", || Ok(cluster.leader()))?, calls.so_far());
    cluster.kill(leader);
    std::thread::sleep(CALLING);
    let import = runtime.import::<dyn Demo>(SERVERS[1]).err().map(|why| why.to_string());
    let lost = calls.so_far().since(&before);
    let restart = Instant::now();
    cluster.restart(leader, scratch)?;
    let asked = || Ok(runtime.import::<dyn Demo>(SERVERS[1]).ok().map(drop));
    until("the name of the other server cannot be asked for", asked)?;
    Ok(Outage { calls: lost, import, time: restart.elapsed() })
}

fn is_gone(registry: &Arc<dyn Registry>, type_name: &Label, instance: &Label) -> Outcome<Option<()>> {
    Ok(registry.lookup(type_name, instance)?.is_none().then_some(()))
}

/// Waits until `attempt` returns a value. Fails, and says `what`, if that takes too long.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let end = Instant::now() + MAX_WAIT;
    while Instant::now() < end {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        std::thread::sleep(POLL);
    }
    Err(Failure::new(format!("{what} for {} s", MAX_WAIT.as_secs())))
}
