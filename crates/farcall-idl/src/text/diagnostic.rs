//! Messages about errors in a file: the file, the line, the column, and the text of the line with the error
//! underlined.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use farcall_base::work;

use super::source::{Sources, Span};
use crate::terminal::visible;

/// The maximum number of bytes of a line that are shown, rounded to a whole character.
const MAX_SHOWN: usize = 400;
/// The maximum number of errors that are reported.
pub(crate) const MAX_FAULTS: usize = 16;
/// The maximum number of `included from` lines in a message.
const MAX_TRAIL: usize = 8;

/// An error in a file, or a warning about a part of the file that the reader skipped, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    message: String,
    place: Option<Box<Place>>,
    help: Vec<String>,
    undeclared: Option<Undeclared>,
    warning: bool,
}

/// A name that is used but declared nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undeclared {
    /// The name of a type. List it in [`Options::external`](crate::x::Options::external) to declare the type
    /// in Rust yourself.
    Type(String),
    /// The name of a constant. Give it a value in [`Options::defines`](crate::x::Options::defines).
    Constant(String),
}

/// The place of an error, with the text that is needed to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    at: Excerpt,
    column: usize,
    /// Another place that is involved, with the message for it.
    other: Option<(Excerpt, String)>,
    /// The directives that led to the file, the nearest first: file and line.
    included: Vec<(String, usize)>,
}

/// A line of a file, and the part of it that is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    file: String,
    line: usize,
    text: String,
    marked: Range<usize>,
}

impl Diagnostic {
    /// Makes an error at `span`.
    pub(crate) fn new(sources: &Sources, span: Span, message: impl Into<String>) -> Self {
        let mut included = Vec::new();
        let mut above = sources.get(span.file).included;
        while let Some(at) = above
            && included.len() < MAX_TRAIL
        {
            included.push((sources.get(at.file).name.clone(), sources.line(at.file, at.start) + 1));
            above = sources.get(at.file).included;
        }
        let column = sources.column_in_characters(span.file, span.start);
        let place = Place { at: Excerpt::new(sources, span), column, other: None, included };
        Diagnostic { place: Some(Box::new(place)), ..Self::nowhere(message) }
    }

    /// Makes an error about the bytes `range` of a text, for readers of other formats that show errors alike.
    ///
    /// ```
    /// use farcall_idl::x::Diagnostic;
    ///
    /// let fault = Diagnostic::in_text("some.graph", "place a\nplace a\n", 14..15, "there are two places a");
    /// assert_eq!((fault.line(), fault.column()), (2, 7));
    /// assert!(fault.to_string().contains("some.graph:2:7"));
    /// ```
    pub fn in_text(file: &str, text: &str, range: Range<usize>, message: impl Into<String>) -> Self {
        let at = range.start.min(text.len());
        // (A line break is a boundary of characters.)
        let begun = text.as_bytes()[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = text.as_bytes()[..begun].iter().filter(|byte| **byte == b'\n').count() + 1;
        work::steps(at / 16);
        let whole = text[begun..].lines().next().unwrap_or_default();
        Diagnostic::in_line(file, line, whole, at - begun..range.end.saturating_sub(begun), message)
    }

    /// Makes an error about the bytes `marked` of a line, for readers that know where their lines begin.
    /// Lines are counted from 1.
    pub fn in_line(
        file: &str,
        line: usize,
        whole: &str,
        marked: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        let place = Place {
            column: column(whole, marked.start),
            at: Excerpt::of_line(file, line, whole, marked),
            other: None,
            included: Vec::new(),
        };
        Diagnostic { place: Some(Box::new(place)), ..Self::nowhere(message) }
    }

    /// Makes an error that has no place.
    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            place: None,
            help: Vec::new(),
            undeclared: None,
            warning: false,
        }
    }

    /// Adds advice on what to do. May be called several times.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Notes the undeclared name that the diagnostic is about.
    pub(crate) fn about_undeclared(self, name: Undeclared) -> Self {
        Diagnostic { undeclared: Some(name), ..self }
    }

    /// Makes the diagnostic a warning: the file could be read nevertheless.
    pub fn warning(self) -> Self {
        Diagnostic { warning: true, ..self }
    }

    /// Adds another place that is involved.
    pub(crate) fn see(mut self, sources: &Sources, span: Span, why: impl Into<String>) -> Self {
        if let Some(place) = &mut self.place {
            place.other = Some((Excerpt::new(sources, span), why.into()));
        }
        self
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the name of the file, or an empty string if the diagnostic has no place.
    pub fn file(&self) -> &str {
        self.place.as_ref().map_or("", |place| &place.at.file)
    }

    /// Returns the line, counted from 1, or 0 if the diagnostic has no place.
    pub fn line(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.at.line)
    }

    /// Returns the column in characters, counted from 1, or 0 if the diagnostic has no place.
    pub fn column(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.column)
    }

    /// Returns the undeclared name that the diagnostic is about, if it is about one.
    pub fn undeclared(&self) -> Option<&Undeclared> {
        self.undeclared.as_ref()
    }

    /// Returns whether the file could be read nevertheless.
    pub fn is_warning(&self) -> bool {
        self.warning
    }

    /// Returns the diagnostic in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        // The messages quote the file.
        let message = visible(&self.message, &['\n', '\t']);
        let mut group = Group::with_title(
            if self.warning { Level::WARNING } else { Level::ERROR }.primary_title(message.as_ref()),
        );
        if let Some(place) = &self.place {
            group = group.element(place.at.snippet(AnnotationKind::Primary, None));
            if let Some((excerpt, why)) = &place.other {
                group = group.element(excerpt.snippet(AnnotationKind::Context, Some(why)));
            }
            for (file, line) in &place.included {
                let note = format!("included from {}:{line}", visible(file, &[]));
                group = group.element(Level::NOTE.message(note));
            }
        }
        for help in &self.help {
            group = group.element(Level::HELP.message(visible(help, &['\n', '\t'])));
        }
        renderer.render(&[group])
    }
}

