//! The resolved tree of a file in an interface language, `.x`, `.cr` or `.rpc2`. Every constant in it has a
//! value. Every name is resolved to a definition, or is known to be declared elsewhere.
//!
//! The front end scans, preprocesses, parses and resolves a file into a tree, and refuses files for which
//! that is impossible. The code that generates Rust, the run-time model or another `.x` file from a tree
//! relies on the rules below and does not check them again.

use std::path::PathBuf;

use farcall_xdr::schema;

use crate::text::diagnostic::Diagnostic;

/// The declarations of one file and of the files that it includes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// The `const` definitions.
    pub constants: Vec<Constant>,
    /// The types, including those that were declared in line. A type may stand before or after the types that
    /// use it. No type contains itself directly ([`Declared::One`] or [`Declared::Array`]), except through a
    /// union's arm, which becomes a pointer. No type is an alias of itself.
    pub types: Vec<Definition>,
    /// The programs.
    pub programs: Vec<Program>,
    /// Warnings about omissions: constants that do not fit 64 bits.
    pub warnings: Vec<Diagnostic>,
    /// The files that were read, the given one first. A build generates the Rust again when one of them
    /// changes.
    pub files: Vec<PathBuf>,
    /// The language of the file. A few rules for the Rust are conventions of one language.
    pub language: Language,
    /// The programs that a `.cr` file depends upon, directly or not. Each becomes a Rust module. A name is
    /// that of the program and its version: `Authentication1`.
    pub modules: Vec<Named>,
}

/// The language that a tree was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// `.x` files: ONC RPC.
    #[default]
    Onc,
    /// `.cr` files: Courier.
    Courier,
    /// `.rpc2` files: RPC2.
    Rpc2,
}

/// A name as the file spells it, and its comment. The comment was changed so that it does no harm when it is
/// read as Markdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The comment before the name or after it on the same line, without comment marks. Empty if there is
    /// none.
    pub docs: String,
}

/// A `const NAME = …;`, a `#define` of a number that declarations use, or Courier's `name: Type = …;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The index in [`Specification::modules`], or `None` for the file itself.
    pub module: Option<usize>,
    /// The constant's name.
    pub named: Named,
    /// The constant's value.
    pub value: Value,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number: from -2^63 to 2^64 - 1.
    Integer(i128),
    /// A text `"text"`, which rpcgen accepts too.
    Text(String),
    /// A value of a declared type (Courier).
    Typed {
        /// The type.
        declared: Declared,
        /// The value, which fits the type.
        literal: Literal,
    },
}

/// The value of a Courier constant. Its form follows from its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A boolean.
    Bool(bool),
    /// A number, in the range of its type.
    Number(i128),
    /// A string.
    Text(String),
    /// The index of an enumerator in its enumeration.
    Enumerator(usize),
    /// The fields of a record, in the record's order.
    Record(Vec<Literal>),
    /// The elements of an array or a sequence.
    Elements(Vec<Literal>),
    /// An alternative of a choice: the value of its designator, and the content if the alternative has one.
    Choice(i32, Option<Box<Literal>>),
}

/// A type with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The type's name. The name of a type that was declared in line is made of the names around it.
    pub named: Named,
    /// The namespaces of the Stellar dialect that contain the type, the outermost first.
    pub namespace: Vec<String>,
    /// The index in [`Specification::modules`], or `None` for the file itself.
    pub module: Option<usize>,
    /// The type's body.
    pub body: Body,
}

/// The body of a [`Definition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `typedef` (RFC 4506 section 4.18).
    Alias(Declared),
    /// `enum` (section 4.3).
    Enum(Vec<Enumerator>),
    /// `struct` (section 4.14); may be empty.
    Struct(Vec<Field>),
    /// `union` (section 4.15), or Courier's `CHOICE`.
    Union(Union),
    /// The errors that a Courier procedure reports. Only procedures refer to it.
    Exception(Vec<Raised>),
}

