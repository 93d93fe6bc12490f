//! Compares the parts of which farcall's security is made with those of which it could be made.
mod callgrind;
mod exchanges;
mod handshakes;
mod interleaved;
mod noise;
mod seals;
mod tls;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Options, conditions, process, report};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Compares the parts of farcall's security with others. bench/README.md says how to read the results.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Handshakes: Noise IK as farcall uses it, and TLS 1.3 as QUIC uses it; and the Diffie-Hellman function.
    Handshakes(Options),
    /// Authenticated encryption of datagrams, and what comes with it.
    Seals(Options),
    #[command(hide = true)]
    Count(callgrind::Count),
}

fn main() -> ExitCode {
    let ran = match Command::parse().bench {
        Bench::Handshakes(options) => handshakes(&options),
        Bench::Seals(options) => seals(&options),
        Bench::Count(count) => counted(&count),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("farcall-bench-crypto: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn handshakes(options: &Options) -> Result<()> {
    let conditions = begin(options, handshakes::METHOD)?;
    let mut rows = handshakes::rows(options)?;
    rows.extend(exchanges::rows(options)?);
    report(rows, &conditions, &[], options).map(drop)
}

fn seals(options: &Options) -> Result<()> {
    let conditions = begin(options, seals::METHOD)?;
    report(seals::rows(options)?, &conditions, &[], options).map(drop)
}

/// Stays on one core from now on, and returns the conditions.
fn begin(options: &Options, method: &str) -> Result<Vec<String>> {
    let pin = options.pinned()[0];
    let mut conditions = conditions::conditions(&[]);
    // The processor's counters are not used here.
    conditions.retain(|line| !line.contains("not counted"));
    let core = pin.cores().map(|(core, _)| core);
    core.map_or(Ok(()), process::stay_on)?;
    let core = core.map_or("not pinned".into(), |core| format!("core {core}"));
    let rounds = options.groups();
    conditions.push(format!(
        "{core}; medians over {rounds} interleaved rounds, of processor time, with 95 % intervals; {method}"
    ));
    conditions.push(
        "instructions by callgrind, whose processor has AVX2 and AES-NI, but no AVX-512, VAES or ADX".into(),
    );
    Ok(conditions)
}

/// Executes what is counted in this process, under valgrind.
fn counted(count: &callgrind::Count) -> Result<()> {
    match count.bench.as_str() {
        "handshakes" => handshakes::count(count),
        "exchanges" => exchanges::count(count),
        _ => seals::count(count),
    }
}
