//! Compares farcall with raw sockets and with its peers.
mod bulk;
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
mod peers;
mod profile;
mod rates;
mod throughput;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_bench_method::agent::{self, Agent};
use farcall_bench_method::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Farcall beside raw sockets and its peers; see bench/README.md for how to read what it prints.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// One call outstanding: how long, and what it costs.
    Latency(latency::Latency),
    /// Many calls outstanding: how many a second.
    Throughput(throughput::Throughput),
    /// Large results: how many bytes a second.
    Bulk(bulk::Bulk),
    /// Short calls among some that are slow: what those do to the latency of the others.
    Mixed(mixed::Mixed),
    /// Groups: one call of every member at once, beside one call after the other.
    Multi(multi::Multi),
    /// Memory without calls: accesses, and a file service made of them, beside Thekkath, Levy and Lazowska
    /// 1994.
    Memory(memory::Memory),
    /// READs by libnfs: our NFS server beside nfs-ganesha.
    Nfs(nfs::Nfs),
    /// The server's memory for a conversation in which nothing happens.
    Idle(idle::Idle),
    /// Honest callers beside a hostile client: their rate, their failures, the server's memory.
    Hostile(hostile::Hostile),
    /// This build beside an older build of this program.
    Older(older::Older),
    #[command(hide = true)]
    HostileSide(hostile::Side),
    #[command(hide = true)]
    Agent(Agent),
    #[command(hide = true)]
    Side(farcall_bench_group::Side),
}

fn main() -> ExitCode {
    let ran = match Command::parse().bench {
        Bench::Latency(latency) => latency::run(&latency),
        Bench::Throughput(throughput) => throughput::run(&throughput),
        Bench::Bulk(bulk) => bulk::run(&bulk),
        Bench::Mixed(mixed) => mixed::run(&mixed),
        Bench::Multi(multi) => multi::run(&multi),
        Bench::Side(side) => return multi::side(&side),
        Bench::Memory(memory) => memory::run(&memory),
        Bench::Nfs(nfs) => nfs::run(&nfs),
        Bench::Idle(idle) => idle::run(&idle),
        Bench::Hostile(hostile) => hostile::run(&hostile),
        Bench::Older(older) => older::run(&older),
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