impl Body {
    /// Returns the declarations in the body: the type of an alias, the fields of a struct, the contents of a
    /// union's arms.
    pub(crate) fn declarations(&self) -> Vec<&Declared> {
        match self {
            Body::Alias(declared) => vec![declared],
            Body::Enum(_) | Body::Struct(_) | Body::Union(_) | Body::Exception(_) => {
                self.fields().into_iter().map(|field| &field.declared).collect()
            }
        }
    }

    /// Returns the fields of a struct, or the fields in a union's arms.
    pub(crate) fn fields(&self) -> Vec<&Field> {
        match self {
            Body::Alias(_) | Body::Enum(_) => Vec::new(),
            Body::Struct(fields) => fields.iter().collect(),
            Body::Union(union) => {
                union.arms.iter().map(|arm| &arm.field).chain(&union.default).flatten().collect()
            }
            Body::Exception(errors) => errors.iter().flat_map(|error| &error.fields).collect(),
        }
    }

    /// Returns the fields as [`Body::fields`] does, mutable.
    pub(crate) fn fields_mut(&mut self) -> Vec<&mut Field> {
        match self {
            Body::Alias(_) | Body::Enum(_) => Vec::new(),
            Body::Struct(fields) => fields.iter_mut().collect(),
            Body::Union(union) => {
                union.arms.iter_mut().map(|arm| &mut arm.field).chain(&mut union.default).flatten().collect()
            }
            Body::Exception(errors) => errors.iter_mut().flat_map(|error| &mut error.fields).collect(),
        }
    }
}

/// A constant of an enumeration. Two constants of one enumeration have the same value only if one is an alias
/// of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// The enumerator's name.
    pub named: Named,
    /// The value: the given one, or one more than that of the previous enumerator.
    pub value: i32,
}

/// A field of a struct or an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub named: Named,
    /// The field's type.
    pub declared: Declared,
}

/// A discriminated union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// The discriminant's name.
    pub switch: Named,
    /// The discriminant's type, with aliases resolved: an integer of at most 32 bits, a boolean, or an
    /// enumeration.
    pub discriminant: Type,
    /// The arms, each with at least one label. No label occurs twice.
    pub arms: Vec<Arm>,
    /// What the values without a label select: `None` if they are not allowed, `Some(None)` for `default:
    /// void`, otherwise a field.
    pub default: Option<Option<Field>>,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The labels that select the arm.
    pub labels: Vec<Label>,
    /// The arm's content; `None` for `void`.
    pub field: Option<Field>,
    /// The comment before the arm.
    pub docs: String,
}

/// A `case` label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The constant's or enumerator's name, if the label was written by name. It need not belong to the
    /// discriminant's enumeration.
    pub name: Option<String>,
    /// The label's value. An unsigned value from 2^31 on is stored as the negative number with the same bits.
    pub value: i32,
}

/// An error that a procedure reports, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The error's name.
    pub named: Named,
    /// The error's value, from 0 to 65535. No other error that the procedure reports has it.
    pub value: i32,
    /// The error's arguments.
    pub fields: Vec<Field>,
}

/// The type in a declaration, and how many values of it the declaration has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declared {
    /// `T name`.
    One(Type),
    /// `T *name` (section 4.19).
    Optional(Type),
    /// `T name[size]` (section 4.12).
    Array {
        /// The type of each element.
        element: Type,
        /// The number of elements.
        size: u32,
    },
    /// `T name<max>` (section 4.13); without a maximum, 2^32 - 1.
    List {
        /// The type of each element.
        element: Type,
        /// The maximum number of elements.
        max: u32,
    },
    /// `opaque name[size]` (section 4.9).
    Opaque {
        /// The number of bytes.
        size: u32,
    },
    /// `opaque name<max>` (section 4.10).
    Bytes {
        /// The maximum number of bytes.
        max: u32,
    },
    /// `string name<max>` (section 4.11): bytes of an unknown encoding.
    String {
        /// The maximum number of bytes.
        max: u32,
    },
    /// RPC2's `SE_Descriptor name`: bytes that each end takes from, or puts into, a place of its own. Only an
    /// argument or a whole result can be this.
    Bulk,
}

