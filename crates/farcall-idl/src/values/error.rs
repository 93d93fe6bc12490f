//! Errors about a value, with the place in the value.

use std::fmt;

/// Why a piece of JSON, or some bytes, cannot be read as a value of the expected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    path: String,
    what: String,
}

impl Error {
    /// Returns the place, such as `$.entries[3].name`. `$` is the whole value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what is wrong, without the place.
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

/// Converts an error from checking the type description, which is not about one place in the value.
impl From<farcall_xdr::Error> for Error {
    fn from(why: farcall_xdr::Error) -> Self {
        Path::ROOT.error(why.to_string())
    }
}

/// The message for a value whose type an `.x` file mentions but does not declare. The type's form is unknown.
pub(super) const UNDECLARED: &str = "a value of a type that is declared elsewhere, of which nothing is known";

/// A place in a value. The path is written as text only for an error.
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

    /// Returns the place of a nested type, such as that behind an alias. The printed path stays the same;
    /// only `depth` grows.
    pub(super) fn inside(&'a self) -> Path<'a> {
        Path { outer: Some(self), step: Step::Whole, depth: self.depth + 1 }
    }

    /// Returns what follows this place's path in `steps`, or `None` if `steps` does not begin with this path.
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
