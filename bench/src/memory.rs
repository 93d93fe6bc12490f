//! Memory without calls: accesses to segments, as Thekkath, Levy & Lazowska 1994 measured theirs.
mod accesses;
mod paper;

use anyhow::Result;
use farcall_bench_method::Options;

#[derive(Debug, clap::Args)]
pub struct Memory {
    #[command(flatten)]
    options: Options,
}

/// Measures what the options ask for, and shows it.
pub fn run(memory: &Memory) -> Result<()> {
    accesses::run(&memory.options)
}

/// Whether a peer takes part: all do unless some are named; the anchors always do.
fn is_wanted(name: &str, options: &Options) -> bool {
    let ours = name.starts_with("memory-") || name.starts_with("mapped-");
    options.peers.as_ref().is_none_or(|peers| !ours || peers.iter().any(|peer| peer == name))
}
