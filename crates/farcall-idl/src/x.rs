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

mod build;
mod components;
mod docs;
pub(crate) mod from_interface;
mod import;
mod model;
mod names;
mod parse;
mod plan;
mod preprocess;
mod print;
mod resolve;
mod rust;
mod syntax;
pub mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;

pub use self::build::{Build, build};
pub use self::model::{Described, Version};
use self::plan::Plan;
pub use self::plan::Refused;
use self::tree::Specification;
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

/// The settings for generating Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    farcall: String,
    asynchronous: bool,
    externs: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Config { farcall: "farcall".into(), asynchronous: false, externs: BTreeMap::new() }
    }
}

impl Config {
    /// Returns the default settings: the path of farcall is `farcall`, there are no items for `async fn`
    /// servers, and no external types.
    pub fn new() -> Config {
        Config::default()
    }

    /// Adds the two items for servers of `async fn`s.
    #[must_use]
    pub fn asynchronous(mut self) -> Config {
        self.asynchronous = true;
        self
    }

    /// Sets the path of farcall, if it is not `farcall`.
    #[must_use]
    pub fn farcall(mut self, path: impl Into<String>) -> Config {
        self.farcall = path.into();
        self
    }

    /// Sets the Rust type for one of the types in [`Options::external`]. The Rust type must implement `Xdr`,
    /// `Clone`, `Debug` and `PartialEq`. An external type without a Rust type has no values.
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: impl Into<String>) -> Config {
        self.externs.insert(name.into(), path.into());
        self
    }
}

/// Generates Rust from a tree: constants, types, and a trait with `#[farcall::interface]` for each version of
/// each program.
///
/// # Errors
/// When the tree cannot be expressed in Rust: a type contains itself without end, or types nest too deeply.
pub fn generate(specification: &Specification, config: &Config) -> Result<TokenStream, Refused> {
    generate_naming(specification, config, &rust::path(&config.farcall)?)
}

/// Generates Rust from a tree, as [`generate`] does, with farcall at this path instead of the path in the
/// settings. The path may begin with a macro's `$crate`, which cannot be written as text.
///
/// # Errors
/// The errors of [`generate`].
pub fn generate_naming(
    specification: &Specification,
    config: &Config,
    farcall: &syn::Path,
) -> Result<TokenStream, Refused> {
    let plan = Plan::new(specification, config)?;
    rust::Writer::new(&plan, config, farcall).file()
}

/// Generates Rust from a tree, as [`generate`] does, and formats it as the file of a module.
///
/// # Errors
/// The errors of [`generate`].
pub fn to_rust(specification: &Specification, config: &Config) -> Result<String, Refused> {
    let items = rust_items(specification, config, false)?;
    let from =
        specification.files.first().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
    let printable =
        |name: std::borrow::Cow<'_, str>| name.chars().filter(|c| !c.is_control()).collect::<String>();
    let from = from.map_or("an `.x` file".into(), |name| format!("`{}`", printable(name)));
    Ok(format!("//! Made of {from} by farcall.\n\n#![allow(dead_code)]\n\n{items}"))
}

/// Joins the items to a text. If `leave` is true, each gets an attribute that allows it to be unused, because
/// an included file cannot have that attribute at its head.
fn rust_items(specification: &Specification, config: &Config, leave: bool) -> Result<String, Refused> {
    let tokens = generate(specification, config)?;
    let file: syn::File =
        syn::parse2(tokens).map_err(|why| Refused(format!("the generated code is not valid Rust: {why}")))?;
    let mut text = String::new();
    let mut after_constant = true;
    for item in file.items {
        let constant = matches!(item, syn::Item::Const(_));
        // There are no empty lines between constants that follow each other.
        if !text.is_empty() && (!constant || !after_constant) {
            text.push('\n');
        }
        after_constant = constant;
        if leave {
            text += "#[allow(dead_code)]\n";
        }
        let alone = syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items: vec![item] };
        text += &prettyplease::unparse(&alone);
    }
    Ok(text)
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

/// Returns the run-time description of each version of each program, with the wire types of the generated
/// Rust. Tools use it to make calls.
///
/// # Errors
/// Those of [`generate`].
pub fn interfaces(specification: &Specification) -> Result<Vec<Version>, Refused> {
    Ok(model::versions(&Plan::new(specification, &Config::new())?))
}

/// Returns the run-time description of all types of a tree.
///
/// # Errors
/// Those of [`generate`].
pub fn types(specification: &Specification) -> Result<Described, Refused> {
    Ok(model::types(&Plan::new(specification, &Config::new())?))
}
