//! The workers of a build: one that fetches, compiles and publishes, and one that tests.

use std::fmt;
use std::io::Write as _;

use farcall::Xdr;

/// Fetches, compiles and publishes.
#[farcall::interface]
pub trait Builder {
    /// Returns the sources of a commit.
    #[idempotent]
    fn fetch(&self, commit: &str) -> farcall::Result<String>;

    /// Returns the name of the binary that was made of these sources.
    #[idempotent]
    fn compile(&self, sources: &str) -> farcall::Result<String, CompileError>;

    /// Publishes a binary that was tested, and returns the name of the release. This must not be done twice.
    fn publish(&self, reports: &[Report]) -> farcall::Result<String>;
}

/// Tests on one machine.
#[farcall::interface]
pub trait Tester {
    /// Tests a binary.
    #[idempotent]
    #[blocking]
    fn test(&self, binary: &str) -> farcall::Result<Report>;
}

/// What a test found.
#[derive(Clone, Debug, PartialEq, Xdr)]
pub struct Report {
    /// The machine on which the binary was tested.
    pub machine: String,
    /// The binary.
    pub binary: String,
    /// Whether it does what it should.
    pub passed: bool,
}

/// Why sources cannot be compiled.
#[derive(Clone, Debug, PartialEq, Xdr)]
pub struct CompileError {
    /// The line of the sources.
    pub line: u32,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for CompileError {}

/// A builder for which each commit has one line of sources. It says on standard output what it publishes.
pub struct OneLiner;

impl Builder for OneLiner {
    fn fetch(&self, commit: &str) -> farcall::Result<String> {
        Ok(format!("print {commit}"))
    }

    fn compile(&self, sources: &str) -> farcall::Result<String, CompileError> {
        match sources.strip_prefix("print ") {
            Some(commit) if !commit.contains("broken") => Ok(format!("{commit}.bin")),
            _ => Err(CompileError { line: 1, message: format!("{sources:?} is not understood") }.into()),
        }
    }

    fn publish(&self, reports: &[Report]) -> farcall::Result<String> {
        let binary = reports.first().map_or("nothing", |report| &report.binary);
        // The worker works also if nobody reads what it says.
        let _ = writeln!(std::io::stdout(), "published {binary}");
        Ok(format!("release of {binary}"))
    }
}

/// A tester that finds every binary good.
pub struct Machine {
    /// The machine's name.
    pub name: String,
    /// Whether tests never end, as if the machine hung.
    pub hangs: bool,
}

impl Tester for Machine {
    fn test(&self, binary: &str) -> farcall::Result<Report> {
        let _ = writeln!(std::io::stdout(), "testing {binary}");
        if self.hangs {
            loop {
                std::thread::park();
            }
        }
        Ok(Report { machine: self.name.clone(), binary: binary.to_owned(), passed: true })
    }
}