impl Declared {
    /// Returns the type of the value or of each element; `None` for opaque data and strings.
    pub(crate) fn element(&self) -> Option<&Type> {
        match self {
            Declared::One(ty) | Declared::Optional(ty) => Some(ty),
            Declared::Array { element, .. } | Declared::List { element, .. } => Some(element),
            Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } | Declared::Bulk => {
                None
            }
        }
    }

    /// Returns the type as [`Declared::element`] does, mutable.
    pub(crate) fn element_mut(&mut self) -> Option<&mut Type> {
        match self {
            Declared::One(ty) | Declared::Optional(ty) => Some(ty),
            Declared::Array { element, .. } | Declared::List { element, .. } => Some(element),
            Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } | Declared::Bulk => {
                None
            }
        }
    }

    /// Returns the type that is contained directly, and not through a pointer or a vector.
    pub(crate) fn in_place(&self) -> Option<&Type> {
        match self {
            Declared::One(_) | Declared::Array { .. } => self.element(),
            _ => None,
        }
    }
}

/// A single type, without the `*`, `[…]` or `<…>` of its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `void`, which only results can have.
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
    /// `quadruple`: 16 bytes, for which Rust has no number type.
    Quadruple,
    /// The definition at this index of [`Specification::types`].
    Defined(usize),
    /// A type of that name which the user says is declared elsewhere
    /// ([`Options::external`](crate::x::Options::external)).
    Foreign(String),
}

/// Booleans and numbers: their types in a tree, on the wire, and in an `.x` file.
pub(crate) const SCALARS: [(Type, schema::Type, &str); 11] = [
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
    /// Returns the wire type and the spelling of a boolean or a number, or `None` for other types.
    pub(crate) fn scalar(&self) -> Option<(schema::Type, &'static str)> {
        SCALARS.iter().find(|(ty, ..)| ty == self).map(|(_, wire, spelled)| (wire.clone(), *spelled))
    }

    /// Returns the index of the type's definition, if it has one.
    pub(crate) fn place(&self) -> Option<usize> {
        match self {
            Type::Defined(place) => Some(*place),
            _ => None,
        }
    }
}

/// `program NAME { … } = number;` (RFC 5531 section 12), or a Courier program or a subsystem of RPC2, which
/// have one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The index in [`Specification::modules`], or `None` for the file itself.
    pub module: Option<usize>,
    /// The program's name.
    pub named: Named,
    /// The program's number.
    pub number: u32,
    /// The versions. No number occurs twice.
    pub versions: Vec<Version>,
}

/// `version NAME { … } = number;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The version's name.
    pub named: Named,
    /// The version's number.
    pub number: u32,
    /// The procedures. No number occurs twice.
    pub procedures: Vec<Procedure>,
}

/// `result NAME(arguments) = number;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The procedure's name.
    pub named: Named,
    /// The procedure's number. Number 0 is the null procedure by convention.
    pub number: u32,
    /// The arguments, encoded one after the other; empty for `void`.
    pub arguments: Vec<Argument>,
    /// The type of the result; [`Type::Void`] if there is none.
    pub result: Declared,
    /// The index of the definition of the errors that the procedure reports, if it reports any: for Courier a
    /// [`Body::Exception`], for RPC2 a [`Body::Struct`].
    pub exception: Option<usize>,
    /// The maximum time that a call may take, in milliseconds, if the file gives one.
    pub deadline_ms: Option<u64>,
}

/// An argument of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The argument's name, if the file gives one.
    pub name: Option<String>,
    /// The argument's type.
    pub declared: Declared,
}
