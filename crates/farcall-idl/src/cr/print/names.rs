//! Chooses the names in a printed `.cr` file, so that reading the file gives the same names in Rust.
//!
//! Types, procedures and errors share one scope. A name that is taken there gives way to another spelling of
//! the same Rust name, or else gets a number.

use std::collections::{BTreeMap, BTreeSet};

use farcall_xdr::schema::{Arm, Body, Field, Type, Types};

use crate::cr::parse::KEYWORDS;
use crate::language::plan::names::{camel, identifier, snake};
use crate::{Interface, Procedure};

/// The names of one file.
pub(super) struct Names {
    pub program: String,
    /// The names of the types that are declared, by index.
    pub types: BTreeMap<u32, String>,
    /// The names of the procedures, in their order.
    pub procedures: Vec<String>,
    /// The errors, in the order in which procedures first report them.
    pub errors: Vec<Error>,
    /// The indexes of the errors that each procedure reports.
    pub reported: Vec<Vec<usize>>,
    /// All names that are declared, which enumerators must not have.
    pub scope: BTreeSet<String>,
}

/// An error that some procedures report.
pub(super) struct Error {
    pub name: String,
    pub arm: Arm,
}

impl Names {
    pub fn new(interface: &Interface) -> Names {
        let mut scope = BTreeSet::new();
        let types = declared(interface).into_iter().map(|place| {
            let name = interface.types.get(place).map_or("", |definition| definition.name.as_str());
            (place, claim(&mut scope, [identifier(name)]))
        });
        let types = types.collect();
        let procedures = interface.procedures.iter().map(|procedure| {
            let name = identifier(&procedure.name);
            claim(&mut scope, [camel(&name), name])
        });
        let procedures = procedures.collect();
        let (mut errors, mut known) = (Vec::new(), BTreeMap::new());
        let reported = interface.procedures.iter().map(|procedure| {
            let arms = arms_of(&procedure.exception, &interface.types).iter();
            let index = |arm: &Arm| {
                // Equal errors of several procedures are one.
                let fields: Vec<_> = arm.fields.iter().map(|field| (&field.name, &field.ty)).collect();
                *known.entry(format!("{:?} {} {fields:?}", arm.tag, arm.name)).or_insert_with(|| {
                    let name = identifier(&arm.name);
                    let name = claim(&mut scope, [name.clone(), small(&name)]);
                    errors.push(Error { name, arm: arm.clone() });
                    errors.len() - 1
                })
            };
            arms.map(index).collect()
        });
        let reported = reported.collect();
        let program = claim(&mut BTreeSet::new(), [identifier(&interface.name)]);
        Names { program, types, procedures, errors, reported, scope }
    }

    /// Returns the fields of a procedure's result if it is a struct that stands for several results.
    pub fn several<'t>(&self, procedure: &Procedure, types: &'t Types) -> Option<&'t [Field]> {
        match &procedure.result {
            Type::Named(place) if self.types.contains_key(place) => None,
            _ => several_results(procedure, types),
        }
    }
}

/// Returns the types that the file declares: those that others mention, but not the errors of a procedure,
/// nor the struct of several results.
fn declared(interface: &Interface) -> BTreeSet<u32> {
    let types = &interface.types;
    let mut found = BTreeSet::new();
    let mut waiting = Vec::new();
    for procedure in &interface.procedures {
        procedure.arguments.iter().for_each(|argument| mentioned(&argument.ty, &mut waiting));
        let errors = arms_of(&procedure.exception, types).iter().flat_map(|arm| &arm.fields);
        let results = several_results(procedure, types);
        errors.chain(results.into_iter().flatten()).for_each(|field| mentioned(&field.ty, &mut waiting));
        if results.is_none() {
            mentioned(&procedure.result, &mut waiting);
        }
    }
    while let Some(place) = waiting.pop() {
        let Some(definition) = types.get(place).filter(|_| found.insert(place)) else { continue };
        let fields: Vec<&Field> = match &definition.body {
            Body::Struct { fields, .. } => fields.iter().collect(),
            Body::Union { arms } => arms.iter().flat_map(|arm| &arm.fields).collect(),
        };
        fields.iter().for_each(|field| mentioned(&field.ty, &mut waiting));
    }
    found
}

/// Returns the fields of a procedure's result if they look like several results: a struct of at least two
/// fields that is named after the procedure.
fn several_results<'t>(procedure: &Procedure, types: &'t Types) -> Option<&'t [Field]> {
    let Type::Named(place) = &procedure.result else { return None };
    let definition = types.get(*place)?;
    match &definition.body {
        Body::Struct { fields, .. } if fields.len() > 1 => {
            (definition.name == camel(&procedure.name) + "Results").then_some(fields)
        }
        _ => None,
    }
}

/// Adds the indexes of the named types in a type, whose depth was checked before.
fn mentioned(ty: &Type, found: &mut Vec<u32>) {
    match ty {
        Type::Named(place) => found.push(*place),
        Type::Array { element, .. } | Type::List { element, .. } => mentioned(element, found),
        Type::Tuple(parts) => parts.iter().for_each(|part| mentioned(part, found)),
        _ => {}
    }
}

fn arms_of<'t>(exception: &Type, types: &'t Types) -> &'t [Arm] {
    let Type::Named(place) = exception else { return &[] };
    match types.get(*place).map(|definition| &definition.body) {
        Some(Body::Union { arms }) => arms,
        _ => &[],
    }
}

/// Returns the names of fields: those of the interface, and `field0` for a field without a name.
pub(super) fn fields(fields: &[Field]) -> Vec<String> {
    let mut scope = BTreeSet::new();
    let name = |field: &Field| match field.name.parse::<u32>() {
        Ok(number) => claim(&mut scope, [format!("field{number}")]),
        Err(_) => claim(&mut scope, [identifier(&field.name), snake(&field.name)]),
    };
    fields.iter().map(name).collect()
}

/// Returns the names of enumerators or designators, of which none is in `scope`.
pub(super) fn designators(arms: &[Arm], scope: &BTreeSet<String>) -> Vec<String> {
    let mut own = BTreeSet::new();
    let name = |arm: &Arm| {
        let name = identifier(&arm.name);
        let free = |name: &String| !scope.contains(name) && !own.contains(name);
        let name = candidates([small(&name), name]).find(free).unwrap_or_default();
        own.insert(name.clone());
        name
    };
    arms.iter().map(name).collect()
}

/// Returns the name with its first letter small.
fn small(name: &str) -> String {
    let (first, rest) = name.split_at(usize::from(name.starts_with(|c: char| c.is_ascii_uppercase())));
    first.to_ascii_lowercase() + rest
}

/// Claims the first of the names that is free, or else the first with a number.
fn claim<const N: usize>(scope: &mut BTreeSet<String>, wishes: [String; N]) -> String {
    let name = candidates(wishes).find(|name| !scope.contains(name)).unwrap_or_default();
    scope.insert(name.clone());
    name
}

/// Returns the names that are no words of the language, and then the first with numbers.
fn candidates<const N: usize>(wishes: [String; N]) -> impl Iterator<Item = String> {
    let first = wishes.first().cloned().unwrap_or_default();
    let wishes = wishes.into_iter().filter(|name| !KEYWORDS.contains(&name.as_str()));
    wishes.chain((2u64..).map(move |number| format!("{first}_{number}")))
}
