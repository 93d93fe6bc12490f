//! What is wrong with a file that a front end reads: the file, the line, the column, and the line itself,
//! underlined.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::source::{Sources, Span};

/// The most of a line that is shown.
const MAX_SHOWN: usize = 400;
/// The most includes that are named.
const MAX_TRAIL: usize = 8;

/// One thing that is wrong, or left out, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    message: String,
    place: Option<Box<Place>>,
    help: Vec<String>,
    undeclared: Option<Undeclared>,
    warning: bool,
}

/// A name that is used and declared nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undeclared {
    /// The name of a type: [`Options::external`](crate::x::Options::external) leaves it to the user.
    Type(String),
    /// The name of a constant: [`Options::defines`](crate::x::Options::defines) gives it a value.
    Constant(String),
}

/// Where something is wrong; holds all that it takes to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    at: Excerpt,
    column: usize,
    /// Another place that has to do with it, and why.
    other: Option<(Excerpt, String)>,
    /// The directives that led to the file, the nearest first: file and line.
    included: Vec<(String, usize)>,
}

/// A line of a file, and the part of it that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    file: String,
    line: usize,
    text: String,
    marked: std::ops::Range<usize>,
}

impl Diagnostic {
    /// Something is wrong at `span`.
    pub(crate) fn new(sources: &Sources, span: Span, message: impl Into<String>) -> Self {
        let mut included = Vec::new();
        let mut above = sources.get(span.file).included;
        while let Some(at) = above
            && included.len() < MAX_TRAIL
        {
            included.push((sources.get(at.file).name.clone(), sources.line(at.file, at.start) + 1));
            above = sources.get(at.file).included;
        }
        let (text, start) = sources.whole_line(span.file, sources.line(span.file, span.start));
        let before = (span.start - start) as usize;
        let column = text.get(..before).unwrap_or(text).chars().count() + 1;
        let place = Place { at: Excerpt::new(sources, span), column, other: None, included };
        Diagnostic { place: Some(Box::new(place)), ..Self::nowhere(message) }
    }

    /// Something is wrong, but not at a place.
    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            place: None,
            help: Vec::new(),
            undeclared: None,
            warning: false,
        }
    }

    /// What to do about it; may be said several times.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Notes the name, declared nowhere, that the diagnostic is about.
    pub(crate) fn about_undeclared(self, name: Undeclared) -> Self {
        Diagnostic { undeclared: Some(name), ..self }
    }

    /// It is not that wrong.
    pub(crate) fn warning(self) -> Self {
        Diagnostic { warning: true, ..self }
    }

    /// Another place that has to do with it.
    pub(crate) fn see(mut self, sources: &Sources, span: Span, why: impl Into<String>) -> Self {
        if let Some(place) = &mut self.place {
            place.other = Some((Excerpt::new(sources, span), why.into()));
        }
        self
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The file; empty if it is none.
    pub fn file(&self) -> &str {
        self.place.as_ref().map_or("", |place| &place.at.file)
    }

    /// The line, counted from 1; 0 if it is none.
    pub fn line(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.at.line)
    }

    /// The column in characters, counted from 1; 0 if it is none.
    pub fn column(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.column)
    }

    /// The name that is declared nowhere, if that is what is wrong.
    pub fn undeclared(&self) -> Option<&Undeclared> {
        self.undeclared.as_ref()
    }

    /// Whether the file could be read nevertheless.
    pub fn is_warning(&self) -> bool {
        self.warning
    }

    /// In colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mut group = Group::with_title(
            if self.warning { Level::WARNING } else { Level::ERROR }.primary_title(&self.message),
        );
        if let Some(place) = &self.place {
            group = group.element(place.at.snippet(AnnotationKind::Primary, None));
            if let Some((excerpt, why)) = &place.other {
                group = group.element(excerpt.snippet(AnnotationKind::Context, Some(why)));
            }
            for (file, line) in &place.included {
                group = group.element(Level::NOTE.message(format!("included from {file}:{line}")));
            }
        }
        for help in &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

/// `error: …`, and the line with what is meant underlined.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

impl std::error::Error for Diagnostic {}

impl Excerpt {
    /// The line in which `span` begins; of a long one, what stands around it.
    fn new(sources: &Sources, span: Span) -> Self {
        let line = sources.line(span.file, span.start);
        let (text, start) = sources.whole_line(span.file, line);
        let from = ((span.start - start) as usize).min(text.len());
        let to = ((span.end - start) as usize).clamp(from, text.len());
        let boundary = |at: &usize| text.is_char_boundary(*at);
        let left = (0..=from.saturating_sub(MAX_SHOWN / 2)).rev().find(boundary).unwrap_or(0);
        let right = (left + MAX_SHOWN..text.len()).find(boundary).unwrap_or(text.len());
        Excerpt {
            file: sources.get(span.file).name.clone(),
            line: line + 1,
            text: text[left..right].to_owned(),
            marked: from - left..to.min(right) - left,
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

/// All that is wrong with a file: at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub(crate) Vec<Diagnostic>);

impl Diagnostics {
    /// Each, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// All of them in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.0.iter().map(Diagnostic::coloured).collect::<Vec<_>>().join("\n\n")
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
