//! Reads expressions. Depth and length are bounded, and so is the recursion of all that walks over them.

use std::fmt;

use serde_json::{Number, Value};

use super::tree::{OPERATORS, Operator, Tree};

/// The most levels of nesting in an expression. A chain of operators has a level for each.
pub const MAX_DEPTH: usize = 128;
/// The most bytes of an expression's text.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// What is wrong in the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// What is wrong.
    pub message: String,
    /// The byte of the text at which it is wrong.
    pub at: usize,
    /// The character of the text at which it is wrong, counted from 1.
    pub column: usize,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for ExpressionError {}

/// Reads a text that is an expression.
pub fn whole(text: &str) -> Result<Tree, ExpressionError> {
    let mut parser = Parser::new(text)?;
    let (tree, _) = parser.binary(1, 0)?;
    parser.skip_spaces();
    if parser.at < text.len() {
        return Err(parser.error("an operator or the end of the expression was expected here"));
    }
    Ok(tree)
}

/// Reads an expression at the beginning of a text, and returns how many bytes it has.
pub fn prefix(text: &str) -> Result<(Tree, usize), ExpressionError> {
    let mut parser = Parser::new(text)?;
    let (tree, _) = parser.binary(1, 0)?;
    Ok((tree, parser.end))
}

struct Parser<'a> {
    text: &'a str,
    /// The next byte.
    at: usize,
    /// Where the last part ended, before any spaces.
    end: usize,
}

