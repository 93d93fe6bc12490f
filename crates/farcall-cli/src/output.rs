//! Writes to standard output: text for people, or JSON.

use std::fmt::Display;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::failure::Outcome;
use crate::text::{printable, printable_json};

/// Standard output, in the form that the user asked for.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether the user asked for JSON.
    json: bool,
}

impl Output {
    pub fn new(json: bool) -> Output {
        Output { json }
    }

    /// Returns whether the user asked for JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes one line: JSON if the user asked for JSON, otherwise text. Line ends within the text are
    /// escaped.
    pub fn line(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
        match self.json {
            true => say_json(&json()),
            false => say(printable(&text())),
        }
    }

    /// Writes a page: one line of JSON if the user asked for JSON, otherwise lines of text. Line ends within
    /// the text are not escaped, so the caller must make text of another process [`printable`] before it puts
    /// that text into a page.
    pub fn page(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
        match self.json {
            true => say_json(&json()),
            false => say(text().lines().map(printable).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Returns a progress bar that has the form of `template`, on a terminal. The bar is hidden if the user
    /// asked for JSON.
    pub fn progress(&self, length: u64, template: &str) -> ProgressBar {
        match ProgressStyle::with_template(template) {
            Ok(style) if !self.json => ProgressBar::new(length).with_style(style),
            _ => ProgressBar::hidden(),
        }
    }
}

/// Writes a line to standard output and flushes it. Fails if the line cannot be written, for example because
/// the reader of a pipe has exited.
pub fn say(line: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Writes JSON as one line to standard output and flushes it.
pub fn say_json(value: &Value) -> Outcome {
    say(printable_json(value.to_string()))
}
