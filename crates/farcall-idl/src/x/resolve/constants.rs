//! Computes the values of constants and enumerators.

use farcall_base::work;

use super::super::syntax::*;
use super::lookup::builtin_value;
use super::{Reckoned, Resolver, ValueId};
use crate::text::source::Span;

/// The longest chain of constants in which each needs the value of the next.
const MAX_DEPTH: u32 = 128;

/// Why an expression has no value.
#[derive(Clone, Debug)]
pub(super) enum Unknown {
    /// The name at this place is not declared.
    Name(String, Span),
    Because(&'static str),
}

/// The values of an enumeration's enumerators, as far as they are computed.
#[derive(Clone, Default)]
pub(super) struct Enumeration {
    begun: bool,
    values: Vec<Result<i128, Unknown>>,
}

pub(super) type Reckoning = Result<i128, Unknown>;

impl Resolver<'_> {
    /// Returns the value of an expression in a namespace.
    pub(super) fn amount(&mut self, scope: ScopeId, amount: &Amount) -> Reckoning {
        self.reckon(scope, &amount.expression, 0)
    }

    /// Returns the value of the constant at that index.
    pub(super) fn constant(&mut self, place: usize) -> Reckoning {
        self.constant_at(place, 0)
    }

    /// Returns the values of the enumeration at that index.
    pub(super) fn enumeration(&mut self, place: usize) -> Vec<Reckoning> {
        self.reckon_enumeration(place, 0);
        self.enumerations[place].values.clone()
    }

    /// Returns the value of one enumerator. `depth` counts the constants that need the value.
    pub(super) fn enumerator_value(&mut self, place: usize, position: usize, depth: u32) -> Reckoning {
        self.reckon_enumeration(place, depth);
        let values = &self.enumerations[place].values;
        values.get(position).cloned().unwrap_or(Err(Unknown::Because("this constant depends on itself")))
    }

    /// Reports that an expression has no value although its value is needed.
    pub(super) fn refuse_unknown(&mut self, at: Span, unknown: Unknown) {
        match unknown {
            Unknown::Because(why) => self.fault(at, why),
            Unknown::Name(name, at) => self.undeclared_constant(at, name),
        }
    }

    fn reckon(&mut self, scope: ScopeId, expression: &Expression, depth: u32) -> Reckoning {
        work::step();
        if depth > MAX_DEPTH {
            return Err(Unknown::Because("too many constants depend on each other"));
        }
        let value = match expression {
            Expression::Number(value) => Some(*value),
            Expression::Name(path) => Some(self.value_of(scope, path, depth)?),
            Expression::Negative(operand) => self.reckon(scope, operand, depth)?.checked_neg(),
            Expression::Binary(operator, left, right) => {
                let (left, right) = (self.reckon(scope, left, depth)?, self.reckon(scope, right, depth)?);
                match operator {
                    b'+' => left.checked_add(right),
                    b'-' => left.checked_sub(right),
                    b'*' => left.checked_mul(right),
                    b'/' => left.checked_div(right),
                    _ => Some(left | right),
                }
            }
        };
        value.ok_or(Unknown::Because("this has no value, or its value is too large"))
    }

    fn value_of(&mut self, scope: ScopeId, path: &Path, depth: u32) -> Reckoning {
        let name = path.parts.join("::");
        match self.find_value(scope, path) {
            Some(ValueId::Constant(place)) => self.constant_at(place, depth + 1),
            Some(ValueId::Enumerator(place, position)) => self.enumerator_value(place, position, depth + 1),
            None => {
                let number =
                    self.numbers.iter().find_map(|numbers| numbers.get(&name)).map(|number| number.value);
                number.or(builtin_value(&name)).ok_or(Unknown::Name(name, path.at))
            }
        }
    }

    fn constant_at(&mut self, place: usize, depth: u32) -> Reckoning {
        let item = &self.syntax.constants[place];
        match (self.reckoned[place], &item.value) {
            (Reckoned::Known(value), _) => Ok(value),
            (Reckoned::Now, _) => Err(Unknown::Because("this constant depends on itself")),
            (_, ConstantValue::Text(_)) => Err(Unknown::Because("this is a text, not a number")),
            (Reckoned::NotYet, ConstantValue::Amount(amount)) => {
                self.reckoned[place] = Reckoned::Now;
                let value = self.reckon(item.scope, &amount.expression, depth);
                self.reckoned[place] =
                    value.as_ref().map_or(Reckoned::NotYet, |value| Reckoned::Known(*value));
                value
            }
        }
    }

    /// Computes the values of an enumeration. An enumerator without a value is one more than the previous
    /// one.
    fn reckon_enumeration(&mut self, place: usize, depth: u32) {
        let item = &self.syntax.types[place];
        let BodyItem::Enum(enumerators) = &item.body else { return };
        if std::mem::replace(&mut self.enumerations[place].begun, true) {
            return;
        }
        let mut last: Reckoning = Ok(-1);
        for (_, given) in enumerators {
            last = match given {
                Some(amount) => self.reckon(item.scope, &amount.expression, depth),
                None => last.map(|value| value.saturating_add(1)),
            };
            self.enumerations[place].values.push(last.clone());
        }
    }
}
