//! A run that the page controls: places and nodes by name, edits that wait, and a reset that starts it again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backend::{Backend, Changes, Command, NodeCounts, RunState};
use crate::interpreter::FiringId;
use crate::model::{Graph, PlaceId, Token};
use crate::procedures::{Exported, Procedures};
use crate::run::{self, FiringRecord, Outcome, Run};

/// The longest wait for a change. A run that is started anew meanwhile is noticed after it.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Numbers of changes contain, in these bits, how often the run was started: a stream of changes notices by it
/// that everything is different.
const STARTS_SHIFT: u32 = 40;

/// A run that can be started again, with the graph as it is drawn now.
///
/// An edit that changes what the graph means waits until no call is under way. A run that is not paused is paused for
/// the moment.
pub struct RestartableRun {
    procedures: Procedures,
    start: Box<dyn Fn(Graph) -> Result<Run, String> + Send + Sync>,
    control: Mutex<Control>,
}

struct Control {
    run: Arc<Run>,
    /// How often the run was started.
    starts: u64,
    /// The graph as it is drawn.
    drawn: Graph,
    /// Why the run goes on with another graph than `drawn`.
    waits: Option<String>,
}

impl RestartableRun {
    /// Starts a run of `graph` by `start`, which is called again at each reset. Its runs should begin paused.
    ///
    /// # Errors
    /// What `start` says.
    pub fn new(
        graph: Graph,
        procedures: Procedures,
        start: impl Fn(Graph) -> Result<Run, String> + Send + Sync + 'static,
    ) -> Result<RestartableRun, String> {
        let run = Arc::new(start(connected(&graph))?);
        let control = Control { run, starts: 0, drawn: graph, waits: None };
        Ok(RestartableRun { procedures, start: Box::new(start), control: Mutex::new(control) })
    }

    /// Returns the run as it was started last.
    pub fn run(&self) -> Arc<Run> {
        Arc::clone(&self.control().run)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset(&self) -> Result<(), String> {
        let mut control = self.control();
        let _ = control.run.command(run::Command::Stop);
        control.run = Arc::new((self.start)(connected(&control.drawn))?);
        control.starts += 1;
        control.waits = None;
        Ok(())
    }
}

impl Backend for RestartableRun {
    fn apply(&self, graph: &Graph) -> Result<(), String> {
        let mut control = self.control();
        control.drawn = graph.clone();
        control.edit()
    }

    fn command(&self, command: Command) -> Result<(), String> {
        if command == Command::Reset {
            return self.reset();
        }
        let mut control = self.control();
        // What follows happens in the graph that people see.
        if control.waits.is_some() {
            control.edit()?;
        }
        let place = |name: &str| -> Result<PlaceId, String> {
            let graph = control.run.graph();
            graph.place(name).ok_or_else(|| format!("the run has no place {name} yet"))
        };
        let command = match command {
            Command::Resume => run::Command::Resume,
            Command::Pause | Command::Reset => run::Command::Pause,
            Command::Step => {
                control.tell(run::Command::Pause)?;
                run::Command::Step
            }
            Command::Pace { pace } => run::Command::Pace(pace),
            Command::Put { place: name, token } => {
                run::Command::Put { place: place(&name)?, tokens: vec![token] }
            }
            Command::Take { place: name, count } => run::Command::Take { place: place(&name)?, count },
            Command::Decide { firing, decision } => {
                run::Command::Decide { firing: FiringId(firing), decision }
            }
        };
        control.tell(command)
    }

