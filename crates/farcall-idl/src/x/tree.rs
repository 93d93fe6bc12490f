//! An `.x` file as a tree, resolved: every constant is a number, every name stands for a definition or is
//! known to be foreign.
//!
//! The front end makes it (scanning, preprocessing, parsing, resolving), and refuses what no tree can hold.
//! What is made of a tree (Rust, the run-time model, `.x` again) relies on this and asks nothing else.

use std::path::PathBuf;

use farcall_xdr::schema;

use super::Diagnostic;

/// All that one file, with what it includes, declares; in the order of declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// `const` definitions.
    pub constants: Vec<Constant>,
    /// Types, those without a name of their own among them, each before or after those that use it. None
    /// contains itself in place but by way of a union's arm ([`Declared::One`] or [`Declared::Array`]), where
    /// it takes a pointer; none is an alias of itself.
    pub types: Vec<Definition>,
    /// Programs.
    pub programs: Vec<Program>,
    /// What was left out: constants that no number of 64 bits can hold.
    pub warnings: Vec<Diagnostic>,
    /// The files that were read for it, the first of them included: what is made of it is made anew when one
    /// changes.
    pub files: Vec<PathBuf>,
}

/// A name as the file spells it, and the comment that stands before it, in Markdown or at least harmless as
/// such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The spelling.
    pub name: String,
    /// The comment before (or after, on the same line), without its marks; empty if there is none.
    pub docs: String,
}

/// `const NAME = …;`, and a `#define` of a number that declarations used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// What it is called.
    pub named: Named,
    /// What it stands for.
    pub value: Value,
}

/// What a constant stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number: from -2^63 to 2^64 - 1.
    Integer(i128),
    /// `"text"`, which rpcgen takes too.
    Text(String),
}

/// A type with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// What it is called; for one declared in line, made of the names around it.
    pub named: Named,
    /// The Stellar dialect's namespaces that it stands in, the outermost first.
    pub namespace: Vec<String>,
    /// What it consists of.
    pub body: Body,
}

/// What a [`Definition`] consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `typedef` (RFC 4506 section 4.18).
    Alias(Declared),
    /// `enum` (section 4.3).
    Enum(Vec<Enumerator>),
    /// `struct` (section 4.14); may be empty.
    Struct(Vec<Field>),
    /// `union` (section 4.15).
    Union(Union),
}

impl Body {
    /// What is declared in it: the type of an alias, the fields of a struct, what a union's arms hold.
    pub(super) fn declarations(&self) -> Vec<&Declared> {
        match self {
            Body::Alias(declared) => vec![declared],
            Body::Enum(_) | Body::Struct(_) | Body::Union(_) => {
                self.fields().into_iter().map(|field| &field.declared).collect()
            }
        }
    }

    /// The fields of a struct, or those of a union's arms.
    pub(super) fn fields(&self) -> Vec<&Field> {
        match self {
            Body::Alias(_) | Body::Enum(_) => Vec::new(),
            Body::Struct(fields) => fields.iter().collect(),
            Body::Union(union) => {
                union.arms.iter().map(|arm| &arm.field).chain(&union.default).flatten().collect()
            }
        }
    }

    /// As [`Body::fields`], to be changed.
    pub(super) fn fields_mut(&mut self) -> Vec<&mut Field> {
        match self {
            Body::Alias(_) | Body::Enum(_) => Vec::new(),
            Body::Struct(fields) => fields.iter_mut().collect(),
            Body::Union(union) => {
                union.arms.iter_mut().map(|arm| &mut arm.field).chain(&mut union.default).flatten().collect()
            }
        }
    }
}

/// A constant of an enumeration. No two of one enumeration have the same value, unless one is an alias of the
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// What it is called.
    pub named: Named,
    /// Given, or one more than the one before.
    pub value: i32,
}

/// A field of a struct or an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is called.
    pub named: Named,
    /// What it is.
    pub declared: Declared,
}

/// A discriminated union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// What the discriminant is called.
    pub switch: Named,
    /// Its type, aliases apart: an integer of at most 32 bits, a boolean, or an enumeration.
    pub discriminant: Type,
    /// The arms, each with at least one label; no label stands twice.
    pub arms: Vec<Arm>,
    /// What is selected by every other value, if anything: a declaration, or nothing (`default: void`).
    pub default: Option<Option<Field>>,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// What selects it.
    pub labels: Vec<Label>,
    /// What belongs to it; none for `void`.
    pub field: Option<Field>,
    /// The comment before it.
    pub docs: String,
}

/// A `case` label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The constant's or enumerator's name, if it was written by name. It need not be one of the
    /// discriminant's enumeration.
    pub name: Option<String>,
    /// Its value; an unsigned discriminant's above 2^31 by its bits.
    pub value: i32,
}

