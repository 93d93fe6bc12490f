//! Cuts what is kept and shown of a firing to a size, and says what was left out.

use std::fmt::{self, Display, Write};

use serde_json::Value;

use crate::expression::fits;

/// The most bytes of an error that are kept.
pub const MAX_ERROR_BYTES: usize = 2048;

/// The most bytes of tokens and arguments of a firing that are kept of a failure, or are in a list.
pub const MAX_LISTED_BYTES: usize = 4 << 10;

/// How many bytes of tokens and arguments may still be shown, and what was left out.
pub struct Excerpt {
    left: usize,
    omitted: Vec<String>,
}

impl Excerpt {
    /// Makes an excerpt of at most so many bytes.
    pub fn of(bytes: usize) -> Excerpt {
        Excerpt { left: bytes, omitted: Vec::new() }
    }

    /// Returns the first values that there is room for.
    pub fn values<'a>(&mut self, values: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
        let mut shown = Vec::new();
        for value in values {
            let Some(left) = fits(value, self.left) else { break };
            self.left = left;
            shown.push(value.clone());
        }
        shown
    }

    /// Returns the tokens that there is room for.
    pub fn tokens(&mut self, tokens: &[Value]) -> Vec<Value> {
        let shown = self.values(tokens);
        if shown.len() < tokens.len() {
            self.omitted.push(format!("{} of {} tokens", tokens.len() - shown.len(), tokens.len()));
        }
        shown
    }

    /// Returns the arguments if there is room for them.
    pub fn arguments(&mut self, arguments: &Value) -> Option<Value> {
        let shown = self.values([arguments]).pop();
        if shown.is_none() {
            self.omitted.push("the arguments".to_owned());
        }
        shown
    }

    /// Returns what was left out, for people.
    pub fn left_out(self) -> Option<String> {
        (!self.omitted.is_empty()).then(|| self.omitted.join(", "))
    }
}

/// Returns a text of at most [`MAX_ERROR_BYTES`], and whether nothing is missing.
pub fn beginning(text: impl Display) -> (String, bool) {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let room = MAX_ERROR_BYTES - self.0.len();
            if more.len() <= room {
                self.0.push_str(more);
                return Ok(());
            }
            let end = (0..=room).rev().find(|at| more.is_char_boundary(*at));
            self.0.push_str(&more[..end.unwrap_or(0)]);
            Err(fmt::Error)
        }
    }
    let mut bounded = Bounded(String::new());
    let whole = write!(bounded, "{text}").is_ok();
    if !whole {
        bounded.0.push('…');
    }
    (bounded.0, whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_small_is_shown_whole() {
        let mut excerpt = Excerpt::of(4096);
        let tokens = [json!("a"), json!({ "b": [1, 2] })];
        assert_eq!(excerpt.tokens(&tokens), tokens);
        assert_eq!(excerpt.arguments(&json!([1])), Some(json!([1])));
        assert_eq!(excerpt.left_out(), None);
        assert_eq!(beginning("an error"), ("an error".to_owned(), true));
    }

    #[test]
    fn what_is_large_is_left_out_and_this_is_said() {
        let large = json!("x".repeat(5000));
        let mut excerpt = Excerpt::of(4096);
        assert_eq!(excerpt.tokens(&[json!(1), large.clone(), json!(2)]), [json!(1)]);
        assert_eq!(excerpt.arguments(&json!([large])), None);
        assert_eq!(excerpt.left_out().unwrap(), "2 of 3 tokens, the arguments");
        let (error, whole) = beginning("é".repeat(MAX_ERROR_BYTES));
        assert!(!whole && error.len() <= MAX_ERROR_BYTES + 3 && error.ends_with("é…"), "{}", error.len());
    }
}
