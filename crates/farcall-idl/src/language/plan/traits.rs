//! Plans the trait of each version of a program: name, procedures, arguments.

use std::collections::HashMap;

use super::docs;
use super::names::{Scope, camel, snake};
use super::{Item, Kind, Named, Planner, Scopes, Shape, resolved};
use crate::language::tree::{self, Language};
use crate::spell_program;
use crate::stubs::RESERVED_NAMES;

/// The endings of the names of the items that are generated with a trait.
const BESIDE: [&str; 6] = ["Client", "Start", "Multi", "Prepare", "Async", "AsyncServer"];

/// One version of a program.
pub struct Trait {
    /// The index of the module, or `None` for the file itself.
    pub module: Option<usize>,
    /// The name in Rust.
    pub name: String,
    /// The program's and the version's name in the file.
    pub spelled: (String, String),
    pub docs: String,
    /// The program's number.
    pub program: u32,
    /// The version's number.
    pub version: u32,
    /// Whether callers find the interface by these numbers. Those of RPC2 do not.
    pub has_numbers: bool,
    pub methods: Vec<Method>,
}

/// One procedure.
pub struct Method {
    pub named: Named,
    pub number: u32,
    pub arguments: Vec<Argument>,
    pub result: Shape,
    /// The item of the errors that the procedure reports.
    pub exception: Option<usize>,
    /// The maximum time that a call may take, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Whether this is the null procedure of ONC RPC (number 0), which does nothing and which every server
    /// has.
    pub is_null: bool,
}

pub struct Argument {
    pub name: String,
    /// The name in the file, or the same as `name` if the file gives none.
    pub spelled: String,
    pub shape: Shape,
}

pub(super) fn plan<'t>(planner: &mut Planner<'t>, items: &[Item], scopes: &mut Scopes) -> Vec<Trait> {
    let specification = planner.specification;
    let mut traits = Vec::new();
    let mut versions: HashMap<String, usize> = HashMap::new();
    for version in specification.programs.iter().flat_map(|program| &program.versions) {
        *versions.entry(camel(&version.named.name)).or_default() += 1;
    }
    for program in &specification.programs {
        for version in &program.versions {
            let (outer, inner) = (&program.named.name, &version.named.name);
            let alone = versions.get(&camel(inner)) == Some(&1);
            let (wish, otherwise) = match specification.language {
                // A Courier program has one version, which has no name of its own. Often a type has the
                // program's name.
                Language::Courier => (camel(outer), camel(outer) + "Program"),
                // So is a subsystem of RPC2.
                Language::Rpc2 => (camel(outer), camel(outer) + "Subsystem"),
                Language::Onc if alone => (camel(inner), camel(inner)),
                Language::Onc => (camel(outer) + &camel(inner), camel(outer) + &camel(inner)),
            };
            traits.push(Trait {
                module: program.module,
                name: scopes.of(program.module).claim_with(&wish, &otherwise, &BESIDE),
                spelled: (outer.clone(), inner.clone()),
                docs: of_version(specification.language, program, version),
                program: program.number,
                version: version.number,
                has_numbers: specification.language != Language::Rpc2,
                methods: methods(planner, items, &version.procedures),
            });
        }
    }
    traits
}

fn of_version(language: Language, program: &tree::Program, version: &tree::Version) -> String {
    let first = [&version.named.docs, &program.named.docs].map(|docs| docs::clean(docs));
    let first = first.into_iter().find(|docs| !docs.is_empty());
    let (name, number) = (&program.named.name, spell_program(program.number));
    let numbers = match language {
        Language::Onc => {
            format!("Program `{name}` ({number}), version `{}` ({}).", version.named.name, version.number)
        }
        Language::Courier => format!("Courier program `{name}` ({number}), version {}.", version.number),
        Language::Rpc2 => format!("RPC2 subsystem `{name}`."),
    };
    first.into_iter().chain([numbers]).collect::<Vec<_>>().join("\n\n")
}

fn methods<'t>(planner: &mut Planner<'t>, items: &[Item], procedures: &'t [tree::Procedure]) -> Vec<Method> {
    let mut scope = Scope::default();
    let mut method = |procedure: &'t tree::Procedure| {
        let tree::Named { name, docs } = &procedure.named;
        let mut wish = snake(name);
        if RESERVED_NAMES.contains(&wish.as_str()) {
            wish.push('_');
        }
        let (arguments, result) =
            (arguments(planner, items, &procedure.arguments), planner.shape(&procedure.result));
        let nothing = arguments.is_empty() && result == Shape::Scalar(tree::Type::Void);
        Method {
            is_null: planner.specification.language == Language::Onc && procedure.number == 0 && nothing,
            named: Named { name: scope.claim(&wish, name), spelled: name.clone(), docs: docs::clean(docs) },
            number: procedure.number,
            arguments,
            result,
            exception: procedure.exception,
            deadline_ms: procedure.deadline_ms,
        }
    };
    procedures.iter().map(&mut method).collect()
}

fn arguments<'t>(
    planner: &mut Planner<'t>,
    items: &[Item],
    arguments: &'t [tree::Argument],
) -> Vec<Argument> {
    let mut scope = Scope::default();
    let mut argument = |argument: &'t tree::Argument| {
        let shape = planner.shape(&argument.declared);
        let wish = snake(argument.name.as_ref().unwrap_or(&default_name(items, &shape)));
        let name = scope.claim(&wish, &wish);
        Argument { spelled: argument.name.clone().unwrap_or_else(|| name.clone()), name, shape }
    };
    arguments.iter().map(&mut argument).collect()
}

/// Returns a name for an unnamed argument, derived from its type.
fn default_name(items: &[Item], shape: &Shape) -> String {
    let name = match shape {
        Shape::Named(item) | Shape::Linked(item) => return items[*item].named.spelled.clone(),
        Shape::Chain(item) => return items[*item].named.spelled.clone() + "s",
        Shape::Boxed(inner) | Shape::Optional(inner) => return default_name(items, inner),
        Shape::Scalar(tree::Type::Bool) => "flag",
        Shape::Scalar(_) => "number",
        Shape::String(_) => "text",
        Shape::Opaque(_) | Shape::Bytes(_) | Shape::Bulk => "data",
        Shape::Array(..) | Shape::List(..) => "items",
    };
    name.into()
}

/// Returns whether the type is passed by value rather than by reference: numbers, `bool`,
/// enumerations, streams.
pub fn by_value(items: &[Item], shape: &Shape) -> bool {
    match resolved(items, shape) {
        Shape::Scalar(ty) => *ty != tree::Type::Quadruple,
        Shape::Bulk => true,
        Shape::Named(item) => matches!(items[*item].kind, Kind::Enumeration(_)),
        _ => false,
    }
}
