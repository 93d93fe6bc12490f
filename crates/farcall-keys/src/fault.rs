//! Faults of key files: where, what was expected, what came, what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::name::NameFault;

/// What is wrong with a line of a key file or of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    line: Option<usize>,
    column: Option<usize>,
    expected: Box<str>,
    found: Box<str>,
    advice: Box<str>,
}

/// What is wrong with a key file. One line of text.
#[derive(Debug)]
pub struct Fault {
    path: PathBuf,
    fault: LineFault,
    source: Option<io::Error>,
}

impl LineFault {
    pub(crate) fn new(
        expected: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> LineFault {
        let [expected, found, advice] =
            [expected.into(), found.into(), advice.into()].map(String::into_boxed_str);
        LineFault { line: None, column: None, expected, found, advice }
    }

    /// Adds the number of the line, counted from 1.
    pub(crate) fn at(self, line: usize) -> LineFault {
        LineFault { line: Some(line), ..self }
    }

    /// Adds the column, counted in characters from 1.
    pub(crate) fn at_column(self, column: usize) -> LineFault {
        LineFault { column: Some(column), ..self }
    }

    /// Says in which other file it was found.
    #[cfg(feature = "x509")]
    pub(crate) fn about(self, file: &str) -> LineFault {
        LineFault { found: format!("in {file}: {}", self.found).into(), ..self }
    }

    /// Adds the file.
    pub(crate) fn within(self, path: &Path) -> Fault {
        Fault { path: path.to_owned(), fault: self, source: None }
    }

    pub(crate) fn name(fault: NameFault, advice: &str) -> LineFault {
        LineFault::new(fault.expected, fault.found, advice)
    }

    /// Returns the number of the line, counted from 1, if it is known.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the column, counted in characters from 1, if it is known.
    pub fn column(&self) -> Option<usize> {
        self.column
    }

    /// Returns what to do, which is the end of the text.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl Fault {
    pub(crate) fn new(
        path: &Path,
        expected: &str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Fault {
        LineFault::new(expected, found, advice).within(path)
    }

    /// Returns the fault of a file that cannot be read.
    pub(crate) fn io(path: &Path, source: io::Error) -> Fault {
        let found =
            LineFault::new("a file that can be read", source.to_string(), "check the path and its mode");
        Fault { source: Some(source), ..found.within(path) }
    }

    /// Returns the fault of a file that cannot be written.
    pub(crate) fn write(path: &Path, source: io::Error) -> Fault {
        let advice = "check the directory, its mode, and the space on its disk";
        let found = LineFault::new("a file that can be written", source.to_string(), advice);
        Fault { source: Some(source), ..found.within(path) }
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the line, counted from 1, if it is known.
    pub fn line(&self) -> Option<usize> {
        self.fault.line
    }

    /// Returns the column, counted in characters from 1, if it is known.
    pub fn column(&self) -> Option<usize> {
        self.fault.column
    }

    /// Returns what to do, which is the end of the text.
    pub fn advice(&self) -> &str {
        &self.fault.advice
    }
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, "line {line}, column {column}: ")?,
            (Some(line), None) => write!(f, "line {line}: ")?,
            (None, Some(column)) => write!(f, "column {column}: ")?,
            (None, None) => {}
        }
        write!(f, "expected {}; found {}; {}", self.expected, self.found, self.advice)
    }
}

impl std::error::Error for LineFault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.fault.line.or(self.fault.column).is_some() { "," } else { ":" };
        write!(f, "{}{separator} {}", self.path.display(), self.fault)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
