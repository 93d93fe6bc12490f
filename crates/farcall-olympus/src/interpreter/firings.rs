//! The firings that have begun and not ended, found by their numbers.

use std::fmt;
use std::time::Duration;

use farcall::Ran;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{NodeId, Token};

/// The number of a firing. Numbers rise in the order in which firings began; some are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FiringId(pub u64);

/// A firing that has begun and not ended. It holds the tokens that it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Firing {
    /// Its number.
    pub id: FiringId,
    /// The node that fires.
    pub node: NodeId,
    /// When it began, since the start of the run.
    pub began: Duration,
    /// Whether the procedure is being called.
    pub state: FiringState,
    /// The inputs from which tokens were taken, as indices of `Node::inputs` in rising order.
    pub inputs: Vec<u32>,
    /// The tokens that were taken, input by input.
    pub taken: Vec<Token>,
    /// The values of the tokens that were read, input by input.
    pub read: Vec<Token>,
    /// The arguments of the call, if the node has a procedure with arguments.
    pub arguments: Option<Value>,
}

/// How far a firing is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringState {
    /// Its procedure is being called.
    #[default]
    UnderWay,
    /// Its procedure will be called at this time since the start of the run.
    Waiting(Duration),
    /// It has failed, and keeps its tokens until somebody decides what becomes of it.
    Stopped(Failure),
}

/// Why a firing has stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The call failed, or could not be made because its arguments could not be computed.
    Call {
        /// Why.
        why: String,
        /// Whether the procedure ran.
        #[serde(with = "super::ran")]
        ran: Ran,
    },
    /// The procedure raised an exception for which the node has no output.
    Exception {
        /// The exception's name.
        name: String,
        /// What it carries.
        value: Value,
    },
    /// The procedure returned this result, but the values or conditions of the outputs could not be computed.
    Outputs {
        /// What the procedure returned, or what its exception carries.
        outcome: Value,
        /// Why they could not be computed.
        error: String,
        /// Whether the procedure ran; if somebody has decided what it returned, it may not have.
        #[serde(with = "super::ran")]
        ran: Ran,
    },
}

impl Failure {
    /// Returns whether the procedure of the firing ran.
    pub fn ran(&self) -> Ran {
        match self {
            Failure::Call { ran, .. } | Failure::Outputs { ran, .. } => *ran,
            Failure::Exception { .. } => Ran::Yes,
        }
    }
}

/// Writes why the firing has stopped.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Call { why, .. } => f.write_str(why),
            Failure::Exception { name, value } => write!(f, "exception {name}: {value}"),
            Failure::Outputs { error, .. } => f.write_str(error),
        }
    }
}

/// The firings that have begun and not ended.
///
/// A firing is at the index that the last bits of its number give. A number whose index is taken is left out,
/// so a lookup is one access, and firings that last do not make the table grow.
#[derive(Clone, Debug)]
pub(super) struct Firings {
    slots: Vec<Slot>,
    live: usize,
    next: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    live: bool,
    firing: Firing,
}

const FIRST_SLOTS: usize = 8;

impl Firings {
    /// Makes an empty table whose first number is `next`.
    pub fn new(next: u64) -> Firings {
        Firings { slots: vec![Slot::default(); FIRST_SLOTS], live: 0, next }
    }

    /// Returns the number that the next firing gets if nothing else happens before it.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn len(&self) -> usize {
        self.live
    }

    /// Returns an unused firing, empty but for its number. It keeps the memory of an earlier one.
    #[inline]
    pub fn add(&mut self) -> &mut Firing {
        if self.live * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        while self.slots[self.next as usize & mask].live {
            self.next += 1;
        }
        let slot = &mut self.slots[self.next as usize & mask];
        slot.live = true;
        slot.firing.id = FiringId(self.next);
        self.next += 1;
        self.live += 1;
        &mut slot.firing
    }

    /// Puts back a firing of a saved run.
    pub fn restore(&mut self, firing: Firing) -> bool {
        while self.live * 2 >= self.slots.len() {
            self.grow();
        }
        loop {
            let mask = self.slots.len() - 1;
            let slot = &mut self.slots[firing.id.0 as usize & mask];
            if !slot.live {
                *slot = Slot { live: true, firing };
                self.live += 1;
                return true;
            }
            if slot.firing.id == firing.id || self.slots.len() >= 1 << 24 {
                return false;
            }
            self.grow();
        }
    }

    #[inline]
    pub fn get(&self, id: FiringId) -> Option<&Firing> {
        let slot = &self.slots[id.0 as usize & (self.slots.len() - 1)];
        (slot.live && slot.firing.id == id).then_some(&slot.firing)
    }

    #[inline]
    pub fn get_mut(&mut self, id: FiringId) -> Option<&mut Firing> {
        let mask = self.slots.len() - 1;
        let slot = &mut self.slots[id.0 as usize & mask];
        (slot.live && slot.firing.id == id).then_some(&mut slot.firing)
    }

    /// Removes a firing, which must exist. What it still holds is dropped.
    #[inline]
    pub fn remove(&mut self, id: FiringId) {
        let mask = self.slots.len() - 1;
        let slot = &mut self.slots[id.0 as usize & mask];
        slot.live = false;
        slot.firing.inputs.clear();
        slot.firing.taken.clear();
        if !slot.firing.read.is_empty() {
            slot.firing.read.clear();
        }
        if slot.firing.arguments.is_some() {
            slot.firing.arguments = None;
        }
        if !matches!(slot.firing.state, FiringState::UnderWay) {
            slot.firing.state = FiringState::UnderWay;
        }
        self.live -= 1;
    }

    /// Returns the firings, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Firing> {
        self.slots.iter().filter(|slot| slot.live).map(|slot| &slot.firing)
    }

    fn grow(&mut self) {
        let wanted = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); wanted]);
        for slot in old.into_iter().filter(|slot| slot.live) {
            let at = slot.firing.id.0 as usize & (wanted - 1);
            self.slots[at] = slot;
        }
    }
}
