//! Messages about a text: the file, the line, the column, and the text of the line with the place underlined.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// The most bytes of a line that are shown, rounded to whole characters.
const MAX_SHOWN: usize = 400;

/// An error or a warning, with its place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    message: String,
    help: Option<String>,
    warning: bool,
    file: String,
    line: usize,
    column: usize,
    /// The line, or the part of it around the place.
    shown: String,
    /// The place, in `shown`.
    marked: Range<usize>,
}

impl Diagnostic {
    /// Makes an error about the bytes `span` of a text.
    pub fn new(file: &str, text: &str, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let start = boundary(text, span.start);
        let end = boundary(text, span.end.max(start));
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let left = boundary(text, line_start.max(start.saturating_sub(MAX_SHOWN / 2)));
        let right = boundary(text, line_end.min(left + MAX_SHOWN)).max(start);
        Diagnostic {
            message: message.into(),
            help: None,
            warning: false,
            file: file.to_owned(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            shown: text[left..right].trim_end_matches('\r').to_owned(),
            marked: start - left..end.min(right) - left,
        }
    }

    /// Adds advice on what to do.
    pub fn help(self, help: impl Into<String>) -> Diagnostic {
        Diagnostic { help: Some(help.into()), ..self }
    }

    /// Makes the diagnostic a warning: the graph can be interpreted nevertheless.
    pub fn warning(self) -> Diagnostic {
        Diagnostic { warning: true, ..self }
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the column in characters, counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns whether the graph can be interpreted nevertheless.
    pub fn is_warning(&self) -> bool {
        self.warning
    }

    /// Returns the diagnostic in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let marked = self.marked.start.min(self.shown.len())..self.marked.end.min(self.shown.len());
        let snippet = Snippet::source(&self.shown)
            .line_start(self.line)
            .path(&self.file)
            .annotation(AnnotationKind::Primary.span(marked));
        let level = if self.warning { Level::WARNING } else { Level::ERROR };
        let mut group = level.primary_title(&self.message).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

/// Writes `error: …`, and the line with the place underlined.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

impl std::error::Error for Diagnostic {}

/// The errors of a text, at least one, in the order of their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub(super) Vec<Diagnostic>);

impl Diagnostics {
    /// Returns the errors.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Returns all errors in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.0.iter().map(Diagnostic::coloured).collect::<Vec<_>>().join("\n\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, each) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "\n\n" })?;
            each.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Returns the last boundary of characters that is not after `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
