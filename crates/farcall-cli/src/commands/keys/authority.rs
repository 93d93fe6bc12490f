//! `farcall keys authority`: makes an authority.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;

use super::make_identity;
use crate::failure::Outcome;
use crate::output::Output;

/// Make an authority: a private key that signs grants, in a file that nobody else can read
///
/// Prints its public key. Ends that have it in their file `authorities` believe its grants.
#[derive(Debug, Args)]
pub struct Authority {
    /// The new file; an existing one is never overwritten
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

impl Authority {
    pub fn run(&self, output: &Output) -> Outcome {
        let public = make_identity(&self.file)?.public();
        output.line(
            || {
                json!({
                    "authority": public.to_string(),
                    "fingerprint": public.fingerprint().to_string(),
                    "file": self.file.display().to_string(),
                })
            },
            || public.to_string(),
        )
    }
}
