//! Why an interpreter refuses what it is asked.

use std::fmt;

use super::firings::FiringId;

/// Why an interpreter refuses a graph or an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The graph cannot be interpreted.
    Graph(String),
    /// There is no such firing: it has ended, or it has never begun.
    NoSuchFiring(FiringId),
    /// The firing is not under way: it waits for its time, or it has stopped.
    NotUnderWay(FiringId),
    /// The firing has not stopped, so there is nothing to decide.
    NotStopped(FiringId),
    /// The graph has no such place or node.
    NoSuchPart,
    /// The place has no room for as many tokens.
    Full {
        /// The name of the place.
        place: String,
        /// How many tokens it still has room for.
        room: u32,
    },
    /// A token's value is larger or nested deeper than it may be.
    Value(String),
    /// A saved run does not fit the graph.
    Saved(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Graph(why) => write!(f, "the graph cannot be interpreted: {why}"),
            Problem::NoSuchFiring(firing) => write!(f, "there is no firing {}", firing.0),
            Problem::NotUnderWay(firing) => write!(f, "firing {} is not under way", firing.0),
            Problem::NotStopped(firing) => {
                write!(f, "firing {} has not stopped, so there is nothing to decide", firing.0)
            }
            Problem::NoSuchPart => f.write_str("the graph has no such place or node"),
            Problem::Full { place, room } => write!(f, "place {place} has room for {room} tokens more"),
            Problem::Value(why) => f.write_str(why),
            Problem::Saved(why) => write!(f, "the saved run does not fit the graph: {why}"),
        }
    }
}

impl std::error::Error for Problem {}
