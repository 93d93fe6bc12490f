//! Runs a server that graphs call: `farcall-workers builder|tester|cleaner [INSTANCE]`. It says when it is
//! ready, and ends when its standard input ends.

use std::io::{Read, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use farcall_workers::build::{Builder, Machine, OneLiner, Tester};
use farcall_workers::texts::{Cleaner, Words};

const USAGE: &str = "farcall-workers builder|tester|hanging-tester|cleaner [INSTANCE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (role, instance) = match arguments.as_slice() {
        [role] => (role.as_str(), "any"),
        [role, instance] => (role.as_str(), instance.as_str()),
        _ => return failed(USAGE),
    };
    match serve(role, instance) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn serve(role: &str, instance: &str) -> Result<(), String> {
    let name = |kind: &str| format!("{kind}/{instance}");
    let tester = |hangs| Arc::new(Machine { name: instance.to_owned(), hangs });
    let export = match role {
        "builder" => farcall::export::<dyn Builder>(&name("Builder"), Arc::new(OneLiner)),
        "tester" => farcall::export::<dyn Tester>(&name("Tester"), tester(false)),
        "hanging-tester" => farcall::export::<dyn Tester>(&name("Tester"), tester(true)),
        "cleaner" => farcall::export::<dyn Cleaner>(&name("Cleaner"), Arc::new(Words)),
        _ => return Err(USAGE.to_owned()),
    };
    let export = export.map_err(|why| why.to_string())?;
    writeln!(std::io::stdout(), "serving {}", export.name())
        .map_err(|why| format!("standard output: {why}"))?;
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(|why| why.to_string())?;
    Ok(())
}

fn failed(why: &str) -> ExitCode {
    // Where nothing can be written, the exit code says it.
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::FAILURE
}