/// A tree and the number of its levels.
type Parsed = Result<(Tree, usize), ExpressionError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, ExpressionError> {
        let parser = Parser { text, at: 0, end: 0 };
        if text.len() > MAX_TEXT_BYTES {
            return Err(parser.error(format!("an expression has at most {MAX_TEXT_BYTES} bytes")));
        }
        Ok(parser)
    }

    /// Reads operands and the operators between them that bind at least as strongly as `rank`.
    fn binary(&mut self, rank: u8, above: usize) -> Parsed {
        let (mut left, mut depth) = self.prefixed(above)?;
        while let Some((sign, operator)) = self.operator(rank) {
            self.at += sign.len();
            let (right, levels) = self.binary(operator.rank() + 1, above + 1)?;
            depth = self.level(depth.max(levels), above)?;
            left = Tree::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok((left, depth))
    }

    fn operator(&mut self, rank: u8) -> Option<(&'static str, Operator)> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        OPERATORS.into_iter().find(|(sign, operator)| rest.starts_with(sign) && operator.rank() >= rank)
    }

    fn prefixed(&mut self, above: usize) -> Parsed {
        self.level(0, above)?;
        self.skip_spaces();
        let rest = &self.text[self.at..];
        if rest.starts_with('!') && !rest.starts_with("!=") {
            self.at += 1;
            let (of, depth) = self.prefixed(above + 1)?;
            return Ok((Tree::Not(Box::new(of)), self.level(depth, above)?));
        }
        if let Some(after) = rest.strip_prefix('-')
            && !after.starts_with(|next: char| next.is_ascii_digit())
        {
            self.at += 1;
            let (of, depth) = self.prefixed(above + 1)?;
            return Ok((Tree::Minus(Box::new(of)), self.level(depth, above)?));
        }
        self.with_suffixes(above)
    }

    /// Reads an operand and the fields and indices behind it.
    fn with_suffixes(&mut self, above: usize) -> Parsed {
        let negative = self.text[self.at..].starts_with('-');
        let (mut tree, mut depth) = self.operand(above)?;
        loop {
            self.skip_spaces();
            match self.text[self.at..].chars().next() {
                // (`-1[0]` would be `-(1[0])` to one reader and `(-1)[0]` to another.)
                Some('.' | '[') if negative => {
                    return Err(self.error("put the negative number into parentheses to look into it"));
                }
                Some('.') => {
                    self.at += 1;
                    let Some(name) = self.name() else {
                        return Err(self.error("the name of a field was expected after the point"));
                    };
                    tree = Tree::Field(Box::new(tree), name.to_owned());
                    depth = self.level(depth, above)?;
                }
                Some('[') => {
                    self.at += 1;
                    let (index, levels) = self.binary(1, above + 1)?;
                    self.expect(']', "`]` was expected after the index")?;
                    tree = Tree::Index(Box::new(tree), Box::new(index));
                    depth = self.level(depth.max(levels), above)?;
                }
                _ => return Ok((tree, depth)),
            }
        }
    }

    fn operand(&mut self, above: usize) -> Parsed {
        let Some(first) = self.text[self.at..].chars().next() else {
            return Err(self.error("a value was expected here"));
        };
        match first {
            '"' => Ok((Tree::Scalar(self.string()?.into()), 1)),
            '-' | '0'..='9' => Ok((Tree::Scalar(self.number()?), 1)),
            '(' => {
                self.at += 1;
                let (tree, depth) = self.binary(1, above + 1)?;
                self.expect(')', "`)` was expected here")?;
                Ok((tree, depth))
            }
            '[' => self.array(above),
            '{' => self.object(above),
            _ => self.named(above),
        }
    }

    fn array(&mut self, above: usize) -> Parsed {
        self.at += 1;
        let (mut elements, mut depth) = (Vec::new(), 0);
        while !self.accept(']') {
            if !elements.is_empty() {
                self.expect(',', "`,` or `]` was expected here")?;
            }
            let (element, levels) = self.binary(1, above + 1)?;
            elements.push(element);
            depth = depth.max(levels);
        }
        Ok((Tree::Array(elements), self.level(depth, above)?))
    }

    fn object(&mut self, above: usize) -> Parsed {
        self.at += 1;
        let (mut fields, mut depth) = (Vec::<(String, Tree)>::new(), 0);
        let mut names = std::collections::HashSet::new();
        while !self.accept('}') {
            if !fields.is_empty() {
                self.expect(',', "`,` or `}` was expected here")?;
                self.skip_spaces();
            }
            let at = self.at;
            let name = match self.text[at..].starts_with('"') {
                true => self.string()?,
                false => {
                    self.name().ok_or_else(|| self.error("the name of a field was expected here"))?.to_owned()
                }
            };
            if !names.insert(name.clone()) {
                self.at = at;
                return Err(self.error(format!("the object has two fields {name:?}")));
            }
            self.expect(':', "`:` was expected after the name of a field")?;
            let (value, levels) = self.binary(1, above + 1)?;
            fields.push((name, value));
            depth = depth.max(levels);
        }
        Ok((Tree::Object(fields), self.level(depth, above)?))
    }

    /// Reads `null`, `true`, `false`, `len(x)` or a variable.
    fn named(&mut self, above: usize) -> Parsed {
        let at = self.at;
        let Some(name) = self.name() else { return Err(self.error("a value was expected here")) };
        let scalar = match name {
            "null" => Value::Null,
            "true" => true.into(),
            "false" => false.into(),
            _ if !self.accept('(') => return Ok((Tree::Variable(name.to_owned()), 1)),
            "len" => {
                let (of, depth) = self.binary(1, above + 1)?;
                self.expect(')', "`)` was expected after the value that `len` measures")?;
                return Ok((Tree::Length(Box::new(of)), self.level(depth, above)?));
            }
            _ => {
                self.at = at;
                return Err(self.error(format!("there is no function {name}; the only one is len")));
            }
        };
        Ok((Tree::Scalar(scalar), 1))
    }

    fn number(&mut self) -> Result<Value, ExpressionError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + usize::from(bytes[start] == b'-');
        let digits =
            |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        end = digits(end);
        let mut whole = true;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            (end, whole) = (digits(end + 1), false);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                (end, whole) = (digits(end + 1 + sign), false);
            }
        }
        let text = &self.text[start..end];
        let integer =
            || text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok();
        let float = || text.parse::<f64>().ok().and_then(Number::from_f64);
        let Some(number) = whole.then(integer).flatten().or_else(float) else {
            return Err(self.error(format!("{text} is too large a number")));
        };
        self.at = end;
        self.end = end;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, ExpressionError> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        while let Some(&byte) = bytes.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        if end >= bytes.len() {
            return Err(self.error("this string has no closing quotation mark"));
        }
        match serde_json::from_str::<String>(&self.text[self.at..=end]) {
            Ok(string) => {
                self.at = end + 1;
                self.end = self.at;
                Ok(string)
            }
            Err(_) => Err(self.error("this is no JSON string: a control character or an escape is wrong")),
        }
    }

    /// Reads a name: a letter or `_`, and letters, digits and `_`.
    fn name(&mut self) -> Option<&'a str> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let long = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if rest.chars().next().is_none_or(|first| !first.is_alphabetic() && first != '_') {
            return None;
        }
        self.at += long;
        self.end = self.at;
        Some(&rest[..long])
    }

    fn accept(&mut self, sign: char) -> bool {
        self.skip_spaces();
        let found = self.text[self.at..].starts_with(sign);
        if found {
            self.at += sign.len_utf8();
            self.end = self.at;
        }
        found
    }

    fn expect(&mut self, sign: char, message: &str) -> Result<(), ExpressionError> {
        if self.accept(sign) { Ok(()) } else { Err(self.error(message)) }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    /// Adds a level to a tree of `depth` levels that stands below `above` others.
    fn level(&self, depth: usize, above: usize) -> Result<usize, ExpressionError> {
        if depth + above < MAX_DEPTH {
            return Ok(depth + 1);
        }
        Err(self.error(format!("an expression has at most {MAX_DEPTH} levels")))
    }

    fn error(&self, message: impl Into<String>) -> ExpressionError {
        let column = self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        ExpressionError { message: message.into(), at: self.at, column }
    }
}
