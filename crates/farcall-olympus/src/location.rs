//! The parts of a graph about which there can be something to say.

use serde::{Deserialize, Serialize};

use crate::model::{Graph, NodeId, PlaceId};

/// A part of a graph. A text or a drawing of the graph knows where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// The graph as a whole.
    Graph,
    /// A place.
    Place(PlaceId),
    /// The type of a place.
    Type(PlaceId),
    /// A node.
    Node(NodeId),
    /// An input of a node, by its index.
    Input(NodeId, u32),
    /// An output of a node, by its index.
    Output(NodeId, u32),
    /// The guard of a node.
    Guard(NodeId),
    /// The procedure of a node.
    Call(NodeId),
}

impl Location {
    /// Returns a description for people, as `the guard of node compile`.
    pub fn describe(self, graph: &Graph) -> String {
        let place = |id: PlaceId| graph.places.get(id.0 as usize).map_or("?", |place| &place.name);
        let node = |id: NodeId| graph.nodes.get(id.0 as usize).map_or("?", |node| &node.name);
        match self {
            Location::Graph => "the graph".to_owned(),
            Location::Place(id) => format!("place {}", place(id)),
            Location::Type(id) => format!("the type of place {}", place(id)),
            Location::Node(id) => format!("node {}", node(id)),
            Location::Input(id, at) => format!("input {} of node {}", u64::from(at) + 1, node(id)),
            Location::Output(id, at) => format!("output {} of node {}", u64::from(at) + 1, node(id)),
            Location::Guard(id) => format!("the guard of node {}", node(id)),
            Location::Call(id) => format!("the call of node {}", node(id)),
        }
    }
}
