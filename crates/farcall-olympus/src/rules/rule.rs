//! What a rule decides: whether a node may begin and with which tokens, which outputs get tokens, and when.

use std::fmt::Debug;
use std::time::Duration;

use crate::expression::{EvaluationError, Scope};
use crate::marking::Marking;
use crate::model::{Input, InputKind, Node, NodeId, PlaceId};
use crate::scope::Peek;

/// A rule of firing. All methods have defaults that decide nothing, so a rule implements what it is about.
///
/// A rule looks only at the places of the node's own arcs, and its answers depend on nothing but its
/// arguments: an interpreter asks again only after one of these places has changed, and a replay must decide
/// as the run did.
pub trait Rule: Debug + Send + Sync {
    /// Returns whether the rule decides anything about this node. It is asked once for each node of a graph.
    fn applies(&self, node: &Node) -> bool;

    /// Returns the inputs from which the rule always takes, as indices of `Node::inputs` in rising order, or
    /// `None` if that depends on the tokens. If there are such inputs, [`Rule::begin`] is not asked: the node
    /// may begin when all of them have tokens enough and no other rule refuses.
    fn fixed_inputs(&self, node: &Node) -> Option<Vec<u32>> {
        let _ = node;
        None
    }

    /// Decides whether the node may begin. A rule that joins adds the inputs from which tokens are taken, as
    /// indices of `Node::inputs` in rising order; others may look at what the rules before them have added.
    ///
    /// # Errors
    /// Returns why the node may not begin now.
    fn begin(&self, look: &Look<'_>, inputs: &mut Vec<u32>) -> Result<(), Blocked> {
        let _ = (look, inputs);
        Ok(())
    }

    /// Chooses the outputs that get tokens when the node has ended with a result, as indices of
    /// `Node::outputs` in rising order. The scope has the variables of the inputs, and `result`. Outputs for
    /// exceptions are not the rules' to choose. This is asked only if there are at least two
    /// [`Rule::possible_splits`].
    ///
    /// # Errors
    /// Returns an error if a condition cannot be computed. The firing then stops.
    fn split(&self, node: &Node, scope: &dyn Scope, outputs: &mut Vec<u32>) -> Result<(), EvaluationError> {
        let _ = (node, scope, outputs);
        Ok(())
    }

    /// Returns the choices that [`Rule::split`] could make at this node, whatever the tokens' values are, or
    /// `None` if the rule does not split this node. If there is one choice, it is made without asking again.
    /// Explorations of all markings use all of them.
    fn possible_splits(&self, node: &Node) -> Option<Vec<Vec<u32>>> {
        let _ = node;
        None
    }

    /// Returns the most tokens that the node's result may put into a place, or `None` if that is what all its
    /// outputs for results put there together.
    fn most_put(&self, node: &Node, place: PlaceId) -> Option<u32> {
        let _ = (node, place);
        None
    }

    /// Returns what the rule adds to the node's priority. Of the nodes that may begin, one with the greatest
    /// priority does.
    fn priority(&self, node: &Node) -> i32 {
        let _ = node;
        0
    }

    /// Returns how long after its tokens were taken the node's procedure is called.
    fn delay(&self, node: &Node) -> Duration {
        let _ = node;
        Duration::ZERO
    }
}

/// Why a node may not begin, and so what must change before it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The place has too few tokens, or others than needed.
    More(PlaceId),
    /// The place has too many tokens.
    Fewer(PlaceId),
    /// Something must change at one of the node's places.
    Change,
    /// The node could begin from this time of the run on.
    Until(Duration),
    /// The node has a stopped firing, or, if it takes no tokens, a firing under way.
    Busy,
    /// An expression could not be computed with the tokens that are there.
    Failed(String),
}

/// A node and the tokens at its inputs.
#[derive(Debug)]
pub struct Look<'a> {
    /// Which node it is.
    pub id: NodeId,
    /// The node.
    pub node: &'a Node,
    /// The tokens of all places.
    pub marking: &'a Marking,
    /// How many tokens each input leaves to those before it, because they take from the same place.
    pub(crate) offsets: &'a [u32],
}

impl<'a> Look<'a> {
    /// Returns whether the input's place has tokens enough for the arc.
    #[inline]
    pub fn has_tokens(&self, index: usize) -> bool {
        let Some(input) = self.node.inputs.get(index) else { return false };
        let offset = self.offsets.get(index).copied().unwrap_or(0);
        self.marking.count(input.place) >= input.weight.saturating_add(offset)
    }

    /// Returns the inputs that take tokens, each with its index.
    #[inline]
    pub fn takes(&self) -> impl Iterator<Item = (usize, &'a Input)> {
        self.node.inputs.iter().enumerate().filter(|(_, input)| input.kind == InputKind::Take)
    }

    /// Returns the values that the inputs' variables would have if tokens were taken from `inputs`.
    pub fn scope<'s>(&'s self, inputs: &'s [u32]) -> impl Scope + 's {
        Peek { node: self.node, offsets: self.offsets, inputs, marking: self.marking }
    }
}
