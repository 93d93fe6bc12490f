//! Interprets a graph in a thread of its own, which calls the procedures of nodes.
//!
//! | module | job |
//! |---|---|
//! | `driver` | the thread: starts calls, collects them, finds procedures, waits |
//! | `machine` | what the thread and its users share: the interpreter, the firings under way, the journal |
//! | `clock` | the graph's clock: as fast as possible, or in scaled real time |
//! | `past` | rebuilds a run from its journal |
//! | `shown` | what users are shown of a run |
//! | `excerpt` | cuts what is shown to a size |
//! | `bell` | wakes the thread |
//! | [`mutant`] | deliberate faults, for tests |

mod bell;
mod clock;
mod command;
mod driver;
mod excerpt;
mod machine;
pub mod mutant;
mod past;
mod shown;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farcall::System;
use serde::{Deserialize, Serialize};

use crate::interpreter::{FiringId, Problem};
use crate::journal::{Damaged, Journal};
use crate::model::Graph;
use crate::procedures::Procedures;
use crate::rules::Rules;
pub use command::{Command, Refused};
use driver::Shared;
use machine::Machine;
use mutant::Mutant;
pub use past::Past;
pub use shown::{Changes, Counts, FiringRecord, NodeState, PlaceState, Stage, State};

/// A graph that is interpreted by a thread of its own. Dropping the handle stops the thread.
///
/// ```
/// use std::sync::Arc;
/// use farcall_olympus::model::Graph;
/// use farcall_olympus::procedures::Procedures;
/// use farcall_olympus::run::{Outcome, Run, Settings};
///
/// #[farcall::interface]
/// pub trait Echo {
///     fn twice(&self, text: &str) -> farcall::Result<String>;
/// }
///
/// struct Server;
/// impl Echo for Server {
///     fn twice(&self, text: &str) -> farcall::Result<String> {
///         Ok(text.repeat(2))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let export = runtime.export::<dyn Echo>("Echo", Arc::new(Server))?;
/// let graph: Graph = serde_json::from_str(r#"{
///     "places": [{ "name": "words", "tokens": ["a", "b"] }, { "name": "done" }],
///     "nodes": [{
///         "name": "double",
///         "in": [{ "place": 0, "as": "word" }],
///         "call": { "server": "Echo", "name": "twice", "arguments": "[word]" },
///         "out": [{ "place": 1, "value": "result" }]
///     }]
/// }"#)?;
/// let run = Run::start(graph, &Procedures::new(&runtime), Settings::default())?;
/// assert_eq!(run.wait(), Outcome::Quiet);
/// let mut done = run.state().places[1].tokens.clone();
/// done.sort_by_key(ToString::to_string);
/// assert_eq!(done, ["aa", "bb"]);
/// # Ok(())
/// # }
/// ```
pub struct Run {
    shared: Arc<Shared>,
}

/// How a graph is interpreted.
#[derive(Debug)]
pub struct Settings {
    /// How fast.
    pub pace: Pace,
    /// The most calls under way at once, at least 1.
    pub bound: usize,
    /// The number by which the interpreter chooses among enabled nodes. With 0, they begin in the order in
    /// which they were enabled.
    pub seed: u64,
    /// The rules by which nodes fire.
    pub rules: Rules,
    /// Where the run is recorded, if it is.
    pub journal: Option<Journal>,
    /// Whether the run begins paused.
    pub paused: bool,
    /// How long the first pause is after a call that did not run, or may have run and is made again. Each
    /// further one is twice as long, up to [`Settings::max_pause`].
    pub first_pause: Duration,
    /// The longest such pause.
    pub max_pause: Duration,
    /// The deliberate fault of the run: none, except in tests.
    pub mutant: Mutant,
}

/// How fast a graph is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As fast as possible: the graph's clock jumps to the next timed node when nothing else is left to do.
    Fast,
    /// A second of the graph's clock takes so many real seconds.
    Scaled(f64),
    /// A node begins only when somebody asks for a step.
    Step,
}

/// How a run has ended, for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No node is enabled, and nothing is under way. Somebody may still put tokens.
    Quiet,
    /// Nothing is left to do, except that these firings have stopped, and somebody must decide about them.
    Stopped(Vec<FiringId>),
    /// The run was ended by [`Command::Stop`], or by its handle being dropped.
    Ended,
    /// The run has ended because its journal cannot be written.
    JournalFailed(String),
}

