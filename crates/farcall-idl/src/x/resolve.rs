//! From what the file says to what it means: names looked up, constants reckoned, rules checked.

mod bodies;
mod constants;
mod layout;
mod lookup;
mod programs;
mod used;

use std::collections::HashMap;

use self::constants::Enumeration;
use super::error::{Diagnostic, Diagnostics};
use super::preprocess::Number;
use super::scan::in_64_bits;
use super::source::{Sources, Span};
use super::syntax::*;
use super::tree::{Body, Constant, Definition, Named, Specification, Type, Value};

/// So many faults are named; more of them seldom help.
const MAX_FAULTS: usize = 16;
/// So many things that are left out are named.
const MAX_WARNINGS: usize = 256;

/// What the file means. `numbers` are the macros that stand for a number: its own, and those of what it imports.
pub(super) fn resolve(
    sources: &Sources,
    syntax: &Syntax,
    own: Own,
    numbers: [&HashMap<String, Number>; 2],
) -> Result<Specification, Diagnostics> {
    let mut resolver = Resolver::new(sources, syntax, own, numbers);
    resolver.check_names();
    let constants = resolver.constants();
    let types = resolver.definitions();
    let programs = resolver.programs();
    if resolver.faults.is_empty() {
        layout::check(&mut resolver, &types);
    }
    if !resolver.faults.is_empty() {
        return Err(Diagnostics(resolver.faults));
    }
    let whole = Specification { constants, types, programs, warnings: resolver.warnings, files: Vec::new() };
    Ok(used::keep(whole, own.types, &resolver.dropped))
}

struct Resolver<'a> {
    sources: &'a Sources,
    syntax: &'a Syntax,
    own: Own,
    numbers: [&'a HashMap<String, Number>; 2],
    types: HashMap<(ScopeId, &'a str), usize>,
    values: HashMap<(ScopeId, &'a str), ValueId>,
    scopes: HashMap<(ScopeId, &'a str), ScopeId>,
    /// What is known of the constants, …
    reckoned: Vec<Reckoned>,
    /// … and of the enumerations, each in the place of its type.
    enumerations: Vec<Enumeration>,
    /// The types that stand for nothing of their own, and what they are instead.
    dropped: HashMap<usize, Type>,
    faults: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// Whether something that is not known was needed since this was false last.
    unknown: bool,
}

/// What a name of a value stands for.
#[derive(Clone, Copy)]
enum ValueId {
    Constant(usize),
    /// Of the type at the first place, the enumerator at the second.
    Enumerator(usize, usize),
}

/// How far a constant is known.
#[derive(Clone, Copy)]
enum Reckoned {
    NotYet,
    Now,
    Known(i128),
}

impl<'a> Resolver<'a> {
    fn new(sources: &'a Sources, syntax: &'a Syntax, own: Own, numbers: [&'a HashMap<String, Number>; 2]) -> Self {
        let mut this = Resolver {
            sources,
            syntax,
            own,
            numbers,
            types: HashMap::new(),
            values: HashMap::new(),
            scopes: HashMap::new(),
            reckoned: vec![Reckoned::NotYet; syntax.constants.len()],
            enumerations: vec![Enumeration::default(); syntax.types.len()],
            dropped: HashMap::new(),
            faults: Vec::new(),
            warnings: Vec::new(),
            unknown: false,
        };
        for (place, scope) in syntax.scopes.iter().enumerate().skip(1) {
            this.scopes.insert((scope.outer, &scope.name), place);
        }
        this
    }

    /// `const`, and the macros that the file used as such.
    fn constants(&mut self) -> Vec<Constant> {
        let mut macros: Vec<_> = self.numbers[0].iter().collect();
        macros.sort_by_key(|(_, number)| (number.at.file, number.at.start));
        let mut all = Vec::new();
        for (name, number) in macros {
            let comment = number.comment.map(|span| self.sources.text(span));
            let named = Named { name: name.clone(), docs: super::docs::clean(comment) };
            all.push(Constant { named, value: Value::Integer(number.value) });
        }
        for (place, item) in self.syntax.constants.iter().enumerate().take(self.own.constants) {
            let first = self.values.get(&(item.scope, item.name.text.as_str()));
            if item.lent || !matches!(first, Some(ValueId::Constant(first)) if *first == place) {
                continue;
            }
            let value = match &item.value {
                ConstantValue::Text(text) => Some(Value::Text(text.clone())),
                ConstantValue::Amount(amount) => self.constant_value(place, amount.at),
            };
            all.extend(value.map(|value| Constant { named: named(&item.name), value }));
        }
        all
    }

    fn constant_value(&mut self, place: usize, at: Span) -> Option<Value> {
        match self.constant(place) {
            Ok(value) if in_64_bits(&value) => return Some(Value::Integer(value)),
            Ok(_) => {
                self.warn(|sources| Diagnostic::new(sources, at, "this does not fit into 64 bits, and is left out"))
            }
            Err(unknown) => self.refuse_unknown(at, unknown),
        }
        None
    }

    fn definitions(&mut self) -> Vec<Definition> {
        let all: Vec<Option<Body>> = (0..self.syntax.types.len()).map(|place| self.own_or_sound(place)).collect();
        let definition = |(place, body): (usize, Option<Body>)| {
            let item = &self.syntax.types[place];
            let body = body.unwrap_or(Body::Struct(Vec::new()));
            Definition { named: named(&item.name), namespace: self.namespace(item.scope), body }
        };
        all.into_iter().enumerate().map(definition).collect()
    }

    /// What a type consists of. One that needs what is not known is not known either; nor is one that is not the file's own
    /// and makes no sense.
    fn own_or_sound(&mut self, place: usize) -> Option<Body> {
        let (faults, warnings) = (self.faults.len(), self.warnings.len());
        self.unknown = false;
        let body = self.body(place);
        let borrowed = place >= self.own.types;
        if self.unknown || borrowed && self.faults.len() > faults {
            self.leave_out(place);
        }
        if borrowed {
            self.faults.truncate(faults);
            self.warnings.truncate(warnings);
        }
        body
    }

    /// From now on the type at that place is one that comes from elsewhere.
    fn leave_out(&mut self, place: usize) {
        let name = self.syntax.types[place].name.text.clone();
        self.dropped.insert(place, Type::Foreign(name));
    }

    /// The names of the namespaces around, the outermost first.
    fn namespace(&self, mut scope: ScopeId) -> Vec<String> {
        let mut names = Vec::new();
        while scope != 0 {
            names.push(self.syntax.scopes[scope].name.clone());
            scope = self.syntax.scopes[scope].outer;
        }
        names.reverse();
        names
    }

    /// Something is wrong.
    fn fault(&mut self, span: Span, message: impl Into<String>) {
        self.push(|sources| Diagnostic::new(sources, span, message));
    }

    /// Something stands there that stood elsewhere.
    fn again(&mut self, span: Span, first: Span, message: impl Into<String>) {
        self.push(|sources| Diagnostic::new(sources, span, message).see(sources, first, "the first time here"));
    }

    fn push(&mut self, make: impl FnOnce(&Sources) -> Diagnostic) {
        if self.faults.len() >= MAX_FAULTS {
            return;
        }
        let fault = make(self.sources);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Something is left out.
    fn warn(&mut self, make: impl FnOnce(&Sources) -> Diagnostic) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(make(self.sources).warning());
        }
    }
}

fn named(name: &Name) -> Named {
    Named { name: name.text.clone(), docs: name.docs.clone() }
}
