//! Resolves the declarations of all programs: looks up names, hoists types that are declared in line, and
//! checks the rules of the language.

mod names;
mod procedures;
mod types;
mod values;

use std::collections::HashMap;

use self::names::Entry;
pub(super) use self::types::MAX_CARDINAL;
use super::depend::Dependent;
use super::syntax::*;
use crate::language::layout;
use crate::language::tree::{self, Body, Constant, Definition, Language, Named, Specification};
use crate::text::diagnostic::{Diagnostic, Diagnostics, MAX_FAULTS, add_fault};
use crate::text::source::{Sources, Span};

/// The maximum number of undeclared names for which a similar name is searched. The search takes time.
const MAX_SUGGESTIONS: usize = 64;
/// The maximum number of parts in the values of all constants. A constant that is used in others counts
/// again.
const MAX_VALUES: usize = 1 << 18;
/// The maximum number of parts of all procedures and errors. A type that several procedures have counts for
/// each of them, and so does an error that they report.
const MAX_COPIES: usize = 1 << 18;
/// So many bytes of a text count as a part, because they are copied with it.
const BYTES_OF_PART: usize = 32;

/// Resolves the declarations of all programs. The first program is that of the file itself, each other one
/// becomes a module.
pub(super) fn resolve(sources: &Sources, programs: &[Dependent]) -> Result<Specification, Diagnostics> {
    let mut resolver = Resolver::new(sources, programs);
    resolver.enter_names();
    resolver.place_types();
    resolver.bodies();
    if resolver.faults.is_empty() {
        resolver.check_layout();
    }
    let constants = if resolver.faults.is_empty() { resolver.constants() } else { Vec::new() };
    let resolved = (0..programs.len()).filter_map(|program| resolver.program(program)).collect();
    if !resolver.faults.is_empty() {
        return Err(Diagnostics(resolver.faults));
    }
    let module = |dependent: &Dependent| {
        let Program { name, numbers, .. } = &dependent.program;
        let version = numbers.map_or(0, |(_, version)| version);
        Named { name: format!("{}{version}", name.text), docs: name.docs.clone() }
    };
    Ok(Specification {
        constants,
        types: resolver.types,
        programs: resolved,
        language: Language::Courier,
        modules: programs[1..].iter().map(module).collect(),
        ..Specification::default()
    })
}

struct Resolver<'a> {
    sources: &'a Sources,
    programs: &'a [Dependent],
    /// What each name of each program means.
    names: Vec<HashMap<&'a str, Entry>>,
    /// For each declaration of each program its type's index in `types`, if it declares a type.
    places: Vec<Vec<Option<usize>>>,
    types: Vec<Definition>,
    /// The name of each type in `types`, for messages.
    type_names: Vec<Span>,
    /// The enumerators, fields or alternatives of the types that were asked for: index, and value if there is
    /// one.
    members: HashMap<usize, HashMap<String, (usize, i32)>>,
    /// The errors that were resolved, by program and declaration.
    errors: HashMap<(usize, usize), Option<tree::Raised>>,
    faults: Vec<Diagnostic>,
    suggestions: usize,
    /// How many more parts the values of constants may have.
    values_left: usize,
    /// How many more parts procedures and errors may have.
    copies_left: usize,
}

impl<'a> Resolver<'a> {
    fn new(sources: &'a Sources, programs: &'a [Dependent]) -> Self {
        Resolver {
            sources,
            programs,
            names: Vec::new(),
            places: Vec::new(),
            types: Vec::new(),
            type_names: Vec::new(),
            members: HashMap::new(),
            errors: HashMap::new(),
            faults: Vec::new(),
            suggestions: MAX_SUGGESTIONS,
            values_left: MAX_VALUES,
            copies_left: MAX_COPIES,
        }
    }

    fn declarations(&self, program: usize) -> &'a [Declaration] {
        let programs = self.programs;
        &programs[program].program.declarations
    }

    /// Makes an empty definition for each declared type, so that types can refer to later ones.
    fn place_types(&mut self) {
        for program in 0..self.programs.len() {
            let mut places = Vec::new();
            for declaration in self.declarations(program) {
                let is_type = declaration.value.is_none() && !self.is_callable(program, &declaration.ty);
                let Name { text, at, docs } = &declaration.name;
                places.push(is_type.then(|| self.add(program, text, docs, *at)));
            }
            self.places.push(places);
        }
    }

    /// Adds a definition without a body, and returns its index.
    fn add(&mut self, program: usize, name: &str, docs: &str, at: Span) -> usize {
        let named = Named { name: name.to_owned(), docs: docs.to_owned() };
        let (namespace, body) = (Vec::new(), Body::Struct(Vec::new()));
        self.types.push(Definition { named, namespace, module: module(program), body });
        self.type_names.push(at);
        self.types.len() - 1
    }

    /// Resolves the bodies of all types, those of enumerations first, because choices look into them.
    fn bodies(&mut self) {
        for first in [true, false] {
            for program in 0..self.programs.len() {
                for (index, declaration) in self.declarations(program).iter().enumerate() {
                    let is_first = matches!(declaration.ty.kind, TypeKind::Enumeration(_));
                    if let (Some(place), true) = (self.places[program][index], is_first == first) {
                        self.types[place].body = self.body(program, &declaration.ty, &declaration.name.text);
                    }
                }
            }
        }
    }

    fn check_layout(&mut self) {
        for (place, why) in layout::faults(&self.types, "`SEQUENCE` or an alternative of a `CHOICE`") {
            self.fault(self.type_names[place], why);
        }
    }

    /// Resolves the constants that are no procedures and no errors.
    fn constants(&mut self) -> Vec<Constant> {
        let mut all = Vec::new();
        for program in 0..self.programs.len() {
            for Declaration { name, ty, value } in self.declarations(program) {
                if self.faults.len() >= MAX_FAULTS {
                    return all;
                }
                let Some(value) = value.as_ref().filter(|_| !self.is_callable(program, ty)) else { continue };
                let declared = self.declared(program, ty, &name.text, "type");
                let Some(literal) = self.literal(program, value, &declared, 0) else { continue };
                let (module, value) = (module(program), tree::Value::Typed { declared, literal });
                all.push(Constant { module, named: named(name), value });
            }
        }
        all
    }

    /// Reports an error.
    fn fault(&mut self, at: Span, message: impl Into<String>) {
        self.push(|sources| Diagnostic::new(sources, at, message));
    }

    /// Reports a second declaration.
    fn again(&mut self, at: Span, first: Span, message: impl Into<String>) {
        self.push(|sources| {
            Diagnostic::new(sources, at, message).see(sources, first, "the first one is here")
        });
    }

    fn push(&mut self, make: impl FnOnce(&Sources) -> Diagnostic) {
        if self.faults.len() < MAX_FAULTS {
            add_fault(&mut self.faults, make(self.sources));
        }
    }
}

/// Returns the module that a program becomes.
fn module(program: usize) -> Option<usize> {
    program.checked_sub(1)
}

/// Returns as how many parts a text counts.
fn parts_of_text(text: &str) -> usize {
    text.len() / BYTES_OF_PART
}

fn named(name: &Name) -> Named {
    Named { name: name.text.clone(), docs: name.docs.clone() }
}
