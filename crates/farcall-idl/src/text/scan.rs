//! From text to tokens.
//!
//! Total: what makes no sense becomes a token of its own ([`Kind::Stray`]), for nobody minds it in what `#if`
//! leaves out.

use std::rc::Rc;

use super::source::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name.
    Word,
    /// `12`, `0xffULL`, `1'000`; what it stands for is seen later.
    Number,
    /// `"text"`.
    Text,
    /// `'c'`.
    Character,
    /// One character of punctuation.
    Mark(u8),
    /// `/* … */` or `// …`.
    Comment,
    /// A line that begins with `%`: for the C compiler.
    Passed,
    /// What cannot stand anywhere: an open quote, a foreign character, a comment without an end.
    Stray,
    /// After the last.
    End,
}

/// A piece of the text that means something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    /// Its characters.
    pub text: Span,
    /// Where to point at: where a macro was used, if it comes out of one.
    pub at: Span,
    /// Whether it is the first of its line, comments apart.
    pub first: bool,
}

/// Gives the tokens of one text, one after the other.
#[derive(Clone)]
pub(crate) struct Scanner {
    file: u32,
    text: Rc<str>,
    at: usize,
    end: usize,
    /// Whether the next is the first of its line.
    first: bool,
}

impl Scanner {
    pub fn new(file: u32, text: Rc<str>) -> Self {
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let end = text.len();
        Scanner { file, text, at, end, first: true }
    }

    /// The tokens of a piece of a text, which is within a line.
    pub fn of(span: Span, text: &Rc<str>) -> Self {
        Scanner {
            file: span.file,
            text: text.clone(),
            at: span.start as usize,
            end: span.end as usize,
            first: false,
        }
    }

    /// The next token; [`Kind::End`] again and again at the end.
    pub fn next(&mut self) -> Token {
        self.skip_blank();
        let start = self.at;
        let first = self.first;
        let kind = self.kind();
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

    /// The length of a backslash and the end of line after it, if there are such.
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

    /// To the end of the line, and on where it ends in a backslash.
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
        let bytes = &self.text.as_bytes()[..self.end];
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => {
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

    /// With what stands at its end, and with `'` between digits.
    fn skip_number(&mut self) {
        while is_word(self.peek(0)) || self.peek(0) == b'\'' && self.peek(1).is_ascii_hexdigit() {
            self.at += 1;
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a constant can have this value: signed or unsigned, in 64 bits.
pub(crate) fn in_64_bits(value: &i128) -> bool {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value)
}

/// The value of a number as C writes it: decimal, octal or hexadecimal; none if it is none, or larger than
/// can be reckoned with.
pub(crate) fn number(text: &str) -> Option<i128> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']).replace('\'', "");
    let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits.as_str(), 10),
    };
    i128::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']))
}

/// What stands between quotes, with C's escapes of one character undone.
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
