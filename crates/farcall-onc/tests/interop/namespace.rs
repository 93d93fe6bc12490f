//! A network of a test's own, in which port 111 is free and nobody else listens.

use std::env;
use std::process::Command;

/// Set where a test runs in a network of its own.
const INSIDE: &str = "FARCALL_ONC_NAMESPACE";

/// Runs this test again in a network of its own, and shows what it printed. True: this is that run.
pub fn enter(test: &str) -> Result<bool, String> {
    if env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    // Its own /run too: programs find the port mapper there.
    let script = "ip link set lo up && mount -t tmpfs none /run && exec \"$0\" \"$@\"";
    let itself = env::current_exe().map_err(|why| why.to_string())?;
    let probe = Command::new("unshare").args(["-n", "-m", "sh", "-c", script, "true"]).output();
    let probe = probe.map_err(|why| format!("no network of its own: {why}"))?;
    if !probe.status.success() {
        return Err(format!("no network of its own: {}", String::from_utf8_lossy(&probe.stderr).trim()));
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["-n", "-m", "sh", "-c", script]).arg(itself).args(["--exact", test, "--nocapture"]);
    let output = unshare.env(INSIDE, "1").output().map_err(|why| why.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter(|line| line.contains("interop: ")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(false)
}
