//! Checks the structure of a graph: names, arcs, variables, and what can never happen.
//!
//! Each finding says which part of the graph it is about, so that a text or a drawing can show it there.
//! Whether procedures exist and types fit is not checked here: that needs their interfaces.

use std::collections::{HashMap, HashSet};

use farcall_base::work;
use serde::{Deserialize, Serialize};

use crate::expression::Expression;
use crate::location::Location;
use crate::marking::MAX_PLACE_TOKENS;
use crate::model::{Graph, InputKind, Join, Node, NodeId, Output, PlaceId, Split};

/// Something that is wrong with a graph, or probably is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which part of the graph it is about.
    pub location: Location,
    /// What is wrong.
    pub message: String,
    /// Whether the graph can be interpreted nevertheless.
    pub warning: bool,
}

/// The names of outcomes, which no variable of an input may have.
const OUTCOMES: [&str; 2] = ["result", "error"];
/// Words that expressions read as something else than a variable.
const NO_VARIABLES: [&str; 4] = ["null", "true", "false", "len"];

/// The most variables that a message names.
const MAX_SHOWN: usize = 20;

/// Checks a graph, and returns what is wrong: part by part, the places first.
pub fn check(graph: &Graph) -> Vec<Finding> {
    let mut checker = Checker { graph, findings: Vec::new() };
    checker.names();
    checker.places();
    for (at, node) in graph.nodes.iter().enumerate() {
        checker.node(NodeId(at as u32), node);
    }
    checker.findings
}

