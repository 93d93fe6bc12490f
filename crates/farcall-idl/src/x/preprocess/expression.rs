//! Evaluates the expression after `#if`, and finds the value of a macro that stands for a number.

use farcall_base::work;

use super::{Preprocessor, meant};
use crate::text::diagnostic::Diagnostic;
use crate::text::scan::{Kind, Token, in_64_bits, number, unquoted};
use crate::text::source::Span;

/// The maximum depth to which expressions nest. A macro in an expression adds a level.
const MAX_DEPTH: u32 = 64;
/// The maximum number of operands in one expression, including those in macros.
const MAX_OPERANDS: u32 = 4096;
/// The maximum number of operands in macros that all expressions of one run compute. A macro that does not
/// stand for a number is computed wherever it is used.
const MAX_COMPUTED: usize = 1 << 16;

/// The operators of C, the loosest binding first. Within a level, a longer operator precedes its prefix.
const OPERATORS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Preprocessor<'_> {
    /// Returns whether the expression after `#if` or `#elif` is not 0.
    pub(super) fn condition(&self, name: Token, line: &[Token]) -> Result<bool, Diagnostic> {
        let tokens: Vec<Token> = meant(line).copied().collect();
        let mut walk = Walk { preprocessor: self, operands: 0, within: 0, lenient: true };
        let value = walk.whole(&tokens, 0);
        self.check_computed(name.at)?;
        value.map(|value| value != 0).or_else(|what| self.refuse(name.at, what))
    }

    /// Refuses a file whose expressions compute too much.
    pub(super) fn check_computed(&self, at: Span) -> Result<(), Diagnostic> {
        if self.computed.get() <= MAX_COMPUTED {
            return Ok(());
        }
        self.refuse(at, format!("macros in expressions have more than {MAX_COMPUTED} operands"))
    }

    /// Returns the value of these tokens if they are a complete expression of numbers and number macros, and
    /// the value lies between -2^63 and 2^64 - 1.
    pub(super) fn number(&self, body: &[Token]) -> Option<i128> {
        let mut walk = Walk { preprocessor: self, operands: 0, within: 0, lenient: false };
        walk.whole(body, 0).ok().filter(in_64_bits)
    }
}

struct Walk<'a> {
    preprocessor: &'a Preprocessor<'a>,
    operands: u32,
    /// How many macros contain what is computed.
    within: u32,
    /// Whether a name that is not a macro evaluates to 0, as after `#if`.
    lenient: bool,
}

type Value = Result<i128, &'static str>;

