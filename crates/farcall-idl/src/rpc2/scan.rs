//! Splits the text of a `.rpc2` file into tokens.
//!
//! `#include` and `#define` are words. Text between `%{` and `%}` is for C, and becomes one token of the kind
//! [`Kind::Passed`].

use crate::text::scan::Kind;
use crate::text::simple_scan::{Forms, word_length};

/// The tokens of the language.
pub(super) static FORMS: Forms = Forms { token, marks: ";(),{}=[]:" };

fn token(text: &str) -> Option<(Kind, usize)> {
    let closed = |from: usize, mark: &str| text[from..].find(mark).map(|end| from + end + mark.len());
    Some(match text.as_bytes() {
        [b'/', b'*', ..] => closed(2, "*/").map_or((Kind::Stray, text.len()), |end| (Kind::Comment, end)),
        // rp2gen takes a verbatim text to the end of the file if nothing closes it.
        [b'%', b'{', ..] => (Kind::Passed, closed(2, "%}").unwrap_or(text.len())),
        // A string has no escapes, and can contain line ends.
        [b'"', ..] => closed(1, "\"").map_or((Kind::Stray, 1), |end| (Kind::Text, end)),
        [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..] => {
            let digits = text[1..].bytes().take_while(u8::is_ascii_digit).count();
            (Kind::Number, 1 + digits)
        }
        [b'A'..=b'Z' | b'a'..=b'z' | b'_', ..] | [b'#', b'A'..=b'Z' | b'a'..=b'z', ..] => {
            (Kind::Word, 1 + word_length(&text[1..], "$-"))
        }
        _ => return None,
    })
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
        assert_eq!(FORMS.all(text), expected);
    }
}
