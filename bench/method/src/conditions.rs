//! The conditions of a measurement: machine, kernel, compiler, versions.
use std::path::Path;
use std::process::Command;

use crate::counters;
use crate::process;

/// Returns the conditions of this run, one per line. `versions` are those of the measured programs.
pub fn conditions(versions: &[String]) -> Vec<String> {
    let mut lines = conditions_on("loopback", versions);
    lines.extend(counters::missing());
    lines
}

/// Returns the conditions of a run on this network that counts nothing, one per line.
pub fn conditions_on(network: &str, versions: &[String]) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = vec![
        format!("{}, {cores} cores; {}; {network}", processor(), kernel()),
        format!("{}, profile {}: {}", env!("BENCH_RUSTC"), env!("BENCH_PROFILE"), optimised()),
    ];
    if let Some(bytes) = process::socket_buffer() {
        lines.push(format!("farcall's sockets ask for buffers of {bytes} bytes"));
    }
    let mut versions = versions.to_vec();
    versions.extend(commit());
    if !versions.is_empty() {
        lines.push(versions.join(", "));
    }
    lines
}

/// Returns how this program was linked: as the workspace says, unless the build's environment said otherwise.
fn optimised() -> String {
    if env!("BENCH_PROFILE") != "release" {
        return "as bench/Cargo.toml says of it".into();
    }
    let lto = option_env!("CARGO_PROFILE_RELEASE_LTO").unwrap_or("fat");
    let units = option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").unwrap_or("1");
    format!("LTO {lto}, codegen units {units}")
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {}", std::env::consts::OS, release.trim()).trim_end().to_owned()
}

/// Returns the commit that this was built from, if its source is still there.
fn commit() -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(source).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(text)
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    Some(format!("commit {commit}{}", if changed { " with changes" } else { "" }))
}
