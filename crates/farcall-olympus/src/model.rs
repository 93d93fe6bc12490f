//! A graph: places that hold tokens, nodes that fire, and the arcs between them.
//!
//! The graph is what one writes, draws and exchanges. It does not change while it is interpreted; the tokens
//! that move are in a marking.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expression::Expression;

/// A graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// What the graph is for, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The places. A [`PlaceId`] is an index here.
    pub places: Vec<Place>,
    /// The nodes. A [`NodeId`] is an index here.
    pub nodes: Vec<Node>,
}

/// The index of a place in [`Graph::places`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceId(pub u32);

/// The index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// The value that a token carries. A token without a value carries `null`.
pub type Token = Value;

/// A place, which holds tokens. They leave it in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// The place's name, which no other place and no node of the graph has.
    pub name: String,
    /// What people see beside the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The type of the tokens' values: `string`, `u64`, `bool`, …, or a named type of an interface, as
    /// `Builder.Commit`. Without one, tokens carry any value.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The most tokens that the place may hold, counted with those that nodes under way may put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// The tokens that the place has at the beginning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Token>,
    /// Where the place is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
}

/// A node, which fires when its inputs allow it: it takes tokens, calls its procedure, and puts tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Node {
    /// The node's name, which no other node and no place of the graph has.
    pub name: String,
    /// What people see beside the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Which of the inputs must have tokens.
    #[serde(skip_serializing_if = "Join::is_all")]
    pub join: Join,
    /// Which of the outputs get tokens.
    #[serde(skip_serializing_if = "Split::is_all")]
    pub split: Split,
    /// The arcs from places to the node.
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// The arcs from the node to places.
    #[serde(rename = "out", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// The node fires only with tokens for which this is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Expression>,
    /// Of several nodes that could fire, those with the greatest priority do.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// How long after its tokens were taken the node calls its procedure. In JSON it is a text, as `"10ms"`.
    #[serde(skip_serializing_if = "Option::is_none", with = "time")]
    pub after: Option<Duration>,
    /// The procedure that is called. A node without one only moves tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Procedure>,
    /// Where the node is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
}

/// Which of a node's inputs must have tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Join {
    /// All of them, and tokens are taken from all: the rule of Petri nets.
    #[default]
    All,
    /// At least one, and tokens are taken from all that have enough.
    Any,
    /// At least one, and tokens are taken from one.
    One,
}

/// Which of a node's outputs get tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// All of them: the rule of Petri nets.
    #[default]
    All,
    /// Each whose condition is true.
    Any,
    /// The first whose condition is true.
    One,
}

/// An arc from a place to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The place.
    pub place: PlaceId,
    /// How many tokens the arc concerns, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    /// What the arc does with them.
    #[serde(default, skip_serializing_if = "InputKind::is_take")]
    pub kind: InputKind,
    /// The variable that stands for the token's value in expressions; for an array of the values if the
    /// weight is not 1.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
}

/// What an arc from a place does with the tokens there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// It takes them.
    #[default]
    Take,
    /// The tokens must be there, and stay.
    Read,
    /// The node cannot fire while the place has as many tokens: an inhibitor arc.
    Inhibit,
}

/// An arc from a node to a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The place.
    pub place: PlaceId,
    /// How many tokens the arc puts there, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    /// The value of each token. Without one, tokens carry `null`. `result` stands for what the procedure
    /// returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Expression>,
    /// The condition of the arc in a node whose split is not [`Split::All`].
    #[serde(rename = "if", default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expression>,
    /// The exception for which the arc is: the name of one that the procedure declares, or `*` for any. Then
    /// the arc gets tokens only if the procedure raised it. `error` stands for what it carries.
    #[serde(rename = "on", default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
}

/// The procedure that annotates a node. It is looked for each time that the node fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Procedure {
    /// The name of an export (`Builder`, `Builder/fast`, `udp://10.0.0.7:7000/Builder`); with a definition,
    /// the address of a server of ONC RPC or Courier.
    pub server: String,
    /// The `.x` or `.cr` file that describes the server, if the server does not describe itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The procedure's name.
    pub name: String,
    /// The arguments: an array, or an object with their names. Without them, the procedure has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Expression>,
    /// Whether the procedure may be called again when it is not known if it ran. It may be, too, if its
    /// interface says that it is idempotent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

/// Where something is drawn, in pixels from the left and from the top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// From the left.
    pub x: i32,
    /// From the top.
    pub y: i32,
}

impl Graph {
    /// Returns the place of this name.
    pub fn place(&self, name: &str) -> Option<PlaceId> {
        self.places.iter().position(|place| place.name == name).map(|at| PlaceId(at as u32))
    }

    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|at| NodeId(at as u32))
    }
}

impl Node {
    /// Returns the indices of the outputs that are for results, not for exceptions.
    pub fn result_outputs(&self) -> impl Iterator<Item = u32> {
        let for_result = |(_, output): &(usize, &Output)| output.exception.is_none();
        self.outputs.iter().enumerate().filter(for_result).map(|(index, _)| index as u32)
    }
}

impl Join {
    fn is_all(&self) -> bool {
        *self == Join::All
    }
}

impl Split {
    fn is_all(&self) -> bool {
        *self == Split::All
    }
}

impl InputKind {
    fn is_take(&self) -> bool {
        *self == InputKind::Take
    }
}

fn one() -> u32 {
    1
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}

fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// Times in JSON: texts as people write them, which are exact.
mod time {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::duration;

    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_str(&duration::print(*time)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        duration::parse(&text).map(Some).map_err(serde::de::Error::custom)
    }
}
