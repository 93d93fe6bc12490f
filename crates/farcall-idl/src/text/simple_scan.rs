//! Splits a text into tokens by a language's own forms of them, for languages in which lines and macros mean
//! nothing to the scanner.

use std::rc::Rc;

use farcall_base::work;

use super::scan::{Kind, Token};
use super::source::Span;

/// The tokens of a language.
pub(crate) struct Forms {
    /// Returns the kind and the length of the token that the text begins with, if it is a word, a number, a
    /// text in quotes, a comment, or text for another compiler. The text is not empty.
    pub token: fn(&str) -> Option<(Kind, usize)>,
    /// The punctuation characters.
    pub marks: &'static str,
}

/// Splits one text into tokens.
pub(crate) struct SimpleScanner {
    forms: &'static Forms,
    file: u32,
    text: Rc<str>,
    at: usize,
}

impl SimpleScanner {
    pub fn new(forms: &'static Forms, file: u32, text: Rc<str>) -> Self {
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        SimpleScanner { forms, file, text, at }
    }

    /// Returns the next token, or [`Kind::End`] at the end and after it.
    pub fn next(&mut self) -> Token {
        let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
        let before = self.at;
        let rest = self.text[before..].trim_start_matches(blank);
        let start = self.text.len() - rest.len();
        let (kind, length) = self.forms.first(rest);
        self.at = start + length;
        work::steps(1 + self.at - before);
        let span = Span { file: self.file, start: start as u32, end: self.at as u32 };
        Token { kind, text: span, at: span, first: false }
    }
}

impl Forms {
    /// Returns the kind and the length of the token that the text begins with.
    fn first(&self, text: &str) -> (Kind, usize) {
        let Some(first) = text.chars().next() else { return (Kind::End, 0) };
        match (self.token)(text) {
            Some(token) => token,
            None if self.marks.contains(first) => (Kind::Mark(first as u8), 1),
            None => (Kind::Stray, first.len_utf8()),
        }
    }

    /// Returns the kinds and the characters of all tokens of a text.
    #[cfg(test)]
    pub fn all<'t>(&'static self, text: &'t str) -> Vec<(Kind, &'t str)> {
        let mut scanner = SimpleScanner::new(self, 0, text.into());
        let tokens = std::iter::from_fn(|| Some(scanner.next()).filter(|token| token.kind != Kind::End));
        tokens.map(|token| (token.kind, &text[token.text.start as usize..token.text.end as usize])).collect()
    }
}

/// Returns how many letters, digits, `_`, and other characters of words the text begins with.
pub(crate) fn word_length(text: &str, others: &str) -> usize {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || others.contains(c);
    text.len() - text.trim_start_matches(is_of_word).len()
}
