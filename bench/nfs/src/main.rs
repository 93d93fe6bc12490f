//! READs by libnfs, from this project's NFS server and from nfs-ganesha; and a day of a file server.
#[cfg(libnfs)]
mod ffi;
#[cfg(libnfs)]
mod ganesha;
#[cfg(libnfs)]
mod mix;
#[cfg(libnfs)]
mod peer;
#[cfg(libnfs)]
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_bench_method::Peer;
use farcall_bench_method::agent::{self, Agent};
use farcall_bench_method::alloc::Counting;

/// The counter does not see allocations of the C side.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// READs by libnfs for `farcall-bench nfs`, and a day of a file server.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Operations in the proportions of Thekkath, Levy & Lazowska 1994: tables 1a and 1b.
    Mix {
        /// How many operations the client makes.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
        operations: u32,
        /// Also write the tables to this file, as `paper` reads them.
        #[arg(long, value_name = "FILE")]
        tables: Option<PathBuf>,
    },
    #[command(hide = true)]
    Agent(Agent),
}

fn main() -> ExitCode {
    let (name, ran) = match Command::parse().bench {
        Bench::Agent(agent) => (agent.peer().to_owned(), agent::main(&agent, peer(agent.peer()))),
        Bench::Mix { operations, tables } => {
            ("farcall-bench-nfs".to_owned(), mix(operations as usize, tables))
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(libnfs)]
fn mix(operations: usize, tables: Option<PathBuf>) -> anyhow::Result<()> {
    mix::run(operations, tables.as_deref())
}

#[cfg(not(libnfs))]
fn mix(_: usize, _: Option<PathBuf>) -> anyhow::Result<()> {
    anyhow::bail!("libnfs is not installed, or pkg-config does not know it")
}

#[cfg(libnfs)]
fn peer(name: &str) -> Option<Box<dyn Peer>> {
    match name {
        "farcall-nfs" => Some(Box::new(peer::Nfs::Farcall)),
        "nfs-ganesha" => Some(Box::new(peer::Nfs::Ganesha)),
        _ => None,
    }
}

#[cfg(not(libnfs))]
fn peer(_: &str) -> Option<Box<dyn Peer>> {
    use farcall_bench_method::{Calling, Serving, Setup, cannot};
    struct Missing;
    impl Peer for Missing {
        fn transport(&self) -> &'static str {
            "none"
        }

        fn serve(&self, _: &Setup) -> anyhow::Result<Box<dyn Serving>> {
            cannot("libnfs is not installed, or pkg-config does not know it")
        }

        fn connect(&self, _: &Setup, _: &str) -> anyhow::Result<Box<dyn Calling>> {
            cannot("libnfs is not installed")
        }
    }
    Some(Box::new(Missing))
}
