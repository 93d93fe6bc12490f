//! The commands by which users control a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Pace;
use crate::interpreter::{Decision, FiringId};
use crate::model::{Graph, PlaceId, Token};

/// What a run is told to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// No node begins from now on. Calls that are under way go on.
    Pause,
    /// Nodes begin again.
    Resume,
    /// One node begins, if one is enabled. The run must be paused, or have the pace [`Pace::Step`].
    Step,
    /// Changes how fast the graph is interpreted. The seconds of [`Pace::Scaled`] must be finite and more
    /// than 0.
    Pace(Pace),
    /// Puts tokens into a place, behind those that are there.
    Put {
        /// The place.
        place: PlaceId,
        /// The tokens.
        tokens: Vec<Token>,
    },
    /// Takes the first tokens out of a place, and drops them. The run must be paused.
    Take {
        /// The place.
        place: PlaceId,
        /// How many; all of them if there are fewer.
        count: u32,
    },
    /// Decides about a firing that has stopped.
    Decide {
        /// The firing.
        firing: FiringId,
        /// What becomes of it.
        decision: Decision,
    },
    /// Interprets another graph from now on. Places keep their tokens, and nodes their firings. A place or
    /// node is the one of the same name; if no other has its name or its index, it is the one of the same
    /// index, under a new name. New places have the tokens that the graph gives. The run must be paused, with
    /// no call under way, unless only labels, positions and texts for people differ.
    Edit(Box<Graph>),
    /// Ends the run. Calls that are under way are cancelled.
    Stop,
}

/// The reason why a run does not obey a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused(pub String);

impl Refused {
    pub(super) fn because(why: impl fmt::Display) -> Refused {
        Refused(why.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
