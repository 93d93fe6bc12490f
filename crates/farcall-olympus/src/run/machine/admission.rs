//! Which firings may have their calls sent now: the bound of all calls, and the share of nodes that fail.
//!
//! A firing whose procedure is looked for, or whose call is made again after a pause, does not count as a call.
//! So a node whose server is away leaves the bound to others. When its calls are sent again, they are
//! *trials* until one succeeds. Trials get at most half of the bound, and nodes take turns with them.

use std::time::Duration;

use super::Machine;
use super::slots::Called;
use crate::model::NodeId;
use crate::run::shown::Stage;

impl Machine {
    /// Returns whether a call of this node may be sent now.
    pub(super) fn has_room(&self, node: NodeId) -> bool {
        self.load.has_room(self.nodes[node.0 as usize].failures > 0)
    }

    /// Adds a firing whose procedure is to be called. If the call is not sent at once, `admit` comes next.
    pub(super) fn enter(&mut self, called: Called) -> usize {
        self.nodes[called.node.0 as usize].pending += 1;
        self.calls.add(called)
    }

    /// Removes a firing whose call is not under way.
    pub(super) fn leave(&mut self, key: usize) -> Option<Called> {
        let called = self.calls.remove(key)?;
        self.nodes[called.node.0 as usize].pending -= 1;
        self.admit(called.node);
        Some(called)
    }

    /// Counts a call that is sent now.
    pub(super) fn send(&mut self, key: usize) {
        let Some(called) = self.calls.get_mut(key) else { return };
        let node = called.node;
        let state = &mut self.nodes[node.0 as usize];
        called.stage = Stage::Calling;
        called.is_trial = state.failures > 0;
        self.load.calling += 1;
        self.load.trials += usize::from(called.is_trial);
        state.pending -= 1;
        self.admit(node);
    }

    /// Counts a call that has ended. Its firing leaves next, or waits, and then `admit` comes next.
    pub(super) fn has_returned(&mut self, key: usize) {
        let Some(called) = self.calls.get_mut(key) else { return };
        if called.stage != Stage::Calling {
            return;
        }
        called.stage = Stage::Waiting;
        self.load.calling -= 1;
        self.load.trials -= usize::from(called.is_trial);
        self.nodes[called.node.0 as usize].pending += 1;
    }

    /// Has a firing wait until fewer calls are under way.
    pub(super) fn wait_for_room(&mut self, key: usize) {
        let Some(called) = self.calls.get_mut(key) else { return };
        called.stage = Stage::Waiting;
        let node = called.node;
        let state = &mut self.nodes[node.0 as usize];
        state.waiting.push_back(key);
        if !std::mem::replace(&mut state.has_turn, true) {
            self.load.turns.push_back(node);
        }
        self.admit(node);
    }

    /// Goes on with firings that have waited until fewer calls were under way.
    pub(super) fn take_turns(&mut self) {
        // A node that has no room keeps its place.
        let mut at = 0;
        while !self.load.is_full()
            && let Some(&node) = self.load.turns.get(at)
        {
            if !self.has_room(node) {
                at += 1;
                continue;
            }
            self.load.turns.remove(at);
            let state = &mut self.nodes[node.0 as usize];
            let next = state.waiting.pop_front();
            // (Otherwise they wait until the procedure is found.)
            state.has_turn = !state.is_sought && !state.waiting.is_empty();
            if state.has_turn {
                self.load.turns.push_back(node);
            }
            next.into_iter().for_each(|key| self.go_on(key));
        }
    }

    /// Lets a node begin, or not: it is held back after a call that did not run, and while as many of its
    /// firings wait as there may be calls.
    pub(super) fn admit(&mut self, node: NodeId) {
        let state = &mut self.nodes[node.0 as usize];
        let is_barred = state.is_held || state.pending >= self.load.bound;
        if state.is_barred != is_barred {
            state.is_barred = is_barred;
            self.interpreter.hold(node, if is_barred { Duration::MAX } else { Duration::ZERO });
        }
    }

    /// Holds back again, in an interpreter that does not know of it, what was held back.
    pub(super) fn bar_again(&mut self) {
        for (at, _) in self.nodes.iter().enumerate().filter(|(_, state)| state.is_barred) {
            self.interpreter.hold(NodeId(at as u32), Duration::MAX);
        }
    }
}
