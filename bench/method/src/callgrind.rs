//! Counts user instructions by callgrind, where the processor's own counters are missing.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::agent::{self, Reply};
use crate::load::Load;
use crate::pair::Cell;
use crate::process::Process;

/// Returns the user instructions of the client and of the server for one call under `load`.
///
/// Each side runs under a valgrind of its own, twice: with the calls of `load`, and with three times as many.
/// The difference does not contain the start and the end, which both runs have. Two counts of one program
/// differ by up to 4 %, because its threads are scheduled differently.
///
/// # Errors
/// If valgrind is not installed, or a side fails in it.
pub fn count(program: &Path, name: &str, cell: &Cell, load: Load) -> Result<[f64; 2]> {
    let few = run(program, name, cell, load)?;
    let many = run(program, name, cell, load.of(3 * load.calls()))?;
    let calls = (2 * load.calls()) as f64;
    Ok([0, 1].map(|side| many[side].saturating_sub(few[side]) as f64 / calls))
}

/// Returns all user instructions of the client and of the server, from start to end.
fn run(program: &Path, name: &str, cell: &Cell, load: Load) -> Result<[u64; 2]> {
    let outputs = ["client", "server"].map(|side| output(name, side));
    let cores = cell.pin.cores();
    let start = |output: &Path, core, address: Option<&str>| {
        let tool =
            ["--tool=callgrind".into(), format!("--callgrind-out-file={}", output.display()), "-q".into()];
        let words = agent::arguments(name, &cell.setup, core, address);
        let program = program.display().to_string();
        let all: Vec<String> = tool.into_iter().chain([program]).chain(words).collect();
        let mut side = Process::<Reply>::start(Path::new("valgrind"), &all)?;
        match side.hear()? {
            Reply::Ready { address, .. } => Ok((side, address)),
            other => bail!("{name} is not ready, but says {other:?}"),
        }
    };
    let (server, address) = start(&outputs[1], cores.map(|cores| cores.1), None)?;
    let (mut client, _) = start(&outputs[0], cores.map(|cores| cores.0), Some(&address))?;
    client.order(&format!("time {load}"))?;
    client.end()?;
    server.end()?;
    let totals = outputs.map(|output| total(&output));
    let [client, server] = totals;
    Ok([client?, server?])
}

fn output(name: &str, side: &str) -> PathBuf {
    std::env::temp_dir().join(format!("callgrind-{}-{name}-{side}", std::process::id()))
}

/// Returns the total that callgrind has written, and removes its file.
fn total(output: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(output).with_context(|| format!("callgrind wrote no {}", output.display()))?;
    fs::remove_file(output)?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let total = line.and_then(|rest| rest.split_whitespace().next()).context("callgrind gave no summary")?;
    let total: u64 = total.parse()?;
    ensure!(total > 0, "callgrind counted nothing");
    Ok(total)
}
