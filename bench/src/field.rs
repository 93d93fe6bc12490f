//! The peers of a run: which can take part, their processes, and the conditions that they add.
use std::path::PathBuf;

use anyhow::Result;
use farcall_bench_method::{Cannot, Cell, Lost, Options, Pair, Pin, Row, conditions, report};
use indicatif::{ProgressBar, ProgressStyle};

use crate::peers::{self, FARCALL};

/// How often the processes of a cell are started again. Otherwise one lucky placement of a heap or a stack
/// would favour a peer throughout.
const ROUNDS: usize = 4;

/// The peers of a run.
pub struct Field {
    programs: Vec<(String, PathBuf)>,
    pub progress: ProgressBar,
    versions: Vec<String>,
    /// Why some peers do not take part, or no longer.
    skipped: Vec<(String, Vec<String>)>,
}

impl Field {
    /// Builds the programs of those `names` that have programs of their own. `steps` is the number of steps
    /// of the progress bar.
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

    /// Returns a field of programs that exist already.
    pub fn of(programs: impl Into<Vec<(String, PathBuf)>>, steps: usize) -> Field {
        let (programs, progress) = (programs.into(), progress(steps));
        Field { programs, progress, versions: Vec::new(), skipped: Vec::new() }
    }

    /// Makes all programs take part as the peer of this name.
    pub fn rename(&mut self, peer: &str) {
        self.programs.iter_mut().for_each(|(name, _)| peer.clone_into(name));
    }

    /// Returns the programs that take part.
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

    /// Starts the processes of all peers that support this cell. Only one at a time may run a block.
    pub fn contenders(&mut self, cell: &Cell) -> Result<Vec<Contender>> {
        self.some(cell, |_| true)
    }

    /// Starts the processes of those among them that are `wanted`.
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

    /// Leaves out those of `contenders` that, according to `can`, do not support the measurement.
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

    /// Notes that a peer does not support the measurement, or failed. A failure of farcall is an error,
    /// because every measurement needs farcall.
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

    /// Ends the run: shows `rows`, and why some of them are void. Returns them with the conditions.
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

/// Returns a description of a cell.
pub fn name(cell: &Cell) -> String {
    format!("{} bytes, {}, pin {}", cell.setup.bytes, cell.setup.mode.name(), cell.pin)
}

/// Draws the progress bar between groups only, because a timer thread would run on the measured cores.
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
    /// Returns the peer's processes, and starts them if there are none.
    pub fn pair(&mut self) -> Result<&mut Pair> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => Pair::start(&self.program, &self.name, &self.cell)?,
        };
        Ok(self.pair.insert(pair))
    }

    /// Runs a block. With pinning, the processes of all peers stay alive. Without pinning, each block gets
    /// new processes: the kernel keeps both sides on one core or on two for their whole life, which makes a
    /// difference of a factor of two, so this must be drawn equally often for raw and for the others.
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

/// Returns what blocks gave, or `None` if they are void because a datagram was lost that is not sent again.
/// Then the next blocks have new processes, since the datagram may come late.
pub fn unless_lost<T>(ran: Result<T>, contenders: &mut [&mut Contender]) -> Result<Option<T>> {
    match ran {
        Err(why) if why.is::<Lost>() => {
            let names: Vec<&str> = contenders.iter().map(|contender| &*contender.name).collect();
            eprintln!("void: blocks of {}: {why}", names.join(" and "));
            contenders.iter_mut().for_each(|contender| contender.pair = None);
            Ok(None)
        }
        ran => ran.map(Some),
    }
}

/// Runs something that must give a result, again if a datagram was lost.
pub fn retried<T>(contender: &mut Contender, run: impl Fn(&mut Pair) -> Result<T>) -> Result<T> {
    const TRIES: usize = 3;
    for _ in 1..TRIES {
        let ran = contender.pair().and_then(&run);
        if let Some(result) = unless_lost(ran, &mut [&mut *contender])? {
            return Ok(result);
        }
    }
    run(contender.pair()?)
}

/// Starts all processes again at the beginning of a round.
pub fn begin_group(group: usize, groups: usize, contenders: &mut [Contender]) {
    if group > 0 && group.is_multiple_of(groups / ROUNDS) {
        contenders.iter_mut().for_each(|contender| contender.pair = None);
    }
}
