//! `farcall gen`: Rust made of an `.x` file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use farcall_idl::x::{Config, to_rust, tree::Specification};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::{Output, printable};
use crate::x_file::{Reading, as_json};

/// Make Rust of an .x file (ONC RPC): its constants, its types, and an interface for each version of its programs
///
/// It is what `farcall::include_x!` makes where it is used, for people to read or to keep. docs/x-names.md says what is called what.
#[derive(Debug, Args)]
pub struct Gen {
    /// The file
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Write it here instead of on standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Which Rust type stands for one that the file takes from elsewhere
    #[arg(long = "extern", value_name = "NAME=PATH", value_parser = pair)]
    externs: Vec<(String, String)>,
    /// Where farcall is, seen from what is made
    #[arg(long, value_name = "PATH", default_value = "::farcall")]
    farcall: String,
    /// Make what servers of `async fn`s need, too
    #[arg(long = "async")]
    asynchronous: bool,
}

impl Gen {
    pub fn run(&self, output: &Output) -> Outcome {
        let tree = self.reading.read(&self.file, output)?;
        let rust = self.rust(&tree)?;
        if let Some(path) = &self.output {
            std::fs::write(path, &rust).map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
        }
        let left_out: Vec<_> = tree.warnings.iter().map(as_json).collect();
        let written = self.output.as_ref().map(|path| path.display().to_string());
        match (&written, output.is_json()) {
            (None, false) => output.line(Default::default, || rust.trim_end().to_owned()),
            (Some(_), false) => Ok(()),
            (None, true) => output.line(|| json!({ "rust": rust, "left_out": left_out }), String::new),
            (Some(path), true) => output.line(|| json!({ "written": path, "left_out": left_out }), String::new),
        }
    }

    fn rust(&self, tree: &Specification) -> Outcome<String> {
        let config = Config::new().farcall(&self.farcall);
        let config = if self.asynchronous { config.asynchronous() } else { config };
        let config = self.externs.iter().fold(config, |config, (name, path)| config.extern_type(name, path));
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        let rust = to_rust(tree, &config).map_err(|why| Failure::new(why.to_string()).about(self.file.display()))?;
        // A name may have any characters but those that would end the comment.
        let name = printable(&Path::new(name).display().to_string()).replace(['\n', '\r'], " ");
        Ok(format!("// Made of {name} by `farcall gen`; what is changed here is lost when it is made again.\n\n{rust}"))
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, path) = text.split_once('=').ok_or("NAME=PATH is wanted, as in `sockaddr=crate::Sockaddr`")?;
    Ok((name.to_owned(), path.to_owned()))
}
