//! Reads `.cr` files (Xerox's Courier) into the resolved tree of [`language`](crate::language), and writes
//! `.cr` files.
//!
//! The tree is the one that [`x`](crate::x) makes too, so names, boxes, derives, generated Rust and run-time
//! descriptions exist once. It was widened by the few things that `.x` files lack: declared errors, typed
//! constants, and modules for the programs that a file depends upon. Courier's numbers of 16 bits and its
//! bounded sequences were there before.
//!
//! [`read`] accepts the language of the Courier standard as 4.4BSD's compiler has it, types that refer to
//! later ones or to themselves, and Cooper's programs without numbers. A file can come from an untrusted
//! source, so its size, its depth and the files that it depends upon are limited. `docs/courier.md` says what
//! a `.cr` file becomes in Rust.

mod depend;
mod parse;
mod print;
mod resolve;
mod scan;
mod syntax;

use std::path::{Path, PathBuf};

pub use self::print::to_cr;
use crate::language::tree::Specification;
use crate::text::diagnostic::{Diagnostic, Diagnostics};
use crate::text::source::Sources;

/// The settings for reading a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directories that are searched for the files of programs that a file depends upon, after the
    /// directory of that file.
    pub include_dirs: Vec<PathBuf>,
}

/// Reads a file, and the files of the programs that it depends upon. The file of version 2 of `Time` is
/// `Time2.cr` or `Time.cr`.
///
/// # Errors
/// The faults of the file or of a file that it depends upon, at most 16.
pub fn read(path: &Path, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.read(path, None).map_err(Diagnostic::nowhere)?;
    read_whole(sources, file, options)
}

/// Reads a text as [`read`] reads a file. Messages call the text `name`, and files of other programs are
/// looked for in the directory of `name`.
///
/// # Errors
/// The faults, at most 16.
///
/// ```
/// use std::path::Path;
/// use farcall_idl::{cr, language};
/// let text = "Clock: PROGRAM 4000 VERSION 1 = BEGIN
///     Ask: PROCEDURE RETURNS [seconds: LONG CARDINAL] = 0;
/// END.";
/// let tree = cr::read_text(Path::new("Clock.cr"), text, &cr::Options::default())?;
/// let rust = language::to_rust(&tree, &language::Config::new())?;
/// assert!(rust.contains("fn ask(&self) -> farcall::Result<u32>;"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_text(name: &Path, text: &str, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.add(name, text, None).map_err(Diagnostic::nowhere)?;
    read_whole(sources, file, options)
}

/// Reads the text at that index of `sources`.
fn read_whole(mut sources: Sources, file: u32, options: &Options) -> Result<Specification, Diagnostics> {
    let programs = depend::read_all(&mut sources, file, options)?;
    let mut specification = resolve::resolve(&sources, &programs)?;
    specification.files = sources.files;
    Ok(specification)
}
