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

    /// Writes one line: JSON if the user asked for it, otherwise text. Line ends within the text are escaped.
    pub fn line(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
        match self.json {
            true => say_json(&json()),
            false => say(printable(&text())),
        }
    }

    /// Writes several lines: JSON if the user asked for it, otherwise text. The caller must make text of
    /// another process [`printable`] before it puts the text into a page.
    pub fn page(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
        match self.json {
            true => say_json(&json()),
            false => say(text().lines().map(printable).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Returns a progress bar for a terminal, with the text of `template`. The bar is hidden if the user
    /// asked for JSON.
    pub fn progress(&self, length: u64, template: &str) -> ProgressBar {
        match ProgressStyle::with_template(template) {
            Ok(style) if !self.json => ProgressBar::new(length).with_style(style),
            _ => ProgressBar::hidden(),
        }
    }
}

/// Writes a line to standard output and flushes it. Fails if the reader has ended.
pub fn say(line: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Returns JSON as a line.
pub fn say_json(value: &Value) -> Outcome {
    say(printable_json(value.to_string()))
}
