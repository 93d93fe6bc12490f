//! Splits the text of a `.rpc2` file into tokens.
//!
//! `#include` and `#define` are words. Text between `%{` and `%}` is for C, and becomes one token of the kind
//! [`Kind::Passed`].

use std::rc::Rc;

use crate::text::scan::{Kind, Token};
use crate::text::source::Span;

/// Splits one text into tokens.
pub(super) struct Scanner {
    file: u32,
    text: Rc<str>,
    at: usize,
}

impl Scanner {
    pub fn new(file: u32, text: Rc<str>) -> Self {
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Scanner { file, text, at }
    }

    /// Returns the next token, or [`Kind::End`] at the end and after it.
    pub fn next(&mut self) -> Token {
        while self.peek(0).is_ascii_whitespace() || self.peek(0) == 0x0b {
            self.at += 1;
        }
        let start = self.at;
        let kind = self.kind();
        let span = Span { file: self.file, start: start as u32, end: self.at as u32 };
        Token { kind, text: span, at: span, first: false }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn kind(&mut self) -> Kind {
        match (self.peek(0), self.peek(1)) {
            (0, _) if self.at >= self.text.len() => Kind::End,
            (b'/', b'*') => self.comment(),
            (b'%', b'{') => {
                // rp2gen takes a verbatim text to the end of the file if nothing closes it.
                self.skip_past("%}");
                Kind::Passed
            }
            (b'"', _) => self.string(),
            (b'0'..=b'9', _) | (b'-', b'0'..=b'9') => {
                self.at += 1;
                while self.peek(0).is_ascii_digit() {
                    self.at += 1;
                }
                Kind::Number
            }
            (b'A'..=b'Z' | b'a'..=b'z' | b'_', _) | (b'#', b'A'..=b'Z' | b'a'..=b'z') => {
                self.at += 1;
                while self.peek(0).is_ascii_alphanumeric() || matches!(self.peek(0), b'_' | b'$' | b'-') {
                    self.at += 1;
                }
                Kind::Word
            }
            (mark @ (b';' | b'(' | b')' | b',' | b'{' | b'}' | b'=' | b'[' | b']' | b':'), _) => {
                self.at += 1;
                Kind::Mark(mark)
            }
            _ => {
                self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                Kind::Stray
            }
        }
    }

    fn comment(&mut self) -> Kind {
        self.at += 2;
        if self.skip_past("*/") { Kind::Comment } else { Kind::Stray }
    }

    /// A string has no escapes, and can contain line ends.
    fn string(&mut self) -> Kind {
        let start = self.at;
        self.at += 1;
        if self.skip_past("\"") {
            return Kind::Text;
        }
        self.at = start + 1;
        Kind::Stray
    }

    /// Moves behind the next occurrence of `mark`, or to the end if there is none. Returns whether there is
    /// one.
    fn skip_past(&mut self, mark: &str) -> bool {
        let found = self.text[self.at..].find(mark);
        self.at = found.map_or(self.text.len(), |place| self.at + place + mark.len());
        found.is_some()
    }
}

/// Returns the text between quotes.
pub(super) fn unquoted(text: &str) -> String {
    text.get(1..text.len().saturating_sub(1)).unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_rp2gen() {
        let text = "a-b$c 12-3 #Define /* x\n*/ \"y\nz\" %{ \" %} [] % \u{e9} \"open";
        let mut scanner = Scanner::new(0, text.into());
        let mut found = Vec::new();
        loop {
            let token = scanner.next();
            if token.kind == Kind::End {
                break;
            }
            found.push((token.kind, &text[token.text.start as usize..token.text.end as usize]));
        }
        let expected = [
            (Kind::Word, "a-b$c"),
            (Kind::Number, "12"),
            (Kind::Number, "-3"),
            (Kind::Word, "#Define"),
            (Kind::Comment, "/* x\n*/"),
            (Kind::Text, "\"y\nz\""),
            (Kind::Passed, "%{ \" %}"),
            (Kind::Mark(b'['), "["),
            (Kind::Mark(b']'), "]"),
            (Kind::Stray, "%"),
            (Kind::Stray, "\u{e9}"),
            (Kind::Stray, "\""),
            (Kind::Word, "open"),
        ];
        assert_eq!(found, expected);
    }
}
