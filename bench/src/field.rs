//! The peers of a run: which can take part, their processes, what is said about them.
use std::path::PathBuf;

use anyhow::Result;
use farcall_bench_method::{Cannot, Cell, Options, Pair, Pin, Row, conditions, report};
use indicatif::{ProgressBar, ProgressStyle};

use crate::peers::{self, FARCALL};

/// How often the processes of a cell are started anew: the place that a heap or a stack happened to
/// get must not make one peer lucky throughout.
const ROUNDS: usize = 4;

/// Everything that takes part in a run.
pub struct Field {
    programs: Vec<(String, PathBuf)>,
    pub progress: ProgressBar,
    versions: Vec<String>,
    /// Why some do not take part, or no longer.
    skipped: Vec<(String, Vec<String>)>,
}

impl Field {
    /// Builds the programs of those `names` that are programs of their own. `steps` is how often the
    /// progress will be moved on.
    pub fn new(names: &[String], steps: usize) -> Result<Field> {
        let progress = progress(steps);
        let mut field = Field { programs: Vec::new(), progress, versions: Vec::new(), skipped: Vec::new() };
        for name in names {
            field.progress.set_message(format!("building {name}"));
            match peers::program(name) {
                Ok(program) => field.programs.push((name.clone(), program)),
                Err(why) if why.is::<Cannot>() => field.leave_out(name, why)?,
                Err(why) => return Err(why),
            }
        }
        field.progress.reset_elapsed();
        Ok(field)
    }

    /// Programs that are there already.
    pub fn of(programs: impl Into<Vec<(String, PathBuf)>>, steps: usize) -> Field {
        let (programs, progress) = (programs.into(), progress(steps));
        Field { programs, progress, versions: Vec::new(), skipped: Vec::new() }
    }

    /// Has all programs take part as the peer of this name.
    pub fn rename(&mut self, peer: &str) {
        self.programs.iter_mut().for_each(|(name, _)| peer.clone_into(name));
    }

    /// The programs that take part.
    pub fn programs(&self) -> Vec<(String, PathBuf)> {
        self.programs.clone()
    }

    /// Notes a peer's version, unless it is empty.
    pub fn version(&mut self, name: &str, version: &str) {
        let version = format!("{name} {version}");
        if !version.ends_with(' ') && !self.versions.contains(&version) {
            self.versions.push(version);
        }
    }

    /// Processes of all that are made for this cell. One at a time is to run a block.
    pub fn contenders(&mut self, cell: &Cell) -> Result<Vec<Contender>> {
        self.some(cell, |_| true)
    }

    /// Those among them that are `wanted`.
    pub fn some(&mut self, cell: &Cell, wanted: impl Fn(&str) -> bool) -> Result<Vec<Contender>> {
        self.progress.set_message(name(cell));
        let mut contenders = Vec::new();
        for (name, program) in self.programs.clone().into_iter().filter(|(name, _)| wanted(name)) {
            let mut contender = Contender { name, program, cell: *cell, pair: None };
            match contender.pair() {
                Ok(pair) => {
                    let version = pair.version();
                    self.versions.extend(version.filter(|version| !self.versions.contains(version)));
                    contenders.push(contender);
                }
                Err(why) => self.leave_out(&contender.name, why)?,
            }
        }
        Ok(contenders)
    }

    /// Leaves out those of `contenders` that `can` says cannot do what is measured.
    pub fn retain(
        &mut self,
        contenders: Vec<Contender>,
        mut can: impl FnMut(&mut Contender) -> Result<()>,
    ) -> Result<Vec<Contender>> {
        let mut able = Vec::new();
        for mut contender in contenders {
            match can(&mut contender) {
                Ok(()) => able.push(contender),
                Err(why) => self.leave_out(&contender.name, why)?,
            }
        }
        Ok(able)
    }

    /// Notes that a peer cannot do what is measured, or failed at it. Nothing is measured without farcall:
    /// its failure is an error.
    pub fn leave_out(&mut self, name: &str, why: anyhow::Error) -> Result<()> {
        let why = match why.downcast_ref::<Cannot>() {
            Some(why) => format!("skipped: {why}"),
            None if name == FARCALL => return Err(why),
            None => format!("failed: {why:#}"),
        };
        let known = self.skipped.iter().position(|(known, _)| *known == why);
        let at = known.unwrap_or_else(|| {
            self.skipped.push((why, Vec::new()));
            self.skipped.len() - 1
        });
        let (why, names) = &mut self.skipped[at];
        if !names.iter().any(|known| known == name) {
            self.progress.println(format!("{name} {why}"));
            names.push(name.into());
        }
        Ok(())
    }

    /// Ends the run: shows `rows`, and why some of them are void. Gives them back with the conditions.
    pub fn show(
        self,
        rows: Vec<Row>,
        method: String,
        void: &[String],
        options: &Options,
    ) -> Result<(Vec<Row>, Vec<String>)> {
        self.progress.finish_and_clear();
        let mut conditions = conditions::conditions(&self.versions);
        conditions.push(method);
        conditions.extend(self.skipped.iter().map(|(why, names)| format!("{why}: {}", names.join(", "))));
        Ok((report(rows, &conditions, void, options)?, conditions))
    }
}

/// A cell in words.
pub fn name(cell: &Cell) -> String {
    format!("{} bytes, {}, pin {}", cell.setup.bytes, cell.setup.mode.name(), cell.pin)
}

/// It is drawn between groups only: a thread that ticks would run on the cores that are measured.
fn progress(steps: usize) -> ProgressBar {
    let style = "{elapsed_precise} {wide_bar} {pos}/{len} groups, {msg}";
    let bar = ProgressBar::new(steps as u64);
    bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// One peer in one cell.
pub struct Contender {
    pub name: String,
    program: PathBuf,
    pub cell: Cell,
    pair: Option<Pair>,
}

impl Contender {
    /// Its processes, started now if there are none.
    pub fn pair(&mut self) -> Result<&mut Pair> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => Pair::start(&self.program, &self.name, &self.cell)?,
        };
        Ok(self.pair.insert(pair))
    }

    /// Pinned, the processes of all peers stay alive beside each other. Unpinned, each block has fresh
    /// ones: the kernel leaves both sides on one core or on two for as long as they live, which is
    /// worth a factor of two, and must be drawn as often for raw as for the others.
    pub fn block<T>(&mut self, run: impl FnOnce(&mut Pair) -> Result<T>) -> Result<T> {
        if self.cell.pin == Pin::NONE {
            self.pair = None;
        }
        let result = run(self.pair()?);
        if self.cell.pin == Pin::NONE {
            self.pair = None;
        }
        result
    }
}

/// Starts all processes anew where a round begins.
pub fn begin_group(group: usize, groups: usize, contenders: &mut [Contender]) {
    if group > 0 && group.is_multiple_of(groups / ROUNDS) {
        contenders.iter_mut().for_each(|contender| contender.pair = None);
    }
}
