//! Reads the `.x` and `.cr` files that describe servers of ONC RPC and Courier.

use std::cmp::Reverse;
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
    let mut versions = interfaces(&tree).map_err(|why| NotFound::lasting(format!("{file}: {why}")))?;
    versions.sort_by_key(|version| Reverse((version.program, version.version)));
    let found = versions.iter().position(|version| index_of(version, procedure).is_some());
    match found {
        Some(found) => Ok(versions.swap_remove(found)),
        None => Err(NotFound::lasting(format!("{file} has no procedure {procedure}"))),
    }
}

/// Returns the index of a procedure, whose name is spelt as in the file or as in Rust.
pub fn index_of(version: &Version, procedure: &str) -> Option<usize> {
    let spelt = version.procedure_names.iter().position(|known| known == procedure);
    spelt.or_else(|| version.interface.procedures.iter().position(|known| known.name == procedure))
}