impl Walk<'_> {
    fn whole(&mut self, tokens: &[Token], depth: u32) -> Value {
        let mut rest = tokens;
        let value = self.conditional(&mut rest, depth)?;
        if rest.is_empty() { Ok(value) } else { Err("unexpected text after the end of the expression") }
    }

    fn conditional(&mut self, rest: &mut &[Token], depth: u32) -> Value {
        if depth > MAX_DEPTH {
            return Err("the expression is nested too deep");
        }
        let holds = self.binary(rest, 0, depth)?;
        if !self.take(rest, "?") {
            return Ok(holds);
        }
        let then = self.conditional(rest, depth + 1)?;
        if !self.take(rest, ":") {
            return Err("`:` is missing");
        }
        let otherwise = self.conditional(rest, depth + 1)?;
        Ok(if holds != 0 { then } else { otherwise })
    }

    fn binary(&mut self, rest: &mut &[Token], level: usize, depth: u32) -> Value {
        let Some(operators) = OPERATORS.get(level) else { return self.unary(rest, depth) };
        let mut left = self.binary(rest, level + 1, depth)?;
        while let Some(operator) = self.operator(rest, operators) {
            let right = self.binary(rest, level + 1, depth)?;
            left = apply(operator, left, right).ok_or("the expression has no value")?;
        }
        Ok(left)
    }

    fn operator(&self, rest: &mut &[Token], operators: &[&'static str]) -> Option<&'static str> {
        // The first character of `||` is not the operator `|`.
        let doubled =
            |name: &str| matches!(name, "|" | "&" | "<" | ">") && self.begins(rest, &name.repeat(2));
        let found = operators.iter().find(|name| self.begins(rest, name) && !doubled(name))?;
        *rest = &rest[found.len()..];
        Some(found)
    }

    /// Returns whether the next tokens are these punctuation characters, with nothing between them.
    fn begins(&self, rest: &[Token], marks: &str) -> bool {
        let together = |pair: &[Token]| pair[0].text.end == pair[1].text.start;
        rest.len() >= marks.len()
            && rest.iter().zip(marks.bytes()).all(|(token, mark)| token.kind == Kind::Mark(mark))
            && rest[..marks.len()].windows(2).all(together)
    }

    fn take(&self, rest: &mut &[Token], mark: &str) -> bool {
        let found = self.begins(rest, mark);
        if found {
            *rest = &rest[1..];
        }
        found
    }

    fn unary(&mut self, rest: &mut &[Token], depth: u32) -> Value {
        self.operands += 1;
        work::step();
        if self.within > 0 {
            self.preprocessor.computed.set(self.preprocessor.computed.get() + 1);
        }
        let is_spent = self.preprocessor.computed.get() > MAX_COMPUTED;
        if depth > MAX_DEPTH || self.operands > MAX_OPERANDS || is_spent {
            return Err("the expression is too large");
        }
        let Some((first, after)) = rest.split_first() else { return Err("the expression breaks off") };
        *rest = after;
        let text = self.preprocessor.sources.text(first.text);
        match first.kind {
            Kind::Mark(b'!') => Ok(i128::from(self.unary(rest, depth + 1)? == 0)),
            Kind::Mark(b'-') => {
                self.unary(rest, depth + 1)?.checked_neg().ok_or("the expression has no value")
            }
            Kind::Mark(b'+') => self.unary(rest, depth + 1),
            Kind::Mark(b'~') => Ok(!self.unary(rest, depth + 1)?),
            Kind::Mark(b'(') => {
                let value = self.conditional(rest, depth + 1)?;
                if self.take(rest, ")") { Ok(value) } else { Err("`)` is missing") }
            }
            Kind::Number => number(text).ok_or("this is not a number"),
            Kind::Character => Ok(unquoted(text).chars().next().map_or(0, |c| i128::from(u32::from(c)))),
            Kind::Word if text == "defined" && self.lenient => self.defined(rest),
            Kind::Word => self.name(text, depth),
            _ => Err("this is not an expression"),
        }
    }

    /// Evaluates `defined NAME` or `defined(NAME)`.
    fn defined(&self, rest: &mut &[Token]) -> Value {
        let open = self.take(rest, "(");
        let Some((name, after)) = rest.split_first().filter(|(name, _)| name.kind == Kind::Word) else {
            return Err("a macro's name should follow `defined`");
        };
        *rest = after;
        if open && !self.take(rest, ")") {
            return Err("`)` is missing");
        }
        let name = self.preprocessor.sources.text(name.text);
        Ok(i128::from(self.preprocessor.macros.contains_key(name)))
    }

    fn name(&mut self, name: &str, depth: u32) -> Value {
        let preprocessor = self.preprocessor;
        match preprocessor.macros.get(name) {
            Some(known) => match known.value() {
                Some(value) => Ok(value),
                None if known.parameters.is_some() => Err("the expression uses a macro that takes arguments"),
                None if known.body.is_empty() && self.lenient => {
                    Err("the expression uses a macro that is defined as nothing")
                }
                None => {
                    self.within += 1;
                    let value = self.whole(&known.body, depth + 1);
                    self.within -= 1;
                    value
                }
            },
            None if self.lenient => Ok(0),
            None => Err("the expression uses a name that is not a number"),
        }
    }
}

fn apply(operator: &str, left: i128, right: i128) -> Option<i128> {
    let shift = || u32::try_from(right).ok().filter(|by| *by < 64);
    match operator {
        "||" => Some(i128::from(left != 0 || right != 0)),
        "&&" => Some(i128::from(left != 0 && right != 0)),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "==" => Some(i128::from(left == right)),
        "!=" => Some(i128::from(left != right)),
        "<=" => Some(i128::from(left <= right)),
        ">=" => Some(i128::from(left >= right)),
        "<" => Some(i128::from(left < right)),
        ">" => Some(i128::from(left > right)),
        "<<" => left.checked_mul(1 << shift()?),
        ">>" => left.checked_shr(shift()?),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        "%" => left.checked_rem(right),
        _ => None,
    }
}
