//! What the firing of a node of a graph costs, beside the bare call of its procedure.
//!
//! ```text
//! ways          how a procedure is called, and the server
//! measure       bare calls and firings, timed
//! instructions  bare calls and firings, counted by callgrind
//! ```

mod instructions;
mod measure;
mod ways;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use measure::{Kind, Measured};
use ways::{Carry, Server, Way};

/// Measures firings of nodes whose procedures do nothing, beside started calls of the same procedures by
/// their descriptions.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    side: Option<Side>,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
struct Options {
    /// How many calls a block has.
    #[arg(long, default_value_t = 10_000)]
    calls: u32,
    /// How many blocks of each kind are made, in turn.
    #[arg(long, default_value_t = 9)]
    blocks: usize,
    /// What tokens and calls carry.
    #[arg(long, value_enum, default_value_t = Carry::Nothing)]
    carry: Carry,
    /// Count instructions by callgrind too, which must be installed.
    #[arg(long)]
    callgrind: bool,
    /// Measure firings that are recorded in a journal too.
    #[arg(long)]
    journal: bool,
}

#[derive(Subcommand)]
enum Side {
    /// Serves until standard input ends.
    #[command(hide = true)]
    Server,
    /// Makes calls or firings once, for callgrind.
    #[command(hide = true)]
    Once { way: Way, kind: Kind, carry: Carry, calls: u32, server: String },
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = match command.side {
        Some(Side::Server) => ways::serve(),
        Some(Side::Once { way, kind, carry, calls, server }) => Server::known(&server)
            .and_then(|server| measure::once(way, (kind, carry), calls, 1, &server))
            .map(drop),
        None => tables(&command.options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

fn tables(options: &Options) -> Result<()> {
    let server = Server::start()?;
    costs(options, &server)?;
    rates(options, &server)?;
    parallel(options, &server)?;
    if options.callgrind {
        counts(options, &server)?;
    }
    Ok(())
}

/// Prints what a firing costs when one is under way at a time, and which share of it the call is.
fn costs(options: &Options, server: &Server) -> Result<()> {
    println!("One at a time, microseconds (median of {} blocks of {}):", options.blocks, options.calls);
    println!(
        "{:<10} {:>10} {:>10} {:>8} {:>12} {:>12}",
        "way", "bare call", "firing", "ratio", "RPC's share", "with journal"
    );
    for way in Way::ALL {
        let [bare, firing, recorded] = blocks(options, way, 1, server)?;
        let plain = if way == Way::NoCall { 0.0 } else { bare };
        let ratio = if plain > 0.0 { format!("{:.2}", firing / plain) } else { "-".into() };
        let share = format!("{:.0} %", 100.0 * plain / firing);
        let recorded = if options.journal { format!("{recorded:.2}") } else { "-".into() };
        println!("{:<10} {plain:>10.2} {firing:>10.2} {ratio:>8} {share:>12} {recorded:>12}", way.name());
    }
    Ok(())
}

/// Returns the medians of bare calls, of firings, and of recorded firings, in microseconds for each.
fn blocks(options: &Options, way: Way, bound: usize, server: &Server) -> Result<[f64; 3]> {
    let kinds = [Kind::Bare, Kind::Firing, Kind::Recorded];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..options.blocks {
        for (kind, times) in kinds.into_iter().zip(&mut times) {
            let is_asked = kind != Kind::Recorded || options.journal && bound == 1;
            if !is_asked || kind == Kind::Bare && way == Way::NoCall {
                times.push(0.0);
                continue;
            }
            let Measured { time } = measure::once(way, (kind, options.carry), options.calls, bound, server)?;
            times.push(time.as_secs_f64() * 1e6 / f64::from(options.calls));
        }
    }
    Ok(times.map(median))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints how many firings end in a second, with so many enabled at once.
fn rates(options: &Options, server: &Server) -> Result<()> {
    println!("\nThousand per second, with k under way at once, of bare calls and of firings:");
    let counts = [1, 4, 16, 64, 256];
    let head = counts.map(|count| format!("{:>16}", format!("k = {count}")));
    println!("{:<10} {}", "way", head.concat());
    for way in Way::ALL {
        let mut line = String::new();
        for bound in counts {
            let [bare, firing, _] = blocks(options, way, bound, server)?;
            let rate = |time: f64| if time > 0.0 { format!("{:.0}", 1e3 / time) } else { "-".into() };
            line += &format!("{:>16}", format!("{} {}", rate(bare), rate(firing)));
        }
        println!("{:<10} {line}", way.name());
    }
    Ok(())
}

/// Prints how long nodes take that may begin at once and whose procedures take 10 ms.
fn parallel(options: &Options, server: &Server) -> Result<()> {
    println!("\nNodes that begin at once, whose procedures take 10 ms, over UDP (milliseconds, medians):");
    let head = ["run", "calls of 10 ms", "run / those", "null calls", "(run - 10 ms) / those"];
    println!(
        "{:<10} {:>10} {:>16} {:>12} {:>12} {:>22}",
        "nodes", head[0], head[1], head[2], head[3], head[4]
    );
    for nodes in [1, 10, 100] {
        let mut rows = [const { Vec::new() }; 5];
        for _ in 0..options.blocks {
            let [run, pauses, nothing] =
                measure::parallel(nodes, server)?.map(|time| time.as_secs_f64() * 1e3);
            let beyond = (run - ways::PAUSE.as_secs_f64() * 1e3) / nothing;
            for (row, value) in rows.iter_mut().zip([run, pauses, run / pauses, nothing, beyond]) {
                row.push(value);
            }
        }
        let [run, pauses, ratio, nothing, beyond] = rows.map(median);
        println!("{nodes:<10} {run:>10.3} {pauses:>16.3} {ratio:>12.2} {nothing:>12.3} {beyond:>22.2}");
    }
    Ok(())
}

fn counts(options: &Options, server: &Server) -> Result<()> {
    println!("\nUser instructions of the calling process, one at a time (callgrind):");
    println!("{:<10} {:>10} {:>10} {:>8} {:>12}", "way", "bare call", "firing", "ratio", "with journal");
    let count = |way, kind| instructions::count(way, (kind, options.carry), server);
    for way in [Way::NoCall, Way::Udp, Way::OncUdp, Way::OncTcp] {
        let firing = count(way, Kind::Firing)?;
        let recorded = count(way, Kind::Recorded)?;
        let bare = if way == Way::NoCall { None } else { Some(count(way, Kind::Bare)?) };
        let ratio = bare.map_or("-".into(), |bare| format!("{:.2}", firing / bare));
        let bare = bare.map_or("-".into(), |bare| format!("{bare:.0}"));
        println!("{:<10} {bare:>10} {firing:>10.0} {ratio:>8} {recorded:>12.0}", way.name());
    }
    Ok(())
}
