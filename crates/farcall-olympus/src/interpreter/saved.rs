//! A run as it can be written down and gone on with, also with another graph.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::firings::{Firing, FiringState};
use super::plan::Plan;
use super::{Interpreter, Problem};
use crate::marking::Marking;
use crate::model::{Graph, InputKind, NodeId, Place, PlaceId, Token};
use crate::rules::Rules;

/// The state of a run: all tokens, and all firings that have begun and not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The tokens of each place of the graph.
    pub tokens: Vec<Vec<Token>>,
    /// The firings in the order of their numbers.
    pub firings: Vec<Firing>,
    /// The number from which the next firing's is chosen.
    pub next: u64,
    /// The state of the choice among nodes.
    pub seed: u64,
}

impl Interpreter {
    /// Returns the state of the run.
    pub fn save(&self) -> Saved {
        let places = (0..self.marking.len()).filter_map(|at| self.marking.get(PlaceId(at as u32)));
        let mut firings: Vec<Firing> = self.firings.iter().cloned().collect();
        firings.sort_unstable_by_key(|firing| firing.id);
        Saved {
            tokens: places.map(|place| place.tokens.iter().cloned().collect()).collect(),
            firings,
            next: self.firings.next(),
            seed: self.ready.seed(),
        }
    }

    /// Makes an interpreter that goes on with a saved run of this graph. Which nodes have waited longest is
    /// not saved, so the order among nodes of one priority may differ from what it would have been.
    ///
    /// # Errors
    /// Returns an error if the graph cannot be interpreted, or if the run is of another graph.
    pub fn resume(graph: Arc<Graph>, rules: Rules, saved: Saved) -> Result<Interpreter, Problem> {
        let misfit = |why: &str| Problem::Saved(why.to_owned());
        if saved.tokens.len() != graph.places.len() {
            return Err(misfit("it has another number of places"));
        }
        let emptied = |place: &Place| Place { tokens: Vec::new(), ..place.clone() };
        let places = graph.places.iter().map(emptied).collect();
        let mut marking = Marking::of(&Graph { places, ..Graph::default() });
        for (at, tokens) in saved.tokens.into_iter().enumerate() {
            tokens.iter().try_for_each(super::check_value)?;
            marking.place(PlaceId(at as u32)).tokens = tokens.into();
        }
        let plan = Plan::new(graph, rules)?;
        let mut interpreter = Interpreter::with(plan, marking, saved.next, saved.seed);
        for firing in saved.firings {
            interpreter.restore(firing)?;
        }
        Ok(interpreter)
    }

    fn restore(&mut self, firing: Firing) -> Result<(), Problem> {
        let misfit = |why: &str| Problem::Saved(format!("firing {} {why}", firing.id.0));
        let (at, id) = (firing.node.0 as usize, firing.id);
        let Some(plan) = self.plan.nodes.get(at) else { return Err(misfit("is of no node")) };
        let model = &self.plan.graph.nodes[at];
        let input = |index: &u32| model.inputs.get(*index as usize);
        let takes = |index: &u32| input(index).is_some_and(|input| input.kind == InputKind::Take);
        let rising = firing.inputs.windows(2).all(|two| two[0] < two[1]);
        let weights = firing.inputs.iter().filter_map(input).map(|input| input.weight as usize);
        let reads = model.inputs.iter().filter(|input| input.kind == InputKind::Read);
        let read: usize = reads.map(|input| input.weight as usize).sum();
        if !rising || !firing.inputs.iter().all(takes) || weights.sum::<usize>() != firing.taken.len() {
            return Err(misfit("has taken other tokens than its node takes"));
        }
        if read != firing.read.len() || firing.id.0 >= self.firings.next() {
            return Err(misfit("has read other tokens than its node reads, or its number is too great"));
        }
        for (place, most) in &plan.reserves {
            let reserved = &mut self.marking.place(*place).reserved;
            *reserved =
                reserved.checked_add(*most).ok_or_else(|| Problem::Saved("too many firings".into()))?;
        }
        self.nodes[at].under_way += 1;
        match &firing.state {
            FiringState::Waiting(time) => self.waiting.push(Reverse((*time, id))),
            FiringState::Stopped(_) => self.nodes[at].stopped += 1,
            FiringState::UnderWay => {}
        }
        if self.firings.restore(firing) {
            return Ok(());
        }
        Err(Problem::Saved(format!("it has two firings {}", id.0)))
    }

    /// Goes on with another graph: the run keeps its tokens and its firings. `places` and `nodes` say, for
    /// each place and node of the present graph, which of the new graph it is; `None` if it is gone.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if a place with tokens or a node with firings is gone, if such
    /// a node takes or reads other tokens than before, or if the new graph cannot be interpreted.
    pub fn edit(
        &mut self,
        graph: Arc<Graph>,
        places: impl Fn(PlaceId) -> Option<PlaceId>,
        nodes: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Result<(), Problem> {
        let old = &self.plan.graph;
        let mut saved = self.save();
        let mut tokens = vec![None; graph.places.len()];
        for (at, there) in saved.tokens.drain(..).enumerate() {
            let new = places(PlaceId(at as u32)).and_then(|place| tokens.get_mut(place.0 as usize));
            match new {
                Some(new) => *new = Some(there),
                None if there.is_empty() => {}
                None => {
                    return Err(Problem::Saved(format!(
                        "place {} has tokens, and is gone",
                        old.places[at].name
                    )));
                }
            }
        }
        // (A place that is new has what the new graph gives it.)
        let begun =
            |(there, place): (Option<Vec<Token>>, &Place)| there.unwrap_or_else(|| place.tokens.clone());
        saved.tokens = tokens.into_iter().zip(&graph.places).map(begun).collect();
        for firing in &mut saved.firings {
            let before = &old.nodes[firing.node.0 as usize];
            let new = nodes(firing.node).and_then(|node| Some((node, graph.nodes.get(node.0 as usize)?)));
            let Some((id, after)) = new else {
                return Err(Problem::Saved(format!("node {} has firings, and is gone", before.name)));
            };
            let same = before.inputs.len() == after.inputs.len()
                && before.inputs.iter().zip(&after.inputs).all(|(before, after)| {
                    let place = places(before.place);
                    (before.weight, before.kind) == (after.weight, after.kind) && place == Some(after.place)
                });
            if !same {
                return Err(Problem::Saved(format!(
                    "node {} has firings, and takes other tokens",
                    before.name
                )));
            }
            firing.node = id;
        }
        let edited = Interpreter::resume(graph, self.plan.rules.clone(), saved)?;
        let held: Vec<_> = self.held.iter().map(|Reverse((time, node))| (*time, *node)).collect();
        *self = edited;
        for (time, node) in held {
            if let Some(node) = nodes(node) {
                self.hold(node, time);
            }
        }
        Ok(())
    }
}
