//! `farcall keys make`: makes the identity of this end.

use std::fs::DirBuilder;

use clap::Args;
use serde_json::json;

use super::{Directory, make_identity};
use crate::failure::{Failure, Outcome};
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
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory).map_err(|why| Failure::new(why.to_string()).about(directory.display()))?;
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
