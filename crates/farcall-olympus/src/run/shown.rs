//! What users are shown of a run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Env, Time};
use serde::Serialize;
use serde_json::Value;

use super::Pace;
use super::machine::Machine;
use crate::interpreter::{Firing, FiringId, FiringState};
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

/// Notes what changes, so that users can be shown what has changed since they last looked.
pub(super) struct Board {
    number: u64,
    /// The change that edited the graph last.
    edited: u64,
    /// The last change of each place.
    places: Vec<u64>,
    nodes: Vec<NodeNotes>,
    counts: Counts,
    /// The latest failures, each with its change.
    failures: VecDeque<(u64, FiringRecord)>,
    rate: Rate,
}

/// What was noted of a node.
#[derive(Clone, Debug, Default)]
struct NodeNotes {
    changed: u64,
    begun: u64,
    ended: u64,
    failed: u64,
    error: Option<String>,
}

/// How many firings end in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    since: Option<Time>,
    ended: u64,
    per_second: f64,
}

/// The most failures that are remembered.
const MAX_FAILURES: usize = 1000;
/// The most failures that are shown at once.
const MAX_SHOWN_FAILURES: usize = 100;
/// The most firings that are shown at once.
const MAX_SHOWN_FIRINGS: usize = 1000;
/// The most tokens of a place that are shown.
const MAX_SHOWN_TOKENS: usize = 20;
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
            (notes.changed, notes.error) = (number, Some(why.to_owned()));
            notes.failed += 1;
        }
    }

    pub fn edited(&mut self, graph: &Graph) {
        let number = self.note();
        self.edited = number;
        self.places = vec![number; graph.places.len()];
        self.nodes.resize(graph.nodes.len(), NodeNotes::default());
        self.nodes.iter_mut().for_each(|notes| notes.changed = number);
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

impl Machine {
    /// Returns everything that is shown of the run.
    pub fn state(&mut self, env: &Arc<dyn Env>) -> State {
        let Changes {
            number,
            paused,
            pace,
            clock,
            outcome,
            counts,
            firings_per_second,
            places,
            nodes,
            failures,
            ..
        } = self.changes(0, env);
        let mut firings: Vec<FiringRecord> =
            self.interpreter.under_way().map(|firing| self.shown(firing)).collect();
        firings.sort_unstable_by_key(|firing| firing.firing);
        let (mut stopped, mut under_way): (Vec<_>, Vec<_>) =
            firings.into_iter().partition(|firing| firing.stage == Stage::Stopped);
        stopped.truncate(MAX_SHOWN_FIRINGS);
        under_way.truncate(MAX_SHOWN_FIRINGS);
        State {
            number,
            paused,
            pace,
            clock,
            outcome,
            counts,
            firings_per_second,
            places,
            nodes,
            under_way,
            stopped,
            failures,
        }
    }

    /// Returns what has changed since the change of this number.
    pub fn changes(&mut self, since: u64, env: &Arc<dyn Env>) -> Changes {
        let now = env.now();
        self.board.measure(now);
        let board = &self.board;
        let mut firings = vec![(0, 0); self.graph.nodes.len()];
        for firing in self.interpreter.under_way() {
            let (under_way, stopped) = &mut firings[firing.node.0 as usize];
            *if matches!(firing.state, FiringState::Stopped(_)) { stopped } else { under_way } += 1;
        }
        let complaints: HashMap<NodeId, &str> = self.interpreter.complaints().collect();
        let places = board.places.iter().enumerate().filter(|(_, changed)| **changed > since);
        let nodes = board.nodes.iter().enumerate().filter(|(_, notes)| notes.changed > since);
        let node = |(at, notes): (usize, &NodeNotes)| {
            let node = NodeId(at as u32);
            let complaint = complaints.get(&node).map(|why| (*why).to_owned());
            let NodeNotes { begun, ended, failed, ref error, .. } = *notes;
            let (under_way, stopped) = firings[at];
            let error = complaint.or_else(|| error.clone());
            NodeState { node, begun, ended, failed, under_way, stopped, error }
        };
        let failures = board.failures.iter().rev().take_while(|(number, _)| *number > since);
        let under_way = firings.iter().map(|(under_way, _)| u64::from(*under_way)).sum();
        Changes {
            number: board.number,
            edited: board.edited > since,
            paused: self.paused,
            pace: self.clock.pace(),
            clock: self.clock.at(now).as_secs_f64(),
            outcome: self.outcome.clone(),
            counts: Counts { under_way, ..board.counts },
            firings_per_second: board.rate.per_second,
            places: places.map(|(at, _)| self.place_state(PlaceId(at as u32))).collect(),
            nodes: nodes.map(node).collect(),
            failures: failures.take(MAX_SHOWN_FAILURES).map(|(_, record)| record.clone()).collect(),
        }
    }

    /// Returns a firing that is under way or has stopped, or that is among the latest failures.
    pub fn firing_record(&self, firing: FiringId) -> Option<FiringRecord> {
        let present = self.interpreter.firing(firing).map(|firing| self.shown(firing));
        present.or_else(|| self.remembered(firing))
    }

    fn remembered(&self, firing: FiringId) -> Option<FiringRecord> {
        let mut latest = self.board.failures.iter().rev();
        latest.find(|(_, record)| record.firing == firing).map(|(_, record)| record.clone())
    }

    fn shown(&self, firing: &Firing) -> FiringRecord {
        let called = self.calls.iter().find(|called| called.firing == firing.id);
        let stage = match (&firing.state, called) {
            (FiringState::Stopped(_), _) => {
                let remembered = self.remembered(firing.id).filter(|record| record.stage == Stage::Stopped);
                return remembered.unwrap_or_else(|| {
                    self.record_of(firing.id, Stage::Stopped, 0, &self.failure(firing.id), None)
                });
            }
            (FiringState::Waiting(_), _) => Stage::Timed,
            (FiringState::UnderWay, called) => called.map_or(Stage::Finding, |called| called.stage),
        };
        let error = called.and_then(|called| called.error.as_deref()).unwrap_or_default();
        self.record_of(firing.id, stage, called.map_or(0, |called| called.attempts), error, None)
    }

    fn place_state(&self, place: PlaceId) -> PlaceState {
        let Some(there) = self.interpreter.marking().get(place) else {
            return PlaceState { place, count: 0, reserved: 0, tokens: Vec::new() };
        };
        let tokens = there.tokens.iter().take(MAX_SHOWN_TOKENS).cloned().collect();
        PlaceState { place, count: there.count(), reserved: there.reserved, tokens }
    }
}
