//! Runs many seeds, on all processors, and adds up their reports.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::guard;
use farcall_proto::Mutant;

use crate::model::Tally;
use crate::net::{Faults, Nanos, SECS};
use crate::oracle::{Outcomes, Violation};
#[cfg(feature = "soak")]
use crate::plan::Plan;
#[cfg(feature = "soak")]
use crate::rng::Rng;
use crate::rng::mix;
use crate::seals::Seals;
use crate::world::{Report, run};
use crate::{model, onc, shared_memory};

/// The seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The number of seeds.
    pub seeds: u64,
    /// The number of calls of all seeds together.
    pub calls: u64,
    /// The first seed.
    pub from: u64,
    /// A deliberate fault of the protocol.
    pub mutant: Mutant,
    /// A deliberate fault of one of the models.
    pub broken: Option<model::Rule>,
    /// The number of threads; 0 means one for each processor.
    pub threads: usize,
    /// Whether to stop at the first seed that fails.
    pub first: bool,
    /// Whether to run only the seeds whose ends have keys, about one in five, and none of the other models.
    pub secret: bool,
}

/// A seed under which an invariant did not hold.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The seed.
    pub seed: u64,
    /// The number of calls of its run.
    pub calls: u64,
    /// The violation.
    pub violation: Violation,
}

/// The sum of many reports. It does not depend on which thread ran which seed.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of runs.
    pub seeds: u64,
    /// Calls made.
    pub calls: u64,
    /// The outcomes of the calls.
    pub outcomes: Outcomes,
    /// Faults that happened.
    pub faults: Faults,
    /// What happened to seals and keys.
    pub seals: Seals,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Virtual time.
    pub simulated: u128,
    /// The counts of the same seeds in the model of shared memory.
    pub shared_memory: Tally,
    /// The counts of the same seeds in the model of ONC RPC.
    pub onc: Tally,
    /// The counts of some of the same seeds in the model of several grants of one key. They are no part of the
    /// line of JSON, which is the same for the same seeds: the programs of this model are real ones.
    pub grants: Tally,
    /// Seeds that failed, in their order.
    pub failing: Vec<Failing>,
    /// A hash of all traces.
    pub trace_hash: u64,
}

impl Soak {
    /// Returns the number of calls of the run with this seed.
    pub fn calls_of(&self, seed: u64) -> u64 {
        let (each, more) = (self.calls / self.seeds.max(1), self.calls % self.seeds.max(1));
        (each + u64::from(seed - self.from < more)).max(1)
    }

    /// Runs every seed, and calls `done` with each report.
    pub fn run(&self, done: &(dyn Fn(&Report) + Sync)) -> Summary {
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let next = AtomicU64::new(self.from);
        let total = Mutex::new(Summary::default());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.seeds {
                            return;
                        }
                        if self.secret && !has_keys(seed, self.mutant) {
                            continue;
                        }
                        let calls = self.calls_of(seed);
                        let report = match self.broken {
                            None => run_caught(seed, calls, self.mutant),
                            // Only the models can notice this fault.
                            Some(_) => Report { seed, calls, ..Report::default() },
                        };
                        done(&report);
                        // The models do not notice a fault of the protocol.
                        let has_models = !self.secret && self.mutant == Mutant::NONE;
                        let part = if has_models { calls.div_ceil(4) } else { 0 };
                        let memory = run_model_caught(|| shared_memory::run(seed, part, self.broken));
                        let onc = run_model_caught(|| onc::run(seed, part, self.broken));
                        let grants =
                            if part > 0 { run_grants(seed, part, self.broken) } else { Default::default() };
                        let violations =
                            [&report.violation, &memory.violation, &onc.violation, &grants.violation];
                        let failed = violations.iter().any(|violation| violation.is_some());
                        if self.first && failed {
                            next.store(self.from + self.seeds, Ordering::Relaxed);
                        }
                        total.lock().expect("no thread panics").add(report, [memory, onc, grants], calls);
                    }
                });
            }
        });
        let mut summary = total.into_inner().expect("no thread panics");
        summary.failing.sort_by_key(|f| f.seed);
        summary
    }
}

/// Returns whether the ends have keys in the run of a seed.
fn has_keys(seed: u64, mutant: Mutant) -> bool {
    #[cfg(feature = "soak")]
    return Plan::draw(&mut Rng::new(seed), mutant).secret.is_some();
    #[cfg(not(feature = "soak"))]
    {
        let _ = (seed, mutant);
        false
    }
}

