//! Resolves procedures. What a procedure gives back becomes its result; if its return code is not 0, the same
//! becomes its error, together with the code.

use std::collections::{HashMap, HashSet};

use super::super::NEW_CONNECTION;
use super::super::parse::span_of;
use super::super::predefined::Sort;
use super::super::syntax::*;
use super::{Resolver, named};
use crate::language::tree::{self, Argument, Body, Declared, Field, Named, Type, Version};
use crate::text::source::Span;

/// The types of the parameters of a NEW_CONNECTION procedure.
const NEW_CONNECTION_SORTS: [Sort; 5] =
    [Sort::Integer, Sort::Integer, Sort::Integer, Sort::Integer, Sort::CountedBytes];

/// What a procedure takes and what it gives.
#[derive(Default)]
struct Parts {
    arguments: Vec<Argument>,
    results: Vec<Field>,
    /// The SE_Descriptor.
    bulk: Option<Named>,
}

impl<'a> Resolver<'a> {
    /// Resolves the subsystem. Returns `None` if the file has none, or no procedures.
    pub(super) fn subsystem(&mut self, all: &[&'a Procedure]) -> Option<tree::Program> {
        let file = self.file;
        let Some(subsystem) = &file.subsystem else {
            if let Some(first) = all.first() {
                let why = "the procedures are left out, because the file has no `subsystem`";
                self.warn(first.name.at, why);
            }
            return None;
        };
        let procedures = self.procedures(all);
        self.check_from_server(subsystem.name.at, all);
        let (number, version) = match &subsystem.numbers {
            Some((number, version)) => (self.whole(number)?, self.whole(version)?),
            None => (0, 0),
        };
        let name = Named { name: subsystem.name.text.clone(), docs: String::new() };
        let has_procedures = !procedures.is_empty();
        let versions = vec![Version { named: name, number: version, procedures }];
        has_procedures.then(|| tree::Program {
            module: None,
            named: named(&subsystem.name),
            number,
            versions,
        })
    }

    fn whole(&mut self, number: &Number) -> Option<u32> {
        let why = "this is no number from 0 to 4294967295";
        self.number(number, 0, u32::MAX.into(), why).and_then(|value| u32::try_from(value).ok())
    }

    fn procedures(&mut self, all: &[&'a Procedure]) -> Vec<tree::Procedure> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut new_connection = None;
        let mut next = 1;
        let mut procedures = Vec::new();
        for procedure in all {
            let name = &procedure.name;
            if let Some(first) = seen.insert(&name.text, name.at) {
                self.again(name.at, first, format!("there is a second `{}`", name.text));
            }
            let number = match procedure.new_connection {
                Some(at) => {
                    if let Some(first) = new_connection.replace(at) {
                        self.again(at, first, "a subsystem has one NEW_CONNECTION procedure");
                    }
                    Some(NEW_CONNECTION)
                }
                None => self.opcode(procedure, &mut next),
            };
            if let Some(number) = number {
                procedures.extend(self.procedure(procedure, number));
            }
        }
        procedures
    }

    /// Returns the opcode that a procedure has, which is at least `next`, and sets `next`.
    fn opcode(&mut self, procedure: &Procedure, next: &mut u32) -> Option<u32> {
        let opcode = match &procedure.opcode {
            None => match i32::try_from(*next) {
                Ok(_) => *next,
                Err(_) => {
                    let why = "the opcode before it is 2147483647, and no opcode is higher";
                    self.fault(procedure.name.at, why);
                    return None;
                }
            },
            Some(number) => {
                // Unlike other numbers, an opcode is read as decimal even if it begins with 0.
                let value = number.text.parse::<u32>().ok().filter(|value| i32::try_from(*value).is_ok());
                match value.filter(|value| value >= next) {
                    Some(value) => value,
                    None => {
                        let why = format!("opcodes increase from 1 on, so this is at least {next}");
                        self.fault(number.at, why);
                        return None;
                    }
                }
            }
        };
        *next = opcode.saturating_add(1);
        Some(opcode)
    }

    fn procedure(&mut self, procedure: &'a Procedure, number: u32) -> Option<tree::Procedure> {
        let Procedure { name, parameters, timeout, new_connection, .. } = procedure;
        let mut parts = self.parts(parameters)?;
        let deadline_ms = match (timeout.as_ref().or(self.file.timeout.as_ref()), new_connection) {
            (Some(seconds), None) => {
                let why = "a time-out has at least one second, and at most 4294967295";
                let seconds = self.number(seconds, 1, u32::MAX.into(), why)?;
                u64::try_from(seconds * 1000).ok()
            }
            _ => None,
        };
        if let Some(at) = new_connection {
            self.check_new_connection(parameters, *at)?;
            return Some(tree::Procedure {
                named: named(name),
                number,
                arguments: parts.arguments,
                result: Declared::One(Type::Void),
                exception: None,
                deadline_ms,
            });
        }
        let exception = self.exception(name, &parts.results);
        let mut result = self.result(name, std::mem::take(&mut parts.results));
        if let Some(Named { name: bulk, .. }) = parts.bulk {
            if !self.options.from_server.contains(&name.text) {
                parts.arguments.push(Argument { name: Some(bulk), declared: Declared::Bulk });
            } else if result == Declared::One(Type::Void) {
                result = Declared::Bulk;
            } else {
                let why = "its server cannot send the bulk data here, because a procedure whose result is a \
                           `Bulk` has no other results";
                self.fault(name.at, why);
            }
        }
        let arguments = parts.arguments;
        Some(tree::Procedure {
            named: named(name),
            number,
            arguments,
            result,
            exception: Some(exception),
            deadline_ms,
        })
    }

    /// Sorts parameters into arguments and results, in the order in which they are packed.
    fn parts(&mut self, parameters: &'a [Parameter]) -> Option<Parts> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut parts = Parts::default();
        for parameter in parameters {
            let Parameter { usage, ty, name, is_array } = parameter;
            if let Some(first) = seen.insert(&name.text, name.at) {
                self.again(name.at, first, format!("there is a second `{}`", name.text));
            }
            let (declared, sort) = self.named_type(ty)?;
            if sort == Sort::Bulk {
                self.bulk(parameter, &mut parts);
                continue;
            }
            let declared = match (is_array, declared) {
                (false, declared) => declared,
                (true, Declared::One(element)) if sort == Sort::Struct => {
                    // The caller says how many elements it can take.
                    if *usage != Usage::In {
                        let most = Some(format!("{}_size_max_", name.text));
                        parts.arguments.push(Argument { name: most, declared: Declared::One(Type::U32) });
                    }
                    Declared::List { element, max: u32::MAX }
                }
                (true, _) => {
                    self.fault(ty.at, "a parameter can be an array of structs only");
                    return None;
                }
            };
            // The bounds of a BoundedBS are sent to the server in any case.
            if *usage != Usage::Out || sort == Sort::BoundedBytes {
                let declared = declared.clone();
                parts.arguments.push(Argument { name: Some(name.text.clone()), declared });
            }
            if *usage != Usage::In {
                parts.results.push(Field { named: named(name), declared });
            }
        }
        Some(parts)
    }

    fn bulk(&mut self, parameter: &Parameter, parts: &mut Parts) {
        if parts.bulk.is_some() {
            self.fault(span_of(parameter), "a procedure has one SE_Descriptor");
        }
        if parameter.usage != Usage::InOut {
            self.warn(span_of(parameter), "an SE_Descriptor is `IN OUT`");
        }
        if parameter.is_array {
            self.fault(span_of(parameter), "a parameter can be an array of structs only");
        }
        parts.bulk = Some(named(&parameter.name));
    }

    /// Returns the type of the result: that of the only one, or a struct of several.
    fn result(&mut self, name: &Name, mut results: Vec<Field>) -> Declared {
        match results.len() {
            0 => Declared::One(Type::Void),
            1 => results.remove(0).declared,
            _ => {
                let docs = format!("The results of `{}`.", name.text);
                let place = self.add(format!("{}Results", name.text), docs, name.at, Body::Struct(results));
                Declared::One(Type::Defined(place))
            }
        }
    }

    /// Returns the index of the error of a procedure: its return code, and its results.
    fn exception(&mut self, name: &Name, results: &[Field]) -> usize {
        if let (true, Some(known)) = (results.is_empty(), self.return_code) {
            return known;
        }
        let taken: HashSet<&str> = results.iter().map(|field| field.named.name.as_str()).collect();
        let mut code = "ReturnCode".to_owned();
        while taken.contains(code.as_str()) {
            code.push('_');
        }
        let docs = "What the procedure returned: not 0. Numbers above 0 are the subsystem's own, and numbers \
                    below 0 are RPC2's.";
        let code = Named { name: code, docs: docs.into() };
        let code = Field { named: code, declared: Declared::One(Type::I32) };
        let fields = std::iter::once(code).chain(results.iter().cloned()).collect();
        if results.is_empty() {
            let docs = "The failure of a procedure without results.";
            let place = self.add("RPC2_Failure", docs, name.at, Body::Struct(fields));
            self.return_code = Some(place);
            return place;
        }
        let docs = format!("The failure of `{}`. Its results are sent nevertheless.", name.text);
        self.add(format!("{}Error", name.text), docs, name.at, Body::Struct(fields))
    }

    fn check_new_connection(&mut self, parameters: &'a [Parameter], at: Span) -> Option<()> {
        let mut sorts = Vec::new();
        for parameter in parameters {
            sorts.push(self.named_type(&parameter.ty)?.1);
            if parameter.usage != Usage::In {
                self.fault(span_of(parameter), "a NEW_CONNECTION procedure has no results");
            }
        }
        if sorts != NEW_CONNECTION_SORTS || parameters.iter().any(|parameter| parameter.is_array) {
            let why = "a NEW_CONNECTION procedure has the parameters SideEffectType, SecurityLevel, \
                       EncryptionType and AuthType, which are RPC2_Integers, and ClientIdent, which is an \
                       RPC2_CountedBS";
            self.fault(at, why);
            return None;
        }
        Some(())
    }

    /// Reports names in the options that no procedure with bulk data has.
    fn check_from_server(&mut self, at: Span, all: &[&'a Procedure]) {
        for name in &self.options.from_server {
            let procedure = all.iter().find(|procedure| procedure.name.text == *name);
            let has_bulk = |parameter: &'a Parameter| {
                let known = self.meanings.get(parameter.ty.name.as_str());
                known.is_some_and(|(_, meaning)| meaning.is_bulk())
            };
            if !procedure.is_some_and(|procedure| procedure.parameters.iter().any(has_bulk)) {
                self.fault(at, format!("no procedure `{name}` with an SE_Descriptor is declared"));
            }
        }
    }
}
