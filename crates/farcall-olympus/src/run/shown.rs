//! What users are shown of a run.

use serde::Serialize;
use serde_json::Value;

use super::Pace;
use super::machine::Machine;
use crate::interpreter::FiringId;
use crate::model::{NodeId, PlaceId, Token};

/// Everything that is shown of a run at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    /// The number of the latest change, for [`Run::changes`](super::Run::changes).
    pub number: u64,
    /// Whether the run is paused.
    pub paused: bool,
    /// How fast it is.
    pub pace: Pace,
    /// What the graph's clock shows, in seconds.
    pub clock: f64,
    /// How the run has ended, if it has nothing left to do.
    pub outcome: Option<super::Outcome>,
    /// What was counted since the run began or was resumed.
    pub counts: Counts,
    /// The firings that ended in the last second or so, per second.
    pub firings_per_second: f64,
    /// The places, in the order of the graph.
    pub places: Vec<PlaceState>,
    /// The nodes, in the order of the graph.
    pub nodes: Vec<NodeState>,
    /// The firings that are under way, at most 1,000 of them, those with the least numbers first.
    pub under_way: Vec<FiringRecord>,
    /// The firings that have stopped, and wait until somebody decides about them; at most 1,000.
    pub stopped: Vec<FiringRecord>,
    /// The latest failures, the last one first, at most 100. They include failures after which the tokens
    /// went back, and those of firings that have stopped.
    pub failures: Vec<FiringRecord>,
}

/// What has changed since an earlier change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// The number of the latest change.
    pub number: u64,
    /// Whether the graph was edited since, so that everything must be asked for again.
    pub edited: bool,
    /// Whether the run is paused.
    pub paused: bool,
    /// How fast it is.
    pub pace: Pace,
    /// What the graph's clock shows, in seconds.
    pub clock: f64,
    /// How the run has ended, if it has nothing left to do.
    pub outcome: Option<super::Outcome>,
    /// What was counted since the run began or was resumed.
    pub counts: Counts,
    /// The firings that ended in the last second or so, per second.
    pub firings_per_second: f64,
    /// The places that have changed.
    pub places: Vec<PlaceState>,
    /// The nodes that have begun, ended or failed.
    pub nodes: Vec<NodeState>,
    /// The failures since, the last one first, at most 100.
    pub failures: Vec<FiringRecord>,
}

/// What a run has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Firings that took their tokens.
    pub begun: u64,
    /// Firings that ended with a result or with an exception that has an output.
    pub ended: u64,
    /// Calls that did not run, so that the tokens went back.
    pub not_run: u64,
    /// Calls that may have run, and were made again because that does no harm.
    pub repeated: u64,
    /// Firings that have stopped.
    pub stopped: u64,
    /// Firings that are under way now.
    pub under_way: u64,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceState {
    /// Which one.
    pub place: PlaceId,
    /// How many tokens it has.
    pub count: u32,
    /// How many tokens firings under way may put there.
    pub reserved: u32,
    /// The first tokens, at most 20.
    pub tokens: Vec<Token>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeState {
    /// Which one.
    pub node: NodeId,
    /// How often it took its tokens.
    pub begun: u64,
    /// How often it ended with a result or with an exception that has an output.
    pub ended: u64,
    /// How many of its calls failed.
    pub failed: u64,
    /// How many of its firings are under way.
    pub under_way: u32,
    /// How many of its firings have stopped.
    pub stopped: u32,
    /// Why its last call failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A firing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FiringRecord {
    /// Its number.
    pub firing: FiringId,
    /// Its node.
    pub node: NodeId,
    /// The node's name.
    pub name: String,
    /// How far it is.
    pub stage: Stage,
    /// The tokens that it took.
    pub tokens: Vec<Token>,
    /// The arguments of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// How many calls were made for it.
    pub attempts: u32,
    /// Why its last call failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the procedure ran, if the call failed: `no`, `maybe` or `yes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran: Option<&'static str>,
    /// What the graph's clock showed when it began, in seconds.
    pub began: f64,
}

/// How far a firing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its time has not come.
    Timed,
    /// Its procedure is looked for.
    Finding,
    /// Its procedure is called.
    Calling,
    /// Its call is made again after a pause.
    Waiting,
    /// It has failed, and keeps its tokens until somebody decides.
    Stopped,
    /// It did not run, and its tokens went back.
    PutBack,
}

