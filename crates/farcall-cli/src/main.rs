//! The `farcall` command: reads the command line, runs one subcommand, turns its outcome into an exit code.

#![deny(unsafe_code)]
// `output.rs` prints, and nothing else: `println!` panics where nobody reads.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod balancing;
#[cfg(target_os = "linux")]
mod closed_output;
mod commands;
mod conversing;
mod courier;
mod demo;
mod failure;
mod onc;
mod output;
mod remote;
mod rpc2;
mod text;
mod transfer;
mod whole;
mod x_file;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(answer) => return arguments::answer(&answer),
    };
    let output = Output::new(arguments.json);
    output::warn_of_misspelt_variables(arguments.json);
    match arguments.command.run(&output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::report(&failure, arguments.json),
    }
}
