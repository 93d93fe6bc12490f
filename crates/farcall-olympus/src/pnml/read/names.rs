//! Names for the places and nodes of a net of another tool, whose names may be missing, equal, or any text.

use std::collections::{HashMap, HashSet};

/// The names that are given already.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
    /// The last number that was put behind a name.
    numbers: HashMap<String, u32>,
}

/// The most characters of a name that is made of a text.
const MAX_NAME: usize = 60;

impl Names {
    /// Returns a name that is made of `text`, and that this has not returned before.
    pub fn give(&mut self, text: &str) -> String {
        let base = identifier(text);
        if self.taken.insert(base.clone()) {
            return base;
        }
        let number = self.numbers.entry(base.clone()).or_insert(1);
        loop {
            *number += 1;
            let name = format!("{base}_{number}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns the text with underscores for what a name cannot have.
fn identifier(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().take(MAX_NAME) {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    let name = name.trim_matches('_');
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name.to_owned() } else { format!("x{name}") }
}
