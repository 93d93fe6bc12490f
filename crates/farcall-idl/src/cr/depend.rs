//! Reads the programs that a program depends upon, directly or not, each once. Programs may depend upon each
//! other in a circle, because names are looked up when all have been read.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::syntax::{Dependency, Program};
use super::{Options, parse};
use crate::text::diagnostic::{Diagnostic, Diagnostics};
use crate::text::reader::Parsed;
use crate::text::source::Sources;

/// The maximum number of programs in one run.
const MAX_PROGRAMS: usize = 64;

/// A program, and the programs that it depends upon.
pub(super) struct Dependent {
    pub program: Program,
    /// The index of each of them in the list of all programs.
    pub upon: Vec<usize>,
}

/// Reads the program in the text at that index of `sources`, and all that it depends upon. The first program
/// in the result is that of the text.
pub(super) fn read_all(
    sources: &mut Sources,
    file: u32,
    options: &Options,
) -> Result<Vec<Dependent>, Diagnostics> {
    let program = parse::parse(sources, file)?;
    let mut known = HashMap::new();
    if let Some((number, version)) = program.numbers {
        known.insert((program.name.text.clone(), number, version), 0);
    }
    let mut all = vec![Dependent { program, upon: Vec::new() }];
    let mut next = 0;
    while next < all.len() {
        let mut named = HashSet::new();
        for place in 0..all[next].program.dependencies.len() {
            let dependency = &all[next].program.dependencies[place];
            let key = (dependency.name.text.clone(), dependency.number, dependency.version);
            let upon = match known.get(&key) {
                Some(upon) => *upon,
                None if all.len() >= MAX_PROGRAMS => {
                    let why = format!("programs depend upon more than {MAX_PROGRAMS} others");
                    return Err(Diagnostic::new(sources, dependency.name.at, why).into());
                }
                None => {
                    let program = find(sources, dependency, &options.include_dirs)?;
                    all.push(Dependent { program, upon: Vec::new() });
                    all.len() - 1
                }
            };
            known.insert(key, upon);
            // A program that is named again is looked into once.
            if named.insert(upon) {
                all[next].upon.push(upon);
            }
        }
        next += 1;
    }
    Ok(all)
}

/// Finds the file of a program and parses it.
fn find(sources: &mut Sources, dependency: &Dependency, directories: &[PathBuf]) -> Parsed<Program> {
    let Dependency { name, number, version } = dependency;
    let wanted = [format!("{}{}.cr", name.text, version), format!("{}.cr", name.text)];
    let mut others = Vec::new();
    for wanted in &wanted {
        let Some(path) = sources.search(name.at.file, Path::new(wanted), directories) else { continue };
        let file = sources.read(&path, None).map_err(Diagnostic::nowhere)?;
        let program = parse::parse(sources, file)?;
        let numbers = program.numbers;
        if program.name.text == name.text && numbers == Some((*number, *version)) {
            return Ok(program);
        }
        let numbers = match numbers {
            Some((number, version)) => format!("{number} VERSION {version}"),
            None => "without numbers".into(),
        };
        others.push(format!("{} has `{}: PROGRAM {numbers}`", path.display(), program.name.text));
    }
    let why = format!("no file was found for `{}: PROGRAM {} VERSION {}`", name.text, number, version);
    let looked = format!(
        "`{}` and `{}` were looked for beside this file and in the directories that `-I DIRECTORY` (on the \
         command line) and `include = \"directory\"` (in `include_cr!`) name",
        wanted[0], wanted[1]
    );
    let fault = Diagnostic::new(sources, name.at, why).help(looked);
    Err(others.into_iter().fold(fault, Diagnostic::help))
}
