//! The declarations of an `.x` file, before names are looked up.
//!
//! Types that are declared in line are in the same list. Their names are made of the names around them.

use super::tree::Type;
pub(super) use crate::text::reader::Name;
use crate::text::source::Span;

/// All declarations, in the order in which they end in the file.
#[derive(Default)]
pub(super) struct Syntax {
    pub constants: Vec<ConstantItem>,
    pub types: Vec<TypeItem>,
    pub programs: Vec<ProgramItem>,
    /// The namespaces, each with its enclosing one. The first is the file itself.
    pub scopes: Vec<Scope>,
}

/// How many of the declarations are the file's own. The others come from auxiliary files.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub constants: usize,
    pub types: usize,
    pub programs: usize,
}

/// The index of a namespace in [`Syntax::scopes`].
pub(super) type ScopeId = usize;

pub(super) struct Scope {
    pub name: String,
    pub outer: ScopeId,
}

/// The use of a name: `a`, `a::b`, `::a`.
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

/// A constant expression, and its place.
#[derive(Clone)]
pub(super) struct Amount {
    pub expression: Expression,
    pub at: Span,
}

pub(super) struct ConstantItem {
    /// Whether the constant is implied and not declared by `const`: a procedure's number, or a definition for
    /// C only.
    pub is_implied: bool,
    pub name: Name,
    pub scope: ScopeId,
    pub value: ConstantValue,
}

pub(super) enum ConstantValue {
    Amount(Amount),
    Text(String),
}

pub(super) struct TypeItem {
    /// The name. It is empty if the type was declared in line without one.
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

/// A declaration such as `T *name` or `T name<4>`.
#[derive(Clone)]
pub(super) struct Declaration {
    /// The name, or an empty one if the declaration has none.
    pub name: Name,
    pub specifier: Specifier,
    pub shape: Shape,
    /// The place of the type and the name.
    pub at: Span,
}

impl Declaration {
    /// Returns whether this declares nothing: `void`.
    pub fn is_void(&self) -> bool {
        matches!((&self.specifier, &self.shape), (Specifier::Void, Shape::One))
    }
}

#[derive(Clone)]
pub(super) enum Specifier {
    Void,
    Opaque,
    String,
    /// A type that is named by keywords, such as `unsigned int`.
    Plain(Type),
    Named(Path),
    /// The type at this index of [`Syntax::types`].
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
