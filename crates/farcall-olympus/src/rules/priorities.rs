//! Priorities: of the nodes that may begin, one with the greatest number does.

use super::rule::Rule;
use crate::model::Node;

/// The priority that a node has in the graph.
#[derive(Clone, Copy, Debug)]
pub struct Priorities;

impl Rule for Priorities {
    fn applies(&self, node: &Node) -> bool {
        node.priority != 0
    }

    fn priority(&self, node: &Node) -> i32 {
        node.priority
    }
}
