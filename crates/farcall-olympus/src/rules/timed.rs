//! Timed nodes: they take their tokens at once, and call their procedure after a while.

use std::time::Duration;

use super::rule::Rule;
use crate::model::Node;

/// The delay that a node has in the graph.
#[derive(Clone, Copy, Debug)]
pub struct Timed;

impl Rule for Timed {
    fn applies(&self, node: &Node) -> bool {
        node.after.is_some()
    }

    fn delay(&self, node: &Node) -> Duration {
        node.after.unwrap_or_default()
    }
}
