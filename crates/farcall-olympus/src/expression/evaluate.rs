//! Computes expressions. The size of what is computed, and of what is copied meanwhile, is bounded.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;

use farcall_base::work;
use serde_json::{Number, Value};

use super::Scope;
use super::tree::{Operator, Tree};

/// The most bytes that one expression may copy, make, measure or compare, about.
pub const MAX_VALUE_BYTES: usize = 16 << 20;
/// The most bytes that the tokens of one arc may have together, about.
const MAX_COPIES_BYTES: usize = 256 << 20;
/// The most levels of nesting in the value of a token.
pub const MAX_VALUE_DEPTH: usize = 100;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationError(String);

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EvaluationError {}

type Computed<'a> = Result<Cow<'a, Value>, EvaluationError>;

/// Computes the value of an expression.
pub fn value(tree: &Tree, scope: &dyn Scope) -> Result<Value, EvaluationError> {
    let run = Run { scope, left: Cell::new(MAX_VALUE_BYTES) };
    let value = run.compute(tree)?;
    let value = run.owned(value)?;
    match value {
        Value::Array(_) | Value::Object(_) => check_size(&value).map(|()| value),
        _ => Ok(value),
    }
}

/// Computes a condition.
pub fn condition(tree: &Tree, scope: &dyn Scope) -> Result<bool, EvaluationError> {
    let run = Run { scope, left: Cell::new(MAX_VALUE_BYTES) };
    run.truth(tree)
}

/// Checks that a value is no larger and nested no deeper than a token's value may be.
///
/// # Errors
/// Returns which bound the value exceeds.
pub fn check_size(value: &Value) -> Result<(), EvaluationError> {
    measure(value, MAX_VALUE_DEPTH, &Cell::new(MAX_VALUE_BYTES))
}

/// Checks that so many copies of a value are not too large together.
///
/// # Errors
/// Returns which bound they exceed.
pub(crate) fn check_copies(value: &Value, copies: u32) -> Result<(), EvaluationError> {
    let most = MAX_COPIES_BYTES / copies.max(1) as usize;
    measure(value, MAX_VALUE_DEPTH, &Cell::new(most))
        .map_err(|_| EvaluationError(format!("{copies} copies have more than {MAX_COPIES_BYTES} bytes")))
}

/// Returns how many of so many bytes are left beside a value; `None` if it does not fit.
pub(crate) fn fits(value: &Value, bytes: usize) -> Option<usize> {
    let left = Cell::new(bytes);
    measure(value, MAX_VALUE_DEPTH, &left).ok()?;
    Some(left.get())
}

fn measure(value: &Value, levels: usize, left: &Cell<usize>) -> Result<(), EvaluationError> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(EvaluationError(format!("a value has more than {MAX_VALUE_DEPTH} levels")));
    };
    let here = size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Object(fields) => fields.keys().map(|name| name.len() + 64).sum(),
            _ => 0,
        };
    let Some(rest) = left.get().checked_sub(here) else {
        return Err(EvaluationError(format!("a value has more than {MAX_VALUE_BYTES} bytes")));
    };
    left.set(rest);
    work::steps(1 + here / 64);
    match value {
        Value::Array(elements) => elements.iter().try_for_each(|each| measure(each, levels, left)),
        Value::Object(fields) => fields.values().try_for_each(|each| measure(each, levels, left)),
        _ => Ok(()),
    }
}

struct Run<'a> {
    scope: &'a dyn Scope,
    /// How many bytes may still be copied, made, measured or compared.
    left: Cell<usize>,
}

