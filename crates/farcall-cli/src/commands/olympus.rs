//! `farcall olympus`: runs graphs whose nodes are remote procedures, checks, draws and converts them.

mod check;
mod convert;
mod graph_file;
mod interpret;
mod record;
mod replay;
mod run;
#[cfg(feature = "olympus-page")]
mod serve;
mod show;
mod table;

use clap::{Args, Subcommand};

#[cfg(not(feature = "olympus-page"))]
use super::lacking::Lacking;
use crate::failure::Outcome;
use crate::output::Output;

/// Run graphs whose nodes are remote procedures, and check, draw and convert them
///
/// A graph has places with tokens, and nodes that take tokens and put tokens, as in a Petri net. When a node
/// fires, its procedure is found by its name and called. A GRAPH is a file in the text format
/// (docs/olympus-format.md), in PNML (.pnml, .xml) or in JSON (.json); - is text on standard input.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER)]
pub struct Olympus {
    #[command(subcommand)]
    action: Action,
}

const AFTER: &str = "\
Exit codes of run, record and replay --resume:
  0  nothing is left to do: no node can fire, and none has stopped
  1  the graph or the journal cannot be read, or the run ended before its end
  3  a node has stopped: its procedure raised an exception for which it has no
     output
  4  a node has stopped: its call failed, and the procedure did not run
  5  a node has stopped: its call failed, and the procedure ran or may have run

Examples:
  farcall olympus check pipeline.olympus          what is wrong with a graph
  farcall olympus run pipeline.olympus            run it, and watch it
  farcall olympus record pipeline.olympus a.journal
                                                  run it so that it can go on
                                                  after a kill
  farcall olympus replay a.journal --resume       go on
  farcall olympus show pipeline.olympus -o a.svg  a picture of it
  farcall olympus convert net.pnml                a net of another tool";

#[derive(Debug, Subcommand)]
enum Action {
    Run(run::Run),
    Check(check::Check),
    Show(show::Show),
    Record(record::Record),
    Replay(replay::Replay),
    #[cfg(feature = "olympus-page")]
    Serve(serve::Serve),
    /// Show graphs in a browser (not in this build, which lacks the feature `olympus-page`)
    #[cfg(not(feature = "olympus-page"))]
    Serve(Lacking),
    Convert(convert::Convert),
}

impl Olympus {
    pub fn run(&self, output: &Output) -> Outcome {
        match &self.action {
            Action::Run(command) => command.run(output),
            Action::Check(command) => command.run(output),
            Action::Show(command) => command.run(output),
            Action::Record(command) => command.run(output),
            Action::Replay(command) => command.run(output),
            #[cfg(feature = "olympus-page")]
            Action::Serve(command) => command.run(output),
            #[cfg(not(feature = "olympus-page"))]
            Action::Serve(command) => command.refuse("olympus serve", "olympus-page"),
            Action::Convert(command) => command.run(output),
        }
    }
}
