//! Everything that the command prints: text for people, JSON and bytes on standard output, and remarks on
//! standard error. Nothing else here prints.
//!
//! Text of others, such as names, messages and files, cannot control a terminal: characters that could are
//! escaped. In lines and pages they are escaped wherever standard output leads, in documents only on a
//! terminal. Bytes that were asked for, such as those of `cat`, are never changed.

use std::fmt::Display;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

use farcall::System;
use farcall_idl::x::Diagnostic;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
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

/// Returns standard output, for one writer. Fails if it is closed, or may only be read.
pub fn standard_output() -> io::Result<StdoutLock<'static>> {
    #[cfg(target_os = "linux")]
    crate::closed_output::check()?;
    Ok(io::stdout().lock())
}

/// Writes a line to standard output and flushes it. Fails if the line cannot be written, for example because
/// the reader of a pipe has exited.
pub fn say(line: impl Display) -> Outcome {
    let mut out = standard_output()?;
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Writes a document, such as a graph's text. On a terminal it cannot do more than show itself; elsewhere it
/// is as it is.
#[cfg(feature = "olympus")]
pub fn say_document(text: &str) -> Outcome {
    if !io::stdout().is_terminal() {
        return say(text);
    }
    say(text.lines().map(printable).collect::<Vec<_>>().join("\n"))
}

/// Writes bytes as they are to standard output and flushes it.
pub fn say_bytes(bytes: &[u8]) -> Outcome {
    let mut out = standard_output()?;
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a line to standard error. If it cannot be written, nobody reads it, and the exit code tells the
/// rest.
pub fn remark(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}

/// Prints a failure on standard error, and returns the exit code.
pub fn report(failure: &Failure, json: bool) -> ExitCode {
    match failure.as_json() {
        Some(error) if json => remark_json(&json!({ "error": error })),
        Some(_) => {
            remark(&format!("farcall: {}", failure.message()));
            failure.advice().into_iter().for_each(|hint| remark(&format!("hint: {hint}")));
        }
        None => {}
    }
    ExitCode::from(failure.code())
}

/// Tells on standard error of variables that nothing reads.
pub fn warn_of_misspelt_variables(json: bool) {
    for variable in farcall::misspelt_variables(&System) {
        match json {
            true => remark_json(&json!({ "warning": { "message": variable.to_string() } })),
            false => remark(&format!("farcall: {variable}")),
        }
    }
}

/// Writes JSON as one line to standard error, like [`remark`].
fn remark_json(value: &Value) {
    let _ = writeln!(io::stderr().lock(), "{}", printable_json(value.to_string()));
}

/// Writes an excerpt of a file, with what is said of it, to standard error, like [`remark`].
pub fn remark_on(what: &Diagnostic) {
    let coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Whoever makes a diagnostic escapes the file's text in it.
    let text = if coloured { what.coloured() } else { what.to_string() };
    let _ = writeln!(io::stderr().lock(), "{text}\n");
}

/// Writes JSON as one line to standard output and flushes it.
pub fn say_json(value: &Value) -> Outcome {
    say(printable_json(value.to_string()))
}
