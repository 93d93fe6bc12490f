//! The interpreter of a graph: which nodes may begin, what they take, and what becomes of their tokens.
//!
//! It has no I/O, no clock and no threads: a driver begins firings, calls their procedures, and says how they
//! ended. Times are durations since the start of the run, in the graph's own time. The same graph, seed and
//! sequence of calls of these functions give the same run.
//!
//! A firing has a start and an end. At the start its tokens are taken, and room for what it may put is
//! reserved. At the end tokens are put, and the reservation ends. Whether a node may begin is looked at again
//! only when one of its places has changed in the way for which the node waits (`watches`).

mod firings;
mod plan;
mod problem;
pub(crate) mod ran;
mod ready;
mod saved;
mod watches;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use farcall::Ran;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use firings::Firings;
pub use firings::{Failure, Firing, FiringId, FiringState};
use plan::{NodePlan, Plan};
pub use problem::Problem;
use ready::Ready;
pub use saved::Saved;
use watches::{Change, Watches};

use crate::expression::{Scope, check_copies, check_size};
use crate::marking::Marking;
use crate::model::{Graph, InputKind, Join, Node, NodeId, Output, PlaceId, Token};
use crate::rules::{Blocked, Look, Rules};
use crate::scope::Held;

/// An interpreter of a graph.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use farcall_olympus::interpreter::{Effect, Ended, Interpreter};
/// use farcall_olympus::rules::Rules;
///
/// let graph = r#"{
///     "places": [{"name": "from", "tokens": [1, 2]}, {"name": "to"}],
///     "nodes": [{"name": "node", "in": [{"place": 0, "as": "x"}], "out": [{"place": 1, "value": "x + result"}]}]
/// }"#;
/// let graph = Arc::new(serde_json::from_str(graph).unwrap());
/// let mut interpreter = Interpreter::new(graph, Rules::standard(), 0).unwrap();
/// while let Some(firing) = interpreter.begin(Duration::ZERO) {
///     let id = firing.id;
///     assert_eq!(interpreter.end(id, Ended::Returned(10.into())), Ok(Effect::Put));
/// }
/// assert_eq!(interpreter.marking().counts(), [0, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct Interpreter {
    plan: Arc<Plan>,
    marking: Marking,
    firings: Firings,
    ready: Ready,
    watches: Watches,
    nodes: Vec<NodeState>,
    /// Firings that wait for their time.
    waiting: BinaryHeap<Reverse<(Duration, FiringId)>>,
    /// Nodes that may not begin before a time.
    held: BinaryHeap<Reverse<(Duration, NodeId)>>,
    /// Why a rule could not be asked at a node.
    complaints: BTreeMap<NodeId, String>,
    /// Memory that each begin and end uses again.
    scratch: Scratch,
}

/// What changes about a node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeState {
    /// How many of its firings have begun and not ended.
    under_way: u32,
    /// How many of them have stopped.
    stopped: u32,
    /// It does not begin before this time.
    held_until: Duration,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    values: Vec<Value>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The procedure returned. A node without a procedure returns `null`.
    Returned(Value),
    /// The procedure raised an exception that its interface declares.
    Declared {
        /// The exception's name.
        name: String,
        /// What it carries.
        value: Value,
    },
    /// The procedure did not run, and never will. The text says why.
    NotRun(String),
    /// The call failed, and the firing stops until somebody decides.
    Failed {
        /// Why.
        why: String,
        /// Whether the procedure ran.
        #[serde(with = "ran")]
        ran: Ran,
    },
}

/// What the end of a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The firing has ended, and its outputs got tokens.
    Put,
    /// The firing has ended, and its tokens are where they were, before all others.
    PutBack,
    /// The firing has ended, and its tokens are gone.
    Discarded,
    /// The firing has stopped. It keeps its tokens, and the node does not begin another.
    Stopped,
    /// The firing is under way again: its procedure must be called.
    Again,
}

/// What becomes of a firing that has stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The procedure of the node, as the graph has it now, is called with the arguments that its tokens give.
    Retry,
    /// The tokens go back to their places, before all others, as if the node had not begun.
    PutBack,
    /// The tokens are dropped.
    Discard,
    /// The firing ends as if the procedure had returned this.
    Return(Value),
}

