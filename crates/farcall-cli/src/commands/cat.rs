//! `farcall cat`: prints the contents of served files.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::{Output, say_bytes, say_json};
use crate::remote::{From, Stream};

/// Print files of a file server
///
/// With --json, print a line for each part of a file, in order, with its bytes in base64.
#[derive(Debug, Args)]
pub struct Cat {
    /// The paths of the files at the server
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,

    #[command(flatten)]
    from: From,
}

impl Cat {
    pub fn run(&self, output: &Output) -> Outcome {
        let files = self.from.files()?;
        for path in &self.paths {
            let mut offset = 0;
            for part in Stream::new(&files, path, 0) {
                let part = part.map_err(|why| Failure::from(why).about(path))?;
                match output.is_json() {
                    true => say_json(
                        &json!({ "path": path, "offset": offset, "base64": BASE64_STANDARD.encode(&part) }),
                    )?,
                    false => say_bytes(&part)?,
                }
                offset += part.len() as u64;
            }
        }
        Ok(())
    }
}
