//! Builds the programs of the peers when a run needs them, with the profile of this program.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use farcall_bench_method::Cannot;

/// Builds the program of package `farcall-bench-NAME` of this workspace, with the profile of this program.
pub fn package(name: &str) -> Result<PathBuf> {
    let (package, directory) = (format!("farcall-bench-{name}"), profile()?);
    // The directory of profile `dev` has another name.
    let profile = if directory == "debug" { "dev" } else { &directory };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--profile", profile, "--package", &package, "--manifest-path"]);
    cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    run(cargo.arg("--target-dir").arg(target()?))?;
    Ok(target()?.join(&directory).join(package).with_extension(std::env::consts::EXE_EXTENSION))
}

/// Returns the directory in which cargo has put this program, and puts all others.
fn target() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    own.ancestors().nth(2).map(Path::to_owned).context("this program lies in no target directory")
}

/// Returns the name of the directory of the profile with which this program was built.
fn profile() -> Result<String> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let name = own.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.map(str::to_owned).context("this program lies in no target directory")
}

/// Builds the program of Go's peers, if Go is installed and has their modules or can get them.
pub fn go() -> Result<PathBuf> {
    let program = target()?.join(profile()?).join("farcall-bench-go");
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"));
    run(go.args(["build", "-o"]).arg(&program))?;
    Ok(program)
}

/// Runs a build command. Its output goes to standard error, because standard output may be JSON.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|why| Cannot(format!("{} does not run: {why}", command.get_program().display())))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason given");
    Err(Cannot(format!("it does not build: {last}")).into())
}
