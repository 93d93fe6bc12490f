//! Expressions over the values of tokens: the arguments of calls, the values of new tokens, and conditions.
//!
//! An expression is JSON in which variables may stand for values, with operators: `.field`, `[index]`,
//! `len(x)`, `! -`, `* / %`, `+ -`, `< <= > >=`, `== !=`, `&&` and `||`, and parentheses.
//! docs/olympus-format.md describes them. `parse` reads them, `print` writes them, `evaluate` computes them.

mod evaluate;
mod parse;
mod print;
mod tree;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use evaluate::{EvaluationError, MAX_VALUE_BYTES, MAX_VALUE_DEPTH, check_size};
pub(crate) use evaluate::{check_copies, fits};
pub use parse::{ExpressionError, MAX_DEPTH, MAX_TEXT_BYTES};
use tree::Tree;

/// An expression. It prints in one form, whatever spaces and parentheses it was written with.
///
/// ```
/// use farcall_olympus::expression::{Expression, NoVariables};
///
/// let expression: Expression = r#"[1+2, {"a": len("four")}]"#.parse().unwrap();
/// assert_eq!(expression.to_string(), r#"[1 + 2, {"a": len("four")}]"#);
/// assert_eq!(expression.evaluate(&NoVariables).unwrap(), serde_json::json!([3, {"a": 4}]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expression(Arc<Tree>);

/// The values for which the variables of an expression stand.
pub trait Scope {
    /// Returns the value of the variable, or `None` if there is no such variable.
    fn variable(&self, name: &str) -> Option<Cow<'_, Value>>;
}

/// A scope without any variable.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVariables;

impl Expression {
    /// Makes the expression that always has this value.
    ///
    /// # Errors
    /// Returns an error if the value is larger or nested deeper than an expression may be.
    pub fn constant(value: &Value) -> Result<Expression, ExpressionError> {
        value.to_string().parse()
    }

    /// Reads an expression at the beginning of a text, and returns how many bytes it has. The text may go on
    /// with anything that cannot continue an expression.
    ///
    /// # Errors
    /// Returns what is wrong, and the byte at which it is.
    pub fn parse_prefix(text: &str) -> Result<(Expression, usize), ExpressionError> {
        let (tree, length) = parse::prefix(text)?;
        Ok((Expression(Arc::new(tree)), length))
    }

    /// Computes the value.
    ///
    /// # Errors
    /// Returns an error if a variable, field or element does not exist, if an operator does not fit its
    /// operands, or if the value is larger or nested deeper than a token's value may be.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Value, EvaluationError> {
        evaluate::value(&self.0, scope)
    }

    /// Computes a condition.
    ///
    /// # Errors
    /// Returns an error as `evaluate` does, or if the value is neither true nor false.
    pub fn holds(&self, scope: &dyn Scope) -> Result<bool, EvaluationError> {
        evaluate::condition(&self.0, scope)
    }

    /// Returns the names of the variables, each once, in the order in which they first occur.
    pub fn variables(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.0.add_variables(&mut names, &mut HashSet::new());
        names
    }

    /// Returns the value if it depends on no variable and can be computed.
    pub fn known(&self) -> Option<Value> {
        self.evaluate(&NoVariables).ok()
    }

    /// Returns the expressions of the elements if the expression is an array, as the arguments of a call are.
    pub fn elements(&self) -> Option<Vec<Expression>> {
        let Tree::Array(elements) = &*self.0 else { return None };
        Some(elements.iter().map(|tree| Expression(Arc::new(tree.clone()))).collect())
    }

    /// Returns the fields' names and expressions if the expression is an object.
    pub fn fields(&self) -> Option<Vec<(&str, Expression)>> {
        let Tree::Object(fields) = &*self.0 else { return None };
        Some(fields.iter().map(|(name, tree)| (&**name, Expression(Arc::new(tree.clone())))).collect())
    }
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Expression, ExpressionError> {
        Ok(Expression(Arc::new(parse::whole(text)?)))
    }
}

impl TryFrom<String> for Expression {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Expression, ExpressionError> {
        text.parse()
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> String {
        expression.to_string()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print::print(&self.0, f)
    }
}

impl Scope for NoVariables {
    fn variable(&self, _: &str) -> Option<Cow<'_, Value>> {
        None
    }
}
