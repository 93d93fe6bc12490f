//! `farcall check`: shows what a new version of an interface breaks.

use clap::{Args, ValueHint};
use farcall_idl::Change;
use serde_json::json;

use crate::commands::describe::{self, Described, Numbers};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::x_file::Reading;

/// Show which changes of an interface break callers of the old version
///
/// Each version is an .x, .cr or .rpc2 file, a file that `farcall describe --json` wrote, or the name of an
/// exporter. The numbers of programs and versions are compared where both sides have them. The exit code is 1
/// if something breaks.
#[derive(Debug, Args)]
pub struct Check {
    /// The old version: a file, or a name
    #[arg(value_hint = ValueHint::FilePath)]
    old: String,
    /// The new version: a file, or a name
    #[arg(value_hint = ValueHint::FilePath)]
    new: String,
    #[command(flatten)]
    reading: Reading,
}

impl Check {
    pub fn run(&self, output: &Output) -> Outcome {
        let old = describe::interfaces(&self.old, &self.reading, output)?;
        let new = describe::interfaces(&self.new, &self.reading, output)?;
        let changes = compare(&old, new);
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

/// Returns the differences between what two files or exporters describe. A file may describe several versions
/// of several programs.
fn compare(old: &[Described], mut new: Vec<Described>) -> Vec<Change> {
    let partners = partners(old, &mut new);
    let mut changes = Vec::new();
    for (old, partner) in old.iter().zip(partners) {
        match partner {
            Some(new) => changes.extend(compare_pair(old, new)),
            None => changes.push(change(true, old, "is gone".to_owned())),
        }
    }
    changes.extend(new.iter().map(|added| change(false, added, "is new".to_owned())));
    changes
}

/// Takes from `new` the partner of each old version: the one with its numbers, or else with its name, or else
/// the only one that is left, if only one old version is left too.
fn partners(old: &[Described], new: &mut Vec<Described>) -> Vec<Option<Described>> {
    let mut found: Vec<Option<Described>> = old.iter().map(|_| None).collect();
    let same_numbers = |a: &Described, b: &Described| a.numbers.is_some() && a.numbers == b.numbers;
    let same_name = |a: &Described, b: &Described| a.interface.name == b.interface.name;
    for is_partner in [same_numbers as fn(&Described, &Described) -> bool, same_name] {
        for (old, found) in old.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            *found = new.iter().position(|new| is_partner(old, new)).map(|place| new.remove(place));
        }
    }
    let mut alone = found.iter_mut().filter(|found| found.is_none());
    if let (Some(last), None, 1) = (alone.next(), alone.next(), new.len()) {
        *last = new.pop();
    }
    found
}

fn compare_pair(old: &Described, mut new: Described) -> Vec<Change> {
    let mut changes = Vec::new();
    if let (Some(was), Some(is)) = (old.numbers, new.numbers) {
        let Numbers { program, version } = was;
        if program != is.program {
            let what = format!("program {program} became {}: old callers ask for {program}", is.program);
            changes.push(change(true, old, what));
        }
        if version != is.version {
            let what = format!("version {version} became {}: old callers ask for {version}", is.version);
            changes.push(change(true, old, what));
        }
        // Callers find such a program by its numbers. Names are those of the source.
        if old.interface.name != new.interface.name {
            changes.push(change(false, old, format!("is named {} now", new.interface.name)));
            new.interface.name.clone_from(&old.interface.name);
        }
    }
    changes.extend(farcall_idl::check(&old.interface, &new.interface));
    changes
}

fn change(breaking: bool, of: &Described, what: String) -> Change {
    Change { breaking, place: of.interface.name.clone(), what }
}

fn verdict(changes: usize, breaking: usize) -> String {
    match (changes, breaking) {
        (0, _) => "no difference".into(),
        (_, 0) => "nothing breaks".into(),
        (_, 1) => "1 change breaks old callers".into(),
        (_, n) => format!("{n} changes break old callers"),
    }
}
