//! Two network namespaces with a cable between them.
//!
//! The namespaces have no names: they are those of two processes, and vanish with them, however this program
//! ends. The cable vanishes with the namespaces.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{Answer, Process};

/// The server's address in its namespace.
pub const SERVER: &str = "10.83.0.1";
/// The client's address in its namespace.
pub const CLIENT: &str = "10.83.0.2";

/// How long each end's cable may queue what is sent, in bytes: more than a socket's send buffer. So a sender
/// waits for the cable, and the cable loses nothing.
const QUEUE_BYTES: &str = "16mb";

/// Starts `program` in a network namespace of its own.
///
/// # Errors
/// This process may not make a namespace, or the program does not start.
pub fn start<A: Answer>(program: &Path, words: &[String]) -> Result<Process<A>> {
    let probe = Command::new("unshare").args(["--net", "true"]).output().context("unshare does not run")?;
    let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
    ensure!(probe.status.success(), "a network namespace needs root: {why}");
    let mut all = vec!["--net".to_owned(), "--".to_owned(), program.display().to_string()];
    all.extend_from_slice(words);
    Process::start("unshare".as_ref(), &all)
}

/// Lays a cable between the namespaces of two processes, the server's and the client's. It carries what the
/// kernel can, or this rate (as `tc` writes it: `3mbit`) each way.
///
/// # Errors
/// `nsenter`, `ip` or `tc` is missing or fails.
pub fn connect((server, client): (u32, u32), rate: Option<&str>) -> Result<()> {
    inside(server, &format!("ip link add far type veth peer name far netns {client}"))?;
    for (end, address) in [(server, SERVER), (client, CLIENT)] {
        inside(end, &format!("ip address add {address}/24 dev far"))?;
        inside(end, "ip link set lo up")?;
        inside(end, "ip link set far up")?;
        // The burst is one packet, as on a wire that has no memory.
        if let Some(rate) = rate {
            let shape = format!("tbf rate {rate} burst 1600 limit {QUEUE_BYTES}");
            inside(end, &format!("tc qdisc add dev far root {shape}"))?;
        }
    }
    Ok(())
}

/// Runs a command in the network namespace of a process.
fn inside(process: u32, command: &str) -> Result<()> {
    let mut words = vec!["--net".to_owned(), format!("--target={process}"), "--".to_owned()];
    words.extend(command.split(' ').map(str::to_owned));
    let output = Command::new("nsenter").args(words).output().context("nsenter does not run")?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
