//! What the interface languages share once a file is resolved: the tree, its Rust, and its run-time
//! descriptions.
//!
//! The reader of each language ([`x`](crate::x)) produces a [`tree::Specification`]. From there on there is
//! one path: `plan` decides how the types look in Rust, `rust` writes them, and `model` describes them for
//! tools.

pub(crate) mod components;
pub(crate) mod layout;
mod model;
pub(crate) mod plan;
mod rust;
pub mod tree;

use std::collections::BTreeMap;

use proc_macro2::TokenStream;

pub use self::model::{Described, Version};
use self::plan::Plan;
pub use self::plan::Refused;
use self::tree::Specification;

/// Inline types have names that are shorter than this many bytes.
const MAX_INLINE_NAME: usize = 255;

/// Returns the name of a type that was declared in line in a field. It is named after the declaration around
/// it and the field, or after the field alone if that would be too long.
pub(crate) fn inline_name(around: &str, field: &str) -> String {
    let whole = around.len() + field.len() < MAX_INLINE_NAME;
    if whole { format!("{around}_{field}") } else { field.to_owned() }
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

    /// Sets the Rust type for one of the types in [`Options::external`](crate::x::Options::external). The
    /// Rust type must implement `Xdr`, `Clone`, `Debug` and `PartialEq`. An external type without a Rust type
    /// has no values.
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
pub(crate) fn rust_items(
    specification: &Specification,
    config: &Config,
    leave: bool,
) -> Result<String, Refused> {
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