impl Interpreter {
    /// Makes an interpreter with the tokens that the graph has at the beginning.
    ///
    /// Of the nodes that may begin and have the greatest priority, the one that has waited longest does if
    /// the seed is 0. With another seed the choice is random, and the same for the same seed.
    ///
    /// # Errors
    /// Returns an error if an arc has no place or no weight, or a place has more tokens than its capacity.
    pub fn new(graph: Arc<Graph>, rules: Rules, seed: u64) -> Result<Interpreter, Problem> {
        let marking = Marking::of(&graph);
        let tokens = graph.places.iter().flat_map(|place| &place.tokens);
        tokens.into_iter().try_for_each(check_value)?;
        Ok(Interpreter::with(Plan::new(graph, rules)?, marking, 0, seed))
    }

    fn with(plan: Plan, marking: Marking, next: u64, seed: u64) -> Interpreter {
        let mut ready = Ready::new(plan.ranks, plan.nodes.len(), seed);
        for (index, node) in plan.nodes.iter().enumerate() {
            ready.add(NodeId(index as u32), node.rank);
        }
        Interpreter {
            watches: Watches::new(plan.graph.places.len(), plan.watches),
            nodes: vec![NodeState::default(); plan.nodes.len()],
            marking,
            firings: Firings::new(next),
            ready,
            waiting: BinaryHeap::new(),
            held: BinaryHeap::new(),
            complaints: BTreeMap::new(),
            scratch: Scratch::default(),
            plan: Arc::new(plan),
        }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.plan.graph
    }

    /// Returns the tokens in the places. What firings under way have taken is not among them.
    pub fn marking(&self) -> &Marking {
        &self.marking
    }

    /// Returns the firings that have begun and not ended, in no order: those under way, those that wait for
    /// their time, and those that have stopped.
    pub fn under_way(&self) -> impl Iterator<Item = &Firing> {
        self.firings.iter()
    }

    /// Returns how many firings have begun and not ended.
    pub fn under_way_count(&self) -> usize {
        self.firings.len()
    }

    /// Returns how many firings of a node are under way or wait for their time, and how many have stopped.
    pub(crate) fn counts(&self, node: NodeId) -> (u32, u32) {
        let state = self.nodes.get(node.0 as usize).copied().unwrap_or_default();
        (state.under_way - state.stopped, state.stopped)
    }

