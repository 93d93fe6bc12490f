//! `farcall completions`: what makes a shell complete this command.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Outcome;
use crate::output::Output;

/// Print what makes a shell complete this command
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
    pub fn run(&self, _: &Output) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "farcall", &mut script);
        Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
    }
}
