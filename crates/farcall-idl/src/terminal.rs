//! Text of others that may be shown on a terminal: which characters are escaped, and how.

use std::borrow::Cow;

/// Returns whether a terminal does more with the character than show it: control characters, line ends, and
/// characters that change the direction of writing (Unicode Technical Report 36, section 2.4).
pub fn is_order(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns text of another process as a part of a line: characters that could end the line or control a
/// terminal are made visible.
pub fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => clean.extend(c.escape_default()),
            c if is_order(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// Returns the text with all such characters escaped, except those in `kept`.
#[cfg_attr(not(any(test, feature = "x")), expect(dead_code, reason = "readers of files use it"))]
pub(crate) fn visible<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_escaped = |c: char| is_order(c) && !kept.contains(&c);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_escaped(c) {
            true => clean.extend(c.escape_unicode()),
            false => clean.push(c),
        }
    }
    clean.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_escaped_and_other_text_is_not() {
        assert_eq!(visible("a\u{9b}2J\u{202e}b\tc\n", &['\t']), "a\\u{9b}2J\\u{202e}b\tc\\u{a}");
        assert!(matches!(visible("é ß 中 \u{301}", &[]), Cow::Borrowed(_)));
    }
}
