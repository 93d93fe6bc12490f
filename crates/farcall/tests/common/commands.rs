//! Runs programs of the system.

use std::process::Command;

/// Returns a program's output if it succeeds, and otherwise its complaint.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}
