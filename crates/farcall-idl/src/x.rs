//! `.x` files (RFC 4506 section 6, RFC 5531 section 12): from text to a resolved tree, and from the tree to
//! Rust.
//!
//! [`read`] takes what `rpcgen` takes, and the dialects of other compilers as far as they do not contradict
//! it: `namespace` and types declared in line (Stellar), `package` and `import` (go-xdr), `struct *name`
//! (erpcgen), `pragma` (Linux), several arguments. The preprocessor's directives are obeyed. A `%` line is
//! for C, but what `%#define` and `%typedef` say is known, and where `%#include "other.h"` stands beside an
//! `other.x`, so is what that declares. What is still unknown then is refused, unless it is a type that the
//! user leaves to Rust ([`Options::external`]): that is [`tree::Type::Foreign`].
//!
//! A file may be anybody's: there are limits on its size, its depth, its includes and its macros, and all of
//! it is data. [`generate`] makes Rust of what was read, and [`interfaces`] the model that tools call by;
//! what is called what stands in `docs/x-names.md`.

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

/// How a file is to be read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `#include`d files are looked for, if they do not stand beside the file that includes them.
    pub include_dirs: Vec<PathBuf>,
    /// Macros: name and value. `RPC_HDR` is always defined, as it is by `rpcgen -h`.
    pub defines: Vec<(String, String)>,
    /// Types that are declared elsewhere, as C's headers declare some: each is [`tree::Type::Foreign`], also
    /// one that the file declares.
    pub external: Vec<String>,
}

/// Reads a file.
pub fn read(path: &Path, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.read(path, None).map_err(Diagnostic::nowhere)?;
    import::read_whole(sources, file, options)
}

/// Reads a text; `name` is how messages call it, and what it includes is looked for beside it.
pub fn read_text(name: &Path, text: &str, options: &Options) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let file = sources.add(name, text, None).map_err(Diagnostic::nowhere)?;
    import::read_whole(sources, file, options)
}

/// How Rust is made of a tree.
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
    /// What suits most: farcall at `farcall`, no pair for `async fn` servers, no types from elsewhere.
    pub fn new() -> Config {
        Config::default()
    }

    /// Makes the pair for servers of `async fn`s too.
    #[must_use]
    pub fn asynchronous(mut self) -> Config {
        self.asynchronous = true;
        self
    }

    /// Says where farcall is, if not at `farcall`.
    #[must_use]
    pub fn farcall(mut self, path: impl Into<String>) -> Config {
        self.farcall = path.into();
        self
    }

    /// Says which Rust type stands for one of [`Options::external`]: one that is `Xdr`, `Clone`, `Debug` and
    /// `PartialEq`. An external type of which this is not said has no values.
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: impl Into<String>) -> Config {
        self.externs.insert(name.into(), path.into());
        self
    }
}

/// The Rust of a tree: constants, types, and a trait with `#[farcall::interface]` for each version of each
/// program.
///
/// # Errors
/// If no Rust can be made of it: a type contains itself without end, or types are nested beyond measure.
pub fn generate(specification: &Specification, config: &Config) -> Result<TokenStream, Refused> {
    generate_naming(specification, config, &rust::path(&config.farcall)?)
}

/// The Rust of a tree, as [`generate`] makes it, for which farcall is at this path, whatever the settings say
/// of it. The path may begin with the `$crate` of a macro, which no text can.
///
/// # Errors
/// As [`generate`].
pub fn generate_naming(
    specification: &Specification,
    config: &Config,
    farcall: &syn::Path,
) -> Result<TokenStream, Refused> {
    let plan = Plan::new(specification, config)?;
    rust::Writer::new(&plan, config, farcall).file()
}

/// The Rust of a tree, as [`generate`] makes it, formatted as the file of a module.
///
/// # Errors
/// As [`generate`].
pub fn to_rust(specification: &Specification, config: &Config) -> Result<String, Refused> {
    let items = rust_items(specification, config, false)?;
    let from =
        specification.files.first().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
    let printable =
        |name: std::borrow::Cow<'_, str>| name.chars().filter(|c| !c.is_control()).collect::<String>();
    let from = from.map_or("an `.x` file".into(), |name| format!("`{}`", printable(name)));
    Ok(format!("//! Made of {from} by farcall.\n\n#![allow(dead_code)]\n\n{items}"))
}

/// The items one after the other, perhaps each with leave not to be used: a file that is included has no head
/// for it.
fn rust_items(specification: &Specification, config: &Config, leave: bool) -> Result<String, Refused> {
    let tokens = generate(specification, config)?;
    let file: syn::File =
        syn::parse2(tokens).map_err(|why| Refused(format!("the Rust made of it is none: {why}")))?;
    let mut text = String::new();
    let mut after_constant = true;
    for item in file.items {
        let constant = matches!(item, syn::Item::Const(_));
        // A table of constants stays together.
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

/// The tree as an `.x` file again, for rpcgen and other readers of the language: macros, namespaces and
/// included files are gone, all else is there, by the same names. What is written is read back first, and is
/// the same.
///
/// # Errors
/// If the language has no form for something that rpcgen, and the C that it makes, would take as it is meant;
/// the reason is said.
pub fn to_x(specification: &Specification) -> Result<String, Refused> {
    print::to_x(specification)
}

/// Each version of each program as tools see it, with the wire types of the generated Rust.
///
/// # Errors
/// As [`generate`].
pub fn interfaces(specification: &Specification) -> Result<Vec<Version>, Refused> {
    Ok(model::versions(&Plan::new(specification, &Config::new())?))
}

/// All types of a tree as tools see them.
///
/// # Errors
/// As [`generate`].
pub fn types(specification: &Specification) -> Result<Described, Refused> {
    Ok(model::types(&Plan::new(specification, &Config::new())?))
}
