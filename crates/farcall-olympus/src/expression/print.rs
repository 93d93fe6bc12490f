//! Prints expressions, with the fewest parentheses, on one line.

use std::fmt::{Formatter, Result};

use serde_json::Value;

use super::tree::{OPERAND, PREFIXED, Tree};

/// Prints the expression.
pub fn print(tree: &Tree, f: &mut Formatter<'_>) -> Result {
    match tree {
        Tree::Scalar(value) => write!(f, "{value}"),
        Tree::Variable(name) => f.write_str(name),
        Tree::Array(elements) => {
            f.write_str("[")?;
            for (place, each) in elements.iter().enumerate() {
                f.write_str(if place == 0 { "" } else { ", " })?;
                print(each, f)?;
            }
            f.write_str("]")
        }
        Tree::Object(fields) => {
            f.write_str("{")?;
            for (place, (name, each)) in fields.iter().enumerate() {
                f.write_str(if place == 0 { "" } else { ", " })?;
                write!(f, "{}: ", Value::from(name.as_str()))?;
                print(each, f)?;
            }
            f.write_str("}")
        }
        Tree::Field(of, name) => {
            operand(of, OPERAND, f)?;
            write!(f, ".{name}")
        }
        Tree::Index(of, index) => {
            operand(of, OPERAND, f)?;
            f.write_str("[")?;
            print(index, f)?;
            f.write_str("]")
        }
        Tree::Length(of) => {
            f.write_str("len(")?;
            print(of, f)?;
            f.write_str(")")
        }
        Tree::Not(of) => {
            f.write_str("!")?;
            operand(of, PREFIXED, f)
        }
        // (The sign of a number belongs to the number.)
        Tree::Minus(of) if matches!(**of, Tree::Scalar(Value::Number(_))) && of.rank() == OPERAND => {
            write!(f, "-(")?;
            print(of, f)?;
            f.write_str(")")
        }
        Tree::Minus(of) => {
            f.write_str("-")?;
            operand(of, PREFIXED, f)
        }
        Tree::Binary(operator, left, right) => {
            operand(left, operator.rank(), f)?;
            write!(f, " {} ", operator.sign())?;
            operand(right, operator.rank() + 1, f)
        }
    }
}

/// Prints a part, in parentheses if it is bound less strongly than `rank`. A field of a number would read as
/// the number's fraction, so it gets parentheses too.
fn operand(tree: &Tree, rank: u8, f: &mut Formatter<'_>) -> Result {
    let number = matches!(tree, Tree::Scalar(Value::Number(_)));
    if tree.rank() >= rank && !(number && rank == OPERAND) {
        return print(tree, f);
    }
    f.write_str("(")?;
    print(tree, f)?;
    f.write_str(")")
}
