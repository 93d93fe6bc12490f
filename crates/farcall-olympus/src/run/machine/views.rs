//! Shows users what there is of a run, and what has changed.

use std::collections::HashMap;
use std::sync::Arc;

use farcall::env::Env;

use super::Machine;
use crate::interpreter::{Firing, FiringId, FiringState};
use crate::model::{NodeId, PlaceId};
use crate::run::shown::{Changes, Counts, FiringRecord, NodeNotes, NodeState, PlaceState, Stage, State};

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
            (FiringState::Stopped(_), _) => return self.stopped_record(firing),
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

/// The most failures that are shown at once.
const MAX_SHOWN_FAILURES: usize = 100;

/// The most firings that are shown at once.
const MAX_SHOWN_FIRINGS: usize = 1000;

/// The most tokens of a place that are shown.
const MAX_SHOWN_TOKENS: usize = 20;
