//! `.x` files (RFC 4506 section 6, RFC 5531 section 12): from text to a resolved tree, and from the tree to stubs.
//!
//! [`read`] takes what `rpcgen` takes, and the dialects of other compilers as far as they do not contradict it.

mod docs;
mod error;
mod import;
mod names;
mod parse;
mod preprocess;
mod resolve;
mod scan;
mod source;
mod syntax;
pub mod tree;

use std::path::{Path, PathBuf};

pub use self::error::{Diagnostic, Diagnostics};
use self::source::Sources;
use self::tree::Specification;

/// How a file is to be read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `#include`d files are looked for, if they do not stand beside the file that includes them.
    pub include_dirs: Vec<PathBuf>,
    /// Macros: name and value. `RPC_HDR` is always defined, as it is by `rpcgen -h`.
    pub defines: Vec<(String, String)>,
}

/// Reads a file.
pub fn read(path: &Path, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.read(path, None)?;
    import::read_whole(sources, file, options)
}

/// Reads a text; `name` is how messages call it, and what it includes is looked for beside it.
pub fn read_text(name: &Path, text: &str, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.add(name, text, None)?;
    import::read_whole(sources, file, options)
}