impl<'a> Run<'a> {
    fn compute(&self, tree: &'a Tree) -> Computed<'a> {
        match tree {
            Tree::Scalar(value) => Ok(Cow::Borrowed(value)),
            Tree::Variable(name) => match self.scope.variable(name) {
                Some(value) => Ok(value),
                None => fail(format!("there is no variable {name}")),
            },
            Tree::Array(elements) => {
                let made: Result<Vec<Value>, _> =
                    elements.iter().map(|each| self.owned(self.compute(each)?)).collect();
                Ok(Cow::Owned(Value::Array(made?)))
            }
            Tree::Object(fields) => {
                let made: Result<serde_json::Map<String, Value>, EvaluationError> = fields
                    .iter()
                    .map(|(name, each)| Ok((name.clone(), self.owned(self.compute(each)?)?)))
                    .collect();
                Ok(Cow::Owned(Value::Object(made?)))
            }
            Tree::Field(of, name) => self.part(self.compute(of)?, Step::Field(name)),
            Tree::Index(of, index) => {
                let of = self.compute(of)?;
                match &*self.compute(index)? {
                    Value::String(name) => self.part(of, Step::Field(name)),
                    Value::Number(number) if number.as_u64().is_some() => {
                        self.part(of, Step::Element(number.as_u64().unwrap_or(0)))
                    }
                    other => {
                        fail(format!("an index is a whole number from 0 or a string, not {}", kind(other)))
                    }
                }
            }
            Tree::Length(of) => self.length(&*self.compute(of)?).map(Cow::Owned),
            Tree::Not(of) => Ok(Cow::Owned((!self.truth(of)?).into())),
            Tree::Minus(of) => {
                arithmetic(Operator::Minus, &Value::from(0), &*self.compute(of)?).map(Cow::Owned)
            }
            Tree::Binary(Operator::And, left, right) => {
                Ok(Cow::Owned((self.truth(left)? && self.truth(right)?).into()))
            }
            Tree::Binary(Operator::Or, left, right) => {
                Ok(Cow::Owned((self.truth(left)? || self.truth(right)?).into()))
            }
            Tree::Binary(operator, left, right) => {
                self.operate(*operator, self.compute(left)?, self.compute(right)?).map(Cow::Owned)
            }
        }
    }

    fn truth(&self, tree: &'a Tree) -> Result<bool, EvaluationError> {
        match &*self.compute(tree)? {
            Value::Bool(truth) => Ok(*truth),
            other => fail(format!("true or false was expected, not {}", kind(other))),
        }
    }

    /// Copies a value unless it was made here, and counts its bytes.
    fn owned(&self, value: Cow<'_, Value>) -> Result<Value, EvaluationError> {
        if !matches!(*value, Value::Null | Value::Bool(_) | Value::Number(_)) {
            measure(&value, MAX_VALUE_DEPTH * 2, &self.left)?;
        }
        Ok(value.into_owned())
    }

    fn part<'v>(&self, of: Cow<'v, Value>, step: Step<'_>) -> Result<Cow<'v, Value>, EvaluationError> {
        let missing = |of: &Value| match step {
            Step::Field(name) if of.is_object() => format!("the object has no field {name}"),
            Step::Field(name) => format!("{} has no field {name}", kind(of)),
            Step::Element(at) if of.is_array() => {
                format!("an array of {} has no element {at}", of.as_array().map_or(0, Vec::len))
            }
            Step::Element(at) => format!("{} has no element {at}", kind(of)),
        };
        match of {
            Cow::Borrowed(of) => match step.of(of) {
                Some(part) => Ok(Cow::Borrowed(part)),
                None => fail(missing(of)),
            },
            Cow::Owned(of) => match step.of(&of) {
                Some(part) => self.owned(Cow::Borrowed(part)).map(Cow::Owned),
                None => fail(missing(&of)),
            },
        }
    }

    fn operate(
        &self,
        operator: Operator,
        left: Cow<'_, Value>,
        right: Cow<'_, Value>,
    ) -> Result<Value, EvaluationError> {
        match operator {
            Operator::Equal => Ok(self.same(&left, &right)?.into()),
            Operator::Different => Ok((!self.same(&left, &right)?).into()),
            Operator::Less => Ok(self.compare(&left, &right)?.is_lt().into()),
            Operator::LessOrEqual => Ok(self.compare(&left, &right)?.is_le().into()),
            Operator::Greater => Ok(self.compare(&left, &right)?.is_gt().into()),
            Operator::GreaterOrEqual => Ok(self.compare(&left, &right)?.is_ge().into()),
            Operator::Plus
                if left.is_string() && right.is_string() || left.is_array() && right.is_array() =>
            {
                Ok(joined(self.owned(left)?, self.owned(right)?))
            }
            _ => arithmetic(operator, &left, &right),
        }
    }

    /// Counts bytes that are looked at.
    ///
    /// # Errors
    /// If they are more than the expression may look at.
    fn charge(&self, bytes: usize) -> Result<(), EvaluationError> {
        work::steps(1 + bytes / 16);
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => fail(format!("the expression looks at more than {MAX_VALUE_BYTES} bytes of values")),
        }
    }

    fn length(&self, value: &Value) -> Result<Value, EvaluationError> {
        match value {
            Value::String(text) => {
                self.charge(text.len())?;
                Ok(text.chars().count().into())
            }
            Value::Array(elements) => Ok(elements.len().into()),
            Value::Object(fields) => Ok(fields.len().into()),
            other => fail(format!("len measures a string, an array or an object, not {}", kind(other))),
        }
    }

