//! Makes run-time descriptions of interfaces from a plan (the decided Rust form of a file). They equal
//! the descriptions that the generated Rust would return, without compiling it. Tools make calls by them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use farcall_xdr::schema::{self, Type, Types, arm, field};
use farcall_xdr::{Foreign, Schema};

use super::plan::{Discriminant, Item, Kind, Member, Named, Plan, Raised, Shape, Trait, Variant};
use super::tree;
use crate::spell::stream_of;
use crate::{Argument, Interface, Procedure};

/// The description of one version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The program, as the file spells it.
    pub program_name: String,
    /// The version, as the file spells it.
    pub version_name: String,
    /// The program's number.
    pub program: u32,
    /// The version's number.
    pub version: u32,
    /// The names of the procedures of `interface`, in their order, as the file spells them.
    pub procedure_names: Vec<String>,
    /// The description that the generated trait returns as `interface()`.
    pub interface: Interface,
    /// The interface with all names as the file spells them, for values in JSON. Types have the same index as
    /// in `interface`.
    pub spelled: Interface,
    /// The file's names of the discriminants of unions, by the index of the type.
    pub switches: BTreeMap<u32, String>,
}

impl Version {
    /// Returns the index of a procedure, whose name is spelt as in the file or as in Rust.
    pub fn index_of(&self, procedure: &str) -> Option<usize> {
        let spelt = self.procedure_names.iter().position(|known| known == procedure);
        spelt.or_else(|| self.interface.procedures.iter().position(|known| known.name == procedure))
    }

    /// Returns the latest of some versions that has a procedure of this name, and the procedure's index.
    pub fn latest_with(mut versions: Vec<Version>, procedure: &str) -> Option<(Version, usize)> {
        versions.sort_by_key(|version| Reverse((version.program, version.version)));
        versions.into_iter().find_map(|version| version.index_of(procedure).map(|at| (version, at)))
    }
}

/// The source of a description's names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Rust,
    File,
}

impl Names {
    fn of(self, rust: &str, file: &str) -> String {
        if self == Names::Rust { rust.into() } else { file.into() }
    }

    fn one(self, named: &Named) -> String {
        self.of(&named.name, &named.spelled)
    }
}

/// The description of all types of a file, including those that no procedure mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The named types to which the types refer.
    pub types: Types,
    /// Each definition, as the file spells it, with its wire type.
    pub named: Vec<(String, Type)>,
}

pub fn types(plan: &Plan) -> Described {
    let mut types = Types::new();
    let named = plan.alone.iter().zip(&plan.items);
    let named = named
        .map(|(shape, item)| (item.named.spelled.clone(), wire(plan, Names::Rust, shape, &mut types)))
        .collect();
    Described { types, named }
}

pub fn versions(plan: &Plan) -> Vec<Version> {
    let own = plan.traits.iter().filter(|version| version.module.is_none());
    own.map(|version| describe(plan, version)).collect()
}

fn describe(plan: &Plan, version: &Trait) -> Version {
    let mut switches = BTreeMap::new();
    let interface = interface(plan, version, Names::Rust, &mut switches);
    Version {
        program_name: version.spelled.0.clone(),
        version_name: version.spelled.1.clone(),
        program: version.program,
        version: version.version,
        procedure_names: version.methods.iter().map(|method| method.named.spelled.clone()).collect(),
        spelled: self::interface(plan, version, Names::File, &mut switches),
        interface,
        switches,
    }
}

fn interface(plan: &Plan, version: &Trait, names: Names, switches: &mut BTreeMap<u32, String>) -> Interface {
    let mut interface = Interface::new(names.of(&version.name, &version.spelled.1)).docs(&version.docs);
    let mut types = Types::new();
    for method in &version.methods {
        let arguments = method.arguments.iter().map(|argument| Argument {
            name: names.of(&argument.name, &argument.spelled),
            ty: wire(plan, names, &argument.shape, &mut types),
        });
        let arguments = arguments.collect();
        interface.procedures.push(Procedure {
            number: method.number,
            name: names.one(&method.named),
            docs: method.named.docs.clone(),
            arguments,
            result: wire(plan, names, &method.result, &mut types),
            exception: method.exception.map_or(Type::Void, |index| item(plan, names, index, &mut types)),
            idempotent: method.is_null,
            oneway: false,
            blocking: false,
            deadline_ms: method.deadline_ms,
            pinned: true,
        });
    }
    for (index, item) in plan.items.iter().enumerate() {
        if let (Kind::Union(union), Some(place)) = (&item.kind, types.place(&index.to_string())) {
            switches.insert(place, union.switch.clone());
        }
    }
    interface.types = types;
    interface
}

