//! Makes a tree (as the parser of `.x` files does) of an interface that was written in Rust, to print it as
//! an `.x` file. From that file, rpcgen makes C stubs.

use std::collections::BTreeSet;

use farcall_xdr::schema::{self, Types};

use super::Refused;
use super::print;
use super::tree::*;
use crate::Interface;
use crate::language::plan::names::identifier;

/// Words that cannot be names in C++, besides the keywords of C.
const CPP_KEYWORDS: &str = "class delete namespace new this virtual";

/// The depth to which a type is examined to see whether its values have bytes. The bound is there because a
/// description can come from a peer.
const MAX_DEPTH: usize = 64;

/// Returns the `.x` file of an interface: its types, and one version of one program.
///
/// The wire forms stay the same, and so do names as far as C allows. The names of enumerators become
/// `Type_name`, and those of procedures become `INTERFACE_NAME`. A declared exception has no form in an `.x`
/// file, so only a comment mentions it. An extensible struct becomes opaque data.
///
/// ```
/// use farcall_idl::{Interface, to_x};
/// let mut echo = Interface::new("Echo");
/// echo.procedure(1, "twice").argument::<u32>("number").result::<Vec<u32>>();
/// let text = to_x(&echo, 0x2000_0001, 1)?;
/// assert!(text.contains("typedef unsigned int Echo_twice_result<>;"));
/// assert!(text.contains("Echo_twice_result ECHO_TWICE(unsigned int) = 1;"));
/// # Ok::<(), farcall_idl::x::Refused>(())
/// ```
///
/// # Errors
/// When the interface needs a type whose wire form it does not describe, or when `.x` files, or the C that
/// rpcgen makes of them, cannot express something.
pub fn to_x(interface: &Interface, program: u32, version: u32) -> Result<String, Refused> {
    let mut maker = Maker {
        types: &interface.types,
        names: Vec::new(),
        taken: BTreeSet::new(),
        added: Vec::new(),
        constants: Vec::new(),
    };
    let definitions = interface.types.definitions();
    maker.names = definitions.iter().map(|definition| maker.claim(&identifier(&definition.name))).collect();
    let types: Vec<Definition> =
        (0..).zip(definitions).map(|(place, definition)| maker.definition(place, definition)).collect();
    let name = identifier(&interface.name);
    let procedures = interface.procedures.iter().map(|procedure| maker.procedure(&name, procedure)).collect();
    let upper = name.to_uppercase();
    let version =
        Version { named: named(format!("{upper}_VERS_{version}"), ""), number: version, procedures };
    let program = Program {
        module: None,
        named: named(format!("{upper}_PROG"), &interface.docs),
        number: program,
        versions: vec![version],
    };
    let types = types.into_iter().chain(maker.added).collect();
    let constants = maker.constants;
    print::to_x(&Specification { constants, types, programs: vec![program], ..Specification::default() })
}

struct Maker<'t> {
    types: &'t Types,
    /// The names of the interface's definitions, by index.
    names: Vec<String>,
    /// The names of types and enumerators that are in use.
    taken: BTreeSet<String>,
    /// Definitions of types that have no name in Rust. They follow those of the interface.
    added: Vec<Definition>,
    constants: Vec<Constant>,
}

