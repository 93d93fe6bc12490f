//! Counts the user instructions of one part by callgrind.
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// How often the part is executed, after once that is not counted: some libraries do something then.
const TIMES: usize = 20;

/// The command line of the process in which a part is counted. The bench writes it; it is not for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Count {
    /// The bench that has the part.
    pub bench: String,
    /// The part's name.
    pub part: String,
    /// What is counted of it.
    pub what: String,
    /// How often.
    pub times: usize,
}

/// Returns the user instructions of one execution of a part: of what it executes by [`counted_region`]. Returns
/// `None` if there is no valgrind, or the part cannot run under it.
pub fn count(bench: &str, part: &str, what: &str) -> Result<Option<f64>> {
    let output = std::env::temp_dir().join(format!("callgrind-{}-{bench}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "-q", "--collect-atstart=no", "--toggle-collect=*counted_region*"]);
    valgrind.arg(format!("--callgrind-out-file={}", output.display())).arg(std::env::current_exe()?);
    let Ok(ran) = valgrind.args(["count", bench, part, what, &TIMES.to_string()]).status() else {
        return Ok(None);
    };
    ensure!(ran.success(), "{part} failed under valgrind");
    let text = std::fs::read_to_string(&output)?;
    std::fs::remove_file(&output)?;
    let total = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let total: f64 = total.and_then(|rest| rest.split_whitespace().next()).context("no summary")?.parse()?;
    Ok((total > 0.0).then(|| (total / TIMES as f64).round()))
}

/// Executes `work`, which callgrind counts.
#[inline(never)]
pub fn counted_region(work: &mut dyn FnMut()) {
    work();
    // Otherwise this function could end before `work` does.
    std::hint::black_box(());
}
