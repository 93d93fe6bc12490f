//! What secure conversations cost a server: idle ones, floods of forged first packets and of handshakes, and a
//! restart after which all clients come back.
mod flood;
mod idle;
mod returning;
mod strangers;
mod world;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcall_bench_method::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures what secure conversations cost a server. bench/README.md says how to read the results.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The server's memory for an idle conversation, and the resumption of those that it has forgotten.
    Idle(idle::Idle),
    /// All clients of a server come back at once after it was started anew.
    Returning(returning::Returning),
    /// Honest callers beside a flood of forged first packets.
    Flood(flood::Flood),
    /// Honest clients that join beside strangers who ask for handshakes without end.
    Strangers(strangers::Strangers),
    #[command(hide = true)]
    Side(flood::Side),
    #[command(hide = true)]
    StrangersSide(strangers::Side),
}

fn main() -> ExitCode {
    let ran = match Command::parse().bench {
        Bench::Idle(idle) => idle::run(&idle),
        Bench::Returning(returning) => returning::run(&returning),
        Bench::Flood(flood) => flood::run(&flood),
        Bench::Side(side) => flood::side(&side),
        Bench::Strangers(strangers) => strangers::run(&strangers),
        Bench::StrangersSide(side) => strangers::side(&side),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("farcall-bench-secure: {why:#}");
            ExitCode::FAILURE
        }
    }
}
