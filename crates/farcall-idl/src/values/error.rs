//! Errors about a value, with their place.

use std::fmt;

/// Why JSON is not a value of a type, or bytes are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    path: String,
    what: String,
}

impl Error {
    /// The place: `$.entries[3].name`. `$` is the whole value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The fault.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.path, self.what)
    }
}

impl std::error::Error for Error {}

/// Converts the error of a description whose types cannot be examined.
impl From<farcall_xdr::Error> for Error {
    fn from(why: farcall_xdr::Error) -> Self {
        Path::ROOT.error(why.to_string())
    }
}

/// The message for a type without values, which an `.x` file names but does not declare.
pub(super) const UNDECLARED: &str = "a value of a type that is declared elsewhere, of which nothing is known";

/// The place of a walk through a value. Its text is made only for an error.
pub(super) struct Path<'a> {
    outer: Option<&'a Path<'a>>,
    step: Step<'a>,
    /// The number of steps to this place.
    pub(super) depth: usize,
}

enum Step<'a> {
    Whole,
    Field(&'a str),
    Index(usize),
}

/// A step of a path that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WantedStep {
    Name(String),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) const ROOT: Path<'static> = Path { outer: None, step: Step::Whole, depth: 0 };

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { outer: Some(self), step: Step::Field(name), depth: self.depth + 1 }
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path { outer: Some(self), step: Step::Index(index), depth: self.depth + 1 }
    }

    /// Returns the same place, one level deeper in the types.
    pub(super) fn inside(&'a self) -> Path<'a> {
        Path { outer: Some(self), step: Step::Whole, depth: self.depth + 1 }
    }

    /// Returns the remaining steps after those that lead here, or `None` if `steps` lead elsewhere.
    pub(super) fn rest_of<'s>(&self, steps: &'s [WantedStep]) -> Option<&'s [WantedStep]> {
        let rest = self.outer.map_or(Some(steps), |outer| outer.rest_of(steps))?;
        match (&self.step, rest) {
            (Step::Whole, _) => Some(rest),
            (Step::Field(name), [WantedStep::Name(step), rest @ ..]) if name == step => Some(rest),
            (Step::Index(index), [WantedStep::Index(step), rest @ ..]) if index == step => Some(rest),
            _ => None,
        }
    }

    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        Error { path: self.to_string(), what: what.into() }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outer {
            Some(outer) => outer.fmt(f)?,
            None => f.write_str("$")?,
        }
        match self.step {
            Step::Whole => Ok(()),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}
