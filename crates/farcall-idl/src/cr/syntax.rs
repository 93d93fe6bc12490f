//! The declarations of a `.cr` file, before names are looked up.

use crate::language::tree;
pub(super) use crate::text::reader::Name;
use crate::text::source::Span;

/// A program: the content of one file.
pub(super) struct Program {
    pub name: Name,
    /// The numbers of the program and of the version, which Cooper's programs may lack.
    pub numbers: Option<(u32, u32)>,
    pub dependencies: Vec<Dependency>,
    pub declarations: Vec<Declaration>,
}

/// A program that another depends upon: `Time (15) VERSION 2`.
pub(super) struct Dependency {
    pub name: Name,
    pub number: u32,
    pub version: u32,
}

/// `name: TYPE = type;` or `name: type = value;`.
pub(super) struct Declaration {
    pub name: Name,
    pub ty: TypeExpression,
    /// The value, or `None` for a type.
    pub value: Option<Value>,
}

pub(super) struct TypeExpression {
    pub at: Span,
    pub kind: TypeKind,
}

pub(super) enum TypeKind {
    /// A boolean or a number.
    Plain(tree::Type),
    String,
    Enumeration(Vec<Designator>),
    Array(Value, Box<TypeExpression>),
    /// The maximum is missing if the file gives none.
    Sequence(Option<Value>, Box<TypeExpression>),
    Record(Vec<Group>),
    Choice(Choice),
    Procedure(Procedure),
    Error(Vec<Group>),
    Named(Reference),
}

/// Fields of one type: `a, b: T`.
pub(super) struct Group {
    pub names: Vec<Name>,
    pub ty: TypeExpression,
}

/// A name, with its number where the file gives one: `a`, `a(0)`.
pub(super) struct Designator {
    pub name: Name,
    pub number: Option<Value>,
}

pub(super) struct Choice {
    /// The enumeration that the designators belong to, if the file names one.
    pub enumeration: Option<Reference>,
    pub candidates: Vec<Candidate>,
}

pub(super) struct Candidate {
    pub designators: Vec<Designator>,
    pub ty: TypeExpression,
}

pub(super) struct Procedure {
    pub arguments: Vec<Group>,
    pub results: Vec<Group>,
    pub reports: Vec<Reference>,
}

/// The use of a name: `a` or `Program.a`.
#[derive(Clone)]
pub(super) struct Reference {
    pub program: Option<String>,
    pub name: String,
    pub at: Span,
}

/// A constant, as the file writes it.
pub(super) struct Value {
    pub at: Span,
    pub kind: ValueKind,
}

pub(super) enum ValueKind {
    Bool(bool),
    Number(i128),
    Text(String),
    Name(Reference),
    /// `[a, b]`: an array, a sequence, or a record by position. Also `[]`.
    Elements(Vec<Value>),
    /// `[a: x, b, c: y]`: a record by names.
    Components(Vec<(Vec<Name>, Value)>),
    /// `designator value`.
    Choice(Reference, Box<Value>),
}
