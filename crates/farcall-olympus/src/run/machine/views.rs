//! Shows users what there is of a run, and what has changed.

use std::collections::HashMap;
use std::sync::Arc;

use farcall::env::Env;

use super::Machine;
use super::slots::Called;
use crate::interpreter::{Failure, Firing, FiringId, FiringState};
use crate::model::{NodeId, PlaceId};
use crate::run::excerpt::{Excerpt, MAX_LISTED_BYTES, beginning};
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
        let stopped = self.stopped.keys().take(MAX_SHOWN_FIRINGS);
        let stopped = stopped.filter_map(|id| self.interpreter.firing(*id));
        let stopped = stopped.map(|firing| self.stopped_record(firing, MAX_LISTED_BYTES)).collect();
        let called = self.calls.iter().filter_map(|called| {
            let firing = self.interpreter.firing(called.firing)?;
            Some(self.called_record(firing, called, MAX_LISTED_BYTES))
        });
        let timed = self.interpreter.waiting();
        let timed = timed.map(|firing| self.record_of(firing, Stage::Timed, 0, MAX_LISTED_BYTES));
        let mut under_way: Vec<FiringRecord> = called.chain(timed).take(MAX_SHOWN_FIRINGS).collect();
        under_way.sort_unstable_by_key(|firing| firing.firing);
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
        let complaints: HashMap<NodeId, &str> = self.interpreter.complaints().collect();
        let places = board.places.iter().enumerate().filter(|(_, changed)| **changed > since);
        let nodes = board.nodes.iter().enumerate().filter(|(_, notes)| notes.changed > since);
        let node = |(at, notes): (usize, &NodeNotes)| {
            let node = NodeId(at as u32);
            let complaint = complaints.get(&node).map(|why| (*why).to_owned());
            let NodeNotes { begun, ended, failed, ref error, .. } = *notes;
            let (under_way, stopped) = self.interpreter.counts(node);
            let error = complaint.or_else(|| error.clone());
            NodeState { node, begun, ended, failed, under_way, stopped, error }
        };
        let failures = board.failures.iter().rev().take_while(|(number, _)| *number > since);
        let under_way = (self.interpreter.under_way_count() - self.stopped.len()) as u64;
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
        let Some(present) = self.interpreter.firing(firing) else {
            let mut latest = self.board.failures.iter().rev();
            return latest.find(|(_, record)| record.firing == firing).map(|(_, record)| record.clone());
        };
        let called = self.calls.iter().find(|called| called.firing == firing);
        Some(match (&present.state, called) {
            (FiringState::Stopped(_), _) => self.stopped_record(present, MAX_FIRING_BYTES),
            (FiringState::Waiting(_), _) => self.record_of(present, Stage::Timed, 0, MAX_FIRING_BYTES),
            (FiringState::UnderWay, Some(called)) => self.called_record(present, called, MAX_FIRING_BYTES),
            (FiringState::UnderWay, None) => self.record_of(present, Stage::Finding, 0, MAX_FIRING_BYTES),
        })
    }

    /// Returns what is shown of a firing whose procedure is looked for or called.
    fn called_record(&self, firing: &Firing, called: &Called, bytes: usize) -> FiringRecord {
        let record = self.record_of(firing, called.stage, called.attempts, bytes);
        match &called.error {
            Some(why) => record.because(why, None),
            None => record,
        }
    }

    /// Returns what is shown of a firing that has stopped.
    pub(super) fn stopped_record(&self, firing: &Firing, bytes: usize) -> FiringRecord {
        let attempts = self.stopped.get(&firing.id).copied().unwrap_or_default();
        let record = self.record_of(firing, Stage::Stopped, attempts, bytes);
        let FiringState::Stopped(failure) = &firing.state else { return record };
        let has_procedure = self.graph.nodes[firing.node.0 as usize].call.is_some();
        let mut record = record.because(failure, has_procedure.then(|| failure.ran()));
        if let Failure::Exception { name, .. } = failure {
            record.exception = Some(beginning(name).0);
        }
        record
    }

    /// Returns what is shown of a firing, with at most so many bytes of its tokens and arguments.
    pub(super) fn record_of(
        &self,
        firing: &Firing,
        stage: Stage,
        attempts: u32,
        bytes: usize,
    ) -> FiringRecord {
        let mut excerpt = Excerpt::of(bytes);
        let node = firing.node;
        FiringRecord {
            firing: firing.id,
            node,
            name: self.graph.nodes.get(node.0 as usize).map_or_else(String::new, |node| node.name.clone()),
            stage,
            tokens: excerpt.tokens(&firing.taken),
            arguments: firing.arguments.as_ref().and_then(|arguments| excerpt.arguments(arguments)),
            attempts,
            error: None,
            exception: None,
            left_out: excerpt.left_out(),
            ran: None,
            began: firing.began.as_secs_f64(),
        }
    }

    fn place_state(&self, place: PlaceId) -> PlaceState {
        let Some(there) = self.interpreter.marking().get(place) else {
            return PlaceState { place, count: 0, reserved: 0, tokens: Vec::new() };
        };
        let tokens = Excerpt::of(MAX_TOKENS_BYTES).values(there.tokens.iter().take(MAX_SHOWN_TOKENS));
        PlaceState { place, count: there.count(), reserved: there.reserved, tokens }
    }
}

/// The most failures that are shown at once.
const MAX_SHOWN_FAILURES: usize = 100;

/// The most firings that are shown at once.
const MAX_SHOWN_FIRINGS: usize = 1000;

/// The most tokens of a place that are shown, and their bytes.
const MAX_SHOWN_TOKENS: usize = 20;
const MAX_TOKENS_BYTES: usize = 64 << 10;

/// The most bytes of tokens and arguments of a firing that is asked for.
const MAX_FIRING_BYTES: usize = 1 << 20;
