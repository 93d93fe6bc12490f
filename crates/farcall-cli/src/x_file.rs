//! `.x`, `.cr` and `.rpc2` files on the command line: reads them, and reports their faults.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use farcall_idl::language::tree::Specification;
use farcall_idl::x::{Diagnostic, Options, Undeclared, read, read_text};
use farcall_idl::{cr, rpc2};
use farcall_onc::standard;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark_on};

/// The settings for reading an `.x`, `.cr` or `.rpc2` file.
#[derive(Clone, Debug, Default, Args)]
pub struct Reading {
    /// Search this directory for included files, after the directory of the file that includes them (of a .cr
    /// file: for the programs that it depends upon); may be repeated
    #[arg(short = 'I', value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    include: Vec<PathBuf>,
    /// Define a macro, or a constant of C's headers; may be repeated
    #[arg(short = 'D', value_name = "NAME[=VALUE]", value_parser = define)]
    define: Vec<(String, String)>,
    /// Accept a type that the file does not declare; the command then knows no values of it. May be repeated
    #[arg(long, value_name = "NAME")]
    external: Vec<String>,
    /// In an .rpc2 file: the server sends the bulk data of this procedure, instead of the client; may be
    /// repeated
    #[arg(long, value_name = "PROCEDURE")]
    from_server: Vec<String>,
}

/// Returns whether the text is an `.x` file's name, or the name of a protocol that needs no file, and not the
/// name of an exporter.
pub fn is_definition(name: &str) -> bool {
    let is_file =
        || Path::new(name).extension().is_some_and(|extension| extension == "x" || extension == "rpcl");
    standard::definition(name).is_some() || is_file()
}

/// Returns whether the text is the name of a Courier file.
pub fn is_courier(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "cr")
}

/// Returns whether the text is the name of a file in RPC2's interface language.
pub fn is_rpc2(name: &str) -> bool {
    rpc2::is_file_name(Path::new(name))
}

/// Returns whether the text names a definition in any interface language, and not an exporter.
pub fn is_any_definition(name: &str) -> bool {
    is_definition(name) || is_courier(name) || is_rpc2(name)
}

/// Returns the names of the protocols that need no file, for a message.
pub fn known() -> String {
    standard::definitions().collect::<Vec<_>>().join(", ")
}

impl Reading {
    /// Adds names of types that are declared elsewhere, so that the file can be read without them.
    pub fn with_external<'a>(&self, names: impl Iterator<Item = &'a str>) -> Reading {
        let mut reading = self.clone();
        reading.external.extend(names.map(str::to_owned));
        reading
    }

    /// Returns the definition of the protocol with this name, or reads the file with this name. Faults are
    /// reported on standard error.
    pub fn definition(&self, name: &str, output: &Output) -> Outcome<Specification> {
        match standard::definition(name) {
            Some(text) => read_text(Path::new(name), text, &Options::default())
                .map_err(|why| Failure::new(why.to_string())),
            None => self.read(Path::new(name), output),
        }
    }

    /// Reads a file. Reports faults and omissions on standard error.
    pub fn read(&self, path: &Path, output: &Output) -> Outcome<Specification> {
        let Reading { include: include_dirs, define: defines, external, from_server } = self.clone();
        let (kind, tree) = if path.to_str().is_some_and(is_courier) {
            ("a .cr file", cr::read(path, &cr::Options { include_dirs }))
        } else if rpc2::is_file_name(path) {
            ("an .rpc2 file", rpc2::read(path, &rpc2::Options { include_dirs, defines, from_server }))
        } else {
            ("an .x file", read(path, &Options { include_dirs, defines, external }))
        };
        let tree = tree.map_err(|why| {
            let faults = why.iter().map(as_json).collect();
            if let Some(whole) = why.iter().find(|fault| fault.file().is_empty()) {
                // The file could not be read.
                let hint = format!("the path of {kind} is wanted, or what needs no file: {}", known());
                return Failure::new(whole.message()).hint(hint).fact("faults", Value::Array(faults));
            }
            if !output.is_json() {
                why.iter().for_each(remark_on);
            }
            let failure = Failure::new(match why.iter().count() {
                1 => format!("{} cannot be read as {kind}", path.display()),
                count => format!("{} cannot be read as {kind}: {count} faults", path.display()),
            });
            failure.fact("faults", Value::Array(faults))
        })?;
        if !output.is_json() {
            tree.warnings.iter().for_each(remark_on);
        }
        Ok(tree)
    }
}

fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.chars().all(word) && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err(format!("`{name}` is no name of a macro")),
    }
}

/// Prints a fault or an omission.
pub fn as_json(what: &Diagnostic) -> Value {
    let mut all = json!({ "file": what.file(), "line": what.line(), "column": what.column(), "message": what.message() });
    match what.undeclared() {
        Some(Undeclared::Type(name)) => all["undeclared_type"] = name.as_str().into(),
        Some(Undeclared::Constant(name)) => all["undeclared_constant"] = name.as_str().into(),
        _ => {}
    }
    all
}
