//! Reads `.x` files (RFC 4506 section 6, RFC 5531 section 12) into a resolved tree, and generates Rust from
//! the tree.
//!
//! [`read`] accepts what `rpcgen` accepts, and the extensions of other compilers that do not contradict it:
//! `namespace` and types declared in line (Stellar), `package` and `import` (go-xdr), `struct *name`
//! (erpcgen), `pragma` (Linux), and several arguments. It executes the preprocessor's directives. Lines that
//! begin with `%` are for C, but `%#define` and `%typedef` lines are interpreted. If a line `%#include
//! "other.h"` names a header for which there is an `other.x`, the declarations of `other.x` are known too.
//! Names that are still unknown are refused. The exception is a type that the user declares in Rust
//! ([`Options::external`]); it becomes a [`tree::Type::Foreign`].
//!
//! A file can come from an untrusted source, so its size, depth, includes and macros are limited, and nothing
//! in it is executed as code. [`generate`] generates Rust from the tree. [`interfaces`] makes the run-time
//! descriptions by which tools make calls. `docs/x-names.md` defines the names.

pub(crate) mod from_interface;
mod import;
mod names;
mod parse;
mod preprocess;
mod print;
mod resolve;
mod syntax;

use std::path::{Path, PathBuf};

use self::tree::Specification;
pub use crate::language::{
    Config, Described, Refused, Version, generate, generate_naming, interfaces, to_rust, tree, types,
};
pub use crate::text::diagnostic::{Diagnostic, Diagnostics, Undeclared};
use crate::text::source::Sources;

/// The settings for reading a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directories that are searched for `#include`d files, after the directory of the including file.
    pub include_dirs: Vec<PathBuf>,
    /// The macros, each with its name and value. `RPC_HDR` is always defined, as by `rpcgen -h`.
    pub defines: Vec<(String, String)>,
    /// Types that are declared elsewhere, for example in C's headers. Each becomes a [`tree::Type::Foreign`],
    /// even if the file declares it.
    pub external: Vec<String>,
}

/// Reads a file.
pub fn read(path: &Path, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.read(path, None).map_err(Diagnostic::nowhere)?;
    import::read_whole(sources, file, options)
}

/// Reads a text. Messages call the text `name`, and its included files are looked for in the directory of
/// `name`.
pub fn read_text(name: &Path, text: &str, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.add(name, text, None).map_err(Diagnostic::nowhere)?;
    import::read_whole(sources, file, options)
}

/// Returns the tree as an `.x` file, for rpcgen and other readers of the language. Macros, namespaces and
/// included files are resolved; everything else keeps its name. The text is read back first, to check that it
/// has the same meaning.
///
/// # Errors
/// When rpcgen, or the C that it generates, cannot express something with the same meaning. The error gives
/// the reason.
pub fn to_x(specification: &Specification) -> Result<String, Refused> {
    print::to_x(specification)
}
