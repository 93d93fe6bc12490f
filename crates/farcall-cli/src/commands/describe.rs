//! `farcall describe`: shows the interface of an exporter or of an `.x`, `.cr` or `.rpc2` file. Also reads an
//! interface from a file that `describe --json` printed.

mod file;

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, ValueHint};
use farcall::dynamic::{self, Description};
use farcall::xdr;
use farcall::xdr::schema::{Arm, Body, Definition, Field, TypeHashes, Types};
use farcall_idl::{Interface, Procedure, spell};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::onc;
use crate::output::Output;
use crate::remote::runtime;
use crate::text::printable;
use crate::whole;
use crate::x_file::{self, Reading};

/// Show an interface: its procedures, their types and their documentation
///
/// NAME is an exporter, which has one interface, or an .x, .cr or .rpc2 file, which may have several. The output of
/// --json can be kept, and compared later by `farcall check`.
#[derive(Debug, Args)]
pub struct Describe {
    /// The exporter; or an .x, .cr or .rpc2 file; or nfs3, mount, rpcbind, vxi11, which need no file
    #[arg(value_hint = ValueHint::FilePath)]
    name: String,
    #[command(flatten)]
    reading: Reading,
}

impl Describe {
    pub fn run(&self, output: &Output) -> Outcome {
        if x_file::is_any_definition(&self.name) {
            return file::describe(&self.name, &self.reading, output);
        }
        let description = dynamic::describe(&runtime()?, &self.name)
            .map_err(|why| onc::unnamed(why, "For ONC RPC, name an .x file"))?;
        let model = xdr::to_vec(&description.interface).map_err(|why| Failure::new(why.to_string()))?;
        output.page(|| as_json(&description, &model), || as_text(&description))
    }
}

/// Returns the output for an exporter. The output has the interface twice: readable, for people and scripts,
/// and encoded, for `farcall check`.
fn as_json(description: &Description, model: &[u8]) -> Value {
    let mut all = interface_as_json(&description.interface, model);
    all["farcall"] = description.farcall.as_str().into();
    all["wire"] = description.wire.clone().into();
    all
}

fn interface_as_json(interface: &Interface, model: &[u8]) -> Value {
    let hashes = TypeHashes::new(&interface.types);
    let procedure_as_json = |procedure| procedure_as_json(interface, procedure, &hashes);
    json!({
        "interface": interface.name,
        "docs": interface.docs,
        "procedures": interface.procedures.iter().map(procedure_as_json).collect::<Vec<_>>(),
        "signals": interface.signals.iter().map(|signal| signal_as_json(interface, signal)).collect::<Vec<_>>(),
        "model": BASE64_STANDARD.encode(model),
    })
}

fn procedure_as_json(interface: &Interface, procedure: &Procedure, hashes: &TypeHashes) -> Value {
    json!({
        "number": procedure.number,
        "name": procedure.name,
        "signature": interface.signature(procedure),
        "docs": procedure.docs,
        "idempotent": procedure.idempotent,
        "blocking": procedure.blocking,
        "oneway": procedure.oneway,
        "deadline_ms": procedure.deadline_ms,
        "pinned": procedure.pinned,
        "fingerprint": format!("{:016x}", procedure.fingerprint(hashes)),
    })
}

fn signal_as_json(interface: &Interface, signal: &Procedure) -> Value {
    json!({ "name": signal.name, "signature": interface.signature(signal), "docs": signal.docs })
}

fn as_text(description: &Description) -> String {
    let Description { interface, farcall, wire, .. } = description;
    let types = types_as_text(&interface.types);
    let wire: Vec<String> = wire.iter().map(u32::to_string).collect();
    let farcall = printable(farcall);
    format!("{interface}\n\n{types}exported by farcall {farcall}, wire version {}", wire.join(", "))
}

fn types_as_text(types: &Types) -> String {
    types.definitions().iter().map(|definition| spelt(types, definition) + "\n\n").collect()
}

