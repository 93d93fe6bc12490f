//! The memory that a server may hold by its own account (docs/protocol.md, section 10), and the memory that
//! the system reports.
use std::time::Duration;

use anyhow::{Context, Result};
use farcall_proto::ServerConfig;

const MIB: usize = 1 << 20;

/// Returns the bounds that hostile clients try to reach, in bytes: those of docs/protocol.md, section 10, of
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

/// Returns the sum of the bounds.
pub fn total() -> usize {
    parts().iter().map(|(_, bytes)| bytes).sum()
}

/// Returns each bound with its name.
pub fn words() -> String {
    let words = parts().map(|(name, bytes)| format!("{name} {}", bytes / MIB));
    words.join(", ")
}

/// Returns the most memory that a process has had, in bytes.
pub fn peak(process: u32) -> Result<usize> {
    let kibibytes =
        status(process, "VmHWM:").context("the system does not say how much memory the server has")?;
    Ok(kibibytes as usize * 1024)
}

/// Returns how many threads the process has, or 0 if that is unknown.
pub fn threads(process: u32) -> u64 {
    status(process, "Threads:").unwrap_or(0)
}

fn status(process: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// Returns the processor time that the process has used, in steps of 10 ms, if it is known.
pub fn processor(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
