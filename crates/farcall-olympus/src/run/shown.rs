//! What users are shown of a run.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use farcall::Ran;
use farcall::env::Time;
use serde::Serialize;
use serde_json::Value;

use super::Pace;
use super::excerpt::beginning;
use crate::interpreter::FiringId;
use crate::interpreter::ran::word;
use crate::model::{Graph, NodeId, PlaceId, Token};

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
    /// Firings that are under way, those with the least numbers first. If there are more than 1,000, these
    /// are as many of them, and those with a procedure before those that wait for their time.
    pub under_way: Vec<FiringRecord>,
    /// The firings that have stopped, and wait until somebody decides about them; the first 1,000.
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
    /// The first tokens, at most 20, and at most 64 KiB of them.
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

/// A firing. Large tokens, arguments and errors are left out.
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
    /// The name of the exception that its procedure raised, if it has stopped because no output is for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// What was left out because it is large, for people: `2 of 3 tokens, the arguments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Whether the procedure ran, if the call failed: `no`, `maybe` or `yes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran: Option<&'static str>,
    /// What the graph's clock showed when it began, in seconds.
    pub began: f64,
}

impl FiringRecord {
    /// Adds why the call failed, and whether the procedure ran.
    pub(super) fn because(self, why: impl Display, ran: Option<Ran>) -> FiringRecord {
        let (error, whole) = beginning(why);
        let error = Some(error).filter(|error| !error.is_empty());
        let more = (!whole).then(|| "the end of the error".to_owned());
        let left_out = match (self.left_out, more) {
            (Some(some), Some(more)) => Some(format!("{some}, {more}")),
            (some, more) => some.or(more),
        };
        FiringRecord { error, left_out, ran: ran.map(word), ..self }
    }
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
    /// Its call is made after a pause, or when fewer calls are under way.
    Waiting,
    /// It has failed, and keeps its tokens until somebody decides.
    Stopped,
    /// It did not run, and its tokens went back.
    PutBack,
}

/// Notes what changes, so that users can be shown what has changed since they last looked.
pub(super) struct Board {
    pub number: u64,
    /// The change that edited the graph last.
    pub edited: u64,
    /// The last change of each place.
    pub places: Vec<u64>,
    pub nodes: Vec<NodeNotes>,
    pub counts: Counts,
    /// Excerpts of the latest failures, each with its change.
    pub failures: VecDeque<(u64, FiringRecord)>,
    pub rate: Rate,
}

/// What was noted of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeNotes {
    pub changed: u64,
    pub begun: u64,
    pub ended: u64,
    pub failed: u64,
    pub error: Option<String>,
}

/// How many firings end in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    pub since: Option<Time>,
    pub ended: u64,
    pub per_second: f64,
}

/// The most failures that are remembered.
const MAX_FAILURES: usize = 1000;
/// How long firings are counted for a rate.
const RATE_TIME: Duration = Duration::from_millis(500);

impl Board {
    pub fn new(graph: &Graph) -> Board {
        Board {
            number: 1,
            edited: 1,
            places: vec![1; graph.places.len()],
            nodes: vec![NodeNotes { changed: 1, ..NodeNotes::default() }; graph.nodes.len()],
            counts: Counts::default(),
            failures: VecDeque::new(),
            rate: Rate::default(),
        }
    }

    /// Notes a change.
    pub fn note(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that tokens of a place have changed.
    pub fn moved(&mut self, place: PlaceId) {
        let number = self.note();
        if let Some(changed) = self.places.get_mut(place.0 as usize) {
            *changed = number;
        }
    }

    pub fn begun(&mut self, graph: &Graph, node: NodeId) {
        self.counts.begun += 1;
        self.change(graph, node).begun += 1;
    }

    pub fn ended(&mut self, graph: &Graph, node: NodeId) {
        self.counts.ended += 1;
        self.change(graph, node).ended += 1;
    }

    pub fn put_back(&mut self, graph: &Graph, node: NodeId) {
        self.change(graph, node);
    }

    /// Notes a failure after which the tokens go back.
    pub fn not_run(&mut self, node: NodeId, record: FiringRecord) {
        self.counts.not_run += 1;
        self.failed(node, record.error.as_deref().unwrap_or_default());
        self.remember(record);
    }

    pub fn stopped(&mut self, node: NodeId, record: FiringRecord) {
        self.counts.stopped += 1;
        self.failed(node, record.error.as_deref().unwrap_or_default());
        self.remember(record);
    }

    /// Notes that a call that may have run is made again.
    pub fn repeated(&mut self, node: NodeId, why: &str) {
        self.counts.repeated += 1;
        self.failed(node, why);
    }

    /// Notes that a call of a node has failed.
    pub fn failed(&mut self, node: NodeId, why: &str) {
        let number = self.note();
        if let Some(notes) = self.nodes.get_mut(node.0 as usize) {
            (notes.changed, notes.error) = (number, Some(beginning(why).0));
            notes.failed += 1;
        }
    }

    /// Notes that the graph was edited. `nodes` says which node of it each former one is.
    pub fn edited(&mut self, graph: &Graph, nodes: &[Option<NodeId>]) {
        let number = self.note();
        self.edited = number;
        self.places = vec![number; graph.places.len()];
        let notes = vec![NodeNotes { changed: number, ..NodeNotes::default() }; graph.nodes.len()];
        let former = std::mem::replace(&mut self.nodes, notes);
        for (notes, node) in former.into_iter().zip(nodes) {
            if let Some(new) = node.and_then(|node| self.nodes.get_mut(node.0 as usize)) {
                *new = NodeNotes { changed: number, ..notes };
            }
        }
        // Failures of nodes that are gone are forgotten.
        self.failures.retain_mut(|(_, failure)| {
            let Some(Some(node)) = nodes.get(failure.node.0 as usize) else { return false };
            failure.node = *node;
            failure.name.clone_from(&graph.nodes[node.0 as usize].name);
            true
        });
    }

    /// Measures how many firings end in a second.
    pub fn measure(&mut self, now: Time) {
        let since = *self.rate.since.get_or_insert(now);
        let passed = now.since(since);
        if passed >= RATE_TIME {
            let ended = self.counts.ended - self.rate.ended;
            let per_second = ended as f64 / passed.as_secs_f64();
            self.rate = Rate { since: Some(now), ended: self.counts.ended, per_second };
        }
    }

    fn remember(&mut self, record: FiringRecord) {
        if self.failures.len() >= MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back((self.number, record));
    }

    /// Notes a change of a node and of the places of its arcs.
    fn change(&mut self, graph: &Graph, node: NodeId) -> &mut NodeNotes {
        self.number += 1;
        let number = self.number;
        let model = &graph.nodes[node.0 as usize];
        model.inputs.iter().for_each(|input| self.places[input.place.0 as usize] = number);
        model.outputs.iter().for_each(|output| self.places[output.place.0 as usize] = number);
        let notes = &mut self.nodes[node.0 as usize];
        notes.changed = number;
        notes
    }
}
