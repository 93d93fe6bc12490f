//! `farcall keys make`: makes the identity of this end.

use clap::Args;
use serde_json::json;

use super::{Directory, make_directory, make_identity};
use crate::failure::Outcome;
use crate::output::Output;

/// Make the identity of this end: a private key that nobody else can read
///
/// It never takes the place of another. Prints the public key, which other ends and authorities are given.
#[derive(Debug, Args)]
pub struct Make {
    #[command(flatten)]
    directory: Directory,
}

impl Make {
    pub fn run(&self, output: &Output) -> Outcome {
        let directory = self.directory.path()?;
        make_directory(&directory)?;
        let path = directory.join("identity");
        let public = make_identity(&path)?.public();
        output.line(
            || {
                json!({
                    "key": public.to_string(),
                    "fingerprint": public.fingerprint().to_string(),
                    "file": path.display().to_string(),
                })
            },
            || public.to_string(),
        )
    }
}
