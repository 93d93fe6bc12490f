//! `farcall olympus record`: interprets a graph, and records the run so that it can go on after a kill.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall_olympus::journal::Journal;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Run, Settings};

use super::graph_file::GraphFile;
use super::interpret::{Options, not_started};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::runtime;

/// Run a graph, and record what begins and ends in a journal, from which `replay` can go on
#[derive(Debug, Args)]
pub struct Record {
    /// The graph
    #[arg(value_hint = ValueHint::FilePath)]
    graph: String,

    /// The journal, a new file
    #[arg(value_hint = ValueHint::FilePath)]
    journal: PathBuf,

    /// Have the journal outlive a loss of power too: wait for the disk before each call
    #[arg(long)]
    sync: bool,

    /// The number by which nodes that could fire at once are chosen [default: in the order in which they
    /// could]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    seed: u64,

    #[command(flatten)]
    options: Options,
}

impl Record {
    pub fn run(&self, output: &Output) -> Outcome {
        let file = GraphFile::read(&self.graph, output.is_json())?;
        let procedures = Procedures::new(&runtime()?).in_directory(&file.directory());
        let journal = Journal::create(&self.journal).map_err(|why| Failure::new(why.to_string()))?;
        let journal = match self.sync {
            true => journal.synced().map_err(|why| Failure::from(why).about(self.journal.display()))?,
            false => journal,
        };
        let settings = Settings { seed: self.seed, journal: Some(journal), ..self.options.settings()? };
        let run = Run::start(file.graph.clone(), &procedures, settings)
            .map_err(|why| not_started(&file.graph, why))?;
        self.options.watch(&run, output)
    }
}
