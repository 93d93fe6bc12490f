//! Splits a text into tokens.
//!
//! The scanner accepts any text. Characters that begin no token become a token of the kind [`Kind::Stray`],
//! because text that `#if` leaves out can contain any characters.

use std::rc::Rc;

use farcall_base::work;

use super::source::Span;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name.
    Word,
    /// A number such as `12`, `0xffULL` or `1'000`. Its value is computed later.
    Number,
    /// A text in quotes: `"text"`.
    Text,
    /// A character in quotes: `'c'`.
    Character,
    /// One character of punctuation.
    Mark(u8),
    /// A comment: `/* … */` or `// …`.
    Comment,
    /// A line that begins with `%`, which is for the C compiler.
    Passed,
    /// Text that begins no token: an open quote, an unknown character, or a comment without an end.
    Stray,
    /// The end of the text.
    End,
}

/// A token of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    /// The characters of the token.
    pub text: Span,
    /// The place that messages point at. For a token from a macro, this is the place where the macro was
    /// used.
    pub at: Span,
    /// Whether the token is the first of its line, not counting comments.
    pub first: bool,
}

/// Splits one text into tokens.
#[derive(Clone)]
pub(crate) struct Scanner {
    file: u32,
    text: Rc<str>,
    at: usize,
    end: usize,
    /// Whether the next token is the first of its line.
    first: bool,
    /// Up to where no `"` and no `'` closes a quotation: the end of the last line in which one stayed open.
    open: [usize; 2],
}

impl Scanner {
    pub fn new(file: u32, text: Rc<str>) -> Self {
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let end = text.len();
        Scanner { file, text, at, end, first: true, open: [0; 2] }
    }

    /// Makes a scanner of a part of a text. The part must lie within a line.
    pub fn of(span: Span, text: &Rc<str>) -> Self {
        Scanner {
            file: span.file,
            text: text.clone(),
            at: span.start as usize,
            end: span.end as usize,
            first: false,
            open: [0; 2],
        }
    }

    /// Returns the next token, or [`Kind::End`] at the end and after it.
    pub fn next(&mut self) -> Token {
        let before = self.at;
        self.skip_blank();
        let start = self.at;
        let first = self.first;
        let kind = self.kind();
        work::steps(1 + self.at - before);
        self.first = match kind {
            Kind::Comment => first || self.text[start..self.at].contains('\n'),
            _ => false,
        };
        let span = Span { file: self.file, start: start as u32, end: self.at as u32 };
        Token { kind, text: span, at: span, first }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes()[..self.end].get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.first = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'\\' if self.continuation() > 0 => self.at += self.continuation(),
                _ => return,
            }
        }
    }

    /// Returns the length of a backslash and the end of line after it, if they come next.
    fn continuation(&self) -> usize {
        match (self.peek(0), self.peek(1), self.peek(2)) {
            (b'\\', b'\n', _) => 2,
            (b'\\', b'\r', b'\n') => 3,
            _ => 0,
        }
    }

    fn kind(&mut self) -> Kind {
        match self.peek(0) {
            0 if self.at >= self.end => Kind::End,
            b'%' if self.first => {
                self.skip_line();
                Kind::Passed
            }
            b'/' if self.peek(1) == b'/' => {
                self.skip_line();
                Kind::Comment
            }
            b'/' if self.peek(1) == b'*' => self.comment(),
            quote @ (b'"' | b'\'') => self.quoted(quote),
            b'0'..=b'9' => {
                self.skip_number();
                Kind::Number
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                while is_word(self.peek(0)) {
                    self.at += 1;
                }
                Kind::Word
            }
            mark if mark.is_ascii_punctuation() && !matches!(mark, b'\\' | b'@' | b'`' | b'$') => {
                self.at += 1;
                Kind::Mark(mark)
            }
            _ => {
                self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                Kind::Stray
            }
        }
    }

    /// Skips to the end of the line. A line that ends in a backslash continues in the next line.
    fn skip_line(&mut self) {
        while self.at < self.end && self.peek(0) != b'\n' {
            self.at += self.continuation().max(1);
        }
    }

    fn comment(&mut self) -> Kind {
        match self.text[self.at + 2..self.end].find("*/") {
            Some(length) => {
                self.at += length + 4;
                Kind::Comment
            }
            None => {
                self.at = self.end;
                Kind::Stray
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Kind {
        let open = usize::from(quote == b'"');
        if self.at < self.open[open] {
            // A quote before this one in the line is open, so this one is too: between them, the same
            // characters are escaped.
            self.at += 1;
            return Kind::Stray;
        }
        let bytes = &self.text.as_bytes()[..self.end];
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => {
                    work::steps(end - self.at);
                    self.open[open] = end;
                    self.at += 1;
                    return Kind::Stray;
                }
                Some(b'\\') => end += 2,
                Some(byte) if *byte == quote => break,
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        if quote == b'"' { Kind::Text } else { Kind::Character }
    }

    /// Skips a number with its suffix. The number may have `'` between digits.
    fn skip_number(&mut self) {
        while is_word(self.peek(0)) || self.peek(0) == b'\'' && self.peek(1).is_ascii_hexdigit() {
            self.at += 1;
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns whether a constant can have this value: a signed or unsigned number of 64 bits.
pub(crate) fn in_64_bits(value: &i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value)
}

/// Returns the value of a number in C's notation: decimal, octal or hexadecimal. Returns `None` if the text
/// is not a number, or the number is too large.
pub(crate) fn number(text: &str) -> Option<i128> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']).replace('\'', "");
    let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits.as_str(), 10),
    };
    i128::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']))
}

/// Returns the text between quotes, with C's one-character escapes resolved.
pub(crate) fn unquoted(text: &str) -> String {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
    let mut out = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        out.push(match c {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    out
}