/// Writes `error: …`, and the line with the error underlined.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

impl std::error::Error for Diagnostic {}

impl Excerpt {
    /// Returns the line in which `span` begins. Of a long line, returns the part around the span.
    fn new(sources: &Sources, span: Span) -> Self {
        let line = sources.line(span.file, span.start);
        let (text, start) = sources.whole_line(span.file, line);
        let marked = (span.start - start) as usize..(span.end - start) as usize;
        Excerpt::of_line(&sources.get(span.file).name, line + 1, text, marked)
    }

    /// Returns the part of a line around `marked`.
    fn of_line(file: &str, line: usize, text: &str, marked: Range<usize>) -> Self {
        let boundary = |at: &usize| text.is_char_boundary(*at);
        let before = |at: usize| (0..=at.min(text.len())).rev().find(boundary).unwrap_or(0);
        let (from, to) = (before(marked.start), before(marked.end.max(marked.start)));
        let left = before(from.saturating_sub(MAX_SHOWN / 2));
        let right = (left + MAX_SHOWN..text.len()).find(boundary).unwrap_or(text.len());
        let shown = |part: Range<usize>| visible(text.get(part).unwrap_or_default(), &['\t']);
        let before = shown(left..from).len();
        Excerpt {
            file: visible(file, &[]).into_owned(),
            line,
            text: shown(left..right).into_owned(),
            marked: before..before + shown(from..to.min(right)).len(),
        }
    }

    fn snippet<'a>(
        &'a self,
        kind: AnnotationKind,
        label: Option<&'a str>,
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        Snippet::source(&self.text)
            .line_start(self.line)
            .path(&self.file)
            .annotation(kind.span(self.marked.clone()).label(label))
    }
}

/// The errors of a file, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub(crate) Vec<Diagnostic>);

impl Diagnostics {
    /// Returns the errors in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Returns all errors in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.0.iter().map(Diagnostic::coloured).collect::<Vec<_>>().join("\n\n")
    }
}

impl FromIterator<Diagnostic> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = Diagnostic>>(all: I) -> Self {
        Diagnostics(all.into_iter().collect())
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Diagnostics(vec![one])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, each) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "\n\n" })?;
            each.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Returns the column, in characters, of a byte of a line.
fn column(line: &str, at: usize) -> usize {
    line.get(..at).unwrap_or(line).chars().count() + 1
}

/// Adds an error, unless there are too many or it was reported already. An undeclared name is reported only
/// at its first use.
pub(crate) fn add_fault(faults: &mut Vec<Diagnostic>, fault: Diagnostic) {
    let same = |told: &Diagnostic| {
        *told == fault || fault.undeclared().is_some() && told.undeclared() == fault.undeclared()
    };
    if faults.len() < MAX_FAULTS && !faults.iter().any(same) {
        faults.push(fault);
    }
}
