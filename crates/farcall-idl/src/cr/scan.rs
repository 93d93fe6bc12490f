//! Splits the text of a `.cr` file into tokens.
//!
//! A comment begins with `--` and ends with the line or at the next `--`. A number can have a suffix for its
//! base. A `"` within a string is doubled.

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
            (b'-', b'-') => {
                let rest = &self.text[self.at + 2..];
                let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
                self.at += 2 + line.find("--").map_or(line.len(), |end| end + 2);
                Kind::Comment
            }
            (b'"', _) => self.string(),
            (b'0'..=b'9', _) | (b'-', b'0'..=b'9') => {
                self.at += 1;
                self.skip_word();
                Kind::Number
            }
            (b'A'..=b'Z' | b'a'..=b'z' | b'_', _) => {
                self.skip_word();
                Kind::Word
            }
            (
                mark @ (b'[' | b']' | b'{' | b'}' | b'(' | b')' | b':' | b';' | b',' | b'.' | b'=' | b'>'),
                _,
            ) => {
                self.at += 1;
                Kind::Mark(mark)
            }
            _ => {
                self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                Kind::Stray
            }
        }
    }

    fn string(&mut self) -> Kind {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match (bytes.get(end), bytes.get(end + 1)) {
                (None | Some(b'\n'), _) => {
                    self.at += 1;
                    return Kind::Stray;
                }
                (Some(b'"'), Some(b'"')) => end += 2,
                (Some(b'"'), _) => break,
                (Some(_), _) => end += 1,
            }
        }
        self.at = end + 1;
        Kind::Text
    }

    fn skip_word(&mut self) {
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
            self.at += 1;
        }
    }
}

/// Returns the value of a number: decimal (`12`, `12D`), octal (`14B`) or hexadecimal (`0CX`), with a minus
/// sign in front if it is negative. Returns `None` if the text is not a number, or the number is too large.
pub(super) fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (digits, radix) = match digits.char_indices().last()? {
        (end, 'x' | 'X') => (&digits[..end], 16),
        (end, 'b' | 'B') => (&digits[..end], 8),
        (end, 'd' | 'D') => (&digits[..end], 10),
        _ => (digits, 10),
    };
    let value = i128::from_str_radix(digits, radix).ok()?;
    digits.starts_with(|first: char| first.is_ascii_digit()).then_some(sign * value)
}

/// Returns the text between quotes. A doubled quote stands for one.
pub(super) fn unquoted(text: &str) -> String {
    text.get(1..text.len().saturating_sub(1)).unwrap_or("").replace("\"\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_bases() {
        let values = ["12", "12D", "14B", "0CX", "0fx", "-8", "-10b", "177777B", "0"].map(number);
        assert_eq!(values, [12, 12, 12, 12, 15, -8, -8, 65535, 0].map(Some));
        let large = "9".repeat(60);
        for wrong in ["", "-", "18B", "B", "-X", "0x12", "12Q", "--1", "1_0", &large] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_comment_ends_with_its_line_or_with_two_hyphens() {
        let text = "a -- b -- c -- d\ne ---- f -- \"\"\"\" - \"g\"\"\" \"h\n-1 é";
        let mut scanner = Scanner::new(0, text.into());
        let mut found = Vec::new();
        loop {
            let token = scanner.next();
            if token.kind == Kind::End {
                break;
            }
            found.push(&text[token.text.start as usize..token.text.end as usize]);
        }
        let expected =
            ["a", "-- b --", "c", "-- d", "e", "----", "f", "-- \"\"\"\" - \"g\"\"\" \"h", "-1", "é"];
        assert_eq!(found, expected);
        assert_eq!(unquoted("\"g\"\"\""), "g\"");
    }
}
