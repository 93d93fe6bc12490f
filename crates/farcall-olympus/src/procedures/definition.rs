//! Reads the `.x` and `.cr` files that describe servers of ONC RPC and Courier.

use std::path::Path;

use farcall_idl::x::{Version, interfaces, read, read_text};
use farcall_idl::{cr, x};
use farcall_onc::standard;

use super::NotFound;

/// Returns whether this is the name of a Courier file. Any other definition is one of ONC RPC.
pub fn is_courier(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "cr")
}

/// Reads a definition, and returns the latest version of its program that has a procedure of this name. A
/// protocol that needs no file, such as `nfs3`, is known by its name. A relative path refers to `directory`.
///
/// # Errors
/// When the file cannot be read, or no version has the procedure.
pub fn version(directory: &Path, file: &str, procedure: &str) -> Result<Version, NotFound> {
    let path = directory.join(file);
    let tree = match standard::definition(file) {
        Some(text) => read_text(Path::new(file), text, &x::Options::default()),
        None if is_courier(file) => cr::read(&path, &cr::Options::default()),
        None => read(&path, &x::Options::default()),
    };
    let tree = tree.map_err(|why| NotFound::lasting(why.to_string()))?;
    let versions = interfaces(&tree).map_err(|why| NotFound::lasting(format!("{file}: {why}")))?;
    let found = Version::latest_with(versions, procedure).map(|(version, _)| version);
    found.ok_or_else(|| NotFound::lasting(format!("{file} has no procedure {procedure}")))
}