/// Returns the wire type of a shape, and adds named types to `types` in the same order as derived
/// descriptions: a type before its parts. The plan bounds the depth.
fn wire(plan: &Plan, names: Names, shape: &Shape, types: &mut Types) -> Type {
    match shape {
        Shape::Scalar(ty) => scalar(ty),
        Shape::Named(index) => item(plan, names, *index, types),
        Shape::Linked(index) => {
            let node = item(plan, names, *index, types);
            Type::Tuple(vec![node.clone(), Type::Chain(Box::new(node))])
        }
        Shape::Chain(index) => Type::Chain(Box::new(item(plan, names, *index, types))),
        Shape::Boxed(inner) => wire(plan, names, inner, types),
        Shape::Optional(inner) => Type::Optional(Box::new(wire(plan, names, inner, types))),
        Shape::Array(element, size) => {
            Type::Array { size: *size, element: Box::new(wire(plan, names, element, types)) }
        }
        Shape::List(element, max) => {
            Type::List { max: *max, element: Box::new(wire(plan, names, element, types)) }
        }
        Shape::Opaque(size) => Type::Opaque { size: *size },
        Shape::Bytes(max) => Type::Bytes { max: *max },
        Shape::String(max) => Type::String { max: *max },
        Shape::Bulk => stream_of(Type::Bytes { max: u32::MAX }),
    }
}

fn item(plan: &Plan, names: Names, index: usize, types: &mut Types) -> Type {
    let Item { named, kind, .. } = &plan.items[index];
    let key = index.to_string();
    let body: Box<dyn FnOnce(&mut Types) -> schema::Body + '_> = match kind {
        Kind::Alias(shape) => return wire(plan, names, shape, types),
        Kind::Newtype(shape) => Box::new(move |types| {
            let ty = wire(plan, names, shape, types);
            structure(vec![field("0", "", ty, false)])
        }),
        Kind::Struct(members) => Box::new(move |types| structure(fields(plan, names, members, types))),
        Kind::Enumeration(enumerators) if !enumerators.is_empty() => Box::new(move |_| {
            let distinct = enumerators.iter().filter(|one| one.alias_of.is_none());
            let arms =
                distinct.map(|one| arm(&names.one(&one.named), &one.named.docs, Some(one.value), Vec::new()));
            schema::Body::Union { arms: arms.collect() }
        }),
        Kind::Union(union) if !union.variants.is_empty() => Box::new(move |types| {
            let arms = union.variants.iter().map(|Variant { named, label, shape }| {
                // The integer of the default arm comes before its field.
                let first = if label.is_some() { "0" } else { "1" };
                let fields =
                    shape.iter().map(|shape| field(first, "", wire(plan, names, shape, types), false));
                arm(&names.one(named), &named.docs, label.map(|label| label.value), fields.collect())
            });
            schema::Body::Union { arms: arms.collect() }
        }),
        Kind::Exception(errors) => Box::new(move |types| {
            let arms = errors.iter().map(|Raised { named, value, members }| {
                arm(&names.one(named), &named.docs, Some(*value), fields(plan, names, members, types))
            });
            schema::Body::Union { arms: arms.collect() }
        }),
        Kind::Foreign(_) | Kind::Enumeration(_) | Kind::Union(_) => {
            Box::new(|types| structure(vec![field("0", "", Foreign::schema(types), false)]))
        }
    };
    let ty = types.define(&key, names.one(named), &named.docs, body);
    if let (Kind::Union(union), Type::Named(place)) = (kind, &ty)
        && union.variants.iter().any(|variant| variant.label.is_none())
        && let Discriminant::Enumeration(item) = union.discriminant
    {
        types.name_others(*place, || enumerators(plan, names, item));
    }
    ty
}

fn fields(plan: &Plan, names: Names, members: &[Member], types: &mut Types) -> Vec<schema::Field> {
    let each = |Member { named, shape }: &Member| {
        field(&names.one(named), &named.docs, wire(plan, names, shape, types), false)
    };
    members.iter().map(each).collect()
}

/// Returns the names of an enumeration's values.
fn enumerators(plan: &Plan, names: Names, item: usize) -> Vec<(i32, String)> {
    let Kind::Enumeration(enumerators) = &plan.items[item].kind else { return Vec::new() };
    enumerators
        .iter()
        .filter(|one| one.alias_of.is_none())
        .map(|one| (one.value, names.one(&one.named)))
        .collect()
}

fn structure(fields: Vec<schema::Field>) -> schema::Body {
    schema::Body::Struct { fields, extensible: false }
}

/// Returns the wire type of a scalar, or `void` for other types.
fn scalar(ty: &tree::Type) -> Type {
    match ty {
        tree::Type::Quadruple => Type::Opaque { size: 16 },
        ty => ty.scalar().map_or(Type::Void, |(wire, _)| wire),
    }
}
