//! Subcommands that this build lacks: they say which feature has them.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Failure, Outcome};

/// The arguments of a subcommand that this build lacks.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Lacking {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

impl Lacking {
    /// Says that the subcommand `name` needs a feature.
    pub fn refuse(&self, name: &str, feature: &str) -> Outcome {
        let why =
            format!("this build of the command has no `farcall {name}`: it lacks the feature `{feature}`");
        let hint = format!("cargo build -p farcall-cli --features {feature}");
        Err(Failure::new(why).hint(hint))
    }
}
