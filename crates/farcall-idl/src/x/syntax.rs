//! What an `.x` file says, before names are looked up.
//!
//! Types that are declared in line stand among the others, under a name made of those around them.

use super::tree::Type;
use crate::text::source::Span;

/// All that was declared, in the order in which each ended.
#[derive(Default)]
pub(super) struct Syntax {
    pub constants: Vec<ConstantItem>,
    pub types: Vec<TypeItem>,
    pub programs: Vec<ProgramItem>,
    /// The namespaces, each with the one around it; the first is the file itself.
    pub scopes: Vec<Scope>,
}

/// How much of what was read is the file's own; the rest may lend it something.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub constants: usize,
    pub types: usize,
    pub programs: usize,
}

/// A namespace: its place in [`Syntax::scopes`].
pub(super) type ScopeId = usize;

pub(super) struct Scope {
    pub name: String,
    pub outer: ScopeId,
}

/// A name that is declared.
#[derive(Clone, Default)]
pub(super) struct Name {
    pub text: String,
    pub at: Span,
    pub docs: String,
}

/// A name that is used: `a`, `a::b`, `::a`.
#[derive(Clone)]
pub(super) struct Path {
    pub absolute: bool,
    pub parts: Vec<String>,
    pub at: Span,
}

/// A constant expression.
#[derive(Clone)]
pub(super) enum Expression {
    Number(i128),
    Name(Path),
    Negative(Box<Expression>),
    Binary(u8, Box<Expression>, Box<Expression>),
}

/// A constant expression, and where it stands.
#[derive(Clone)]
pub(super) struct Amount {
    pub expression: Expression,
    pub at: Span,
}

pub(super) struct ConstantItem {
    /// Whether it is none of the file's own, but may be meant: a procedure's number, what C alone was told.
    pub lent: bool,
    pub name: Name,
    pub scope: ScopeId,
    pub value: ConstantValue,
}

pub(super) enum ConstantValue {
    Amount(Amount),
    Text(String),
}

pub(super) struct TypeItem {
    /// Without a text if it was declared in line and was given none.
    pub name: Name,
    pub scope: ScopeId,
    pub body: BodyItem,
}

pub(super) enum BodyItem {
    Alias(Declaration),
    Enum(Vec<(Name, Option<Amount>)>),
    Struct(Vec<Declaration>),
    Union(Box<UnionItem>),
}

pub(super) struct UnionItem {
    pub switch: Declaration,
    pub arms: Vec<ArmItem>,
    pub default: Option<Option<Declaration>>,
}

pub(super) struct ArmItem {
    pub labels: Vec<Amount>,
    pub declaration: Option<Declaration>,
    pub docs: String,
}

/// `T *name`, `T name<4>` and so on.
#[derive(Clone)]
pub(super) struct Declaration {
    /// Empty if the declaration gives none.
    pub name: Name,
    pub specifier: Specifier,
    pub shape: Shape,
    /// The type and the name.
    pub at: Span,
}

impl Declaration {
    /// Whether it declares nothing: `void`.
    pub fn is_void(&self) -> bool {
        matches!((&self.specifier, &self.shape), (Specifier::Void, Shape::One))
    }
}

#[derive(Clone)]
pub(super) enum Specifier {
    Void,
    Opaque,
    String,
    /// Of C's words.
    Plain(Type),
    Named(Path),
    /// The type at this place of [`Syntax::types`].
    Inline(usize),
}

#[derive(Clone)]
pub(super) enum Shape {
    One,
    Optional,
    Fixed(Amount),
    Variable(Option<Amount>),
}

pub(super) struct ProgramItem {
    pub name: Name,
    pub scope: ScopeId,
    pub number: Amount,
    pub versions: Vec<VersionItem>,
}

pub(super) struct VersionItem {
    pub name: Name,
    pub number: Amount,
    pub procedures: Vec<ProcedureItem>,
}

pub(super) struct ProcedureItem {
    pub name: Name,
    pub number: Amount,
    pub arguments: Vec<Declaration>,
    pub result: Declaration,
}
