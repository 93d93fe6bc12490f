//! The firings whose procedures are looked for or called, found by the keys of their calls.

use crate::interpreter::FiringId;
use crate::model::NodeId;
use crate::run::shown::Stage;

/// A firing whose procedure is looked for or called.
#[derive(Clone, Debug)]
pub struct Called {
    pub firing: FiringId,
    pub node: NodeId,
    pub stage: Stage,
    /// How many calls were made.
    pub attempts: u32,
    /// How many times the firing waited to go on with its call.
    pub pauses: u32,
    /// Whether its call was sent after the last one of its node had failed.
    pub is_trial: bool,
    /// Whether a call may have run whose outcome is not known.
    pub may_have_run: bool,
    /// Whether the procedure that was called may be called again when it is not known if it ran.
    pub again: bool,
    /// Why the last call failed.
    pub error: Option<String>,
}

impl Called {
    /// Makes a firing whose procedure was not called yet.
    pub fn new(firing: FiringId, node: NodeId) -> Called {
        Called {
            firing,
            node,
            stage: Stage::Finding,
            attempts: 0,
            pauses: 0,
            is_trial: false,
            may_have_run: false,
            again: false,
            error: None,
        }
    }
}

/// The firings of [`Machine::calls`], found by the keys of their calls.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    slots: Vec<Option<Called>>,
    free: Vec<usize>,
}

impl Slots {
    pub fn add(&mut self, called: Called) -> usize {
        match self.free.pop() {
            Some(key) => {
                self.slots[key] = Some(called);
                key
            }
            None => {
                self.slots.push(Some(called));
                self.slots.len() - 1
            }
        }
    }

    pub fn get_mut(&mut self, key: usize) -> Option<&mut Called> {
        self.slots.get_mut(key)?.as_mut()
    }

    pub fn remove(&mut self, key: usize) -> Option<Called> {
        let removed = self.slots.get_mut(key)?.take()?;
        self.free.push(key);
        Some(removed)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Called> {
        self.slots.iter().flatten()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
