//! `farcall olympus check`: says what is wrong with a graph, and with the procedures that it calls.

use clap::{Args, ValueHint};
use farcall_olympus::check::{Finding, check};
use farcall_olympus::procedures::Procedures;

use super::graph_file::GraphFile;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say_json};
use crate::remote::Deadline;
use crate::text::counted;

/// Say what is wrong with a graph: its arcs, its expressions, its types, and procedures that nobody exports
/// now
///
/// Errors make the exit code 1; warnings do not. A procedure that nobody exports is a warning, because a
/// server may come before its node fires.
#[derive(Debug, Args)]
pub struct Check {
    /// The graph
    #[arg(value_hint = ValueHint::FilePath)]
    graph: String,

    /// Do not look for the procedures, and do not compare their types with those of the places
    #[arg(long)]
    offline: bool,

    #[command(flatten)]
    deadline: Deadline,
}

impl Check {
    pub fn run(&self, output: &Output) -> Outcome {
        let file = GraphFile::read(&self.graph, output.is_json())?;
        let mut findings = check(&file.graph);
        if !self.offline {
            let procedures = Procedures::new(&self.deadline.runtime()?).in_directory(&file.directory());
            findings.extend(procedures.check(&file.graph));
        }
        for Finding { location, message, warning } in &findings {
            match output.is_json() {
                true => say_json(&file.as_json(*location, message, *warning))?,
                false => file.tell(*location, message, *warning),
            }
        }
        let errors = findings.iter().filter(|finding| !finding.warning).count();
        if !output.is_json() {
            let places = counted(file.graph.places.len() as u64, "place");
            let nodes = counted(file.graph.nodes.len() as u64, "node");
            let verdict = match (errors, findings.len()) {
                (0, 0) => "nothing is wrong".to_owned(),
                (0, warnings) => counted(warnings as u64, "warning"),
                (errors, _) => counted(errors as u64, "error"),
            };
            output.line(Default::default, || format!("{places}, {nodes}: {verdict}"))?;
        }
        if errors > 0 { Err(Failure::found()) } else { Ok(()) }
    }
}
