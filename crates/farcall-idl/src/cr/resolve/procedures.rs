//! Resolves procedures and the errors that they report.

use std::collections::HashMap;

use super::super::syntax::*;
use super::types::MAX_CARDINAL;
use super::{Resolver, module, named, parts_of_text};
use crate::language::tree::{self, Argument, Body, Declared, Field, Named, Raised, Type, Version};
use crate::text::source::Span;

impl Resolver<'_> {
    /// Resolves the procedures of a program. Returns `None` if there are none. Checks its errors too, even
    /// those that no procedure reports.
    pub(super) fn program(&mut self, program: usize) -> Option<tree::Program> {
        let mut seen: HashMap<u32, Span> = HashMap::new();
        let mut procedures = Vec::new();
        for (index, declaration) in self.declarations(program).iter().enumerate() {
            let Some(value) = &declaration.value else { continue };
            match self.callable(program, &declaration.ty) {
                Some((_, TypeExpression { kind: TypeKind::Error(_), .. })) => {
                    self.error(program, index);
                }
                Some((other, TypeExpression { kind: TypeKind::Procedure(procedure), .. })) => {
                    let why = "a procedure's number is between 0 and 65535";
                    let Some(number) = self.number(program, value, MAX_CARDINAL, why) else { continue };
                    if let Some(first) = seen.insert(number, value.at) {
                        self.again(value.at, first, "another procedure has this number already");
                    }
                    let name = &declaration.name;
                    procedures.extend(self.procedure(program, name, other, procedure, number));
                }
                _ => {}
            }
        }
        let Program { name, numbers, .. } = &self.programs[program].program;
        let (number, version) = numbers.unwrap_or((0, 0));
        let version = Version {
            named: Named { name: name.text.clone(), docs: String::new() },
            number: version,
            procedures,
        };
        let has_procedures = !version.procedures.is_empty();
        let versions = vec![version];
        has_procedures.then(|| tree::Program {
            module: module(program),
            named: named(name),
            number,
            versions,
        })
    }

    /// Resolves a procedure. Its type may stand in another program.
    fn procedure(
        &mut self,
        program: usize,
        name: &Name,
        other: usize,
        procedure: &Procedure,
        number: u32,
    ) -> Option<tree::Procedure> {
        self.charge(name.at, || parts_of(&procedure.arguments).saturating_add(parts_of(&procedure.results)))?;
        let arguments = self.fields(other, &procedure.arguments, &name.text).into_iter();
        let arguments =
            arguments.map(|Field { named, declared }| Argument { name: Some(named.name), declared });
        let arguments = arguments.collect();
        let mut results = self.fields(other, &procedure.results, &name.text);
        let result = match results.len() {
            0 => Declared::One(Type::Void),
            1 => results.remove(0).declared,
            _ => {
                let docs = format!("The results of `{}`.", name.text);
                let place = self.add(program, &format!("{}Results", name.text), &docs, name.at);
                self.types[place].body = Body::Struct(results);
                Declared::One(Type::Defined(place))
            }
        };
        let exception = self.exception(program, name, other, &procedure.reports);
        Some(tree::Procedure { named: named(name), number, arguments, result, exception, deadline_ms: None })
    }

    /// Counts parts that are resolved or copied again for each procedure. Returns `None` if there are too
    /// many.
    fn charge(&mut self, at: Span, parts: impl FnOnce() -> usize) -> Option<()> {
        // Once there are too many, they are not even counted any more.
        let parts = if self.copies_left > 0 { parts().saturating_add(1) } else { 1 };
        let Some(left) = self.copies_left.checked_sub(parts) else {
            self.copies_left = 0;
            self.fault(at, "the procedures and errors have too many parts together");
            return None;
        };
        self.copies_left = left;
        Some(())
    }

    /// Adds the definition of the errors that a procedure reports, if it reports any.
    fn exception(
        &mut self,
        program: usize,
        name: &Name,
        other: usize,
        reports: &[Reference],
    ) -> Option<usize> {
        let mut seen: HashMap<i32, (Span, (usize, usize))> = HashMap::new();
        let mut errors = Vec::new();
        for reference in reports {
            let Some(found) = self.find(other, reference, "an error") else { continue };
            let Some(error) = self.error(found.0, found.1) else {
                self.no_error(found, reference);
                continue;
            };
            self.charge(reference.at, || parts_of_error(&error))?;
            match seen.insert(error.value, (reference.at, found)) {
                None => errors.push(error),
                Some((first, known)) if known == found => {
                    self.again(reference.at, first, format!("`{}` is reported already", reference.name));
                }
                Some((first, _)) => {
                    let why = format!("this procedure reports another error with the number {}", error.value);
                    self.again(reference.at, first, why);
                }
            }
        }
        if errors.is_empty() {
            return None;
        }
        let docs = format!("The errors that `{}` reports.", name.text);
        let place = self.add(program, &format!("{}Error", name.text), &docs, name.at);
        self.types[place].body = Body::Exception(errors);
        Some(place)
    }

    /// Reports that a name does not mean an error. A fault in an error itself is reported at the error.
    fn no_error(&mut self, (program, index): (usize, usize), reference: &Reference) {
        let declaration = &self.declarations(program)[index];
        let callable = self.callable(program, &declaration.ty).map(|(_, ty)| &ty.kind);
        if declaration.value.is_none() || !matches!(callable, Some(TypeKind::Error(_))) {
            self.fault(reference.at, format!("`{}` is no error", reference.name));
        }
    }

    /// Resolves an error, once. Returns `None` if the declaration is no error or has a fault.
    fn error(&mut self, program: usize, index: usize) -> Option<Raised> {
        if let Some(known) = self.errors.get(&(program, index)) {
            return known.clone();
        }
        let error = self.new_error(program, &self.declarations(program)[index]);
        self.errors.insert((program, index), error.clone());
        error
    }

    fn new_error(&mut self, program: usize, declaration: &Declaration) -> Option<Raised> {
        let value = declaration.value.as_ref()?;
        let (other, ty) = self.callable(program, &declaration.ty)?;
        let TypeKind::Error(arguments) = &ty.kind else { return None };
        let name = &declaration.name;
        self.charge(name.at, || parts_of(arguments))?;
        let fields = self.fields(other, arguments, &name.text);
        let value = self.number(program, value, MAX_CARDINAL, "an error's number is between 0 and 65535")?;
        Some(Raised { named: named(name), value: value.cast_signed(), fields })
    }
}

