//! Names types that were declared in line, after the declarations that contain them.

use std::collections::HashMap;

use super::syntax::*;
use crate::language::inline_name;

/// Gives each unnamed type a unique name: `around_field`, with a number if necessary.
pub(super) fn give(syntax: &mut Syntax) {
    let mut names =
        Names { given: syntax.types.iter().map(|item| ((item.scope, item.name.text.clone()), 1)).collect() };
    for place in 0..syntax.programs.len() {
        for (around, role, declared_in) in procedures(&syntax.programs[place]) {
            names.name(syntax, declared_in, &around, &role);
        }
    }
    // The list has inner types before the types around them. Here the outer types are named first.
    for place in (0..syntax.types.len()).rev() {
        let around = syntax.types[place].name.text.clone();
        for (field, declared_in) in inner(&syntax.types[place].body) {
            names.name(syntax, declared_in, &around, &field);
        }
    }
}

struct Names {
    /// The names that are in use, each with the highest number that was tried as its ending.
    given: HashMap<(ScopeId, String), u64>,
}

impl Names {
    fn name(&mut self, syntax: &mut Syntax, place: usize, around: &str, field: &str) {
        let item = &mut syntax.types[place];
        if !item.name.text.is_empty() {
            return;
        }
        let wanted = inline_name(around, field);
        let key = (item.scope, wanted.clone());
        let mut name = wanted.clone();
        while self.given.contains_key(&(item.scope, name.clone())) {
            let number = self.given.entry(key.clone()).or_insert(1);
            *number += 1;
            name = format!("{wanted}_{number}");
        }
        self.given.insert((item.scope, name.clone()), 1);
        item.name.text = name;
    }
}

/// Returns the types that are declared in line in a type, each with the name of its field.
fn inner(body: &BodyItem) -> Vec<(String, usize)> {
    let called = |declaration: &Declaration| {
        let Specifier::Inline(place) = declaration.specifier else { return None };
        Some((declaration.name.text.clone(), place))
    };
    match body {
        BodyItem::Enum(_) => Vec::new(),
        // A type that is declared in an alias takes the alias's name, followed by `item`.
        BodyItem::Alias(declaration) => {
            called(declaration).map(|(_, place)| ("item".to_owned(), place)).into_iter().collect()
        }
        BodyItem::Struct(fields) => fields.iter().filter_map(called).collect(),
        BodyItem::Union(union) => {
            let arms = union.arms.iter().filter_map(|arm| arm.declaration.as_ref());
            let all = std::iter::once(&union.switch).chain(arms).chain(union.default.iter().flatten());
            all.filter_map(called).collect()
        }
    }
}

/// Returns the types that are declared in line in a program's procedures, each with the procedure's name and
/// its role there.
fn procedures(program: &ProgramItem) -> Vec<(String, String, usize)> {
    let mut found = Vec::new();
    for procedure in program.versions.iter().flat_map(|version| &version.procedures) {
        let result = (&procedure.result, "result");
        for (declaration, role) in procedure.arguments.iter().map(|each| (each, "argument")).chain([result]) {
            if let Specifier::Inline(place) = declaration.specifier {
                found.push((procedure.name.text.clone(), role.to_owned(), place));
            }
        }
    }
    found
}