    fn changes(&self, since: u64, wait: Duration) -> Changes {
        let (run, starts) = {
            let mut control = self.control();
            if control.waits.is_some() && control.run.changes(u64::MAX, Duration::ZERO).counts.under_way == 0
            {
                // If it cannot be applied now either, the page shows the reason.
                let _ = control.edit();
            }
            (Arc::clone(&control.run), control.starts)
        };
        let mask = (1 << STARTS_SHIFT) - 1;
        let same_run = since >> STARTS_SHIFT == starts && since != 0;
        let from = if same_run { since & mask } else { 0 };
        let wait = if same_run { wait.min(MAX_WAIT) } else { Duration::ZERO };
        let mut changes = run.changes(from, wait);
        if changes.edited && from != 0 {
            changes = run.changes(0, Duration::ZERO);
        }
        let graph = run.graph();
        let note = self.control().waits.clone();
        named(&graph, changes, note, starts << STARTS_SHIFT, from == 0)
    }

    fn stopped(&self) -> Vec<FiringRecord> {
        self.run().state().stopped
    }

    fn firing(&self, id: u64) -> Option<FiringRecord> {
        self.run().firing(FiringId(id))
    }

    fn tokens(&self, place: &str) -> Option<Vec<Token>> {
        let run = self.run();
        let place = run.graph().place(place)?;
        let places = run.changes(0, Duration::ZERO).places;
        places.into_iter().find(|there| there.place == place).map(|there| there.tokens)
    }

    fn exports(&self) -> Result<Vec<Exported>, String> {
        self.procedures.exports()
    }
}

impl Control {
    /// Makes the run go on with the graph as it is drawn, or notes why it cannot yet.
    fn edit(&mut self) -> Result<(), String> {
        let graph = connected(&self.drawn);
        let edit = || run::Command::Edit(Box::new(graph.clone()));
        let was_paused = self.run.changes(u64::MAX, Duration::ZERO).paused;
        if self.run.command(edit()).is_ok() {
            self.waits = None;
            return Ok(());
        }
        if !was_paused {
            self.tell(run::Command::Pause)?;
        }
        let edited = self.run.command(edit());
        if !was_paused {
            self.tell(run::Command::Resume)?;
        }
        self.waits = edited.err().map(|why| why.to_string());
        Ok(())
    }

    fn tell(&self, command: run::Command) -> Result<(), String> {
        self.run.command(command).map_err(|why| why.to_string())
    }
}

/// Returns a graph without the nodes that have no arcs yet. Such a node would fire for ever.
fn connected(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    graph.nodes.retain(|node| !node.inputs.is_empty() || !node.outputs.is_empty());
    graph
}

fn named(graph: &Graph, changes: run::Changes, note: Option<String>, starts: u64, all: bool) -> Changes {
    let complete = changes.edited || all;
    let places = changes
        .places
        .iter()
        .filter_map(|there| Some((graph.places.get(there.place.0 as usize)?.name.clone(), there.count)));
    let nodes = changes.nodes.iter().filter_map(|there| {
        let counts = NodeCounts {
            begun: there.begun,
            ended: there.ended,
            under_way: there.under_way,
            stopped: there.stopped,
            error: there.error.clone(),
        };
        Some((graph.nodes.get(there.node.0 as usize)?.name.clone(), counts))
    });
    let (places, nodes) = match complete {
        // Most places of a large graph are empty.
        true => (
            places.filter(|(_, count)| *count > 0).collect(),
            nodes.filter(|(_, counts)| *counts != NodeCounts::default()).collect(),
        ),
        false => (places.collect(), nodes.collect()),
    };
    let (state, reason) = match changes.outcome {
        Some(Outcome::Ended) => (RunState::Ended, None),
        Some(Outcome::JournalFailed(why)) => (RunState::Ended, Some(why)),
        _ if changes.paused => (RunState::Paused, None),
        None => (RunState::Running, None),
        Some(Outcome::Quiet) => (RunState::Quiet, None),
        Some(Outcome::Stopped(_)) => (RunState::Stopped, None),
    };
    Changes {
        number: starts | changes.number,
        state,
        note: reason.or(note),
        pace: changes.pace,
        complete,
        places,
        nodes,
        counts: changes.counts,
        firings_per_second: changes.firings_per_second,
    }
}
