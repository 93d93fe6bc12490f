//! The rows that programs have written, and the figures in them.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Rows of a program that measures: flat objects.
#[derive(Default)]
pub struct Rows(Vec<Map<String, Value>>);

/// A row.
#[derive(Clone, Copy)]
pub struct Row<'a>(&'a Map<String, Value>);

impl Rows {
    /// # Errors
    /// When the text is no array of objects.
    pub fn read(text: &str) -> Result<Rows> {
        serde_json::from_str(text).map(Rows).context("what it wrote are no rows")
    }

    /// Returns all rows.
    pub fn all(&self) -> impl Iterator<Item = Row<'_>> {
        self.0.iter().map(Row)
    }

    /// Returns the first row whose fields have these values.
    pub fn find(&self, wanted: &[(&str, Value)]) -> Option<Row<'_>> {
        self.all()
            .find(|row| wanted.iter().all(|(name, value)| row.0.get(*name).is_some_and(|is| same(is, value))))
    }

    /// Returns the conditions that the rows name, one per line.
    pub fn conditions(&self) -> Vec<String> {
        let first = self.all().find_map(|row| row.text("conditions").map(str::to_owned));
        first.iter().flat_map(|conditions| conditions.split("; ")).map(str::to_owned).collect()
    }
}

impl<'a> Row<'a> {
    /// Returns a figure.
    pub fn figure(self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Returns a text.
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    /// Returns whether the row says that it does not count.
    pub fn is_void(self) -> bool {
        self.0.get("void").and_then(Value::as_bool) == Some(true)
    }
}

/// Compares values; numbers by what they are, because 10 may be written as 10.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_fields() {
        let rows =
            Rows::read(r#"[{"peer": "raw", "members": 5}, {"peer": "farcall", "members": 5.0, "ms": 2}]"#);
        let rows = rows.unwrap();
        let row = rows.find(&[("peer", "farcall".into()), ("members", 5.into())]).unwrap();
        assert_eq!(row.figure("ms"), Some(2.0));
        assert!(rows.find(&[("peer", "farcall".into()), ("members", 6.into())]).is_none());
        assert!(Rows::read("{}").is_err());
    }
}
