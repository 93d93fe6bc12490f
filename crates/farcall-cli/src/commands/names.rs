//! `farcall names`: lists the exports in this user's registry.

use std::io::{IsTerminal, stdout};

use clap::Args;
use farcall::names::Entry;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::runtime;

/// List the names that processes of this user export
#[derive(Debug, Args)]
pub struct Names {
    /// List only the names of this type
    #[arg(value_name = "TYPE")]
    type_name: Option<String>,
}

impl Names {
    pub fn run(&self, output: &Output) -> Outcome {
        let runtime = runtime()?;
        let entries = match &self.type_name {
            None => runtime.registry().list()?.entries,
            Some(name) => {
                let name =
                    name.parse().map_err(|why: farcall::names::NameError| Failure::usage(why.to_string()))?;
                runtime.registry().instances(&name)?
            }
        };
        if entries.is_empty() && !output.is_json() && stdout().is_terminal() {
            eprintln!("nobody exports {}", self.type_name.as_deref().unwrap_or("anything"));
        }
        let width = entries.iter().map(|entry| entry.name().len()).max().unwrap_or(0);
        for entry in &entries {
            let (name, address, owner) = (entry.name(), entry.address, entry.owner);
            output.line(|| describe(entry), || format!("{name:width$}  {address}  {owner}"))?;
        }
        Ok(())
    }
}

fn describe(entry: &Entry) -> Value {
    json!({
        "name": entry.name(),
        "type": entry.type_name.as_str(),
        "instance": entry.instance.as_str(),
        "address": entry.address.to_string(),
        "url": format!("{}/{}", entry.address, entry.name()),
        "export": format!("{:016x}", entry.export),
        "procedures": entry.fingerprints.len(),
        "owner": entry.owner.to_string(),
    })
}