    /// Returns firings that wait for their time, in no order, but the first is the first to come.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Firing> {
        let firings = self.waiting.iter().filter_map(|Reverse((_, id))| self.firings.get(*id));
        firings.filter(|firing| matches!(firing.state, FiringState::Waiting(_)))
    }

    /// Returns a firing that has begun and not ended.
    pub fn firing(&self, id: FiringId) -> Option<&Firing> {
        self.firings.get(id)
    }

    /// Returns the nodes whose guards could not be computed when they were last looked at, and why.
    pub fn complaints(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.complaints.iter().map(|(node, why)| (*node, why.as_str()))
    }

    /// Begins a firing of a node that may begin, and returns it. Returns `None` if no node may begin now.
    ///
    /// The state of the firing says what is next. [`FiringState::UnderWay`]: call its procedure with
    /// `Firing::arguments` and then call [`end`](Interpreter::end); if the node has no procedure, end it with
    /// `Ended::Returned(Value::Null)`. [`FiringState::Waiting`]: [`due`](Interpreter::due) returns it when
    /// its time has come. [`FiringState::Stopped`]: its arguments could not be computed.
    #[inline]
    pub fn begin(&mut self, now: Duration) -> Option<&Firing> {
        self.wake_held(now);
        loop {
            let chosen = self.ready.choose()?;
            match self.attempt(chosen.node, now) {
                Ok(id) => {
                    self.ready.has_begun(chosen);
                    if !self.complaints.is_empty() {
                        self.complaints.remove(&chosen.node);
                    }
                    return self.firings.get(id);
                }
                Err(blocked) => {
                    self.ready.remove(chosen);
                    self.wait_for(chosen.node, blocked);
                }
            }
        }
    }

    /// Begins a firing of this node, whatever the priorities of others and [`hold`](Interpreter::hold) say.
    ///
    /// # Errors
    /// Returns why the node may not begin.
    pub fn begin_node(&mut self, node: NodeId, now: Duration) -> Result<&Firing, Blocked> {
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return Err(Blocked::Change) };
        state.held_until = Duration::ZERO;
        let id = self.attempt(node, now)?;
        self.ready.add(node, self.plan.nodes[node.0 as usize].rank);
        self.firings.get(id).ok_or(Blocked::Change)
    }

    /// Returns whether the node may begin now.
    pub fn may_begin(&self, node: NodeId) -> bool {
        self.nodes.get(node.0 as usize).is_some()
            && permitted(&self.plan, &self.nodes, &self.marking, node, &mut Vec::new()).is_ok()
    }

    /// Returns the priority of a node: 0 is the greatest of the graph, 1 the next, and so on.
    pub(crate) fn rank(&self, node: NodeId) -> usize {
        self.plan.nodes.get(node.0 as usize).map_or(usize::MAX, |plan| plan.rank)
    }

    /// Returns a firing that has waited for its time, which has come: call its procedure.
    pub fn due(&mut self, now: Duration) -> Option<&Firing> {
        while let Some(&Reverse((time, id))) = self.waiting.peek()
            && time <= now
        {
            self.waiting.pop();
            if let Some(firing) = self.firings.get_mut(id)
                && matches!(firing.state, FiringState::Waiting(_))
            {
                firing.state = FiringState::UnderWay;
                return self.firings.get(id);
            }
        }
        None
    }

    /// Returns the time, since the start of the run, at which [`due`](Interpreter::due) or
    /// [`begin`](Interpreter::begin) may have something that they do not have now.
    pub fn next_time(&self) -> Option<Duration> {
        let waiting = self.waiting.peek().map(|Reverse((time, _))| *time);
        let held = self.held.peek().map(|Reverse((time, _))| *time);
        waiting.into_iter().chain(held).min()
    }

    /// Lets the node begin no firing before `until`; with `Duration::MAX`, before this is called again. Call
    /// this after failures, so that attempts do not follow one another without a pause.
    pub fn hold(&mut self, node: NodeId, until: Duration) {
        if let Some(state) = self.nodes.get_mut(node.0 as usize) {
            state.held_until = until;
            if until < Duration::MAX {
                self.held.push(Reverse((until, node)));
            }
        }
    }

    /// Says how the call of a firing ended, and returns what that did.
    ///
    /// # Errors
    /// Returns an error if there is no such firing, or if it is not under way.
    #[inline]
    pub fn end(&mut self, id: FiringId, ended: Ended) -> Result<Effect, Problem> {
        let firing = self.firings.get(id).ok_or(Problem::NoSuchFiring(id))?;
        if !matches!(firing.state, FiringState::UnderWay) {
            return Err(Problem::NotUnderWay(id));
        }
        match ended {
            Ended::Returned(value) => {
                let node = firing.node;
                Ok(self
                    .ended_plainly(id, node)
                    .unwrap_or_else(|| self.ended(id, None, value, None, Ran::Yes)))
            }
            Ended::Declared { name, value } => Ok(self.ended(id, Some(&name), value, None, Ran::Yes)),
            Ended::NotRun(_) => Ok(self.put_back(id)),
            Ended::Failed { why, ran } => Ok(self.stop(id, Failure::Call { why, ran })),
        }
    }

    /// Ends a firing with a result and the outputs that a split might choose, whatever the conditions say.
    pub(crate) fn end_with(&mut self, id: FiringId, outputs: &[u32]) -> Result<Effect, Problem> {
        self.firings.get(id).ok_or(Problem::NoSuchFiring(id))?;
        Ok(self.ended(id, None, Value::Null, Some(outputs), Ran::Yes))
    }

    /// Returns the choices of outputs that the rules could make when this node has ended with a result.
    pub(crate) fn possible_splits(&self, node: NodeId) -> Vec<Vec<u32>> {
        let Some(plan) = self.plan.nodes.get(node.0 as usize) else { return Vec::new() };
        let node = &self.plan.graph.nodes[node.0 as usize];
        let mut choices = vec![plan.fixed_outputs.clone()];
        for split in plan.split_rules.iter().filter_map(|rule| rule.possible_splits(node)) {
            choices = choices
                .iter()
                .flat_map(|one| split.iter().map(move |more| [&one[..], more].concat()))
                .collect();
        }
        choices
    }

    /// Decides what becomes of a firing that has stopped.
    ///
    /// # Errors
    /// Returns an error if there is no such firing, or if it has not stopped.
    pub fn decide(&mut self, id: FiringId, decision: Decision) -> Result<Effect, Problem> {
        let firing = self.firings.get_mut(id).ok_or(Problem::NoSuchFiring(id))?;
        let FiringState::Stopped(failure) = &firing.state else { return Err(Problem::NotStopped(id)) };
        let ran = failure.ran();
        if let Decision::Return(value) = &decision {
            check_value(value)?;
        }
        let node = firing.node;
        if decision == Decision::Retry {
            // (The graph may have been edited since.)
            let model = &self.plan.graph.nodes[node.0 as usize];
            match arguments(model, firing) {
                Ok(computed) => firing.arguments = computed,
                Err(why) => {
                    firing.state = FiringState::Stopped(Failure::Call { why, ran });
                    return Ok(Effect::Stopped);
                }
            }
        }
        firing.state = FiringState::UnderWay;
        self.nodes[node.0 as usize].stopped -= 1;
        self.ready.add(node, self.plan.nodes[node.0 as usize].rank);
        Ok(match decision {
            Decision::Retry => Effect::Again,
            Decision::PutBack => self.put_back(id),
            Decision::Return(value) => self.ended(id, None, value, None, ran),
            Decision::Discard => {
                self.release(id);
                self.forget(id);
                Effect::Discarded
            }
        })
    }

    /// Puts tokens into a place, behind those that are there.
    ///
    /// # Errors
    /// Returns an error, and puts nothing, if there is no such place, if it has no room for all of them, or
    /// if a token's value is too large.
    pub fn put(&mut self, place: PlaceId, tokens: Vec<Token>) -> Result<(), Problem> {
        let room = self.marking.get(place).ok_or(Problem::NoSuchPart)?.room();
        if tokens.len() > room as usize {
            let place = self.plan.graph.places[place.0 as usize].name.clone();
            return Err(Problem::Full { place, room });
        }
        tokens.iter().try_for_each(check_value)?;
        self.marking.place(place).tokens.extend(tokens);
        self.tell(place, Change::More);
        Ok(())
    }

    /// Takes up to `count` tokens from a place, those first that would leave first.
    pub fn take(&mut self, place: PlaceId, count: usize) -> Vec<Token> {
        if self.marking.get(place).is_none() {
            return Vec::new();
        }
        let tokens = &mut self.marking.place(place).tokens;
        let taken = tokens.drain(..count.min(tokens.len())).collect();
        self.tell(place, Change::Fewer);
        taken
    }

    /// Takes the tokens of a firing of this node if it may begin.
    #[inline]
    fn attempt(&mut self, node: NodeId, now: Duration) -> Result<FiringId, Blocked> {
        let held_until = self.nodes[node.0 as usize].held_until;
        if held_until > now {
            // (`wake_held` looks at the node again.)
            return Err(Blocked::Busy);
        }
        let inputs = &mut self.scratch.inputs;
        inputs.clear();
        permitted(&self.plan, &self.nodes, &self.marking, node, inputs)?;
        let (plan, model) = (&self.plan.nodes[node.0 as usize], &self.plan.graph.nodes[node.0 as usize]);
        let firing = self.firings.add();
        firing.node = node;
        firing.began = now;
        if plan.reads {
            read(model, &self.marking, &mut firing.read);
        }
        for index in inputs.iter() {
            let input = &model.inputs[*index as usize];
            let tokens = &mut self.marking.place(input.place).tokens;
            if input.weight == 1 {
                firing.taken.push(tokens.pop_front().unwrap_or_default());
            } else {
                firing.taken.extend(tokens.drain(..input.weight as usize));
            }
            firing.inputs.push(*index);
            self.watches.tell(input.place, Change::Fewer, |node| {
                self.ready.add(node, self.plan.nodes[node.0 as usize].rank);
            });
        }
        for (place, most) in &plan.reserves {
            self.marking.place(*place).reserved += most;
        }
        let id = firing.id;
        self.nodes[node.0 as usize].under_way += 1;
        if plan.delay > Duration::ZERO {
            let time = now.saturating_add(plan.delay);
            firing.state = FiringState::Waiting(time);
            self.waiting.push(Reverse((time, id)));
        }
        match arguments(model, firing) {
            Ok(None) => {}
            Ok(computed) => firing.arguments = computed,
            Err(why) => drop(self.stop(id, Failure::Call { why, ran: Ran::No })),
        }
        Ok(id)
    }

    /// Ends a firing: computes what the outputs get, and puts it.
    fn ended(
        &mut self,
        id: FiringId,
        raised: Option<&str>,
        outcome: Value,
        chosen: Option<&[u32]>,
        ran: Ran,
    ) -> Effect {
        let mut outputs = std::mem::take(&mut self.scratch.outputs);
        let mut values = std::mem::take(&mut self.scratch.values);
        let Some(firing) = self.firings.get(id) else { return Effect::Discarded };
        let node = firing.node;
        let (plan, model) = (&self.plan.nodes[node.0 as usize], &self.plan.graph.nodes[node.0 as usize]);
        let name = if raised.is_some() { "error" } else { "result" };
        let computed = {
            let scope = held(model, firing, Some((name, &outcome)));
            choose(plan, model, &scope, raised, chosen, &mut outputs)
                .and_then(|()| compute(model, &scope, &outputs, &mut values))
        };
        let failure = match (computed, raised) {
            (Err(error), _) => Some(Failure::Outputs { outcome, error, ran }),
            (Ok(()), Some(name)) if outputs.is_empty() => {
                Some(Failure::Exception { name: name.to_owned(), value: outcome })
            }
            _ => None,
        };
        let effect = if let Some(failure) = failure {
            self.stop(id, failure)
        } else {
            for (place, most) in &plan.reserves {
                self.marking.place(*place).reserved -= most;
            }
            let wake =
                |ready: &mut Ready, node: NodeId| ready.add(node, self.plan.nodes[node.0 as usize].rank);
            for (index, value) in outputs.iter().zip(values.drain(..)) {
                let output = &model.outputs[*index as usize];
                let tokens = &mut self.marking.place(output.place).tokens;
                if output.weight > 1 {
                    tokens.extend(std::iter::repeat_n(&value, output.weight as usize - 1).cloned());
                }
                tokens.push_back(value);
                self.watches.tell(output.place, Change::More, |node| wake(&mut self.ready, node));
            }
            for (place, _) in &plan.reserves {
                self.watches.tell(*place, Change::Fewer, |node| wake(&mut self.ready, node));
            }
            self.forget(id);
            Effect::Put
        };
        outputs.clear();
        values.clear();
        self.scratch.outputs = outputs;
        self.scratch.values = values;
        effect
    }

    /// Ends a firing whose outputs get tokens without values, whatever the result is. Returns `None` if they
    /// do not.
    #[inline]
    fn ended_plainly(&mut self, id: FiringId, node: NodeId) -> Option<Effect> {
        let plan = &self.plan.nodes[node.0 as usize];
        let outputs = plan.plain_outputs.as_deref()?;
        for (place, most) in &plan.reserves {
            self.marking.place(*place).reserved -= most;
        }
        let mut wake = |node: NodeId| self.ready.add(node, self.plan.nodes[node.0 as usize].rank);
        for (place, weight) in outputs {
            let tokens = &mut self.marking.place(*place).tokens;
            for _ in 0..*weight {
                tokens.push_back(Value::Null);
            }
            self.watches.tell(*place, Change::More, &mut wake);
        }
        for (place, _) in &plan.reserves {
            self.watches.tell(*place, Change::Fewer, &mut wake);
        }
        self.firings.remove(id);
        self.nodes[node.0 as usize].under_way -= 1;
        if !plan.takes {
            self.ready.add(node, plan.rank);
        }
        Some(Effect::Put)
    }

    fn put_back(&mut self, id: FiringId) -> Effect {
        self.release(id);
        let Some(firing) = self.firings.get_mut(id) else { return Effect::Discarded };
        let (node, inputs) = (firing.node, std::mem::take(&mut firing.inputs));
        let mut taken = std::mem::take(&mut firing.taken);
        for index in inputs.iter().rev() {
            let input = &self.plan.graph.nodes[node.0 as usize].inputs[*index as usize];
            let tokens = &mut self.marking.place(input.place).tokens;
            for token in taken.drain(taken.len().saturating_sub(input.weight as usize)..).rev() {
                tokens.push_front(token);
            }
        }
        for index in inputs {
            let place = self.plan.graph.nodes[node.0 as usize].inputs[index as usize].place;
            self.tell(place, Change::More);
        }
        self.forget(id);
        Effect::PutBack
    }

    fn stop(&mut self, id: FiringId, failure: Failure) -> Effect {
        if let Some(firing) = self.firings.get_mut(id) {
            firing.state = FiringState::Stopped(failure);
            self.nodes[firing.node.0 as usize].stopped += 1;
        }
        Effect::Stopped
    }

    /// Ends what a firing has reserved.
    fn release(&mut self, id: FiringId) {
        let Some(node) = self.firings.get(id).map(|firing| firing.node) else { return };
        for at in 0..self.plan.nodes[node.0 as usize].reserves.len() {
            let (place, most) = self.plan.nodes[node.0 as usize].reserves[at];
            self.marking.place(place).reserved -= most;
            self.tell(place, Change::Fewer);
        }
    }

    /// Removes a firing that has ended.
    #[inline]
    fn forget(&mut self, id: FiringId) {
        let Some(node) = self.firings.get(id).map(|firing| firing.node) else { return };
        self.firings.remove(id);
        let plan = &self.plan.nodes[node.0 as usize];
        self.nodes[node.0 as usize].under_way -= 1;
        if !plan.takes {
            self.ready.add(node, plan.rank);
        }
    }

    fn tell(&mut self, place: PlaceId, change: Change) {
        self.watches.tell(place, change, |node| self.ready.add(node, self.plan.nodes[node.0 as usize].rank));
    }

    /// Notes what must change before a blocked node is looked at again.
    #[inline]
    fn wait_for(&mut self, node: NodeId, blocked: Blocked) {
        let plan = &self.plan.nodes[node.0 as usize];
        if !self.complaints.is_empty() {
            self.complaints.remove(&node);
        }
        let one = match &blocked {
            Blocked::More(place) => Some((*place, Change::More)),
            Blocked::Fewer(place) => Some((*place, Change::Fewer)),
            _ => None,
        };
        if let Some((place, change)) = one
            && let Some(at) = plan.places.iter().position(|each| *each == place)
        {
            self.watches.add(node, place, plan.first_watch + at as u32, change);
            return;
        }
        match blocked {
            // (`forget`, `decide` or `wake_held` looks at the node again.)
            Blocked::Busy => return,
            // (`wake_held` does.)
            Blocked::Until(time) => return self.held.push(Reverse((time, node))),
            Blocked::Failed(why) => drop(self.complaints.insert(node, why)),
            _ => {}
        }
        for (at, place) in plan.places.iter().enumerate() {
            for change in [Change::More, Change::Fewer] {
                self.watches.add(node, *place, plan.first_watch + at as u32, change);
            }
        }
    }

    #[inline]
    fn wake_held(&mut self, now: Duration) {
        while let Some(&Reverse((time, node))) = self.held.peek()
            && time <= now
        {
            self.held.pop();
            self.ready.add(node, self.plan.nodes[node.0 as usize].rank);
        }
    }
}

