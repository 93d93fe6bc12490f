//! Runs the programs that measure, one after the other, and shows how long that will still take.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcall_bench_method::paper::Item;
use indicatif::{ProgressBar, ProgressStyle};

use crate::papers::Paper;
use crate::rows::Rows;

/// A run of a program that measures.
pub struct Step {
    /// What it measures.
    pub what: &'static str,
    /// The package of the program, `farcall-bench` or `farcall-bench-…`.
    pub package: &'static str,
    /// The program's arguments, for quick runs too.
    pub arguments: fn(quick: bool) -> Vec<&'static str>,
    /// What it writes.
    pub gives: Gives,
    /// How many seconds it takes, and how many if it is quick: only the progress bar depends on it.
    pub seconds: [u64; 2],
}

/// What a program writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// Rows, with `--json`.
    Rows,
    /// Tables and figures, with `--tables`.
    Items,
}

/// What a step has found.
#[derive(Default)]
pub struct Found {
    pub rows: Rows,
    pub items: Vec<Item>,
}

/// How a step went.
pub struct Outcome {
    pub what: &'static str,
    /// How long it took.
    pub took: Duration,
    pub found: Result<Found>,
}

/// Runs steps.
pub struct Runner {
    quick: bool,
    programs: PathBuf,
    progress: ProgressBar,
}

impl Runner {
    /// Builds the programs, unless they are in this directory.
    ///
    /// # Errors
    /// When a program cannot be built.
    pub fn new(papers: &[&Paper], quick: bool, programs: Option<PathBuf>) -> Result<Runner> {
        let steps = || papers.iter().flat_map(|paper| paper.steps);
        let seconds = steps().map(|step| step.seconds[usize::from(quick)]).sum();
        let style = "{elapsed_precise} {wide_bar} {eta_precise} left, {msg}";
        let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let progress = ProgressBar::new(seconds).with_style(style);
        let programs = match programs {
            Some(programs) => programs,
            None => {
                progress.set_message("building what measures");
                progress.tick();
                build(steps())?
            }
        };
        progress.reset_elapsed();
        progress.reset_eta();
        Ok(Runner { quick, programs, progress })
    }

    /// Runs what a paper needs. Each step has its own outcome.
    pub fn run(&mut self, paper: &Paper) -> Vec<Outcome> {
        let steps = paper.steps.iter().map(|step| {
            self.progress.set_message(format!("{}: {}", paper.key, step.what));
            self.progress.tick();
            let began = Instant::now();
            let found = self.step(step).with_context(|| format!("{}, {}", paper.key, step.what));
            if let Err(why) = &found {
                self.progress.println(format!("failed: {why:#}"));
            }
            self.progress.inc(step.seconds[usize::from(self.quick)]);
            Outcome { what: step.what, took: began.elapsed(), found }
        });
        steps.collect()
    }

    /// Removes the progress bar.
    pub fn end(&self) {
        self.progress.finish_and_clear();
    }

    fn step(&self, step: &Step) -> Result<Found> {
        let directory = tempfile::tempdir().context("cannot make a directory for the results")?;
        let results = directory.path().join("results.json");
        let program = self.programs.join(step.package).with_extension(std::env::consts::EXE_EXTENSION);
        let mut command = Command::new(&program);
        let option = if step.gives == Gives::Rows { "--json" } else { "--tables" };
        command.args((step.arguments)(self.quick)).arg(option).arg(&results);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", output.status, said.lines().last().unwrap_or("it gave no reason"));
        }
        let text = std::fs::read_to_string(&results).context("it wrote no results")?;
        match step.gives {
            Gives::Rows => Ok(Found { rows: Rows::read(&text)?, ..Found::default() }),
            Gives::Items => Ok(Found { items: serde_json::from_str(&text)?, ..Found::default() }),
        }
    }
}

/// Builds the programs of these steps, and returns the directory in which they are.
fn build<'a>(steps: impl Iterator<Item = &'a Step>) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let target = own.ancestors().nth(2).context("this program lies in no target directory")?;
    let mut packages: Vec<&str> = steps.map(|step| step.package).collect();
    packages.sort_unstable();
    packages.dedup();
    for package in packages {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--release", "--package", package, "--manifest-path"]);
        cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"));
        let status = cargo.arg("--target-dir").arg(target).stdin(Stdio::null()).status();
        if !status.with_context(|| format!("cannot build {package}"))?.success() {
            bail!("{package} does not build");
        }
    }
    Ok(target.join("release"))
}
