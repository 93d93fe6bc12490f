//! `farcall check`: shows what a new version of an interface breaks.

use clap::Args;
use farcall_idl::Change;
use serde_json::json;

use crate::commands::describe;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Show which changes of an interface break callers of the old version
///
/// Each version is a file that `farcall describe --json` wrote, or the name of an exporter. The exit code
/// is 1 if something breaks.
#[derive(Debug, Args)]
pub struct Check {
    /// The old version: a file, or a name
    old: String,
    /// The new version: a file, or a name
    new: String,
}

impl Check {
    pub fn run(&self, output: &Output) -> Outcome {
        let (old, new) = (describe::interface(&self.old)?, describe::interface(&self.new)?);
        let changes = farcall_idl::check(&old, &new);
        for Change { breaking, place, what } in &changes {
            output.line(
                || json!({ "breaking": breaking, "place": place, "what": what }),
                || format!("{}: {place}: {what}", if *breaking { "breaking" } else { "fine" }),
            )?;
        }
        let breaking = changes.iter().filter(|change| change.breaking).count();
        if !output.is_json() {
            output.line(Default::default, || verdict(changes.len(), breaking))?;
        }
        if breaking > 0 { Err(Failure::found()) } else { Ok(()) }
    }
}

fn verdict(changes: usize, breaking: usize) -> String {
    match (changes, breaking) {
        (0, _) => "no difference".into(),
        (_, 0) => "nothing breaks".into(),
        (_, 1) => "1 change breaks old callers".into(),
        (_, n) => format!("{n} changes break old callers"),
    }
}
