//! Reads `.rpc2` files (the interface language of CMU's RPC2) into the resolved tree of
//! [`language`](crate::language).
//!
//! The tree is the one that [`x`](crate::x) makes too, so names, derives, generated Rust and run-time
//! descriptions exist once. It was widened by bulk data and by the time-outs of procedures.
//!
//! [`read`] accepts what `rp2gen` of RPC2 2.38 accepts. A file can come from an untrusted source, so its size
//! and the files that it includes are limited. `docs/rpc2.md` says what a `.rpc2` file becomes in Rust.

mod parse;
mod predefined;
mod resolve;
mod scan;
mod syntax;
mod tokens;

use std::path::{Path, PathBuf};

use crate::language::tree::Specification;
use crate::text::diagnostic::{Diagnostic, Diagnostics};
use crate::text::source::Sources;

/// The number of a NEW_CONNECTION procedure in the model. Opcodes have 31 bits, so no other procedure has it.
pub const NEW_CONNECTION: u32 = 1 << 31;

/// The settings for reading a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directories that are searched for `#include`d files, after the directory of the including file.
    pub include_dirs: Vec<PathBuf>,
    /// Numbers that the file uses and that a C header defines, each with its name and value.
    pub defines: Vec<(String, String)>,
    /// The procedures whose server sends the bulk data. The result of each is a `Bulk`, so it can have no
    /// other results. In all other procedures with an SE_Descriptor the client sends: they have an argument
    /// that is a `Bulk`.
    pub from_server: Vec<String>,
}

/// Returns whether a file of this name is in RPC2's interface language: `NAME.rpc2`, or `NAME.rpc` as in
/// RPC2's manual.
pub fn is_file_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rpc2" || extension == "rpc")
}

/// Reads a file, and the files that it includes.
///
/// # Errors
/// The faults of the file or of a file that it includes, at most 16.
pub fn read(path: &Path, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.read(path, None).map_err(Diagnostic::nowhere)?;
    read_whole(sources, file, options)
}

/// Reads a text as [`read`] reads a file. Messages call the text `name`, and its included files are looked
/// for in the directory of `name`.
///
/// # Errors
/// The faults, at most 16.
///
/// ```
/// use std::path::Path;
/// use farcall_idl::{language, rpc2};
/// let text = r#"Subsystem "clock"; Ask(OUT RPC2_Unsigned Seconds);"#;
/// let tree = rpc2::read_text(Path::new("clock.rpc2"), text, &rpc2::Options::default())?;
/// let rust = language::to_rust(&tree, &language::Config::new())?;
/// assert!(rust.contains("fn ask(&self) -> farcall::Result<u32, AskError>;"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_text(name: &Path, text: &str, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.add(name, text, None).map_err(Diagnostic::nowhere)?;
    read_whole(sources, file, options)
}

/// Reads the text at that index of `sources`.
fn read_whole(mut sources: Sources, file: u32, options: &Options) -> Result<Specification, Diagnostics> {
    let parsed = parse::parse(&mut sources, file, options)?;
    let mut specification = resolve::resolve(&sources, &parsed, options)?;
    specification.files = sources.files;
    Ok(specification)
}