    /// Returns whether two values are equal. Numbers are equal if they are the same number, as 1 and 1.0.
    fn same(&self, left: &Value, right: &Value) -> Result<bool, EvaluationError> {
        self.charge(size_of::<Value>())?;
        match (left, right) {
            (Value::Number(left), Value::Number(right)) => Ok(order(left, right) == Some(Ordering::Equal)),
            (Value::String(left), Value::String(right)) if left.len() == right.len() => {
                self.charge(left.len())?;
                Ok(left == right)
            }
            (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                for (left, right) in left.iter().zip(right) {
                    if !self.same(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
                for (name, value) in left {
                    self.charge(name.len())?;
                    let Some(other) = right.get(name) else { return Ok(false) };
                    if !self.same(value, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
            _ => Ok(false),
        }
    }

    fn compare(&self, left: &Value, right: &Value) -> Result<Ordering, EvaluationError> {
        let found = match (left, right) {
            (Value::Number(left), Value::Number(right)) => order(left, right),
            (Value::String(left), Value::String(right)) => {
                self.charge(left.len().min(right.len()))?;
                Some(left.cmp(right))
            }
            _ => None,
        };
        found.map_or_else(|| fail(format!("{} and {} have no order", kind(left), kind(right))), Ok)
    }
}

/// A step from a value into one of its parts.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Element(u64),
}

impl Step<'_> {
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match *self {
            Step::Field(name) => value.as_object()?.get(name),
            Step::Element(at) => value.as_array()?.get(usize::try_from(at).ok()?),
        }
    }
}

fn joined(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Value::String(left + &right),
        (Value::Array(mut left), Value::Array(right)) => {
            left.extend(right);
            Value::Array(left)
        }
        (left, _) => left,
    }
}

fn order(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => order_with_float(left, right.as_f64()?),
        (None, Some(right)) => order_with_float(right, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Orders a whole number of 64 bits against a float exactly.
fn order_with_float(whole: i128, float: f64) -> Option<Ordering> {
    // (Floats of this size are whole, and the conversion stops at the ends of i128.)
    let floor = float.floor() as i128;
    let order = whole.cmp(&floor);
    Some(if order.is_eq() && float > float.floor() { Ordering::Less } else { order })
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result<Value, EvaluationError> {
    let (Value::Number(a), Value::Number(b)) = (left, right) else {
        return fail(format!("{} {} {}: these are no numbers", kind(left), operator.sign(), kind(right)));
    };
    if let (Some(a), Some(b)) = (whole(a), whole(b)) {
        let made = match operator {
            Operator::Plus => a.checked_add(b),
            Operator::Minus => a.checked_sub(b),
            Operator::Times => a.checked_mul(b),
            Operator::DividedBy => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        let fits = |made: i128| {
            i64::try_from(made).map(Value::from).or_else(|_| u64::try_from(made).map(Value::from)).ok()
        };
        return match made {
            None if b == 0 => fail(format!("{a} {} 0", operator.sign())),
            made => made.and_then(fits).map_or_else(|| too_large(a, operator, b), Ok),
        };
    }
    let (Some(x), Some(y)) = (a.as_f64(), b.as_f64()) else { return too_large(a, operator, b) };
    let made = match operator {
        Operator::Plus => x + y,
        Operator::Minus => x - y,
        Operator::Times => x * y,
        Operator::DividedBy => x / y,
        _ => x % y,
    };
    Number::from_f64(made).map_or_else(|| too_large(a, operator, b), |made| Ok(made.into()))
}

fn too_large<T>(
    left: impl fmt::Display,
    operator: Operator,
    right: impl fmt::Display,
) -> Result<T, EvaluationError> {
    fail(format!("{left} {} {right} is no number of 64 bits", operator.sign()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn fail<T>(message: String) -> Result<T, EvaluationError> {
    Err(EvaluationError(message))
}

#[cfg(test)]
mod tests {
    use super::super::{Expression, Scope};
    use super::*;

    struct Text(Value);

    impl Scope for Text {
        fn variable(&self, name: &str) -> Option<Cow<'_, Value>> {
            (name == "x").then_some(Cow::Borrowed(&self.0))
        }
    }

    #[test]
    fn what_an_expression_measures_and_compares_is_bounded() {
        let scope = Text(Value::from("x".repeat(1 << 20)));
        for part in ["len(x) == 1048576", "x == x", "x <= x"] {
            let holds = |count: usize| {
                let text = vec![part; count].join(" && ");
                work::counted(|| text.parse::<Expression>().unwrap().holds(&scope))
            };
            assert_eq!(holds(10).0, Ok(true), "{part}");
            let (refused, steps) = holds(40);
            assert!(refused.unwrap_err().to_string().contains("looks at more than 16777216 bytes"), "{part}");
            assert!(steps < 2 * MAX_VALUE_BYTES as u64 / 16, "{part}: {steps}");
        }
    }
}
