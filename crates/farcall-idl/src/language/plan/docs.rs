//! Cleans documentation for a Rust file, so that invisible characters hide nothing from people who read the
//! file.

use crate::language::tree::Field;

/// Replaces control characters, and removes invisible characters and those that change the direction of
/// writing. The compiler refuses the latter.
pub fn clean(text: &str) -> String {
    let lines =
        text.lines().map(|line| line.chars().filter_map(visible).collect::<String>().trim_end().to_string());
    lines.collect::<Vec<_>>().join("\n").trim().to_string()
}

/// Returns the documentation of an arm of a union: its comments, and the name of its field, because a
/// variant's field has no name.
pub fn of_arm(docs: &str, field: Option<&Field>) -> String {
    let Some(field) = field else { return clean(docs) };
    let name = match field.named.name.as_str() {
        "" => String::new(),
        name => format!("`{name}`"),
    };
    let parts = [clean(docs), clean(&field.named.docs), clean(&name)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn visible(c: char) -> Option<char> {
    match c {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => None,
        c if c.is_control() => Some(' '),
        c => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn nothing_is_hidden() {
        assert_eq!(clean(" one\n\u{202e}two\rthree\0  \n"), "one\ntwo three");
    }
}
