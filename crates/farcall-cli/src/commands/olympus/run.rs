//! `farcall olympus run`: interprets a graph, and shows it meanwhile.

use clap::{Args, ValueHint};
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{self, Settings};

use super::graph_file::GraphFile;
use super::interpret::{Options, not_started};
use crate::failure::Outcome;
use crate::output::Output;
use crate::remote::runtime;

/// Run a graph until no node can fire, and show it meanwhile
///
/// On a terminal a table shows the places and nodes as they are; otherwise the table is printed at the end.
/// With --json, the first line is the graph, each further line what has changed, and the last one how the run
/// ended.
///
/// A call that did not run is tried again until it succeeds: servers may come, go and be replaced. A call
/// that may have run is repeated if it is idempotent; otherwise its node stops.
#[derive(Debug, Args)]
pub struct Run {
    /// The graph
    #[arg(value_hint = ValueHint::FilePath)]
    graph: String,

    /// The number by which nodes that could fire at once are chosen [default: in the order in which they
    /// could]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    seed: u64,

    #[command(flatten)]
    options: Options,
}

impl Run {
    pub fn run(&self, output: &Output) -> Outcome {
        let file = GraphFile::read(&self.graph, output.is_json())?;
        let procedures = Procedures::new(&runtime()?).in_directory(&file.directory());
        let settings = Settings { seed: self.seed, ..self.options.settings()? };
        let run = run::Run::start(file.graph.clone(), &procedures, settings)
            .map_err(|why| not_started(&file.graph, why))?;
        self.options.watch(&run, output)
    }
}
