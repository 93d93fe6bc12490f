//! The tree of an expression.

use std::collections::HashSet;

use farcall_base::work;
use serde_json::Value;

/// An expression. The parser bounds its depth, so functions may recurse.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// `null`, `true`, a number or a string.
    Scalar(Value),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
    Variable(String),
    /// `x.name`.
    Field(Box<Tree>, String),
    /// `x[i]`.
    Index(Box<Tree>, Box<Tree>),
    /// `len(x)`.
    Length(Box<Tree>),
    Not(Box<Tree>),
    Minus(Box<Tree>),
    Binary(Operator, Box<Tree>, Box<Tree>),
}

/// An operator between two operands. All of them group from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Or,
    And,
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    DividedBy,
    Remainder,
}

/// The operators. One that begins as another does stands before it.
pub const OPERATORS: [(&str, Operator); 13] = [
    ("||", Operator::Or),
    ("&&", Operator::And),
    ("==", Operator::Equal),
    ("!=", Operator::Different),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("+", Operator::Plus),
    ("-", Operator::Minus),
    ("*", Operator::Times),
    ("/", Operator::DividedBy),
    ("%", Operator::Remainder),
];

/// The rank of what needs no parentheses anywhere.
pub const OPERAND: u8 = 8;
/// The rank of what begins with `!` or `-`.
pub const PREFIXED: u8 = 7;

impl Operator {
    /// Returns how strongly the operator binds, from 1.
    pub fn rank(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And => 2,
            Operator::Equal | Operator::Different => 3,
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => 4,
            Operator::Plus | Operator::Minus => 5,
            Operator::Times | Operator::DividedBy | Operator::Remainder => 6,
        }
    }

    /// Returns how the operator is written.
    pub fn sign(self) -> &'static str {
        OPERATORS.iter().find(|(_, operator)| *operator == self).map_or("", |(sign, _)| sign)
    }
}

impl Tree {
    /// Returns how strongly the parts of the expression are bound together.
    pub fn rank(&self) -> u8 {
        match self {
            Tree::Binary(operator, ..) => operator.rank(),
            Tree::Not(_) | Tree::Minus(_) => PREFIXED,
            Tree::Scalar(Value::Number(number)) if number.to_string().starts_with('-') => PREFIXED,
            _ => OPERAND,
        }
    }

    /// Adds the names of variables to `names`, in the order in which they first occur. `known` has those that
    /// are there.
    pub fn add_variables<'a>(&'a self, names: &mut Vec<&'a str>, known: &mut HashSet<&'a str>) {
        work::step();
        match self {
            Tree::Scalar(_) => {}
            Tree::Variable(name) => names.extend(known.insert(name).then_some(name.as_str())),
            Tree::Array(elements) => elements.iter().for_each(|each| each.add_variables(names, known)),
            Tree::Object(fields) => fields.iter().for_each(|(_, each)| each.add_variables(names, known)),
            Tree::Field(of, _) | Tree::Length(of) | Tree::Not(of) | Tree::Minus(of) => {
                of.add_variables(names, known)
            }
            Tree::Index(left, right) | Tree::Binary(_, left, right) => {
                left.add_variables(names, known);
                right.add_variables(names, known);
            }
        }
    }
}
