//! Bare calls and firings, their user instructions counted by callgrind.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::measure::Kind;
use crate::ways::{Carry, Server, Way};

/// How many calls or firings are made in the first of two runs. The second makes three times as many, and the
/// difference has neither their start nor their end.
const FEW: u32 = 4000;

/// Returns the user instructions of the calling process for one call or firing.
pub fn count(way: Way, (kind, carry): (Kind, Carry), server: &Server) -> Result<f64> {
    let (few, many) = (run(way, (kind, carry), FEW, server)?, run(way, (kind, carry), 3 * FEW, server)?);
    Ok(many.saturating_sub(few) as f64 / f64::from(2 * FEW))
}

/// Returns all user instructions of a process that makes so many.
fn run(way: Way, (kind, carry): (Kind, Carry), calls: u32, server: &Server) -> Result<u64> {
    let output = std::env::temp_dir().join(format!("callgrind-olympus-{}", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "-q"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe()?)
        .args(["once", &way.word(), &kind.word(), &carry.word(), &calls.to_string(), &server.line()])
        .stdin(Stdio::null())
        .status()
        .context("valgrind cannot be run")?;
    ensure!(status.success(), "{} failed under valgrind", way.name());
    let text = fs::read_to_string(&output)?;
    fs::remove_file(&output)?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let total = line.and_then(|rest| rest.split_whitespace().next()).context("callgrind gave no summary")?;
    Ok(total.parse()?)
}