/// The most calls under way at once, unless the settings say otherwise.
pub const DEFAULT_BOUND: usize = 256;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pace: Pace::Fast,
            bound: DEFAULT_BOUND,
            seed: 0,
            rules: Rules::standard(),
            journal: None,
            paused: false,
            first_pause: Duration::from_millis(10),
            max_pause: Duration::from_secs(5),
            mutant: Mutant::default(),
        }
    }
}

/// The reason why a run cannot start.
#[derive(Clone, Debug, PartialEq)]
pub enum NotStarted {
    /// The graph cannot be interpreted.
    Graph(Problem),
    /// The journal cannot be written.
    Journal(Damaged),
    /// The system can start no thread.
    Thread(String),
}

impl Run {
    /// Starts to interpret a graph, in a new thread.
    ///
    /// # Errors
    /// When the graph cannot be interpreted, the journal cannot be written, or no thread can be started.
    pub fn start(graph: Graph, procedures: &Procedures, settings: Settings) -> Result<Run, NotStarted> {
        let machine = Machine::new(graph, settings)?;
        Run::of(machine, procedures)
    }

    /// Goes on with a run whose interpreter has ended or was killed. Calls that were under way are made again
    /// if that does no harm; otherwise their nodes stop. The settings' seed, rules and journal are not used:
    /// those of the former run hold.
    ///
    /// # Errors
    /// When the journal cannot be written, or no thread can be started.
    pub fn resume(past: Past, procedures: &Procedures, settings: Settings) -> Result<Run, NotStarted> {
        Run::of(Machine::resumed(past, settings), procedures)
    }

    fn of(machine: Machine, procedures: &Procedures) -> Result<Run, NotStarted> {
        let shared = Arc::new(Shared::new(machine, procedures, System::current()));
        driver::start(&shared).map_err(|why| NotStarted::Thread(why.to_string()))?;
        Ok(Run { shared })
    }

    /// Has the run do something, and returns when it is done; calls that it starts may still be under way.
    ///
    /// # Errors
    /// When the run refuses. Nothing was done then.
    pub fn command(&self, command: Command) -> Result<(), Refused> {
        self.shared.command(command)
    }

    /// Returns what can be shown of the run. Of its firings there are excerpts, at most 1,000 of a kind.
    pub fn state(&self) -> State {
        self.shared.machine().state(&self.shared.env)
    }

    /// Returns what has changed since the change of this number; 0 returns everything. If nothing has changed
    /// yet, waits for at most `wait`.
    pub fn changes(&self, since: u64, wait: Duration) -> Changes {
        self.shared.changes(since, wait)
    }

    /// Returns a firing that is under way, has stopped, or is among the latest 1,000 that failed. Of the
    /// first two there is up to 1 MiB of tokens and arguments, of the others 4 KiB.
    pub fn firing(&self, firing: FiringId) -> Option<FiringRecord> {
        self.shared.machine().firing_record(firing)
    }

    /// Returns the graph, which [`Command::Edit`] may have changed.
    pub fn graph(&self) -> Arc<Graph> {
        self.shared.machine().graph.clone()
    }

    /// Blocks until the run has nothing left to do. A paused run has, if anything is enabled.
    pub fn wait(&self) -> Outcome {
        loop {
            if let Some(outcome) = self.wait_for(Duration::from_secs(3600)) {
                return outcome;
            }
        }
    }

    /// Blocks until the run has nothing left to do, at most for this time. Returns `None` if the time has
    /// passed.
    pub fn wait_for(&self, time: Duration) -> Option<Outcome> {
        self.shared.wait_for(time)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The thread is not waited for: it may wait for a server's clock in a simulation that is over.
        let _ = self.command(Command::Stop);
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStarted::Graph(why) => write!(f, "the graph cannot be interpreted: {why}"),
            NotStarted::Journal(why) => write!(f, "the journal cannot be written: {why}"),
            NotStarted::Thread(why) => write!(f, "no thread can be started: {why}"),
        }
    }
}

impl std::error::Error for NotStarted {}