/// Runs a seed, and reports a panic as a violation.
fn run_caught(seed: u64, calls: u64, mutant: Mutant) -> Report {
    caught(|| run(seed, calls, mutant, false)).unwrap_or_else(|violation| Report {
        seed,
        calls,
        violation: Some(violation),
        ..Report::default()
    })
}

/// Runs a model, and reports a panic as a violation.
fn run_model_caught(run: impl FnOnce() -> model::Report) -> model::Report {
    caught(run)
        .unwrap_or_else(|violation| model::Report { violation: Some(violation), ..model::Report::default() })
}

/// Runs the model of several grants for every eighth seed: its programs are real ones, which take longer.
fn run_grants(seed: u64, calls: u64, broken: Option<model::Rule>) -> model::Report {
    #[cfg(feature = "soak")]
    if seed.is_multiple_of(8) {
        return run_model_caught(|| crate::grants::run(seed, calls, broken));
    }
    let _ = (seed, calls, broken);
    model::Report::default()
}

fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Violation> {
    guard::run(run).map_err(|panic| {
        let what = panic.message().unwrap_or("a panic").to_owned();
        Violation { rule: "no-panic", at: 0, what }
    })
}

impl Summary {
    fn add(&mut self, report: Report, [memory, onc, grants]: [model::Report; 3], calls: u64) {
        self.seeds += 1;
        self.calls += report.calls;
        self.outcomes.add(&report.outcomes);
        self.faults.add(&report.faults);
        self.seals.add(&report.seals);
        self.datagrams += report.datagrams;
        self.simulated += u128::from(report.elapsed);
        // The hashes are added, so that the order in which the runs end does not matter.
        let part = mix(report.seed ^ mix(report.trace_hash ^ mix(memory.trace_hash ^ mix(onc.trace_hash))));
        self.trace_hash = self.trace_hash.wrapping_add(part);
        self.shared_memory.add(&memory.tally);
        self.onc.add(&onc.tally);
        self.grants.add(&grants.tally);
        let seed = report.seed;
        let violations =
            [report.violation, memory.violation, onc.violation, grants.violation].into_iter().flatten();
        self.failing.extend(violations.map(|violation| Failing { seed, calls, violation }));
    }

    /// Returns the violated invariants, each with its number of seeds.
    pub fn broken(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for failing in &self.failing {
            *counts.entry(failing.violation.rule).or_default() += 1;
        }
        counts
    }

    /// Returns the virtual time in whole hours.
    pub fn simulated_hours(&self) -> u64 {
        let hour = u128::from(3600 * SECS as Nanos);
        (self.simulated / hour) as u64
    }

    /// Returns one line of JSON, the same for every run of the same seeds.
    pub fn json(&self) -> String {
        let (seeds, calls, faults) = (self.seeds, self.calls, object(self.faults.each()));
        let mut line = format!(r#"{{"seeds":{seeds},"calls":{calls},"faults":{faults}"#);
        let _ =
            write!(line, r#","violations":{},"trace_hash":"{:016x}""#, self.failing.len(), self.trace_hash);
        let o = &self.outcomes;
        let counts = [
            ("executed", o.executed),
            ("returned", o.returned),
            ("ran_no", o.no),
            ("ran_maybe", o.maybe),
            ("ran_yes", o.yes),
            ("abandoned", o.abandoned),
            ("exchanging", o.exchanging),
            ("handled", o.handled),
            ("carried", o.carried),
            ("answered", o.answered),
            ("posted", o.posted),
            ("flushed", o.flushed),
            ("beyond_knowledge", o.beyond_knowledge),
            ("undone", o.undone),
            ("datagrams", self.datagrams),
            ("simulated_hours", self.simulated_hours()),
        ];
        let (memory, onc) = (object(self.shared_memory.each()), object(self.onc.each()));
        let seals = object(self.seals.each());
        let counts = members(counts.into_iter());
        let _ = write!(line, r#",{counts},"seals":{seals},"shared_memory":{memory},"onc":{onc}}}"#);
        line
    }
}

/// Returns counts as an object of JSON.
fn object(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    format!("{{{}}}", members(counts))
}

/// Returns counts as the members of an object of JSON.
fn members(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let members: Vec<String> = counts.map(|(name, count)| format!(r#""{name}":{count}"#)).collect();
    members.join(",")
}
