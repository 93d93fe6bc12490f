//! What the page needs of a run: commands, changes, failures, and the procedures that are exported now.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::interpreter::Decision;
use crate::model::{Graph, Token};
use crate::procedures::Exported;
use crate::run::{Counts, FiringRecord, Pace};

/// What the page needs of a run. Every call may block; the page makes each on a thread that may.
///
/// Errors are sentences for people. [`RestartableRun`](super::RestartableRun) is the implementation over a
/// [`Run`](crate::run::Run).
pub trait Backend: Send + Sync + 'static {
    /// Makes the run go on with this graph, now or as soon as it can. Places that remain keep their tokens.
    ///
    /// # Errors
    /// If the graph cannot be interpreted.
    fn apply(&self, graph: &Graph) -> Result<(), String>;

    /// Carries out a command.
    ///
    /// # Errors
    /// If the run refuses.
    fn command(&self, command: Command) -> Result<(), String>;

    /// Returns what changed after the change with number `since`; 0 asks for everything. Waits at most `wait` for a
    /// change.
    fn changes(&self, since: u64, wait: Duration) -> Changes;

    /// Returns the firings that are stopped now, at most 1,000.
    fn stopped(&self) -> Vec<FiringRecord>;

    /// Returns a firing that is under way, has stopped, or failed not long ago.
    fn firing(&self, id: u64) -> Option<FiringRecord>;

    /// Returns the first tokens in a place, at most 20, those that leave first at the beginning.
    fn tokens(&self, place: &str) -> Option<Vec<Token>>;

    /// Returns what is exported now.
    ///
    /// # Errors
    /// If the registry cannot be read.
    fn exports(&self) -> Result<Vec<Exported>, String>;
}

/// What the page tells a run to do. Places are named: while a graph is edited, indices change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// Fire nodes from now on.
    Resume,
    /// Begin no more firings.
    Pause,
    /// Begin one firing; pause if the run is not paused.
    Step,
    /// Give every place the tokens that it has at the beginning, and pause.
    Reset,
    /// Change the pace.
    Pace {
        /// The new pace.
        pace: Pace,
    },
    /// Put a token in a place, behind the others.
    Put {
        /// The place's name.
        place: String,
        /// The token's value.
        #[serde(default)]
        token: Token,
    },
    /// Take tokens from the front of a place.
    Take {
        /// The place's name.
        place: String,
        /// How many.
        count: u32,
    },
    /// Say what becomes of a firing that stopped.
    Decide {
        /// The firing.
        firing: u64,
        /// What becomes of it.
        decision: Decision,
    },
}

/// What changed in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// The number of the last change.
    pub number: u64,
    /// Whether the run fires nodes.
    pub state: RunState,
    /// Why the run is in this state, if there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How fast it is.
    pub pace: Pace,
    /// Whether `places` and `nodes` name everything, so that nothing else has tokens or firings.
    pub complete: bool,
    /// How many tokens there are now in each place where that changed.
    pub places: BTreeMap<String, u32>,
    /// What was counted at each node where that changed.
    pub nodes: BTreeMap<String, NodeCounts>,
    /// What was counted of the whole run.
    pub counts: Counts,
    /// Firings that ended in the last second or so, per second.
    pub firings_per_second: f64,
}

/// Whether a run fires nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It begins no firings.
    Paused,
    /// It fires nodes as they become enabled.
    Running,
    /// Nothing is enabled and nothing is under way.
    Quiet,
    /// Nothing is left to do, except that somebody must decide about stopped firings.
    Stopped,
    /// It has ended, and does nothing more.
    Ended,
}

/// What was counted at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// How often it took its tokens.
    pub begun: u64,
    /// How often it ended.
    pub ended: u64,
    /// How many of its firings are under way.
    pub under_way: u32,
    /// How many of its firings have stopped.
    pub stopped: u32,
    /// Why its last call failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
