//! Compares farcall with raw sockets and with its peers.
mod bulk;
mod fan_in;
mod field;
mod hostile;
mod idle;
mod laps;
mod latency;
mod memory;
mod mixed;
mod multi;
mod network;
mod nfs;
mod older;
mod open;
mod peers;
mod profile;
mod rates;
#[cfg(unix)]
mod siege;
mod sizes;
mod tasks;
mod throughput;

use std::ffi::OsString;
use std::process::{Command as Process, ExitCode};

use clap::{Parser, Subcommand};
use farcall_bench_method::agent::{self, Agent};
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::process;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Compares farcall with raw sockets and with its peers. bench/README.md says how to read the results.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
    /// The bytes of the buffers that farcall asks for at both ends: 212992 is what a stock Linux grants.
    /// [default: farcall's own]
    #[arg(long, global = true, value_name = "BYTES")]
    socket_buffer: Option<usize>,
}

#[derive(Subcommand)]
enum Bench {
    /// One outstanding call: its latency and its cost.
    Latency(latency::Latency),
    /// Many outstanding calls: calls per second.
    Throughput(throughput::Throughput),
    /// Many outstanding calls of each size: no size may be much slower than the next larger one.
    Sizes(sizes::Sizes),
    /// Calls that tasks of a program on tokio await: calls per second.
    Tasks(tasks::Tasks),
    /// Calls at random times, whether or not earlier ones have ended: their latency.
    Open(open::Open),
    /// Many clients of one server: their rate, their latency, and how evenly they are served.
    FanIn(fan_in::FanIn),
    /// Large results: bytes per second.
    Bulk(bulk::Bulk),
    /// Short calls among slow ones: the effect of slow calls on the latency of the others.
    Mixed(mixed::Mixed),
    /// Groups: one call of all members at once, compared with one call after the other.
    Multi(multi::Multi),
    /// Memory without calls: accesses, and a file service that uses them, compared with Thekkath, Levy and
    /// Lazowska 1994.
    Memory(memory::Memory),
    /// READs by libnfs: this project's NFS server compared with nfs-ganesha.
    Nfs(nfs::Nfs),
    /// The server's memory for an idle conversation.
    Idle(idle::Idle),
    /// Honest callers beside hostile clients: the callers' rate and failures, and the server's memory.
    Hostile(hostile::Hostile),
    /// Honest callers of every protocol beside every kind of hostile client at once, for minutes.
    #[cfg(unix)]
    Siege(siege::Siege),
    /// This build compared with an older build of this program.
    Older(older::Older),
    /// Five papers about remote calls: their tables and figures, measured again, as one page. `paper --help`
    /// says more.
    #[command(disable_help_flag = true)]
    Paper {
        /// The arguments of farcall-bench-paper.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    IdleSide(idle::streams::Side),
    #[command(hide = true)]
    HostileSide(hostile::Side),
    #[command(hide = true)]
    FanInSide(fan_in::Side),
    #[cfg(unix)]
    #[command(hide = true)]
    SiegeSide(siege::Side),
    #[command(hide = true)]
    Agent(Agent),
    #[command(hide = true)]
    Side(farcall_bench_group::Side),
}

fn main() -> ExitCode {
    let Command { bench, socket_buffer } = Command::parse();
    socket_buffer.into_iter().for_each(process::set_socket_buffer);
    let ran = match bench {
        Bench::Latency(latency) => latency::run(&latency),
        Bench::Throughput(throughput) => throughput::run(&throughput),
        Bench::Sizes(sizes) => sizes::run(&sizes),
        Bench::Tasks(tasks) => tasks::run(&tasks),
        Bench::Open(open) => open::run(&open),
        Bench::FanIn(fan_in) => fan_in::run(&fan_in),
        Bench::FanInSide(side) => fan_in::side(&side),
        Bench::Bulk(bulk) => bulk::run(&bulk),
        Bench::Mixed(mixed) => mixed::run(&mixed),
        Bench::Multi(multi) => multi::run(&multi),
        Bench::Side(side) => return multi::side(&side),
        Bench::Memory(memory) => memory::run(&memory),
        Bench::Nfs(nfs) => nfs::run(&nfs),
        Bench::Idle(idle) => idle::run(&idle),
        Bench::IdleSide(side) => idle::streams::side(&side),
        Bench::Hostile(hostile) => hostile::run(&hostile),
        #[cfg(unix)]
        Bench::Siege(siege) => siege::run(&siege),
        #[cfg(unix)]
        Bench::SiegeSide(side) => siege::side(&side),
        Bench::Older(older) => older::run(&older),
        Bench::Paper { arguments } => return paper(&arguments),
        Bench::HostileSide(side) => hostile::side(&side),
        Bench::Agent(agent) => agent::main(&agent, peers::peer(agent.peer())),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("farcall-bench: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the program that measures the papers, and runs it.
fn paper(arguments: &[OsString]) -> ExitCode {
    let ran = peers::build::package("paper")
        .and_then(|program| Ok(Process::new(program).args(arguments).status()?));
    match ran {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("farcall-bench: {why:#}");
            ExitCode::FAILURE
        }
    }
}
