//! `farcall ls`: lists the entries of a served directory.

use clap::Args;
use farcall_file_access::{Attributes, FileKind};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::From;
use crate::text::timestamp;

/// List a directory of a file server
///
/// Prints a line for each entry: its kind (- file, d directory, l symbolic link), its size in bytes, the time
/// of its last change, and its name.
#[derive(Debug, Args)]
pub struct Ls {
    /// The path of the directory at the server
    #[arg(default_value = "")]
    path: String,

    #[command(flatten)]
    from: From,
}

impl Ls {
    pub fn run(&self, output: &Output) -> Outcome {
        let files = self.from.files()?;
        for entry in farcall_file_access::entries(&files, &self.path) {
            let entry = entry.map_err(|why| Failure::from(why).about(&self.path))?;
            output
                .line(|| describe(&entry.name, &entry.attributes), || line(&entry.name, &entry.attributes))?;
        }
        Ok(())
    }
}

fn describe(name: &str, attributes: &Attributes) -> Value {
    json!({
        "name": name,
        "kind": format!("{:?}", attributes.kind).to_lowercase(),
        "size": attributes.size,
        "modified": timestamp(attributes.modified),
    })
}

fn line(name: &str, attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
        _ => '?',
    };
    format!("{kind} {:>12} {} {name}", attributes.size, timestamp(attributes.modified))
}
