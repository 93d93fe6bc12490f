//! What the page needs of a run: commands, changes, failures, and the procedures that are exported now.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Graph, Token};

/// What the page needs of a run. Every call may block; the page calls it from threads of its own.
///
/// Errors are sentences for people.
pub trait Backend: Send + Sync + 'static {
    /// Makes the run go on with this graph. Places that remain keep their tokens.
    fn apply(&self, graph: &Graph) -> Result<(), String>;

    /// Carries out a command.
    fn command(&self, command: Command) -> Result<(), String>;

    /// Returns what changed after the change with number `since`; 0 asks for everything. Waits at most `wait` for a
    /// change.
    fn changes(&self, since: u64, wait: Duration) -> Changes;

    /// Returns all that is known of a firing which is under way or stopped.
    fn firing(&self, id: u64) -> Option<Value>;

    /// Returns the tokens in a place, at most `limit` of them, those that leave first at the beginning.
    fn tokens(&self, place: &str, limit: usize) -> Option<Vec<Token>>;

    /// Returns what is exported now.
    fn exports(&self) -> Result<Vec<Export>, String>;
}

/// What the page tells a run to do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// Fire nodes from now on.
    Resume,
    /// Begin no more firings.
    Pause,
    /// Begin one firing.
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

/// How fast a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As fast as possible.
    Fast,
    /// So many seconds for each second of the graph.
    Scaled(f64),
}

/// What becomes of a firing that stopped.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Call the procedure again.
    Retry,
    /// Put its tokens back into the places from which they came.
    Back,
    /// Discard its tokens.
    Discard,
    /// Go on as if the procedure had returned this value.
    Returned(Value),
}

/// What changed in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Changes {
    /// The number of the last change.
    pub number: u64,
    /// Whether the run fires nodes.
    pub state: RunState,
    /// How fast it is.
    pub pace: Option<Pace>,
    /// Whether `marking` and `active` name every place and node that has something, so that others have nothing.
    pub complete: bool,
    /// How many tokens there are now in each place whose number changed.
    pub marking: BTreeMap<String, u64>,
    /// How many firings are under way now at each node where that changed.
    pub active: BTreeMap<String, u64>,
    /// Firings that began since the run began.
    pub began: u64,
    /// Firings that ended since the run began.
    pub ended: u64,
    /// Calls that failed since the run began.
    pub failed: u64,
    /// Firings that ended in the last second.
    pub per_second: f64,
    /// What tokens did since the last change, the newest last; not all of it when much happened.
    pub moves: Vec<Move>,
    /// All firings that are stopped now, if that changed.
    pub stopped: Option<Vec<Failure>>,
}

/// Whether a run fires nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It begins no firings.
    #[default]
    Paused,
    /// It fires nodes as they become enabled.
    Running,
    /// Nothing is enabled and nothing is under way.
    Idle,
    /// It has ended, and does nothing more.
    Ended,
}

/// A step of the tokens of a firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The node that fires.
    pub node: String,
    /// The places from which tokens were taken, if the firing began; into which they were put, if it ended.
    pub places: Vec<String>,
    /// Whether the firing ended.
    pub ended: bool,
}

/// A firing that stopped, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The firing.
    pub firing: u64,
    /// The node.
    pub node: String,
    /// What went wrong.
    pub error: String,
}

/// What a server exports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Export {
    /// The name by which it is found.
    pub server: String,
    /// Its procedures.
    pub procedures: Vec<ExportedProcedure>,
    /// Why its procedures are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A procedure that a server exports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportedProcedure {
    /// Its name.
    pub name: String,
    /// The names and types of its parameters.
    pub parameters: Vec<(String, String)>,
    /// The type of its result, if it has one.
    pub result: Option<String>,
    /// The exceptions that it declares.
    pub exceptions: Vec<String>,
    /// Whether its interface says that it may be called again.
    pub idempotent: bool,
}
