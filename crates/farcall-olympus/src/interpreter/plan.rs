//! What an interpreter works out about a graph once: which rules decide at which node, and what it may put
//! where.

use std::sync::Arc;
use std::time::Duration;

use super::problem::Problem;
use crate::duration;
use crate::marking::MAX_PLACE_TOKENS;
use crate::model::{Graph, InputKind, Join, Node, PlaceId};
use crate::rules::{Rule, Rules};

/// A graph, and what is known about its nodes.
#[derive(Debug)]
pub(super) struct Plan {
    pub graph: Arc<Graph>,
    pub rules: Rules,
    pub nodes: Vec<NodePlan>,
    /// The number of different priorities.
    pub ranks: usize,
    /// The number of watches of all nodes together.
    pub watches: usize,
}

/// What is known about a node.
#[derive(Debug)]
pub(super) struct NodePlan {
    /// The rules that are asked whether the node may begin.
    pub begin_rules: Vec<Arc<dyn Rule>>,
    /// The rules that are asked which outputs get tokens.
    pub split_rules: Vec<Arc<dyn Rule>>,
    /// The inputs from which tokens are taken whatever the rules say.
    pub fixed_inputs: Vec<FixedInput>,
    /// The outputs that get tokens from each result, whatever the rules say.
    pub fixed_outputs: Vec<u32>,
    /// What a result puts into which places, if that is always the same and the tokens have no values.
    pub plain_outputs: Option<Vec<(PlaceId, u32)>>,
    /// 0 for the nodes of the greatest priority, 1 for those of the next, and so on.
    pub rank: usize,
    pub delay: Duration,
    /// For each input, how many tokens of its place belong to inputs before it.
    pub offsets: Vec<u32>,
    /// The most tokens that the node may put into each place.
    pub reserves: Vec<(PlaceId, u32)>,
    /// The places of the node's arcs, each once.
    pub places: Vec<PlaceId>,
    /// The number of the watch on the first of `places`; the others' follow.
    pub first_watch: u32,
    /// Whether any input takes tokens.
    pub takes: bool,
    /// Whether any input reads tokens.
    pub reads: bool,
}

/// An input from which tokens are always taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedInput {
    pub index: u32,
    pub place: PlaceId,
    /// How many tokens the place must have: also those of the inputs before this one.
    pub needed: u32,
}

impl Plan {
    pub fn new(graph: Arc<Graph>, rules: Rules) -> Result<Plan, Problem> {
        for place in &graph.places {
            let tokens = place.tokens.len();
            let capacity = place.capacity.unwrap_or(MAX_PLACE_TOKENS).min(MAX_PLACE_TOKENS);
            if tokens > capacity as usize {
                let name = &place.name;
                return Err(Problem::Graph(format!(
                    "place {name} has {tokens} tokens, but room for {capacity}"
                )));
            }
        }
        let mut priorities: Vec<i32> = graph.nodes.iter().map(|node| priority(node, &rules)).collect();
        let of_nodes = priorities.clone();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let (mut nodes, mut watches) = (Vec::with_capacity(graph.nodes.len()), 0);
        for (node, priority) in graph.nodes.iter().zip(of_nodes) {
            check(&graph, node)?;
            if node.after.is_some_and(|after| after > duration::MAX) {
                return Err(Problem::Graph(format!(
                    "the delay of node {}: {}",
                    node.name,
                    duration::TOO_LONG
                )));
            }
            let rank = priorities.binary_search_by(|each| priority.cmp(each)).unwrap_or(0);
            let plan = node_plan(node, &rules, rank, watches);
            watches += plan.places.len();
            nodes.push(plan);
        }
        Ok(Plan { ranks: priorities.len(), graph, rules, nodes, watches })
    }
}

fn check(graph: &Graph, node: &Node) -> Result<(), Problem> {
    let inputs = node.inputs.iter().map(|input| (input.place, input.weight));
    let outputs = node.outputs.iter().map(|output| (output.place, output.weight));
    for (place, weight) in inputs.chain(outputs) {
        if graph.places.get(place.0 as usize).is_none() {
            return Err(Problem::Graph(format!(
                "node {} has an arc to a place that does not exist",
                node.name
            )));
        }
        if weight == 0 || weight > MAX_PLACE_TOKENS {
            let message = "has an arc whose weight is not between 1 and";
            return Err(Problem::Graph(format!("node {} {message} {MAX_PLACE_TOKENS}", node.name)));
        }
    }
    let mut from: Vec<PlaceId> = takes(node).collect();
    from.sort_unstable();
    if node.join != Join::All && from.windows(2).any(|two| two[0] == two[1]) {
        let message = "takes from one place by two arcs; only a node that joins all its inputs may";
        return Err(Problem::Graph(format!("node {} {message}", node.name)));
    }
    Ok(())
}

