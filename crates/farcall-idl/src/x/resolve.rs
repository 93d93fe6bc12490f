//! Resolves the declarations of a file: looks up names, computes constants, and checks the rules of the
//! language.

mod bodies;
mod constants;
mod lookup;
mod programs;
mod undeclared;
mod used;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::constants::Enumeration;
pub(in crate::x) use self::used::{each_type, each_type_of_programs};
use super::preprocess::Number;
use super::syntax::*;
use super::tree::{Body, Constant, Definition, Named, Specification, Type, Value};
use crate::language::layout;
use crate::text::diagnostic::{Diagnostic, Diagnostics, MAX_FAULTS, add_fault};
use crate::text::scan::in_64_bits;
use crate::text::source::{Sources, Span};

/// The maximum number of undeclared names for which a similar name is searched. The search takes time.
const MAX_SUGGESTIONS: usize = 64;
/// The maximum number of warnings that are reported.
const MAX_WARNINGS: usize = 256;

/// Resolves the declarations of a file. `numbers` has the macros that stand for a number: first those of the
/// file, then those of imported files. `external` has the types that the user declares elsewhere.
pub(super) fn resolve(
    sources: &Sources,
    syntax: &Syntax,
    own: Own,
    numbers: [&HashMap<String, Number>; 2],
    external: &[String],
) -> Result<Specification, Diagnostics> {
    let mut resolver = Resolver::new(sources, syntax, own, numbers, external);
    resolver.check_names();
    let constants = resolver.constants();
    let types = resolver.definitions();
    let programs = resolver.programs();
    if resolver.faults.is_empty() {
        for (place, why) in layout::faults(&types, "`*` or `<>`") {
            resolver.fault_of_type(place, why);
        }
    }
    if !resolver.faults.is_empty() {
        return Err(Diagnostics(resolver.faults));
    }
    let warnings = std::mem::take(&mut resolver.warnings);
    let whole = Specification { constants, types, programs, warnings, ..Specification::default() };
    let (kept, used) = used::keep(whole, own.types, &resolver.dropped);
    let borrowed_faults = resolver.borrowed_faults.into_iter().filter(|(place, _)| used[*place]);
    let mut faults = Vec::new();
    borrowed_faults
        .for_each(|(_, borrowed)| borrowed.into_iter().for_each(|fault| add_fault(&mut faults, fault)));
    if faults.is_empty() { Ok(kept) } else { Err(Diagnostics(faults)) }
}

