//! Splits the text of a `.cr` file into tokens.
//!
//! A comment begins with `--` and ends with the line or at the next `--`. A number can have a suffix for its
//! base. A `"` within a string is doubled.

use crate::text::scan::Kind;
use crate::text::simple_scan::{Forms, word_length};

/// The tokens of the language.
pub(super) static FORMS: Forms = Forms { token, marks: "[]{}():;,.=>" };

fn token(text: &str) -> Option<(Kind, usize)> {
    Some(match text.as_bytes() {
        [b'-', b'-', ..] => (Kind::Comment, comment_length(text)),
        [b'"', ..] => string(text),
        [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..] => (Kind::Number, 1 + word_length(&text[1..], "")),
        [b'A'..=b'Z' | b'a'..=b'z' | b'_', ..] => (Kind::Word, word_length(text, "")),
        _ => return None,
    })
}

fn comment_length(text: &str) -> usize {
    let rest = &text.as_bytes()[2..];
    let ends = |at: &usize| rest[*at] == b'\n' || rest[*at..].starts_with(b"--");
    let end = (0..rest.len()).find(ends).unwrap_or(rest.len());
    2 + if rest[end..].starts_with(b"--") { end + 2 } else { end }
}

/// Returns the kind and the length of a string. It is closed in its line, and a quote in it is doubled.
fn string(text: &str) -> (Kind, usize) {
    let bytes = text.as_bytes();
    let mut end = 1;
    loop {
        match (bytes.get(end), bytes.get(end + 1)) {
            (None | Some(b'\n'), _) => return (Kind::Stray, 1),
            (Some(b'"'), Some(b'"')) => end += 2,
            (Some(b'"'), _) => return (Kind::Text, end + 1),
            (Some(_), _) => end += 1,
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
        let found: Vec<_> = FORMS.all(text).into_iter().map(|(_, characters)| characters).collect();
        let expected =
            ["a", "-- b --", "c", "-- d", "e", "----", "f", "-- \"\"\"\" - \"g\"\"\" \"h", "-1", "é"];
        assert_eq!(found, expected);
        assert_eq!(unquoted("\"g\"\"\""), "g\"");
    }
}