fn node_plan(node: &Node, rules: &Rules, rank: usize, watches: usize) -> NodePlan {
    let rules: Vec<Arc<dyn Rule>> = rules.iter().filter(|rule| rule.applies(node)).cloned().collect();
    let of_inputs = node.inputs.iter().map(|input| input.place);
    let mut places: Vec<PlaceId> = of_inputs.chain(node.outputs.iter().map(|output| output.place)).collect();
    places.sort_unstable();
    places.dedup();
    let (fixed_joins, begin_rules): (Vec<_>, Vec<_>) =
        rules.iter().cloned().partition(|rule| rule.fixed_inputs(node).is_some());
    let (fixed_splits, split_rules): (Vec<_>, Vec<_>) = rules
        .iter()
        .filter(|rule| rule.possible_splits(node).is_some())
        .cloned()
        .partition(|rule| rule.possible_splits(node).is_some_and(|choices| choices.len() == 1));
    let offsets = offsets(node);
    let fixed_input = |index: u32| {
        let input = node.inputs.get(index as usize)?;
        let needed = input.weight.saturating_add(offsets[index as usize]);
        Some(FixedInput { index, place: input.place, needed })
    };
    let inputs = fixed_joins.iter().filter_map(|rule| rule.fixed_inputs(node)).flatten();
    let outputs = fixed_splits.iter().filter_map(|rule| rule.possible_splits(node)).flatten().flatten();
    let fixed_outputs: Vec<u32> = outputs.filter(|index| (*index as usize) < node.outputs.len()).collect();
    let chosen = || fixed_outputs.iter().map(|index| &node.outputs[*index as usize]);
    let plain = split_rules.is_empty() && chosen().all(|output| output.value.is_none());
    NodePlan {
        plain_outputs: plain.then(|| chosen().map(|output| (output.place, output.weight)).collect()),
        fixed_inputs: inputs.filter_map(fixed_input).collect(),
        fixed_outputs,
        begin_rules,
        split_rules,
        rank,
        delay: rules.iter().map(|rule| rule.delay(node)).fold(Duration::ZERO, Duration::saturating_add),
        offsets,
        reserves: reserves(node, &rules),
        places,
        first_watch: watches as u32,
        takes: takes(node).next().is_some(),
        reads: node.inputs.iter().any(|input| input.kind == InputKind::Read),
    }
}

fn takes(node: &Node) -> impl Iterator<Item = PlaceId> {
    node.inputs.iter().filter(|input| input.kind == InputKind::Take).map(|input| input.place)
}

fn priority(node: &Node, rules: &Rules) -> i32 {
    let applicable = rules.iter().filter(|rule| rule.applies(node));
    applicable.map(|rule| rule.priority(node)).fold(0, i32::saturating_add)
}

fn offsets(node: &Node) -> Vec<u32> {
    let mut before = std::collections::HashMap::<PlaceId, u32>::new();
    let offset = |input: &crate::model::Input| {
        if input.kind != InputKind::Take {
            return 0;
        }
        let taken = before.entry(input.place).or_default();
        let offset = *taken;
        *taken = taken.saturating_add(input.weight);
        offset
    };
    node.inputs.iter().map(offset).collect()
}

/// Returns the most tokens that an end of the node may put into each place: its result, or an exception.
fn reserves(node: &Node, rules: &[Arc<dyn Rule>]) -> Vec<(PlaceId, u32)> {
    let mut places: Vec<PlaceId> = node.outputs.iter().map(|output| output.place).collect();
    places.sort_unstable();
    places.dedup();
    let exceptions: Vec<&str> =
        node.outputs.iter().filter_map(|output| output.exception.as_deref()).collect();
    let most = |place: PlaceId| {
        let sum = |of: &dyn Fn(Option<&str>) -> bool| {
            let there = node.outputs.iter().filter(|output| output.place == place);
            let chosen = there.filter(|output| of(output.exception.as_deref()));
            chosen.fold(0u32, |sum, output| sum.saturating_add(output.weight))
        };
        let by_rules = rules.iter().filter_map(|rule| rule.most_put(node, place)).max();
        let result = by_rules.unwrap_or_else(|| sum(&|exception| exception.is_none()));
        let raised = |name: &str| sum(&|exception| exception.is_some_and(|each| each == "*" || each == name));
        exceptions.iter().map(|name| raised(name)).fold(result, u32::max)
    };
    places.into_iter().map(|place| (place, most(place))).filter(|(_, most)| *most > 0).collect()
}
