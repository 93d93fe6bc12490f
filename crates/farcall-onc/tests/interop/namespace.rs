//! Runs a test in a network namespace of its own, in which port 111 is free and no other program listens.

use std::env;
use std::io::Write;
use std::process::Command;

/// Set in the process that runs a test in a network namespace of its own.
const INSIDE: &str = "FARCALL_ONC_NAMESPACE";

/// Runs this test again in a network namespace of its own, and prints its output. Returns true if this is
/// that second run.
pub fn enter(test: &str) -> Result<bool, String> {
    if env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    // The test gets a `/run` of its own too, because programs find the port mapper there.
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
    let (said, skipped) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in skipped.lines().filter(|line| line.starts_with("skipped: ")) {
        // Not `eprintln`, whose output is shown only for failing tests.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    said.lines().filter(|line| line.contains("interop: ")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(false)
}
