//! The declarations of a `.rpc2` file, before names are looked up.

use std::collections::HashMap;

pub(super) use crate::text::reader::Name;
use crate::text::source::Span;

/// A file, with the files that it includes.
pub(super) struct Parsed {
    /// The subsystem, or `None` for a file that only declares types.
    pub subsystem: Option<Subsystem>,
    /// The time-out of the procedures that give none, in seconds.
    pub timeout: Option<Number>,
    pub declarations: Vec<Declaration>,
    /// The numbers that are known from C.
    pub numbers: HashMap<String, i128>,
}

/// `subsystem "name" number version;`.
pub(super) struct Subsystem {
    pub name: Name,
    /// The numbers of the subsystem and of its protocol's version, which are rarely given.
    pub numbers: Option<(Number, Number)>,
}

/// A number, or the name of one.
pub(super) struct Number {
    pub at: Span,
    pub text: String,
}

pub(super) enum Declaration {
    Define(Name, Value),
    Typedef(Typedef),
    Procedure(Procedure),
}

/// The value of a `#define`.
pub(super) enum Value {
    Number(Number),
    Text(String),
}

/// `typedef type name[bound];`.
pub(super) struct Typedef {
    pub name: Name,
    pub body: Body,
    pub bound: Option<Number>,
}

pub(super) enum Body {
    Named(Reference),
    Struct(Vec<Group>),
    Enum(Vec<(Name, Number)>),
}

/// The use of a type's name.
pub(super) struct Reference {
    pub name: String,
    pub at: Span,
}

/// Fields of one type: `T a, b;`.
pub(super) struct Group {
    pub ty: Reference,
    pub names: Vec<Name>,
}

pub(super) struct Procedure {
    pub name: Name,
    pub opcode: Option<Number>,
    pub parameters: Vec<Parameter>,
    pub timeout: Option<Number>,
    /// Where NEW_CONNECTION stands, if it does.
    pub new_connection: Option<Span>,
}

pub(super) struct Parameter {
    pub usage: Usage,
    pub ty: Reference,
    pub name: Name,
    /// Whether `[]` follows the name.
    pub is_array: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    In,
    Out,
    InOut,
}