/// A type, and how many of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declared {
    /// `T name`.
    One(Type),
    /// `T *name` (section 4.19).
    Optional(Type),
    /// `T name[size]` (section 4.12).
    Array {
        /// Of each element.
        element: Type,
        /// How many.
        size: u32,
    },
    /// `T name<max>` (section 4.13); without a maximum, 2^32 - 1.
    List {
        /// Of each element.
        element: Type,
        /// How many at most.
        max: u32,
    },
    /// `opaque name[size]` (section 4.9).
    Opaque {
        /// How many bytes.
        size: u32,
    },
    /// `opaque name<max>` (section 4.10).
    Bytes {
        /// How many bytes at most.
        max: u32,
    },
    /// `string name<max>` (section 4.11): bytes, in no encoding that is known.
    String {
        /// How many bytes at most.
        max: u32,
    },
}

impl Declared {
    /// The type of one value or of each element; none for opaque data and strings.
    pub(super) fn element(&self) -> Option<&Type> {
        match self {
            Declared::One(ty) | Declared::Optional(ty) => Some(ty),
            Declared::Array { element, .. } | Declared::List { element, .. } => Some(element),
            Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } => None,
        }
    }

    /// As [`Declared::element`], to be changed.
    pub(super) fn element_mut(&mut self) -> Option<&mut Type> {
        match self {
            Declared::One(ty) | Declared::Optional(ty) => Some(ty),
            Declared::Array { element, .. } | Declared::List { element, .. } => Some(element),
            Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } => None,
        }
    }

    /// The type that every value contains in its own memory.
    pub(super) fn in_place(&self) -> Option<&Type> {
        match self {
            Declared::One(_) | Declared::Array { .. } => self.element(),
            _ => None,
        }
    }
}

/// A type that is not composed where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `void`: as a result only.
    Void,
    /// `bool`, `bool_t`.
    Bool,
    /// `char`, `int8_t`: 8 bits, in 32 on the wire.
    I8,
    /// `short`, `int16_t`: 16 bits, in 32 on the wire.
    I16,
    /// `int`, `long`, `int32_t`.
    I32,
    /// `hyper`, `quad`, `quad_t`, `int64_t`, `long long`.
    I64,
    /// `unsigned char`, `uint8_t`.
    U8,
    /// `unsigned short`, `uint16_t`.
    U16,
    /// `unsigned`, `unsigned int`, `unsigned long`, `uint32_t`.
    U32,
    /// `unsigned hyper`, `u_quad_t`, `uint64_t`.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `quadruple`: 16 bytes, which Rust has no number for.
    Quadruple,
    /// The definition at this place of [`Specification::types`].
    Defined(usize),
    /// A type of that name which the user says is declared elsewhere
    /// ([`Options::external`](super::Options::external)).
    Foreign(String),
}

/// Booleans and numbers: as a tree has them, as they cross, and as an `.x` file spells them.
pub(super) const SCALARS: [(Type, schema::Type, &str); 11] = [
    (Type::Bool, schema::Type::Bool, "bool"),
    (Type::I8, schema::Type::I8, "char"),
    (Type::I16, schema::Type::I16, "short"),
    (Type::I32, schema::Type::I32, "int"),
    (Type::I64, schema::Type::I64, "hyper"),
    (Type::U8, schema::Type::U8, "unsigned char"),
    (Type::U16, schema::Type::U16, "unsigned short"),
    (Type::U32, schema::Type::U32, "unsigned int"),
    (Type::U64, schema::Type::U64, "unsigned hyper"),
    (Type::F32, schema::Type::F32, "float"),
    (Type::F64, schema::Type::F64, "double"),
];

impl Type {
    /// Its wire type and its spelling, if it is a boolean or a number.
    pub(super) fn scalar(&self) -> Option<(schema::Type, &'static str)> {
        SCALARS.iter().find(|(ty, ..)| ty == self).map(|(_, wire, spelled)| (wire.clone(), *spelled))
    }

    /// The place of its definition, if it has one.
    pub(super) fn place(&self) -> Option<usize> {
        match self {
            Type::Defined(place) => Some(*place),
            _ => None,
        }
    }
}

/// `program NAME { … } = number;` (RFC 5531 section 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What it is called.
    pub named: Named,
    /// Its number.
    pub number: u32,
    /// Its versions; no number stands twice.
    pub versions: Vec<Version>,
}

/// `version NAME { … } = number;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What it is called.
    pub named: Named,
    /// Its number.
    pub number: u32,
    /// Its procedures; no number stands twice.
    pub procedures: Vec<Procedure>,
}

/// `result NAME(arguments) = number;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// What it is called.
    pub named: Named,
    /// Its number; 0 is the null procedure by convention.
    pub number: u32,
    /// Its arguments, encoded one after the other; none for `void`.
    pub arguments: Vec<Argument>,
    /// What it returns: [`Type::Void`] if nothing.
    pub result: Declared,
}

/// An argument of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name, if the file gives one.
    pub name: Option<String>,
    /// What it is.
    pub declared: Declared,
}
