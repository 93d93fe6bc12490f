//! What a server may hold by its own account (docs/protocol.md, section 10), and what the system says that it
//! holds.
use std::time::Duration;

use anyhow::{Context, Result};
use farcall_proto::ServerConfig;

const MIB: usize = 1 << 20;

/// The bounds that hostile clients are to reach, in bytes: docs/protocol.md, section 10,
/// docs/memory-protocol.md, section 5, and the defaults of a runtime.
fn parts() -> [(&'static str, usize); 8] {
    let config = ServerConfig::default();
    let conversations = config.max_conversations * 64;
    [
        ("conversations", conversations),
        ("their activities", 4 * config.max_conversations * 16),
        ("arguments arriving", config.reassembly_budget),
        ("results held", config.held_budget),
        ("results being sent", config.sending_budget),
        ("results of accesses", 2 * config.held_budget),
        ("accesses that wait", 2 * 64 * MIB),
        ("calls that wait", 64 * MIB),
    ]
}

/// All of them.
pub fn total() -> usize {
    parts().iter().map(|(_, bytes)| bytes).sum()
}

/// Each.
pub fn words() -> String {
    let words = parts().map(|(name, bytes)| format!("{name} {}", bytes / MIB));
    words.join(", ")
}

/// The most memory that a process has had, in bytes.
pub fn peak(process: u32) -> Result<usize> {
    let kibibytes =
        status(process, "VmHWM:").context("the system does not say how much memory the server has")?;
    Ok(kibibytes as usize * 1024)
}

/// How many threads it has; 0 if it is not known.
pub fn threads(process: u32) -> u64 {
    status(process, "Threads:").unwrap_or(0)
}

fn status(process: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// The processor time that it has used, in steps of 10 ms; nothing if it is not known.
pub fn processor(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may have spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
