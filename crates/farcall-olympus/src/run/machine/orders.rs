//! Does what users want of a run.

use farcall::env::Time;

use super::{Machine, Node};
use crate::interpreter::{Decision, Effect, FiringId};
use crate::journal::{Record, VERSION};
use crate::model::{Graph, NodeId};
use crate::run::{Command, Outcome, Pace, Refused, past};

impl Machine {
    /// Uses an edited graph from now on. `nodes` says which node of it each former one is.
    fn edited(&mut self, is_cosmetic: bool, nodes: &[Option<NodeId>]) {
        self.graph = self.interpreter.graph().clone();
        if is_cosmetic {
            self.bar_again();
        } else {
            self.nodes = vec![Node::default(); self.graph.nodes.len()];
            self.held.clear();
            // (Nothing is under way, so nobody waits for a turn.)
            self.load.turns.clear();
        }
        self.board.edited(&self.graph, nodes);
    }

    /// Does what a user wants.
    ///
    /// # Errors
    /// When the run refuses. Nothing was done then.
    pub fn obey(&mut self, command: Command, now: Time) -> Result<(), Refused> {
        if self.outcome.as_ref().is_some_and(Outcome::is_final) {
            return Err(Refused("the run has ended".into()));
        }
        match command {
            Command::Pause => {
                (self.paused, self.steps) = (true, 0);
                self.clock.stop(now);
            }
            Command::Resume => (self.paused, self.steps) = (false, 0),
            Command::Step if self.paused || self.clock.pace() == Pace::Step => self.steps += 1,
            Command::Step => return Err(Refused("the run must be paused, or go step by step".into())),
            Command::Pace(Pace::Scaled(factor)) if !(factor.is_finite() && factor > 0.0) => {
                return Err(Refused("a pace is more than 0 seconds, and finite".into()));
            }
            Command::Pace(pace) => self.clock.set_pace(pace, now),
            Command::Put { place, tokens } => {
                self.interpreter.put(place, tokens.clone()).map_err(Refused::because)?;
                self.record(|| Record::Put { place: place.0, tokens });
                self.board.moved(place);
            }
            Command::Take { place, count } => {
                self.must_be_paused()?;
                self.interpreter.take(place, count as usize);
                self.record(|| Record::Take { place: place.0, count });
                self.board.moved(place);
            }
            Command::Decide { firing, decision } => self.decide(firing, decision)?,
            Command::Edit(graph) => self.edit(*graph)?,
            Command::Stop => self.outcome = Some(Outcome::Ended),
        }
        self.board.note();
        self.write().map_err(Refused::because)
    }

    pub(super) fn decide(&mut self, firing: FiringId, decision: Decision) -> Result<(), Refused> {
        let found = self.interpreter.firing(firing).map(|firing| firing.node);
        let effect = self.interpreter.decide(firing, decision.clone()).map_err(Refused::because)?;
        let Some(node) = found else { return Ok(()) };
        self.record(|| Record::Decide { firing: firing.0, decision });
        let attempts = self.stopped.remove(&firing).unwrap_or_default();
        match effect {
            Effect::Again => self.call(firing, node, attempts, false),
            Effect::Put => self.board.ended(&self.graph, node),
            Effect::PutBack | Effect::Discarded => self.board.put_back(&self.graph, node),
            Effect::Stopped => self.has_stopped(firing, node, attempts),
        }
        Ok(())
    }

    fn edit(&mut self, graph: Graph) -> Result<(), Refused> {
        let is_cosmetic = bare(&graph) == bare(&self.graph);
        if !is_cosmetic {
            self.must_be_paused()?;
            if !self.calls.is_empty() {
                return Err(Refused(
                    "calls are under way: the graph can be edited when they have ended".into(),
                ));
            }
        }
        let nodes = past::edit(&mut self.interpreter, graph.clone()).map_err(Refused::because)?;
        let seed = 0;
        self.record(|| Record::Graph { version: VERSION, seed, graph });
        self.edited(is_cosmetic, &nodes);
        Ok(())
    }

    /// # Errors
    /// When the run is not paused.
    fn must_be_paused(&self) -> Result<(), Refused> {
        match self.paused {
            true => Ok(()),
            false => Err(Refused("the run must be paused first".into())),
        }
    }
}

/// Returns what a graph is apart from what only people see.
fn bare(graph: &Graph) -> Graph {
    let mut bare = Graph { name: String::new(), about: String::new(), ..graph.clone() };
    for place in &mut bare.places {
        (place.label, place.at, place.tokens) = (String::new(), None, Vec::new());
    }
    for node in &mut bare.nodes {
        (node.label, node.at) = (String::new(), None);
    }
    bare
}