impl Maker<'_> {
    fn definition(&mut self, place: usize, definition: &schema::Definition) -> Definition {
        let name = self.names[place].clone();
        let mut docs = definition.docs.clone();
        let body = match &definition.body {
            schema::Body::Struct { extensible: true, .. } => {
                docs += "\nAn extensible struct: its length, and then its fields, to which later versions may add.";
                Body::Alias(Declared::Bytes { max: u32::MAX })
            }
            _ if self.is_foreign(&definition.body) => {
                Body::Alias(Declared::One(Type::Foreign(definition.name.clone())))
            }
            schema::Body::Struct { fields, .. } => self.structure(&name, fields),
            schema::Body::Union { arms } if arms.iter().all(|arm| arm.fields.is_empty()) => {
                self.enumeration(&name, arms)
            }
            schema::Body::Union { arms } => self.union(&name, arms),
        };
        Definition { named: named(name, &docs), namespace: Vec::new(), module: None, body }
    }

    /// Returns whether only the name of a type is known. The description has such a type as a struct whose
    /// only field is a union without variants.
    fn is_foreign(&self, body: &schema::Body) -> bool {
        match body {
            schema::Body::Struct { fields, .. } => match fields.as_slice() {
                [schema::Field { ty: schema::Type::Named(place), .. }] => self.types.get(*place).is_none_or(
                    |found| matches!(&found.body, schema::Body::Union { arms } if arms.is_empty()),
                ),
                _ => false,
            },
            schema::Body::Union { arms } => arms.is_empty(),
        }
    }

    /// Returns a struct of the fields that have bytes. If there are none, returns opaque data of length 0,
    /// which has the same wire form, because rpcgen does not accept a struct without fields.
    fn structure(&mut self, around: &str, fields: &[schema::Field]) -> Body {
        let mut taken = BTreeSet::new();
        let mut kept = Vec::new();
        for (index, schema::Field { name, ty, .. }) in fields.iter().enumerate() {
            if self.is_void(ty, MAX_DEPTH) {
                continue;
            }
            let is_number = name.parse::<usize>().is_ok();
            let wanted = if is_number { format!("field{index}") } else { identifier(name) };
            let name = free(&wanted, &mut taken);
            let declared = self.declared(&format!("{around}_{name}"), ty);
            kept.push(Field { named: named(name, ""), declared });
        }
        if kept.is_empty() { Body::Alias(Declared::Opaque { size: 0 }) } else { Body::Struct(kept) }
    }

    /// Returns whether values of the type have no bytes.
    fn is_void(&self, ty: &schema::Type, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match ty {
            schema::Type::Void | schema::Type::Opaque { size: 0 } => true,
            schema::Type::Array { element, .. } => self.is_void(element, depth),
            schema::Type::Tuple(parts) => parts.iter().all(|part| self.is_void(part, depth)),
            schema::Type::Named(place) => match self.types.get(*place).map(|found| &found.body) {
                Some(schema::Body::Struct { fields, extensible: false }) => {
                    fields.iter().all(|field| self.is_void(&field.ty, depth))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Makes the definition of an enumeration. In C, enumerators are global, so their names begin with that
    /// of the type. An enumeration that admits unknown values becomes a number, and its enumerators become
    /// constants.
    fn enumeration(&mut self, name: &str, arms: &[schema::Arm]) -> Body {
        let enumerator = |arm: &schema::Arm| {
            let named = named(self.claim(&format!("{name}_{}", identifier(&arm.name))), &arm.docs);
            Some(Enumerator { named, value: arm.tag? })
        };
        let enumerators: Vec<Enumerator> = arms.iter().filter_map(enumerator).collect();
        if enumerators.len() == arms.len() {
            return Body::Enum(enumerators);
        }
        self.constants.extend(enumerators.into_iter().map(|Enumerator { named, value }| Constant {
            module: None,
            named,
            value: Value::Integer(value.into()),
        }));
        Body::Alias(Declared::One(Type::I32))
    }

    fn union(&mut self, name: &str, arms: &[schema::Arm]) -> Body {
        let mut taken = BTreeSet::from(["tag".to_string()]);
        let mut union = Union {
            switch: named("tag".into(), ""),
            discriminant: Type::I32,
            arms: Vec::new(),
            default: None,
        };
        for arm in arms {
            let around = format!("{name}_{}", identifier(&arm.name));
            let name = free(&identifier(&arm.name).to_lowercase(), &mut taken);
            let parts: Vec<_> =
                arm.fields.iter().filter(|field| !self.is_void(&field.ty, MAX_DEPTH)).collect();
            let declared = match parts.as_slice() {
                [] => None,
                [only] => Some(self.declared(&around, &only.ty)),
                _ => {
                    let body = self.structure(&around, &arm.fields);
                    Some(Declared::One(self.add(&around, body)))
                }
            };
            let field = declared.map(|declared| Field { named: named(name, ""), declared });
            match arm.tag {
                None => union.default = Some(field),
                Some(value) => union.arms.push(Arm {
                    labels: vec![Label { name: None, value }],
                    field,
                    docs: arm.docs.clone(),
                }),
            }
        }
        Body::Union(union)
    }

    /// Returns the declaration of a field of the type. A part that the language cannot declare in place gets
    /// a name, derived from `around`.
    fn declared(&mut self, around: &str, ty: &schema::Type) -> Declared {
        match ty {
            schema::Type::Opaque { size } => Declared::Opaque { size: *size },
            schema::Type::Bytes { max } => Declared::Bytes { max: *max },
            schema::Type::String { max } => Declared::String { max: *max },
            schema::Type::Array { size, element } => {
                Declared::Array { element: self.named_type(around, element), size: *size }
            }
            schema::Type::List { max, element } => {
                Declared::List { element: self.named_type(around, element), max: *max }
            }
            schema::Type::Optional(inner) => Declared::Optional(self.named_type(around, inner)),
            schema::Type::Chain(element) => {
                let item = self.declared(&format!("{around}_item"), element);
                let node = Type::Defined(self.names.len() + self.added.len());
                let fields = [("item", item), ("next", Declared::Optional(node))];
                let field =
                    |(name, declared): (&str, Declared)| Field { named: named(name.into(), ""), declared };
                Declared::Optional(
                    self.add(&format!("{around}_node"), Body::Struct(fields.map(field).into())),
                )
            }
            other => Declared::One(self.named_type(around, other)),
        }
    }

    /// Returns a type that has a name. Adds a definition for a type that has none.
    fn named_type(&mut self, around: &str, ty: &schema::Type) -> Type {
        if let Some((scalar, ..)) = SCALARS.iter().find(|(_, wire, _)| wire == ty) {
            return scalar.clone();
        }
        let body = match ty {
            schema::Type::Void => Body::Alias(Declared::Opaque { size: 0 }),
            schema::Type::Named(place) if (*place as usize) < self.names.len() => {
                return Type::Defined(*place as usize);
            }
            // This does not happen: a description was checked to refer only to definitions that it has.
            schema::Type::Named(place) => return Type::Foreign(place.to_string()),
            schema::Type::Tuple(parts) => {
                let part = |(index, ty): (usize, &schema::Type)| {
                    schema::field(&index.to_string(), "", ty.clone(), false)
                };
                let fields: Vec<_> = parts.iter().enumerate().map(part).collect();
                self.structure(around, &fields)
            }
            other => Body::Alias(self.declared(&format!("{around}_of"), other)),
        };
        self.add(around, body)
    }

    fn procedure(&mut self, interface: &str, procedure: &crate::Procedure) -> Procedure {
        let around = format!("{interface}_{}", identifier(&procedure.name));
        let result = match &procedure.result {
            schema::Type::Void => Type::Void,
            result => self.named_type(&format!("{around}_result"), result),
        };
        // The arguments get no names, because in C these could collide with types.
        let arguments = procedure.arguments.iter().map(|argument| {
            let around = format!("{around}_{}", identifier(&argument.name));
            Argument { name: None, declared: Declared::One(self.named_type(&around, &argument.ty)) }
        });
        let arguments: Vec<Argument> = arguments.collect();
        let mut docs = procedure.docs.clone();
        if !arguments.is_empty() {
            let names: Vec<&str> = procedure.arguments.iter().map(|argument| &argument.name[..]).collect();
            docs += &format!("\nArguments: {}.", names.join(", "));
        }
        if procedure.exception != schema::Type::Void {
            let exception = crate::spell(self.types, &procedure.exception);
            docs += &format!("\nIt may raise {exception}, which ONC RPC cannot express.");
        }
        let named = named(around.to_uppercase(), &docs);
        Procedure {
            named,
            number: procedure.number,
            arguments,
            result: Declared::One(result),
            exception: None,
            deadline_ms: None,
        }
    }

    /// Adds a definition, and returns its type.
    fn add(&mut self, wanted: &str, body: Body) -> Type {
        let named = named(self.claim(wanted), "");
        self.added.push(Definition { named, namespace: Vec::new(), module: None, body });
        Type::Defined(self.names.len() + self.added.len() - 1)
    }

    /// Returns a name that no other type and no enumerator has.
    fn claim(&mut self, wanted: &str) -> String {
        free(wanted, &mut self.taken)
    }
}

fn named(name: String, docs: &str) -> Named {
    let docs = docs.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n");
    Named { name, docs }
}

/// Claims a name that C admits and that is free: `wanted`, or `wanted` with a number.
fn free(wanted: &str, taken: &mut BTreeSet<String>) -> String {
    let is_reserved = |name: &str| {
        print::is_keyword(name) || print::is_routine(name) || CPP_KEYWORDS.split(' ').any(|word| word == name)
    };
    let numbered = (2u64..).map(|number| format!("{wanted}_{number}"));
    let mut candidates = std::iter::once(wanted.to_owned()).chain(numbered);
    let name = candidates.find(|name| !taken.contains(name) && !is_reserved(name)).unwrap_or_default();
    taken.insert(name.clone());
    name
}