/// Asks the rules whether a node may begin, and from which inputs tokens are taken.
#[inline]
fn permitted(
    plan: &Plan,
    states: &[NodeState],
    marking: &Marking,
    id: NodeId,
    inputs: &mut Vec<u32>,
) -> Result<(), Blocked> {
    let (state, node) = (&states[id.0 as usize], &plan.nodes[id.0 as usize]);
    if state.stopped > 0 || !node.takes && state.under_way > 0 {
        return Err(Blocked::Busy);
    }
    let model = &plan.graph.nodes[id.0 as usize];
    for input in &node.fixed_inputs {
        if marking.count(input.place) < input.needed {
            return Err(Blocked::More(input.place));
        }
        inputs.push(input.index);
    }
    let look = Look { id, node: model, marking, offsets: &node.offsets };
    for rule in &node.begin_rules {
        rule.begin(&look, inputs)?;
    }
    for (place, most) in &node.reserves {
        let Some(there) = marking.get(*place) else { continue };
        if there.room() < *most {
            let frees = |index: &&u32| model.inputs[**index as usize].place == *place;
            let freed: u32 = inputs.iter().filter(frees).map(|at| model.inputs[*at as usize].weight).sum();
            let kept = there.count().saturating_sub(freed).saturating_add(there.reserved);
            if kept.saturating_add(*most) > there.capacity {
                // (Which inputs are taken, and so what becomes free, may change in other ways too.)
                return Err(if model.join == Join::All { Blocked::Fewer(*place) } else { Blocked::Change });
            }
        }
    }
    Ok(())
}

