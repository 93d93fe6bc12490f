//! Reads a file, and the files whose declarations it needs without including them.
//!
//! `%#include "other.h"` tells C where types come from. If there is an `other.x`, rpcgen generates that
//! header from it, so its types are known. Such files, and RPC's own declarations (`prelude.x`), are
//! auxiliary: only those of their declarations that the file uses are kept, their errors are not reported,
//! and the file's own declarations take precedence.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::preprocess::{Number, Preprocessor};
use super::resolve::resolve;
use super::syntax::{Scope, Syntax};
use super::tree::Specification;
use super::{Options, names, parse};
use crate::text::diagnostic::Diagnostics;
use crate::text::source::Sources;

/// The maximum number of auxiliary files.
const MAX_IMPORTS: usize = 64;

const PRELUDE: &str = include_str!("prelude.x");

/// Reads the text at that index of `sources`, and the files that it needs.
pub(super) fn read_whole(
    mut sources: Sources,
    file: u32,
    options: &Options,
) -> Result<Specification, Diagnostics> {
    let mut syntax = Syntax { scopes: vec![Scope { name: String::new(), outer: 0 }], ..Syntax::default() };
    let mut preprocessor = Preprocessor::new(&mut sources, file, options)?;
    let own = parse::parse(&mut preprocessor, &mut syntax)?;
    let Preprocessor { numbers, imports, .. } = preprocessor;

    let imported_numbers = HashMap::new();
    let mut imported =
        Imported { sources, imported_numbers, options, seen: HashSet::new(), wanted: Vec::new() };
    imported.want(file, &imports);
    while let Some(path) = imported.wanted.pop() {
        imported.add_declarations(&path, None, &mut syntax);
    }
    imported.add_declarations(Path::new("prelude.x"), Some(PRELUDE), &mut syntax);

    names::give(&mut syntax);
    let mut specification =
        resolve(&imported.sources, &syntax, own, [&numbers, &imported.imported_numbers], &options.external)?;
    specification.files = imported.sources.files;
    Ok(specification)
}

struct Imported<'o> {
    sources: Sources,
    imported_numbers: HashMap<String, Number>,
    options: &'o Options,
    seen: HashSet<PathBuf>,
    wanted: Vec<PathBuf>,
}

impl Imported<'_> {
    /// Looks for the `.x` files from which the headers `names`, which the file `from` includes, could be
    /// generated.
    fn want(&mut self, from: u32, names: &[String]) {
        self.seen.insert(PathBuf::from(&self.sources.get(from).name));
        for name in names {
            let wanted = Path::new(name).with_extension("x");
            let beside = wanted.file_name().map(PathBuf::from).unwrap_or_default();
            let Some(path) = [wanted, beside]
                .iter()
                .find_map(|wanted| self.sources.search(from, wanted, &self.options.include_dirs))
            else {
                continue;
            };
            if self.seen.len() < MAX_IMPORTS && self.seen.insert(path.clone()) {
                self.wanted.push(path);
            }
        }
    }

    /// Adds the declarations of a file, if it can be read.
    fn add_declarations(&mut self, path: &Path, text: Option<&str>, syntax: &mut Syntax) {
        let file = match text {
            Some(text) => self.sources.add(path, text, None),
            None => self.sources.read(path, None),
        };
        let Ok(file) = file else { return };
        let Ok(mut preprocessor) = Preprocessor::new(&mut self.sources, file, self.options) else { return };
        let (constants, types, programs) =
            (syntax.constants.len(), syntax.types.len(), syntax.programs.len());
        let understood = parse::parse(&mut preprocessor, syntax).is_ok();
        let Preprocessor { numbers, imports, .. } = preprocessor;
        syntax.programs.truncate(programs);
        if !understood {
            syntax.constants.truncate(constants);
            syntax.types.truncate(types);
            return;
        }
        for (name, number) in numbers {
            self.imported_numbers.entry(name).or_insert(number);
        }
        self.want(file, &imports);
    }
}
