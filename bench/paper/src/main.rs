//! Five papers about remote calls, measured again: their tables and figures beside the new ones, as one page
//! and one JSON file.
//!
//! ```text
//! papers  the papers, a file for each: what is run for it, and what its tables are made of
//! run     runs the programs that measure      rows  finds figures in what they have written
//! page    the report as HTML                  plot  its pictures
//! ```

mod page;
mod papers;
mod plot;
mod rows;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::paper::Item;
use serde::{Deserialize, Serialize};

use papers::{PAPERS, Paper};
use run::{Found, Outcome};

/// Measures the tables and figures of five papers again, and writes a report: index.html and papers.json.
#[derive(Parser)]
#[command(version)]
struct Command {
    /// The papers to measure. [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<papers::Name>,
    /// Few and short blocks: a first impression in some ten minutes, with wide intervals.
    #[arg(long)]
    quick: bool,
    /// The directory of the report.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/papers")]
    out: PathBuf,
    /// The directory with the programs that measure, if they are built already. [default: they are built]
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// Measure nothing, but draw the page of this papers.json again.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "quick", "programs"])]
    from: Option<PathBuf>,
}

/// All that was measured.
#[derive(Serialize)]
pub struct Report {
    /// Whether blocks were few and short.
    quick: bool,
    /// How long all that was measured took, without building.
    minutes: u64,
    conditions: Vec<String>,
    papers: Vec<Chapter>,
}

/// A paper with what was measured.
#[derive(Serialize)]
pub struct Chapter {
    #[serde(flatten)]
    paper: &'static Paper,
    items: Vec<Item>,
    /// Which programs failed, and why.
    failures: Vec<String>,
    steps: Vec<Took>,
}

/// How long a step took, in seconds.
#[derive(Serialize, Deserialize)]
struct Took {
    what: String,
    seconds: u64,
}

/// A report as it was written.
#[derive(Deserialize)]
struct Written {
    quick: bool,
    minutes: u64,
    conditions: Vec<String>,
    papers: Vec<WrittenChapter>,
}

#[derive(Deserialize)]
struct WrittenChapter {
    key: String,
    items: Vec<Item>,
    failures: Vec<String>,
    steps: Vec<Took>,
}

impl Report {
    fn read(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path)?;
        let Written { quick, minutes, conditions, papers } = serde_json::from_str(&text)?;
        let chapter = |WrittenChapter { key, items, failures, steps }| {
            let paper = PAPERS
                .iter()
                .find(|paper| paper.key == key)
                .with_context(|| format!("which paper is {key}?"))?;
            Ok(Chapter { paper, items, failures, steps })
        };
        let papers = papers.into_iter().map(chapter).collect::<Result<_>>()?;
        Ok(Report { quick, minutes, conditions, papers })
    }
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("farcall-bench-paper: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, and writes the report. Returns whether all programs did what they should.
fn run(command: &Command) -> Result<bool> {
    if let Some(from) = &command.from {
        let report = Report::read(from).with_context(|| format!("cannot draw {}", from.display()))?;
        write(&command.out, &report)?;
        println!("{}", command.out.join("index.html").display());
        return Ok(true);
    }
    let chosen: Vec<&'static Paper> =
        PAPERS.iter().filter(|paper| command.only.is_empty() || command.only.contains(&paper.name)).collect();
    let mut runner = run::Runner::new(&chosen, command.quick, command.programs.clone())?;
    let mut report = Report {
        quick: command.quick,
        minutes: 0,
        conditions: conditions_on("loopback and network namespaces", &[]),
        papers: Vec::new(),
    };
    for paper in chosen {
        let outcomes = runner.run(paper);
        let took = |step: &Outcome| Took { what: step.what.to_owned(), seconds: step.took.as_secs() };
        let steps = outcomes.iter().map(took).collect();
        let found: Vec<Result<Found>> = outcomes.into_iter().map(|step| step.found).collect();
        let failures = found.iter().filter_map(|found| found.as_ref().err().map(|why| format!("{why:#}")));
        let chapter = Chapter { paper, failures: failures.collect(), items: (paper.items)(&found), steps };
        report.papers.push(chapter);
        let seconds = report.papers.iter().flat_map(|chapter| &chapter.steps).map(|step| step.seconds);
        report.minutes = seconds.sum::<u64>().div_ceil(60);
        // What was measured so far is kept if the run is ended.
        write(&command.out, &report)?;
    }
    runner.end();
    println!("{}", command.out.join("index.html").display());
    for failure in report.papers.iter().flat_map(|chapter| &chapter.failures) {
        eprintln!("failed: {failure}");
    }
    Ok(report.papers.iter().all(|chapter| chapter.failures.is_empty()))
}

fn write(directory: &Path, report: &Report) -> Result<()> {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    write("papers.json", serde_json::to_string_pretty(report)? + "\n")?;
    write("index.html", page::page(report)?)
}
