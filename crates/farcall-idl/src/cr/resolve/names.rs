//! Looks up names. Types, constants, procedures, errors and enumerators of a program share one scope. Only
//! enumerators of different enumerations may have the same name: the type that is expected selects one.

use std::collections::BTreeSet;

use super::super::syntax::*;
use super::Resolver;
use crate::nearest;
use crate::text::diagnostic::Diagnostic;
use crate::text::source::Span;

/// The meaning of a name.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub at: Span,
    /// The index of the declaration, or `None` for an enumerator.
    pub declaration: Option<usize>,
}

/// The longest chain of names that is followed.
pub(super) const MAX_CHAIN: usize = 64;

impl<'a> Resolver<'a> {
    /// Enters the names of all programs.
    pub(super) fn enter_names(&mut self) {
        for program in 0..self.programs.len() {
            self.names.push(Default::default());
            for (index, declaration) in self.declarations(program).iter().enumerate() {
                let entry = Entry { at: declaration.name.at, declaration: Some(index) };
                self.enter(program, &declaration.name, entry);
                self.enter_enumerators(program, &declaration.ty);
            }
        }
    }

    fn enter(&mut self, program: usize, name: &'a Name, entry: Entry) {
        let Some(first) = self.names[program].get(name.text.as_str()).copied() else {
            self.names[program].insert(&name.text, entry);
            return;
        };
        let text = &name.text;
        match (first.declaration, entry.declaration) {
            (None, None) => {}
            (Some(_), Some(_)) => {
                self.again(entry.at, first.at, format!("`{text}` is declared a second time"))
            }
            (None, Some(_)) => {
                let why = format!("`{text}` is declared a second time: it is an enumerator already");
                self.again(entry.at, first.at, why);
            }
            (Some(_), None) => {
                let why = format!(
                    "the enumerator `{text}` is declared a second time: another declaration has this name"
                );
                self.again(entry.at, first.at, why);
            }
        }
    }

    /// Enters the enumerators in a type: those of enumerations, and the designators with numbers of choices.
    /// The parser bounds the depth.
    fn enter_enumerators(&mut self, program: usize, ty: &'a TypeExpression) {
        match &ty.kind {
            TypeKind::Plain(_) | TypeKind::String | TypeKind::Named(_) => {}
            TypeKind::Enumeration(all) => all.iter().for_each(|each| self.enter_enumerator(program, each)),
            TypeKind::Array(_, element) | TypeKind::Sequence(_, element) => {
                self.enter_enumerators(program, element);
            }
            TypeKind::Record(groups) | TypeKind::Error(groups) => self.enter_in_groups(program, groups),
            TypeKind::Procedure(Procedure { arguments, results, .. }) => {
                self.enter_in_groups(program, arguments);
                self.enter_in_groups(program, results);
            }
            TypeKind::Choice(choice) => {
                for Candidate { designators, ty } in &choice.candidates {
                    let numbered = designators.iter().filter(|each| each.number.is_some());
                    numbered.for_each(|each| self.enter_enumerator(program, each));
                    self.enter_enumerators(program, ty);
                }
            }
        }
    }

    fn enter_in_groups(&mut self, program: usize, groups: &'a [Group]) {
        groups.iter().for_each(|group| self.enter_enumerators(program, &group.ty));
    }

    fn enter_enumerator(&mut self, program: usize, designator: &'a Designator) {
        let entry = Entry { at: designator.name.at, declaration: None };
        self.enter(program, &designator.name, entry);
    }

    /// Returns the declaration that a name means: its program and its index there. Reports a name that means
    /// nothing, or an enumerator. `kind` says what the name should be.
    pub(super) fn find(&mut self, program: usize, name: &Reference, kind: &str) -> Option<(usize, usize)> {
        match self.look(program, name) {
            Ok(Some((program, Entry { declaration: Some(index), .. }))) => Some((program, index)),
            Ok(Some((_, Entry { at, declaration: None }))) => {
                let why = format!("`{}` is an enumerator, not {kind}", name.name);
                self.push(|sources| {
                    Diagnostic::new(sources, name.at, why).see(sources, at, "it is declared here")
                });
                None
            }
            Ok(None) => {
                self.undeclared(program, name);
                None
            }
            Err(why) => {
                self.fault(name.at, why);
                None
            }
        }
    }

    /// Returns the declaration of a name without reporting an error.
    pub(super) fn find_silently(&self, program: usize, name: &Reference) -> Option<(usize, usize)> {
        let (program, entry) = self.look(program, name).ok().flatten()?;
        Some((program, entry.declaration?))
    }

    /// Returns the entry of a name, with the program that has it. Fails if two versions of a program, upon
    /// which the file depends, both have the name.
    fn look(&self, program: usize, name: &Reference) -> Result<Option<(usize, Entry)>, String> {
        let Some(other) = &name.program else {
            return Ok(self.names[program].get(name.name.as_str()).map(|entry| (program, *entry)));
        };
        let mut found = None;
        for upon in self.called(program, other) {
            let Some(entry) = self.names[upon].get(name.name.as_str()) else { continue };
            if found.is_some() {
                return Err(format!(
                    "this program depends upon two versions of `{other}`, and both declare `{}`",
                    name.name
                ));
            }
            found = Some((upon, *entry));
        }
        Ok(found)
    }

    /// Returns the programs of that name upon which a program depends.
    fn called(&self, program: usize, name: &str) -> BTreeSet<usize> {
        let upon = self.programs[program].upon.iter().copied();
        upon.filter(|upon| self.programs[*upon].program.name.text == name).collect()
    }

    fn undeclared(&mut self, program: usize, name: &Reference) {
        let within: BTreeSet<usize> = match &name.program {
            Some(other) => self.called(program, other),
            None => BTreeSet::from([program]),
        };
        if let (Some(other), true) = (&name.program, within.is_empty()) {
            let help = "name the program in `DEPENDS UPON`";
            let why = format!("this program does not depend upon a program `{other}`");
            self.push(|sources| Diagnostic::new(sources, name.at, why).help(help));
            return;
        }
        let known = within.iter().flat_map(|program| self.names[*program].keys()).copied();
        let similar = if self.suggestions > 0 { nearest(&name.name, known) } else { None };
        let similar = similar.map(|similar| format!("a similar name is declared: `{similar}`"));
        self.suggestions = self.suggestions.saturating_sub(1);
        let why = match &name.program {
            Some(other) => format!("`{other}` declares no `{}`", name.name),
            None => format!("nothing of the name `{}` is declared", name.name),
        };
        self.push(|sources| {
            similar.into_iter().fold(Diagnostic::new(sources, name.at, why), Diagnostic::help)
        });
    }
}