struct Resolver<'a> {
    sources: &'a Sources,
    syntax: &'a Syntax,
    own: Own,
    numbers: [&'a HashMap<String, Number>; 2],
    types: HashMap<(ScopeId, &'a str), usize>,
    values: HashMap<(ScopeId, &'a str), ValueId>,
    scopes: HashMap<(ScopeId, &'a str), ScopeId>,
    /// The positions of the enumerators of some enumerations, by the index of the type.
    positions: HashMap<usize, HashMap<&'a str, usize>>,
    /// The state of each constant.
    reckoned: Vec<Reckoned>,
    /// The state of each enumeration, at the index of its type.
    enumerations: Vec<Enumeration>,
    /// The types that define nothing themselves, by index, and the type that each means.
    dropped: HashMap<usize, Type>,
    /// The types that the user says are declared elsewhere.
    external: HashSet<&'a str>,
    faults: Vec<Diagnostic>,
    /// Errors in types that are not the file's own. They are reported only if the file uses the type.
    borrowed_faults: BTreeMap<usize, Vec<Diagnostic>>,
    warnings: Vec<Diagnostic>,
    suggestions: usize,
}

/// The constant or the enumerator that a name means.
#[derive(Clone, Copy)]
enum ValueId {
    Constant(usize),
    /// The second index is that of the enumerator, the first that of its type.
    Enumerator(usize, usize),
}

/// The state of a constant.
#[derive(Clone, Copy)]
enum Reckoned {
    NotYet,
    Now,
    Known(i128),
}

impl<'a> Resolver<'a> {
    fn new(
        sources: &'a Sources,
        syntax: &'a Syntax,
        own: Own,
        numbers: [&'a HashMap<String, Number>; 2],
        external: &'a [String],
    ) -> Self {
        let mut this = Resolver {
            sources,
            syntax,
            own,
            numbers,
            types: HashMap::new(),
            values: HashMap::new(),
            scopes: HashMap::new(),
            positions: HashMap::new(),
            reckoned: vec![Reckoned::NotYet; syntax.constants.len()],
            enumerations: vec![Enumeration::default(); syntax.types.len()],
            dropped: HashMap::new(),
            external: external.iter().map(String::as_str).collect(),
            faults: Vec::new(),
            borrowed_faults: BTreeMap::new(),
            warnings: Vec::new(),
            suggestions: MAX_SUGGESTIONS,
        };
        for (place, scope) in syntax.scopes.iter().enumerate().skip(1) {
            this.scopes.insert((scope.outer, &scope.name), place);
        }
        this
    }

    /// Resolves `const` definitions, and the macros that the file uses as constants.
    fn constants(&mut self) -> Vec<Constant> {
        let mut macros: Vec<_> = self.numbers[0].iter().collect();
        macros.sort_by_key(|(_, number)| (number.at.file, number.at.start));
        let mut all = Vec::new();
        for (name, number) in macros {
            let comment = number.comment.map(|span| self.sources.text(span));
            let named = Named { name: name.clone(), docs: crate::text::docs::clean(comment) };
            all.push(Constant { module: None, named, value: Value::Integer(number.value) });
        }
        for (place, item) in self.syntax.constants.iter().enumerate().take(self.own.constants) {
            let first = self.values.get(&(item.scope, item.name.text.as_str()));
            if item.is_implied || !matches!(first, Some(ValueId::Constant(first)) if *first == place) {
                continue;
            }
            let value = match &item.value {
                ConstantValue::Text(text) => Some(Value::Text(text.clone())),
                ConstantValue::Amount(amount) => self.constant_value(place, amount.at),
            };
            all.extend(value.map(|value| Constant { module: None, named: named(&item.name), value }));
        }
        all
    }

    fn constant_value(&mut self, place: usize, at: Span) -> Option<Value> {
        match self.constant(place) {
            Ok(value) if in_64_bits(&value) => return Some(Value::Integer(value)),
            Ok(_) => self.warn(|sources| {
                Diagnostic::new(sources, at, "this constant does not fit into 64 bits, and is left out")
            }),
            Err(unknown) => self.refuse_unknown(at, unknown),
        }
        None
    }

    fn definitions(&mut self) -> Vec<Definition> {
        let all: Vec<Option<Body>> =
            (0..self.syntax.types.len()).map(|place| self.own_or_sound(place)).collect();
        let definition = |(place, body): (usize, Option<Body>)| {
            let item = &self.syntax.types[place];
            let body = body.unwrap_or(Body::Struct(Vec::new()));
            Definition { named: named(&item.name), namespace: self.namespace(item.scope), module: None, body }
        };
        all.into_iter().enumerate().map(definition).collect()
    }

    /// Resolves the body of a type, unless the user declares the type elsewhere. An error in a type that is
    /// not the file's own is reported only if the file uses the type.
    fn own_or_sound(&mut self, place: usize) -> Option<Body> {
        let name = self.syntax.types[place].name.text.as_str();
        if self.external.contains(name) {
            self.dropped.insert(place, Type::Foreign(name.to_owned()));
            return None;
        }
        let (faults, warnings) = (self.faults.len(), self.warnings.len());
        let body = self.body(place);
        if place >= self.own.types {
            let borrowed = self.faults.split_off(faults);
            self.warnings.truncate(warnings);
            self.borrowed_faults.entry(place).or_default().extend(borrowed);
        }
        body
    }

    /// Reports an error of the type at that index as a whole.
    fn fault_of_type(&mut self, place: usize, message: impl Into<String>) {
        let at = self.syntax.types[place].name.at;
        if place < self.own.types {
            return self.push(|sources| Diagnostic::new(sources, at, message));
        }
        let fault = Diagnostic::new(self.sources, at, message);
        self.borrowed_faults.entry(place).or_default().push(fault);
    }

    /// Returns the names of the enclosing namespaces, the outermost first.
    fn namespace(&self, mut scope: ScopeId) -> Vec<String> {
        let mut names = Vec::new();
        while scope != 0 {
            names.push(self.syntax.scopes[scope].name.clone());
            scope = self.syntax.scopes[scope].outer;
        }
        names.reverse();
        names
    }

    /// Reports an error.
    fn fault(&mut self, span: Span, message: impl Into<String>) {
        self.push(|sources| Diagnostic::new(sources, span, message));
    }

    /// Reports a second declaration of a name.
    fn again(&mut self, span: Span, first: Span, message: impl Into<String>) {
        self.push(|sources| {
            Diagnostic::new(sources, span, message).see(sources, first, "the first one is here")
        });
    }

    fn push(&mut self, make: impl FnOnce(&Sources) -> Diagnostic) {
        if self.faults.len() < MAX_FAULTS {
            add_fault(&mut self.faults, make(self.sources));
        }
    }

    /// Reports a warning.
    fn warn(&mut self, make: impl FnOnce(&Sources) -> Diagnostic) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(make(self.sources).warning());
        }
    }
}

fn named(name: &Name) -> Named {
    Named { name: name.text.clone(), docs: name.docs.clone() }
}
