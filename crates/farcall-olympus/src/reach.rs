//! Explores all markings that a graph can reach, whatever the values of its tokens are.
//!
//! The exploration drives the interpreter itself: in each state it begins each node that may begin, and ends
//! each firing under way in each way in which it could end. Tokens have no values in it. So a guard does not
//! refuse, each output with a condition may and may not get tokens, and a procedure may return or raise any
//! exception for which its node has an output. What the exploration does not reach, no run reaches; but a run
//! may not reach all of it.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::interpreter::{Ended, Interpreter, Problem};
use crate::model::{Graph, Node, NodeId, Output, Place, Procedure, Split};
use crate::rules::Rules;
use crate::rules::any::MAX_EXPLORED_CONDITIONS;

/// A state of a graph: the number of tokens of each place, and the firings that have begun and not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// How many tokens each place has.
    pub tokens: Vec<u32>,
    /// The node of each firing, and the inputs from which it has taken tokens; in rising order.
    pub firings: Vec<(NodeId, Vec<u32>)>,
}

/// All states that a graph can reach.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The states, the first one first.
    pub states: Vec<State>,
    /// How many starts and ends lead from a state to a state, together.
    pub steps: usize,
    /// The states from which nothing leads on.
    pub final_states: Vec<usize>,
    /// For each node, whether it can begin at all.
    pub can_begin: Vec<bool>,
}

/// Why a graph cannot be explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unexplored {
    /// It has more states than were asked for, perhaps without end.
    TooMany(usize),
    /// A node has more outputs with conditions than are explored.
    TooManyConditions(NodeId),
    /// It cannot be interpreted.
    Problem(Problem),
}

impl Reached {
    /// Returns the most tokens that a place has in any state, for each place.
    pub fn most_tokens(&self) -> Vec<u32> {
        let mut most = vec![0; self.states.first().map_or(0, |state| state.tokens.len())];
        for state in &self.states {
            for (most, tokens) in most.iter_mut().zip(&state.tokens) {
                *most = (*most).max(*tokens);
            }
        }
        most
    }
}

/// Explores all states of a graph, if it has at most `max_states`.
///
/// # Errors
/// Returns an error if there are more, or if the graph cannot be interpreted.
pub fn explore(graph: &Graph, rules: Rules, max_states: usize) -> Result<Reached, Unexplored> {
    for (at, node) in graph.nodes.iter().enumerate() {
        let conditions = node.outputs.iter().filter(|output| output.condition.is_some()).count();
        if node.split == Split::Any && conditions > MAX_EXPLORED_CONDITIONS {
            return Err(Unexplored::TooManyConditions(NodeId(at as u32)));
        }
    }
    let plain = Arc::new(without_values(graph));
    let first = Interpreter::new(plain, rules, 0).map_err(Unexplored::Problem)?;
    let mut exploration = Exploration {
        graph,
        max_states,
        known: HashSet::new(),
        todo: VecDeque::new(),
        reached: Reached {
            states: Vec::new(),
            steps: 0,
            final_states: Vec::new(),
            can_begin: vec![false; graph.nodes.len()],
        },
    };
    exploration.add(first)?;
    while let Some((at, interpreter)) = exploration.todo.pop_front() {
        let before = exploration.reached.steps;
        exploration.begin_each(&interpreter)?;
        exploration.end_each(&interpreter)?;
        if exploration.reached.steps == before {
            exploration.reached.final_states.push(at);
        }
    }
    Ok(exploration.reached)
}

struct Exploration<'a> {
    graph: &'a Graph,
    max_states: usize,
    known: HashSet<State>,
    /// States whose successors are not known yet.
    todo: VecDeque<(usize, Interpreter)>,
    reached: Reached,
}

impl Exploration<'_> {
    fn add(&mut self, interpreter: Interpreter) -> Result<(), Unexplored> {
        let mut firings: Vec<(NodeId, Vec<u32>)> =
            interpreter.under_way().map(|firing| (firing.node, firing.inputs.clone())).collect();
        firings.sort_unstable();
        let state = State { tokens: interpreter.marking().counts(), firings };
        if self.known.contains(&state) {
            return Ok(());
        }
        if self.known.len() >= self.max_states {
            return Err(Unexplored::TooMany(self.max_states));
        }
        self.known.insert(state.clone());
        self.todo.push_back((self.reached.states.len(), interpreter));
        self.reached.states.push(state);
        Ok(())
    }

    /// Begins each node that may begin and has the greatest priority of those. A node whose guard might
    /// refuse does not keep nodes of less priority from beginning.
    fn begin_each(&mut self, from: &Interpreter) -> Result<(), Unexplored> {
        let nodes = (0..self.graph.nodes.len()).map(|at| NodeId(at as u32));
        let enabled: Vec<NodeId> = nodes.filter(|node| from.may_begin(*node)).collect();
        let sure = enabled.iter().filter(|node| self.graph.nodes[node.0 as usize].guard.is_none());
        let rank = sure.map(|node| from.rank(*node)).min().unwrap_or(usize::MAX);
        for node in enabled.into_iter().filter(|node| from.rank(*node) <= rank) {
            let mut next = from.clone();
            if next.begin_node(node, Duration::ZERO).is_ok() {
                self.reached.can_begin[node.0 as usize] = true;
                self.reached.steps += 1;
                self.add(next)?;
            }
        }
        Ok(())
    }

    /// Ends each firing in each way. Firings of one node that have taken from the same inputs are alike.
    fn end_each(&mut self, from: &Interpreter) -> Result<(), Unexplored> {
        let mut firings: Vec<_> =
            from.under_way().map(|firing| (firing.node, firing.inputs.clone(), firing.id)).collect();
        firings.sort_unstable();
        firings.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
        for (node, _, id) in firings {
            for outputs in from.possible_splits(node) {
                let mut next = from.clone();
                next.end_with(id, &outputs).map_err(Unexplored::Problem)?;
                self.reached.steps += 1;
                self.add(next)?;
            }
            for name in exceptions(&self.graph.nodes[node.0 as usize]) {
                let mut next = from.clone();
                let ended = Ended::Declared { name, value: Value::Null };
                next.end(id, ended).map_err(Unexplored::Problem)?;
                self.reached.steps += 1;
                self.add(next)?;
            }
        }
        Ok(())
    }
}

/// Returns the exceptions for which the node has an output. `*` stands for one that no output names.
fn exceptions(node: &Node) -> Vec<String> {
    if node.call.is_none() {
        return Vec::new();
    }
    let mut names: Vec<String> = node.outputs.iter().filter_map(|output| output.exception.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the graph without values, guards, arguments and times.
fn without_values(graph: &Graph) -> Graph {
    let place = |place: &Place| Place { tokens: vec![Value::Null; place.tokens.len()], ..place.clone() };
    let output = |output: &Output| Output { value: None, ..output.clone() };
    let node = |node: &Node| Node {
        guard: None,
        after: None,
        call: node.call.as_ref().map(|call| Procedure { arguments: None, ..call.clone() }),
        outputs: node.outputs.iter().map(output).collect(),
        ..node.clone()
    };
    Graph {
        places: graph.places.iter().map(place).collect(),
        nodes: graph.nodes.iter().map(node).collect(),
        ..graph.clone()
    }
}

impl fmt::Display for Unexplored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unexplored::TooMany(most) => {
                write!(f, "the graph has more than {most} states, perhaps without end")
            }
            Unexplored::TooManyConditions(node) => {
                let most = MAX_EXPLORED_CONDITIONS;
                write!(f, "node {} has more than {most} outputs with conditions, too many to explore", node.0)
            }
            Unexplored::Problem(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for Unexplored {}
