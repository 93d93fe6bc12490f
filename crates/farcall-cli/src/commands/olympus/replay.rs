//! `farcall olympus replay`: shows what a journal recorded, or goes on with the run.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall::Ran;
use farcall_olympus::interpreter::{Firing, FiringState, Interpreter};
use farcall_olympus::journal;
use farcall_olympus::model::PlaceId;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::rules::Rules;
use farcall_olympus::run::{Past, Run};
use serde_json::{Value, json};

use super::interpret::{Options, not_started};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say_json};
use crate::remote::runtime;

/// Show what a journal recorded: the tokens at its end, and the calls that may have run; or go on with the
/// run
#[derive(Debug, Args)]
pub struct Replay {
    /// The journal that `record` has written
    #[arg(value_hint = ValueHint::FilePath)]
    journal: PathBuf,

    /// Go on with the run, and record it further. Calls that may have run are repeated if they are
    /// idempotent; otherwise their nodes stop
    #[arg(long)]
    resume: bool,

    /// Print each record of the journal, as a line of JSON
    #[arg(long, conflicts_with = "resume")]
    records: bool,

    /// The directory that paths of .x and .cr files in the graph refer to
    #[arg(long, value_name = "DIRECTORY", default_value = ".", value_hint = ValueHint::DirPath)]
    directory: PathBuf,

    #[command(flatten)]
    options: Options,
}

impl Replay {
    pub fn run(&self, output: &Output) -> Outcome {
        if self.records {
            return self.print_records();
        }
        let damaged = |why: journal::Damaged| Failure::new(why.to_string());
        if self.resume {
            let past = Past::open(&self.journal, Rules::standard()).map_err(damaged)?;
            let graph = past.interpreter().graph().clone();
            let procedures = Procedures::new(&runtime()?).in_directory(&self.directory);
            let run = Run::resume(past, &procedures, self.options.settings()?)
                .map_err(|why| not_started(&graph, why))?;
            return self.options.watch(&run, output);
        }
        let past = Past::read(self.open()?, Rules::standard()).map_err(damaged)?;
        let may_have_run: Vec<u64> = past.may_have_run().map(|firing| firing.0).collect();
        let interpreter = past.interpreter();
        output.page(|| as_json(interpreter, &may_have_run), || as_text(interpreter, &may_have_run))
    }

    fn open(&self) -> Outcome<BufReader<File>> {
        let file = File::open(&self.journal);
        file.map(BufReader::new).map_err(|why| Failure::from(why).about(self.journal.display()))
    }

    fn print_records(&self) -> Outcome {
        let mut printed = Ok(());
        let read = journal::read(self.open()?, |record| {
            if printed.is_ok() {
                printed = say_json(&json!(record));
            }
            Ok(())
        });
        read.map_err(|why| Failure::new(why.to_string()))?;
        printed
    }
}

fn as_json(interpreter: &Interpreter, may_have_run: &[u64]) -> Value {
    let graph = interpreter.graph();
    let tokens = |at: usize| interpreter.marking().get(PlaceId(at as u32)).map(|place| &place.tokens);
    let places = graph
        .places
        .iter()
        .enumerate()
        .map(|(at, place)| json!({ "name": place.name, "tokens": tokens(at) }));
    let firings = interpreter.under_way().map(|firing| {
        json!({
            "firing": firing.id.0,
            "node": graph.nodes[firing.node.0 as usize].name,
            "stopped": matches!(firing.state, FiringState::Stopped(_)),
            "ran": ran(firing, may_have_run),
        })
    });
    json!({
        "graph": graph.name,
        "places": places.collect::<Vec<_>>(),
        "under_way": firings.collect::<Vec<_>>(),
    })
}

/// Returns whether the procedure of a firing ran that has not ended.
fn ran(firing: &Firing, may_have_run: &[u64]) -> &'static str {
    match &firing.state {
        FiringState::Stopped(failure) => match failure.ran() {
            Ran::No => "no",
            Ran::Maybe => "maybe",
            Ran::Yes => "yes",
        },
        _ if may_have_run.contains(&firing.id.0) => "maybe",
        _ => "no",
    }
}

fn as_text(interpreter: &Interpreter, may_have_run: &[u64]) -> String {
    let graph = interpreter.graph();
    let mut page = format!("{:>8}  PLACE\n", "TOKENS");
    for (at, place) in graph.places.iter().enumerate() {
        let count = interpreter.marking().get(PlaceId(at as u32)).map_or(0, |place| place.tokens.len());
        if count > 0 {
            page += &format!("{count:>8}  {}\n", place.name.escape_debug());
        }
    }
    for firing in interpreter.under_way() {
        let ran = match ran(firing, may_have_run) {
            "maybe" => "may have run",
            "yes" => "has run",
            _ => "did not run",
        };
        let had = if matches!(firing.state, FiringState::Stopped(_)) { "has stopped" } else { "had begun" };
        let node = graph.nodes[firing.node.0 as usize].name.escape_debug();
        page += &format!("firing {} of {node} {had}; its procedure {ran}\n", firing.id.0);
    }
    page
}
