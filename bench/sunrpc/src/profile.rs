//! Where the processor time of client and server goes, by `perf`.
//!
//! As gprof did for the paper, the time that the kernel spends in a system call counts for the system call.
//! What a Rust compiler has inlined is found again by the debugging information.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use addr2line::Loader;
use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::ends::Ends;
use crate::parts::{Function, Part, innermost, of_system_call, of_user_function};
use crate::side::Run;
use crate::ways::{Size, Way};

/// How many samples are taken in a second of processor time.
const FREQUENCY: &str = "1999";

/// A side needs at least so many samples.
const MIN_SAMPLES: u32 = 100;

/// Where the processor time of calls goes.
#[derive(Clone, Debug)]
pub struct Profile {
    pub client: Shares,
    pub server: Shares,
    /// The calls during which it was measured.
    pub run: Run,
}

/// Where the processor time of one side goes.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The microseconds of processor time for each call.
    pub micros: f64,
    /// Each function's share of that.
    pub functions: Vec<(Function, f64)>,
}

impl Shares {
    /// Returns the share of a part.
    pub fn of(&self, part: Part) -> f64 {
        let here = self.functions.iter().filter(|(function, _)| function.part == part);
        here.fold(0.0, |sum, (_, share)| sum + share)
    }
}

/// Profiles calls by one way for so many seconds.
///
/// # Errors
/// `perf` is missing, or may not do it.
pub fn profile(ends: &mut Ends, way: Way, seconds: u32) -> Result<Profile> {
    // A first run connects, and starts whatever threads there will be.
    ends.run(way, Size::None, 1_000)?;
    let directory = tempfile::tempdir().context("cannot make a directory for samples")?;
    let file = directory.path().join("perf.data");
    let ids = [ends.client.id(), ends.server.id()];
    let milliseconds = u64::from(seconds) * 1_000 + 1_000;
    let before = ends.spent()?;
    let (run, ()) = ends.run_while(way, milliseconds, |_| record(ids, &file, seconds))?;
    let server = ends.spent()? - before;
    let [client_counts, server_counts] = read(&file, ids)?;
    let micros = |seconds: f64| seconds * 1e6 / f64::from(run.calls);
    Ok(Profile {
        client: shares(micros(run.processor), client_counts)?,
        server: shares(micros(server), server_counts)?,
        run,
    })
}

fn record([client, server]: [u32; 2], file: &Path, seconds: u32) -> Result<()> {
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "-g", "--freq", FREQUENCY, "--no-buildid", "--no-buildid-cache"]);
    perf.arg("--output").arg(file).args(["--pid", &format!("{client},{server}")]);
    perf.args(["--", "sleep", &seconds.to_string()]).stdin(Stdio::null());
    let output = perf.output().context("perf does not run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("perf gave no reason");
    ensure!(output.status.success(), "perf: {}", why.trim());
    Ok(())
}

/// How many samples each function has.
type Counts = HashMap<Function, u32>;

/// Counts the samples of two processes.
fn read(file: &Path, ids: [u32; 2]) -> Result<[Counts; 2]> {
    let itself = std::env::current_exe()?;
    let mut own = Own {
        path: itself.display().to_string(),
        loader: Loader::new(&itself).map_err(|why| anyhow!("{}: {why}", itself.display()))?,
        known: HashMap::new(),
    };
    let biases = [bias(ids[0], &own.path)?, bias(ids[1], &own.path)?];
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "-F", "pid,ip,sym,dso", "-i"]).arg(file);
    let mut perf = perf.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (mut counts, mut kernel) = ([Counts::new(), Counts::new()], false);
    let (mut side, mut chain): (Option<usize>, Vec<String>) = (None, Vec::new());
    let lines = BufReader::new(perf.stdout.take().context("no pipe")?).lines();
    // A sample is a line with the process, a line for each frame from the innermost on, and an empty line.
    for line in lines.chain([Ok(String::new())]) {
        let line = line?;
        if line.starts_with(char::is_whitespace) && line.contains('(') {
            chain.push(line);
        } else if let Ok(process) = line.trim().parse::<u32>() {
            side = ids.iter().position(|id| *id == process);
        } else if line.trim().is_empty()
            && let Some(side) = side.take()
        {
            kernel |= chain.first().and_then(|line| Frame::read(line)).is_some_and(|frame| frame.is_kernel());
            *counts[side].entry(own.function(&chain, biases[side])).or_default() += 1;
            chain.clear();
        } else {
            chain.clear();
        }
    }
    ensure!(perf.wait()?.success(), "perf cannot read its own samples");
    // Its shares would be those of the user's code alone.
    ensure!(kernel, "perf may not sample the kernel (kernel.perf_event_paranoid), which takes root");
    Ok(counts)
}