struct Checker<'a> {
    graph: &'a Graph,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn names(&mut self) {
        let mut known = HashMap::<&str, &str>::new();
        let places = self.graph.places.iter().enumerate();
        let places = places.map(|(at, place)| (Location::Place(PlaceId(at as u32)), "place", &*place.name));
        let nodes = self.graph.nodes.iter().enumerate();
        let nodes = nodes.map(|(at, node)| (Location::Node(NodeId(at as u32)), "node", &*node.name));
        for (location, kind, name) in places.chain(nodes) {
            if name.is_empty() {
                self.error(location, format!("the {kind} has no name"));
            } else if let Some(other) = known.insert(name, kind) {
                self.error(location, format!("there is a {other} {name} already"));
            }
        }
    }

    fn places(&mut self) {
        let graph = self.graph;
        let arcs = graph.nodes.iter().flat_map(|node| &node.outputs);
        let filled: HashSet<PlaceId> = arcs.map(|output| output.place).collect();
        let used: HashSet<PlaceId> =
            graph.nodes.iter().flat_map(|node| &node.inputs).map(|input| input.place).collect();
        let inputs = graph.nodes.iter().flat_map(|node| &node.inputs);
        // The places of which some node needs tokens to begin.
        let needed: HashSet<PlaceId> = inputs
            .filter(|input| input.kind != InputKind::Inhibit)
            .inspect(|_| work::step())
            .map(|input| input.place)
            .collect();
        for (at, place) in graph.places.iter().enumerate() {
            work::step();
            let id = PlaceId(at as u32);
            let location = Location::Place(id);
            let tokens = place.tokens.len();
            let capacity = place.capacity.unwrap_or(MAX_PLACE_TOKENS);
            if tokens > capacity as usize {
                self.error(
                    location,
                    format!("the place has {tokens} tokens, but its capacity is {capacity}"),
                );
            }
            if capacity == 0 {
                self.warn(location, "the capacity is 0, so no token can ever be here");
            } else if capacity > MAX_PLACE_TOKENS {
                self.error(location, format!("the capacity is at most {MAX_PLACE_TOKENS}"));
            }
            let (is_filled, is_used) = (filled.contains(&id), used.contains(&id));
            if !is_filled && !is_used {
                self.warn(location, "no arc begins or ends here");
            } else if !is_filled && tokens == 0 && needed.contains(&id) {
                self.warn(location, "no node puts tokens here, and there are none at the beginning");
            }
        }
    }

    fn node(&mut self, id: NodeId, node: &Node) {
        self.inputs(id, node);
        let variables = Variables::of(node);
        for (at, output) in node.outputs.iter().enumerate() {
            self.output(node, &variables, Location::Output(id, at as u32), output);
        }
        if let Some(guard) = &node.guard {
            self.expression(Location::Guard(id), guard, &variables, None);
        }
        if let Some(call) = &node.call {
            if call.server.is_empty() || call.name.is_empty() {
                self.error(Location::Call(id), "the call names no server or no procedure");
            }
            if let Some(arguments) = &call.arguments {
                self.expression(Location::Call(id), arguments, &variables, None);
                let fits =
                    |value: &serde_json::Value| value.is_array() || value.is_object() || value.is_null();
                if arguments.known().is_some_and(|value| !fits(&value)) {
                    self.error(
                        Location::Call(id),
                        "the arguments must be an array, or an object with their names",
                    );
                }
            }
        }
        let shadowed = |at: usize| {
            let output = &node.outputs[at];
            node.split == Split::One && output.exception.is_none() && output.condition.is_none()
        };
        let last = node.outputs.iter().rposition(|output| output.exception.is_none());
        if let Some(first) = (0..node.outputs.len()).find(|at| shadowed(*at))
            && last.is_some_and(|last| last > first)
        {
            let message =
                "the outputs behind this one get no tokens: it has no condition, and the split is one";
            self.warn(Location::Output(id, first as u32), message);
        }
    }

    fn inputs(&mut self, id: NodeId, node: &Node) {
        let (mut names, mut from) = (HashSet::new(), HashSet::new());
        for (at, input) in node.inputs.iter().enumerate() {
            let location = Location::Input(id, at as u32);
            self.arc(location, input.place, input.weight);
            if input.kind == InputKind::Take && !from.insert(input.place) && node.join != Join::All {
                self.error(
                    location,
                    "only a node that joins all its inputs may take from one place by two arcs",
                );
            }
            if let Some(place) = self.graph.places.get(input.place.0 as usize)
                && place.capacity.is_some_and(|capacity| capacity < input.weight)
            {
                let capacity = place.capacity.unwrap_or(0);
                let message =
                    format!("place {} has at most {capacity} tokens, fewer than the arc needs", place.name);
                self.warn(location, message);
            }
            let Some(variable) = &input.variable else { continue };
            if input.kind == InputKind::Inhibit {
                self.error(location, "an inhibitor has no tokens that a variable could stand for");
            }
            let outcome = OUTCOMES.contains(&&**variable);
            if outcome || NO_VARIABLES.contains(&&**variable) || !is_name(variable) {
                self.error(location, format!("{variable:?} cannot be the name of a variable"));
            } else if !names.insert(variable) {
                self.error(location, format!("two inputs have the variable {variable}"));
            }
        }
        if from.is_empty()
            && node.join == Join::All
            && !node.inputs.iter().any(|each| each.kind == InputKind::Read)
        {
            self.warn(
                Location::Node(id),
                "the node takes no tokens, so it begins again whenever it has ended",
            );
        } else if from.is_empty() && node.join != Join::All {
            self.error(Location::Node(id), "the node joins inputs, but none of them takes tokens");
        }
    }

    fn output(&mut self, node: &Node, variables: &Variables<'_>, location: Location, output: &Output) {
        work::step();
        self.arc(location, output.place, output.weight);
        let place = self.graph.places.get(output.place.0 as usize);
        if let Some(capacity) = place.and_then(|place| place.capacity)
            && capacity < output.weight
        {
            self.error(
                location,
                format!("the place has at most {capacity} tokens, so the node can never begin"),
            );
        }
        let outcome = match (&output.exception, &node.call) {
            (Some(_), None) => {
                self.error(location, "the node calls no procedure, so there is no exception");
                "error"
            }
            (Some(_), Some(_)) => "error",
            (None, _) => "result",
        };
        if let Some(condition) = &output.condition {
            self.expression(location, condition, variables, Some(outcome));
            if output.exception.is_some() {
                self.error(location, "an output is for an exception or has a condition, not both");
            } else if node.split == Split::All {
                self.error(
                    location,
                    format!("the condition has no effect in node {}: write split any or one", node.name),
                );
            }
        }
        if let Some(value) = &output.value {
            self.expression(location, value, variables, Some(outcome));
        }
    }

    fn arc(&mut self, location: Location, place: PlaceId, weight: u32) {
        if self.graph.places.get(place.0 as usize).is_none() {
            self.error(location, "the arc's place does not exist");
        }
        if !(1..=MAX_PLACE_TOKENS).contains(&weight) {
            self.error(location, format!("an arc moves from 1 to {MAX_PLACE_TOKENS} tokens, not {weight}"));
        }
    }

    fn expression(
        &mut self,
        at: Location,
        expression: &Expression,
        known: &Variables<'_>,
        outcome: Option<&str>,
    ) {
        for name in expression.variables() {
            work::step();
            if known.names.contains(name) || outcome == Some(name) {
                continue;
            }
            let there = known.shown.iter().copied().chain(outcome).collect::<Vec<_>>();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            self.error(at, format!("there is no variable {name} here; there is: {there}"));
        }
    }

    fn error(&mut self, location: Location, message: impl Into<String>) {
        self.findings.push(Finding { location, message: message.into(), warning: false });
    }

    fn warn(&mut self, location: Location, message: impl Into<String>) {
        self.findings.push(Finding { location, message: message.into(), warning: true });
    }
}

/// The variables of a node.
struct Variables<'a> {
    names: HashSet<&'a str>,
    /// The first of them, which a message names.
    shown: Vec<&'a str>,
}

impl<'a> Variables<'a> {
    fn of(node: &'a Node) -> Variables<'a> {
        let inputs = node.inputs.iter().filter(|input| input.kind != InputKind::Inhibit);
        let names = || inputs.clone().filter_map(|input| input.variable.as_deref());
        Variables {
            names: names().inspect(|_| work::step()).collect(),
            shown: names().take(MAX_SHOWN).collect(),
        }
    }
}

/// Returns whether expressions read the text as one name.
fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|each| each.is_alphanumeric() || each == '_')
}
