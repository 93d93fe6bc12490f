//! Memory without calls: accesses to segments, and a file service, with the measurements of Thekkath, Levy &
//! Lazowska 1994.
mod accesses;
mod collisions;
mod names;
mod notices;
mod others;
mod paper;
mod server;
mod service;

use anyhow::Result;
use farcall_bench_method::Options;

#[derive(Debug, clap::Args)]
pub struct Memory {
    #[command(flatten)]
    options: Options,
    /// What to measure.
    #[arg(long, value_enum, default_value_t = Part::Accesses)]
    part: Part,
    /// The carriers of the accesses.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Carrier::Udp, Carrier::Mapped])]
    transport: Vec<Carrier>,
    /// The operations of a file service, or mixes of them. [default: all of figure 2; mix]
    #[arg(long, value_delimiter = ',')]
    operation: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Carrier {
    /// The exporter's runtime serves accesses over UDP. Calls go over UDP too.
    Udp,
    /// Importers map the memory. Calls go through shared memory.
    Mapped,
}

impl Carrier {
    /// Returns the carrier's name in rows.
    fn name(self) -> &'static str {
        match self {
            Carrier::Udp => "udp",
            Carrier::Mapped => "mapped",
        }
    }

    /// Returns the ending of the names of the carrier's peers.
    fn suffix(self) -> &'static str {
        match self {
            Carrier::Udp => "",
            Carrier::Mapped => "-mapped",
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// Accesses to a segment: table 2.
    Accesses,
    /// The segment name service: table 3.
    Names,
    /// Look-ups of a name with which others collide, in three ways: section 4.2.
    Collisions,
    /// Notices by a descriptor, beside a bare eventfd.
    Notices,
    /// Operations of a file service in its structures: latency (figure 2), and cost at the server.
    Service,
    /// Operations of a file service over UDP: the parts of the server's work (figure 3).
    Server,
    /// The operations of a file service in the proportions of table 1a: the server's load.
    Mix,
}

/// Measures what the options select, and shows it.
pub fn run(memory: &Memory) -> Result<()> {
    match memory.part {
        Part::Accesses => accesses::run(memory),
        Part::Names => names::run(&memory.options),
        Part::Collisions => collisions::run(&memory.options),
        Part::Notices => notices::run(&memory.options),
        Part::Service => service::operations(memory),
        Part::Server => server::run(memory),
        Part::Mix => service::mixes(memory),
    }
}

/// Returns whether a peer takes part: all peers do unless some are named, and the anchors always do.
fn is_wanted(name: &str, options: &Options) -> bool {
    let ours = name.starts_with("memory-") || name.starts_with("mapped-");
    options.peers.as_ref().is_none_or(|peers| !ours || peers.iter().any(|peer| peer == name))
}