fn shares(micros: f64, counts: Counts) -> Result<Shares> {
    let all: u32 = counts.values().sum();
    ensure!(all >= MIN_SAMPLES, "perf took only {all} samples");
    let share = |(function, count)| (function, f64::from(count) / f64::from(all));
    let mut functions: Vec<(Function, f64)> = counts.into_iter().map(share).collect();
    functions.sort_by(|(one, a), (other, b)| b.total_cmp(a).then_with(|| one.cmp(other)));
    Ok(Shares { micros, functions })
}

/// Returns at which address a process has its program.
fn bias(process: u32, program: &str) -> Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    // "55d0c8000000-55d0c8100000 r--p 00000000 fe:00 1234  /path"
    for line in maps.lines().filter(|line| line.ends_with(program)) {
        let mut words = line.split_whitespace();
        let (range, offset) = (words.next(), words.nth(1));
        if let (Some(range), Some("00000000")) = (range, offset) {
            let first = range.split('-').next().unwrap_or_default();
            return u64::from_str_radix(first, 16).context("the process's map is none");
        }
    }
    bail!("process {process} is not this program")
}

/// This program's own functions.
struct Own {
    path: String,
    loader: Loader,
    known: HashMap<u64, Vec<String>>,
}

impl Own {
    /// Returns the function that was executed. The chain has the innermost frame first.
    fn function(&mut self, chain: &[String], bias: u64) -> Function {
        let frames: Vec<Frame<'_>> = chain.iter().filter_map(|line| Frame::read(line)).collect();
        let user = frames.iter().find(|frame| !frame.is_kernel());
        if frames.first().is_some_and(Frame::is_kernel) {
            let mut symbols = frames.iter().take_while(|frame| frame.is_kernel()).map(|frame| frame.symbol);
            let call = symbols.find_map(|symbol| {
                symbol.strip_prefix("__x64_sys_").or_else(|| symbol.strip_prefix("__arm64_sys_"))
            });
            if let Some(call) = call {
                return of_system_call(call);
            }
            // The way into the kernel and out of it counts for the function that has called it, if that is
            // one of the C library's.
            return match user {
                Some(user) if user.object.contains("libc") => of_user_function(&[user.symbol.to_owned()]),
                _ => of_system_call("entry and interrupts"),
            };
        }
        let Some(user) = user else { return of_user_function(&[]) };
        if user.object != self.path {
            return of_user_function(&[user.symbol.to_owned()]);
        }
        let address = user.address.wrapping_sub(bias);
        let loader = &self.loader;
        of_user_function(self.known.entry(address).or_insert_with(|| inlined(loader, address, user.symbol)))
    }
}

/// Returns the functions at an address, the innermost first: those that were inlined there, and the one that
/// they were inlined into.
fn inlined(loader: &Loader, address: u64, symbol: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name =
                frame.function.and_then(|function| function.demangle().ok().map(|name| name.into_owned()));
            names.extend(name);
        }
    }
    if names.is_empty() {
        names.push(symbol.to_owned());
    }
    innermost(names)
}

/// A line of a chain: `    7f12ab  symbol (object)`.
struct Frame<'a> {
    address: u64,
    symbol: &'a str,
    object: &'a str,
}

impl Frame<'_> {
    fn read(line: &str) -> Option<Frame<'_>> {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, object) = rest.rsplit_once(" (")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some(Frame { address, symbol: symbol.trim(), object: object.trim_end_matches(')') })
    }

    fn is_kernel(&self) -> bool {
        self.object.starts_with('[') && self.object != "[vdso]" && self.object != "[unknown]"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read() {
        let line = "\t    7f1d2 <a::B as c::D>::call (/a/b)";
        let frame = Frame::read(line).unwrap();
        assert_eq!((frame.address, frame.symbol, frame.object), (0x7f1d2, "<a::B as c::D>::call", "/a/b"));
        assert!(Frame::read("\tffff udp_sendmsg ([kernel.kallsyms])").unwrap().is_kernel());
        assert!(!Frame::read("\t7f clock_gettime ([vdso])").unwrap().is_kernel());
        assert!(Frame::read("").is_none());
    }
}
