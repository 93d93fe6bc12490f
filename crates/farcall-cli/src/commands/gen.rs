//! `farcall gen`: makes Rust from an `.x`, `.cr` or `.rpc2` file, or an `.x` or `.cr` file from an interface.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use farcall_idl::cr::to_cr;
use farcall_idl::language::{Config, Version, interfaces, to_rust, tree::Specification};
use farcall_idl::{Interface, to_x, x};
use serde_json::json;

use crate::commands::describe;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::x_file::{self, Reading, as_json};

/// Make Rust from an .x file (ONC RPC), a .cr file (Courier) or an .rpc2 file (RPC2), or a file from an
/// interface
///
/// The Rust has the file's constants and types, and an interface for each version of its programs. It is the
/// Rust that `farcall::include_x!`, `include_cr!` and `include_rpc2!` make. docs/x-names.md, docs/courier.md
/// and docs/rpc2.md have the rules for names. With `--to x`, makes an .x file from an interface that was
/// written in Rust. rpcgen can make C from that file. With `--to cr`, makes a .cr file.
#[derive(Debug, Args)]
pub struct Gen {
    /// The .x, .cr or .rpc2 file, or nfs3, mount, rpcbind, vxi11; for `--to x` and `--to cr` also the name of
    /// an exporter, or a file that `farcall describe --json` wrote
    #[arg(value_hint = ValueHint::FilePath)]
    source: String,
    /// The language to write
    #[arg(long, value_enum, default_value_t = To::Rust)]
    to: To,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Use the Rust type PATH for the type NAME, which the file does not declare; may be repeated
    #[arg(long = "extern", value_name = "NAME=PATH", value_parser = pair)]
    externs: Vec<(String, String)>,
    /// The path of the farcall crate in the generated Rust
    #[arg(long, value_name = "PATH", default_value = "::farcall")]
    farcall: String,
    /// Also make the traits for servers whose procedures are `async fn`s
    #[arg(long = "async")]
    asynchronous: bool,
    /// For `--to x` and `--to cr`, unless the file says it: the program's number; users of ONC RPC may choose
    /// numbers from 0x20000000 to 0x3fffffff
    #[arg(long, value_name = "NUMBER", value_parser = number, default_value = "0x20000001")]
    program: u32,
    /// For `--to x` and `--to cr`: the version's number, also to choose from a file of several versions
    #[arg(long, value_name = "NUMBER", value_parser = number, default_value = "1")]
    version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// Writes the Rust of a file.
    Rust,
    /// Writes the `.x` file of an interface.
    X,
    /// Writes the `.cr` file of an interface.
    Cr,
}

impl Gen {
    pub fn run(&self, output: &Output) -> Outcome {
        let is_onc = x_file::is_definition(&self.source);
        let is_file = self.to == To::Rust || x_file::is_any_definition(&self.source);
        let (text, left_out) = if is_file {
            let external = self.externs.iter().map(|(name, _)| name.as_str());
            let tree = self.reading.with_external(external).definition(&self.source, output)?;
            let text = match self.to {
                To::Rust => self.rust(&tree)?,
                To::X if is_onc => x::to_x(&tree).map_err(|why| self.unprintable(why))?,
                // A file in another language has the interface, not the constants.
                To::X | To::Cr => {
                    let version = self.version_of(&tree)?;
                    self.printed(&version.interface, version.program, version.version)?
                }
            };
            (text, tree.warnings)
        } else {
            let described = describe::interface(&self.source)?;
            (self.printed(&described, self.program, self.version)?, Vec::new())
        };
        if let Some(path) = &self.output {
            std::fs::write(path, &text).map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
        }
        let left_out: Vec<_> = left_out.iter().map(as_json).collect();
        let written = self.output.as_ref().map(|path| path.display().to_string());
        match (written, output.is_json()) {
            (None, false) => output.page(Default::default, || text.trim_end().to_owned()),
            (Some(_), false) => Ok(()),
            (None, true) => output.line(|| json!({ "text": text, "left_out": left_out }), String::new),
            (Some(path), true) => {
                output.line(|| json!({ "written": path, "left_out": left_out }), String::new)
            }
        }
    }

    /// Returns the `.x` or `.cr` file of an interface.
    fn printed(&self, interface: &Interface, program: u32, version: u32) -> Outcome<String> {
        let print = if self.to == To::Cr { to_cr } else { to_x };
        print(interface, program, version).map_err(|why| self.unprintable(why))
    }

    fn unprintable(&self, why: x::Refused) -> Failure {
        let kind = if self.to == To::Cr { "a .cr file" } else { "an .x file" };
        Failure::new(format!("cannot make {kind} of it: {why}")).about(&self.source)
    }

    /// Returns the only version in a file, or else the one that the command line chooses.
    fn version_of(&self, tree: &Specification) -> Outcome<Version> {
        let refused = |why: x::Refused| Failure::new(why.to_string()).about(&self.source);
        let mut versions = interfaces(tree).map_err(refused)?;
        if versions.len() > 1 {
            versions.retain(|version| version.version == self.version);
        }
        match versions.len() {
            1 => Ok(versions.remove(0)),
            0 => Err(Failure::usage(format!("{} has no such version, or no procedures", self.source))),
            _ => Err(Failure::usage(format!("{} has several programs with that version", self.source))),
        }
    }

    fn rust(&self, tree: &Specification) -> Outcome<String> {
        let config = Config::new().farcall(&self.farcall);
        let config = if self.asynchronous { config.asynchronous() } else { config };
        let config = self.externs.iter().fold(config, |config, (name, path)| config.extern_type(name, path));
        to_rust(tree, &config).map_err(|why| Failure::new(why.to_string()).about(&self.source))
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH, as in `sockaddr=crate::Sockaddr`")?;
    Ok((name.to_owned(), path.to_owned()))
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|why| why.to_string())
}