/// Computes the arguments of a firing's call, if its node has any.
#[inline]
fn arguments(model: &Node, firing: &Firing) -> Result<Option<Value>, String> {
    let Some(arguments) = model.call.as_ref().and_then(|call| call.arguments.as_ref()) else {
        return Ok(None);
    };
    let computed = arguments.evaluate(&held(model, firing, None));
    computed.map(Some).map_err(|error| format!("the arguments {arguments}: {error}"))
}

/// Chooses the outputs that get tokens.
fn choose(
    plan: &NodePlan,
    node: &Node,
    scope: &dyn Scope,
    raised: Option<&str>,
    chosen: Option<&[u32]>,
    outputs: &mut Vec<u32>,
) -> Result<(), String> {
    if let Some(chosen) = chosen {
        outputs.extend_from_slice(chosen);
        return Ok(());
    }
    if let Some(raised) = raised {
        let concerned =
            |output: &Output| output.exception.as_deref().is_some_and(|name| name == "*" || name == raised);
        let indices = node.outputs.iter().enumerate().filter(|(_, output)| concerned(output));
        outputs.extend(indices.map(|(index, _)| index as u32));
        return Ok(());
    }
    outputs.extend_from_slice(&plan.fixed_outputs);
    for rule in &plan.split_rules {
        rule.split(node, scope, outputs).map_err(|error| format!("the condition of an output: {error}"))?;
    }
    Ok(())
}

