//! Runs a bench again in a network namespace of its own, in which all ports and addresses are free.
use anyhow::Result;
#[cfg(unix)]
use {
    anyhow::{Context, ensure},
    std::{path::Path, process::Command},
};

/// Runs this program again with `--inside`, with its own network and mounts. `prepare` is a shell command
/// that runs there first. Returns only if this fails.
#[cfg(unix)]
pub fn enter(prepare: &str) -> anyhow::Error {
    use std::os::unix::process::CommandExt;
    let ran = || -> Result<std::convert::Infallible> {
        let probe = unshare(prepare, "true".as_ref()).output().context("unshare does not run")?;
        ensure!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr).trim());
        let itself = std::env::current_exe()?;
        Err(unshare(prepare, &itself).args(std::env::args_os().skip(1)).arg("--inside").exec().into())
    };
    match ran() {
        Err(why) => why,
    }
}

#[cfg(unix)]
fn unshare(prepare: &str, program: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["-n", "-m", "sh", "-c", &format!("{prepare} && exec \"$0\" \"$@\"")]).arg(program);
    unshare
}

#[cfg(not(unix))]
pub fn enter(_: &str) -> anyhow::Error {
    anyhow::anyhow!("this system has none")
}
