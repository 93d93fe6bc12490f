//! Reads one line of a text: words, strings, numbers and expressions, each with its place.

use std::ops::Range;

use crate::expression::Expression;
use crate::model::Position;

/// An error at some bytes of the text.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: Range<usize>,
    pub message: String,
}

/// A line that is being read.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    text: &'a str,
    /// Where the line begins in the whole text.
    start: usize,
    /// The next byte of the line.
    at: usize,
    /// Where the last part that was read began and ended, in the line.
    last: Range<usize>,
}

impl<'a> Line<'a> {
    pub fn new(text: &'a str, start: usize) -> Line<'a> {
        let mut line = Line { text, start, at: 0, last: 0..0 };
        line.skip();
        line
    }

    /// Returns whether only spaces or a comment are left.
    pub fn is_done(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with('#')
    }

    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Returns where the last part that was read is, in the whole text.
    pub fn last(&self) -> Range<usize> {
        self.start + self.last.start..self.start + self.last.end
    }

    /// Returns where the line's parts up to the last one are, in the whole text.
    pub fn so_far(&self) -> Range<usize> {
        let indent = self.text.len() - self.text.trim_start().len();
        self.start + indent..self.start + self.last.end.max(indent)
    }

    /// Makes an error about the last part that was read.
    pub fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { at: self.last(), message: message.into() }
    }

    /// Makes an error about what comes next.
    pub fn fault_here(&self, message: impl Into<String>) -> Fault {
        let long = if self.is_done() { 0 } else { word_length(self.rest()).max(1) };
        Fault { at: self.start + self.at..self.start + self.at + long, message: message.into() }
    }

    /// Reads this word if it comes next.
    pub fn accept(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.advance(word.len());
        }
        found
    }

    /// Reads this sign if it comes next, also if it stands directly before something else.
    pub fn accept_sign(&mut self, sign: char) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.advance(sign.len_utf8());
        }
        found
    }

    /// Returns the letters, digits and `_` that come next.
    pub fn peek_word(&self) -> &'a str {
        let rest = self.rest();
        let long = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..long]
    }

    /// Reads letters, digits and `_`.
    pub fn word(&mut self, what: &str) -> Result<&'a str, Fault> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.fault_here(format!("{what} was expected here")));
        }
        self.advance(word.len());
        Ok(word)
    }

    /// Reads a name, or anything else that has no spaces, or a string in quotation marks. Says whether it was
    /// one.
    pub fn text(&mut self, what: &str, ends: &[char]) -> Result<(String, bool), Fault> {
        if self.rest().starts_with('"') {
            return Ok((self.string(what)?, true));
        }
        let word = &self.rest()[..word_length(self.rest())];
        let word = word.split(ends).next().unwrap_or("");
        if word.is_empty() {
            return Err(self.fault_here(format!("{what} was expected here")));
        }
        self.advance(word.len());
        Ok((word.to_owned(), false))
    }

    /// Reads a name.
    pub fn name(&mut self, what: &str) -> Result<String, Fault> {
        Ok(self.text(what, &NAME_ENDS)?.0)
    }

    /// Reads a string in quotation marks.
    pub fn string(&mut self, what: &str) -> Result<String, Fault> {
        let rest = self.rest();
        if !rest.starts_with('"') {
            return Err(self.fault_here(format!("{what}, in quotation marks, was expected here")));
        }
        let mut escaped = false;
        for (at, byte) in rest.bytes().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    let quoted = &rest[..=at];
                    self.advance(quoted.len());
                    return serde_json::from_str(quoted).map_err(|_| {
                        self.fault("this is no JSON string: a control character or an escape is wrong")
                    });
                }
                _ => {}
            }
        }
        Err(self.fault_here("this string has no closing quotation mark"))
    }

    /// Reads a whole number.
    pub fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, Fault> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let long = sign + rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let number =
            rest[..long].parse().map_err(|_| self.fault_here(format!("{what} was expected here")))?;
        self.advance(long);
        Ok(number)
    }

    /// Reads the two numbers of a position.
    pub fn position(&mut self) -> Result<Position, Fault> {
        let what = "a whole number of pixels";
        Ok(Position { x: self.number(what)?, y: self.number(what)? })
    }

    /// Reads an expression.
    pub fn expression(&mut self) -> Result<Expression, Fault> {
        match Expression::parse_prefix(self.rest()) {
            Ok((expression, long)) => {
                self.advance(long);
                Ok(expression)
            }
            Err(error) => {
                let at = self.start + (self.at + error.at).min(self.text.len());
                let long = self.text.get(at - self.start..).map_or(0, |rest| word_length(rest).min(40));
                Err(Fault { at: at..at + long, message: error.message })
            }
        }
    }

    /// Refuses whatever is left.
    pub fn end(&self) -> Result<(), Fault> {
        if self.is_done() { Ok(()) } else { Err(self.fault_here("the end of the line was expected here")) }
    }

    /// Reads what is left, as free text. A `#` after a space begins a comment.
    pub fn free_text(&mut self) -> &'a str {
        let rest = self.rest();
        let comment = rest.match_indices('#').find(|(at, _)| rest[..*at].ends_with([' ', '\t']) || *at == 0);
        let text = rest[..comment.map_or(rest.len(), |(at, _)| at)].trim_end();
        self.advance(text.len());
        text
    }

    pub fn advance(&mut self, long: usize) {
        self.last = self.at..self.at + long;
        self.at += long;
        self.skip();
    }

    fn skip(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
    }
}

/// What ends a name besides a space.
pub const NAME_ENDS: [char; 4] = [':', '=', '*', ','];

/// Returns how many bytes the text has before a space, a quotation mark or a comment.
pub fn word_length(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || c == '"' || c == '#').unwrap_or(text.len())
}