/// Returns how many parts fields have, with the parts of the types that they declare in line.
fn parts_of(groups: &[Group]) -> usize {
    let each = groups.iter().map(|Group { names, ty }| {
        names.iter().fold(parts_of_type(ty), |sum, name| sum.saturating_add(parts_of_name(name)))
    });
    each.fold(0, usize::saturating_add)
}

/// The parser bounds the depth.
fn parts_of_type(ty: &TypeExpression) -> usize {
    let designators = |all: &[Designator]| all.iter().map(|each| parts_of_name(&each.name)).sum();
    match &ty.kind {
        TypeKind::Plain(_) | TypeKind::String | TypeKind::Named(_) => 0,
        TypeKind::Enumeration(all) => designators(all),
        TypeKind::Array(_, element) | TypeKind::Sequence(_, element) => parts_of_type(element),
        TypeKind::Record(groups) | TypeKind::Error(groups) => parts_of(groups),
        TypeKind::Procedure(Procedure { arguments, results, .. }) => {
            parts_of(arguments).saturating_add(parts_of(results))
        }
        TypeKind::Choice(choice) => {
            let each = choice.candidates.iter().map(|Candidate { designators: all, ty }| {
                let all: usize = designators(all);
                all.saturating_add(parts_of_type(ty))
            });
            each.fold(0, usize::saturating_add)
        }
    }
}

fn parts_of_name(Name { text, docs, .. }: &Name) -> usize {
    1 + parts_of_text(text) + parts_of_text(docs)
}

fn parts_of_error(Raised { named, fields, .. }: &Raised) -> usize {
    let all = [named].into_iter().chain(fields.iter().map(|field| &field.named));
    all.map(|named| 1 + parts_of_text(&named.name) + parts_of_text(&named.docs)).sum()
}
