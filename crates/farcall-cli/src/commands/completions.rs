//! `farcall completions`: prints scripts that make a shell complete this command.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output::say_bytes;

/// Print a completion script for a shell
///
/// bash: `farcall completions bash > ~/.local/share/bash-completion/completions/farcall`
///
/// zsh: `farcall completions zsh > DIRECTORY/_farcall`, a directory of $fpath; then `compinit`
///
/// fish: `farcall completions fish > ~/.config/fish/completions/farcall.fish`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script for a command line.
    pub fn run(&self, mut command_line: Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command_line, "farcall", &mut script);
        say_bytes(&script)
    }
}