/// Computes the value of the tokens of each chosen output.
fn compute(node: &Node, scope: &dyn Scope, outputs: &[u32], values: &mut Vec<Value>) -> Result<(), String> {
    for index in outputs {
        let output =
            node.outputs.get(*index as usize).ok_or("a rule has chosen an output that does not exist")?;
        values.push(match &output.value {
            None => Value::Null,
            Some(value) => value
                .evaluate(scope)
                .and_then(|made| match output.weight {
                    1 => Ok(made),
                    copies => check_copies(&made, copies).map(|()| made),
                })
                .map_err(|error| format!("the value {value}: {error}"))?,
        });
    }
    Ok(())
}

/// Copies the tokens that a node reads.
fn read(node: &Node, marking: &Marking, to: &mut Vec<Token>) {
    for input in node.inputs.iter().filter(|input| input.kind == InputKind::Read) {
        if let Some(place) = marking.get(input.place) {
            to.extend(place.tokens.iter().take(input.weight as usize).cloned());
        }
    }
}

fn held<'a>(node: &'a Node, firing: &'a Firing, outcome: Option<(&'static str, &'a Value)>) -> Held<'a> {
    Held { node, inputs: &firing.inputs, taken: &firing.taken, read: &firing.read, outcome }
}

fn check_value(value: &Value) -> Result<(), Problem> {
    match value {
        Value::Array(_) | Value::Object(_) | Value::String(_) => {
            check_size(value).map_err(|error| Problem::Value(format!("a token: {error}")))
        }
        _ => Ok(()),
    }
}
