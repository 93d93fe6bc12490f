//! Resolves the declarations of a file: looks up names and checks the rules of the language. As in `rp2gen`,
//! a type is declared before it is used.

mod procedures;
mod types;

use std::collections::HashMap;

use self::types::Meaning;
use super::predefined::ALL;
use super::syntax::*;
use super::tokens::signed;
use super::{Options, syntax};
use crate::language::layout;
use crate::language::tree::{self, Body, Constant, Definition, Language, Named, Specification};
use crate::nearest;
use crate::text::diagnostic::{Diagnostic, Diagnostics, MAX_FAULTS, Undeclared, add_fault};
use crate::text::scan::in_64_bits;
use crate::text::source::{Sources, Span};

/// The maximum number of undeclared names for which a similar name is searched. The search takes time.
const MAX_SUGGESTIONS: usize = 64;
/// The maximum number of warnings.
const MAX_WARNINGS: usize = 64;

/// Resolves the declarations of a file.
pub(super) fn resolve(
    sources: &Sources,
    file: &syntax::Parsed,
    options: &Options,
) -> Result<Specification, Diagnostics> {
    let mut resolver = Resolver::new(sources, file, options);
    let program = resolver.declarations();
    if resolver.faults.is_empty() {
        resolver.check_layout();
    }
    let Resolver { constants, types, warnings, faults, .. } = resolver;
    if !faults.is_empty() {
        return Err(Diagnostics(faults));
    }
    Ok(Specification {
        constants,
        types,
        programs: program.into_iter().collect(),
        warnings,
        language: Language::Rpc2,
        ..Specification::default()
    })
}

struct Resolver<'a> {
    sources: &'a Sources,
    file: &'a syntax::Parsed,
    options: &'a Options,
    /// What each type's name means, with the place of its declaration. Predefined types have none.
    meanings: HashMap<&'a str, (Option<Span>, Meaning)>,
    /// The values and places of the `#define`s.
    defined: HashMap<&'a str, (&'a Value, Span)>,
    constants: Vec<Constant>,
    types: Vec<Definition>,
    /// The name of each type in `types`, for messages.
    type_names: Vec<Span>,
    /// The index of the struct for the return code of procedures without results.
    return_code: Option<usize>,
    warnings: Vec<Diagnostic>,
    faults: Vec<Diagnostic>,
    suggestions: usize,
}

impl<'a> Resolver<'a> {
    fn new(sources: &'a Sources, file: &'a syntax::Parsed, options: &'a Options) -> Self {
        let meanings = ALL.iter().map(|(name, one)| (*name, (None, Meaning::Predefined(*one))));
        Resolver {
            sources,
            file,
            options,
            meanings: meanings.collect(),
            defined: HashMap::new(),
            constants: Vec::new(),
            types: Vec::new(),
            type_names: Vec::new(),
            return_code: None,
            warnings: Vec::new(),
            faults: Vec::new(),
            suggestions: MAX_SUGGESTIONS,
        }
    }

    /// Resolves all declarations in their order. Returns the subsystem, if the file has one with procedures.
    fn declarations(&mut self) -> Option<tree::Program> {
        let file = self.file;
        // A macro of C is replaced where it is used, so that a definition may follow a use.
        for declaration in &file.declarations {
            if let Declaration::Define(name, value) = declaration {
                self.define(name, value);
            }
        }
        let mut procedures = Vec::new();
        for declaration in &file.declarations {
            match declaration {
                Declaration::Define(..) => {}
                Declaration::Typedef(typedef) => self.typedef(typedef),
                Declaration::Procedure(procedure) => procedures.push(procedure),
            }
            if self.faults.len() >= MAX_FAULTS {
                return None;
            }
        }
        self.subsystem(&procedures)
    }

    fn define(&mut self, name: &'a Name, value: &'a Value) {
        if let Some((first, at)) = self.defined.get(name.text.as_str()) {
            if !same(first, value) {
                self.again(
                    name.at,
                    *at,
                    format!("`{}` is defined a second time, as something else", name.text),
                );
            }
            return;
        }
        self.defined.insert(&name.text, (value, name.at));
        let value = match value {
            Value::Text(text) => tree::Value::Text(text.clone()),
            Value::Number(number) => match signed(&number.text).filter(in_64_bits) {
                Some(value) => tree::Value::Integer(value),
                None => return self.fault(number.at, "this is no number of 64 bits"),
            },
        };
        self.constants.push(Constant { module: None, named: named(name), value });
    }

    /// Returns the value of a number or of the name of one. `why` says which values are allowed.
    fn number(&mut self, number: &Number, from: i128, to: i128, why: &str) -> Option<i128> {
        let is_name = !number.text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let value = match (is_name, self.defined.get(number.text.as_str())) {
            (false, _) => signed(&number.text),
            (true, Some((Value::Number(value), _))) => signed(&value.text),
            (true, Some((Value::Text(_), _))) => {
                self.fault(number.at, format!("`{}` is a text, not a number", number.text));
                return None;
            }
            (true, None) => match self.file.numbers.get(&number.text) {
                Some(value) => Some(*value),
                None => {
                    self.undeclared_number(number);
                    return None;
                }
            },
        };
        let value = value.filter(|value| (from..=to).contains(value));
        if value.is_none() {
            self.fault(number.at, why);
        }
        value
    }

    fn undeclared_number(&mut self, Number { at, text }: &Number) {
        let known = self.defined.keys().copied().chain(self.file.numbers.keys().map(String::as_str));
        let similar = if self.suggestions > 0 { nearest(text, known) } else { None };
        let similar = similar.map(|similar| format!("a similar name is defined: `{similar}`"));
        self.suggestions = self.suggestions.saturating_sub(1);
        let help = "if a C header defines it, give its value: `-D NAME=value` on the command line, `define = \
                    \"NAME=value\"` in `include_rpc2!`";
        self.push(|sources| {
            let fault = Diagnostic::new(sources, *at, format!("no number of the name `{text}` is defined"));
            let fault = similar.into_iter().fold(fault, Diagnostic::help);
            fault.help(help).about_undeclared(Undeclared::Constant(text.clone()))
        });
    }

    /// Adds a definition, and returns its index.
    fn add(&mut self, name: impl Into<String>, docs: impl Into<String>, at: Span, body: Body) -> usize {
        let named = Named { name: name.into(), docs: docs.into() };
        self.types.push(Definition { named, namespace: Vec::new(), module: None, body });
        self.type_names.push(at);
        self.types.len() - 1
    }

    fn check_layout(&mut self) {
        for (place, why) in layout::faults(&self.types, "an array") {
            self.fault(self.type_names[place], why);
        }
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

    /// Reports a part of the file that has no effect.
    fn warn(&mut self, at: Span, message: impl Into<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(Diagnostic::new(self.sources, at, message).warning());
        }
    }
}

/// Returns whether two definitions of a name mean the same.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => one == other,
        (Value::Number(one), Value::Number(other)) => signed(&one.text) == signed(&other.text),
        _ => false,
    }
}

fn named(name: &Name) -> Named {
    Named { name: name.text.clone(), docs: name.docs.clone() }
}