/// Returns the declaration of a struct or a union, much as a source file would have it. An enumeration is a
/// union without fields.
fn spelt(types: &Types, definition: &Definition) -> String {
    let fields = |fields: &[Field], indent: &str| -> String {
        let line = |field: &Field| {
            let docs = documented(&field.docs, indent);
            let default = if field.defaulted { ", may be missing" } else { "" };
            let field = printable(&format!("{}: {}", field.name, spell(types, &field.ty)));
            format!("{docs}{indent}{field}{default}\n")
        };
        fields.iter().map(line).collect()
    };
    let name = printable(&definition.name);
    let body = match &definition.body {
        Body::Struct { fields: all, extensible } => {
            let kind = if *extensible { "extensible struct" } else { "struct" };
            format!("{kind} {name} {{\n{}}}", fields(all, "    "))
        }
        Body::Union { arms } => {
            let arm = |arm: &Arm| {
                let docs = documented(&arm.docs, "    ");
                let tag = arm.tag.map_or_else(|| "others".to_owned(), |tag| tag.to_string());
                format!(
                    "{docs}    {tag:>6}  {}\n{}",
                    printable(&arm.name),
                    fields(&arm.fields, "              ")
                )
            };
            format!("union {name} {{\n{}}}", arms.iter().map(arm).collect::<String>())
        }
    };
    documented(&definition.docs, "") + &body
}

/// Returns documentation as comment lines.
fn documented(docs: &str, indent: &str) -> String {
    docs.lines().map(|line| format!("{}\n", format!("{indent}/// {}", printable(line)).trim_end())).collect()
}

/// An interface as a file or an exporter describes it.
pub struct Described {
    pub interface: Interface,
    /// The numbers by which callers find the interface, if it is part of a program.
    pub numbers: Option<Numbers>,
}

/// The number of a program, and of one of its versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub program: u32,
    pub version: u32,
}

/// Returns the interfaces that the file `of` describes: an `.x`, `.cr` or `.rpc2` file, or one that `farcall
/// describe --json` wrote. If there is no such file and `of` is a valid name, returns the interface of the
/// exporter `of`.
pub fn interfaces(of: &str, reading: &Reading, output: &Output) -> Outcome<Vec<Described>> {
    let all = match x_file::is_any_definition(of) {
        true => file::interfaces(of, reading, output)?,
        false if is_kept(of) => read(Path::new(of))?,
        false => vec![Described { interface: exported(of)?, numbers: None }],
    };
    match all.is_empty() {
        true => Err(Failure::new(format!("{of} has no program, so there is no interface to compare"))),
        false => Ok(all),
    }
}

/// Returns the interface in the file `of`, which `farcall describe --json` wrote. If there is no such file
/// and
/// `of` is a valid name, returns the interface of the exporter `of`.
pub fn interface(of: &str) -> Outcome<Interface> {
    if !is_kept(of) {
        return exported(of);
    }
    let mut all = read(Path::new(of))?;
    match all.pop() {
        Some(only) if all.is_empty() => Ok(only.interface),
        _ => Err(Failure::new(format!("{of} has several interfaces, and one is wanted"))),
    }
}

/// Returns whether the text names a file in which an interface is kept, and not an exporter.
fn is_kept(of: &str) -> bool {
    Path::new(of).exists() || of.parse::<farcall::names::Name>().is_err()
}

/// Returns the interface of an exporter.
fn exported(of: &str) -> Outcome<Interface> {
    let described = dynamic::describe(&runtime()?, of);
    let described = described.map_err(|why| {
        Failure::from(why).about(format!("there is no file {of}, and asking the exporter {of} failed"))
    });
    Ok(described?.interface)
}

/// Returns the interfaces, at least one, in a file that `farcall describe --json` wrote.
fn read(path: &Path) -> Outcome<Vec<Described>> {
    let wrong = |why: String| {
        Failure::new(format!("{}: {why}", path.display()))
            .hint("`farcall describe NAME --json` prints such a file")
    };
    let text = whole::read(path, whole::MAX_FILE_BYTES).map_err(|why| wrong(why.to_string()))?;
    let mut all = Vec::new();
    for kept in serde_json::Deserializer::from_slice(&text).into_iter::<Value>() {
        let kept = kept.map_err(|why| wrong(why.to_string()))?;
        let model = kept["model"].as_str().ok_or_else(|| wrong("the file has no \"model\"".into()))?;
        let model = BASE64_STANDARD.decode(model).map_err(|why| wrong(why.to_string()))?;
        let interface = xdr::from_slice(&model).map_err(|why| wrong(why.to_string()))?;
        let number = |of: &str| kept[of]["number"].as_u64().and_then(|number| number.try_into().ok());
        let numbers =
            number("program").zip(number("version")).map(|(program, version)| Numbers { program, version });
        all.push(Described { interface, numbers });
    }
    if all.is_empty() {
        return Err(wrong("the file is empty".into()));
    }
    Ok(all)
}
