//! The rule of Petri nets: tokens are taken from all inputs, and all outputs get tokens.

use super::rule::{Blocked, Look, Rule};
use crate::expression::{EvaluationError, Scope};
use crate::model::{Join, Node, Split};

/// The join and the split that concern all arcs.
#[derive(Clone, Copy, Debug)]
pub struct All;

impl Rule for All {
    fn applies(&self, node: &Node) -> bool {
        node.join == Join::All || node.split == Split::All
    }

    fn begin(&self, look: &Look<'_>, inputs: &mut Vec<u32>) -> Result<(), Blocked> {
        if look.node.join != Join::All {
            return Ok(());
        }
        for (index, input) in look.takes() {
            if !look.has_tokens(index) {
                return Err(Blocked::More(input.place));
            }
            inputs.push(index as u32);
        }
        Ok(())
    }

    fn split(&self, node: &Node, _: &dyn Scope, outputs: &mut Vec<u32>) -> Result<(), EvaluationError> {
        if node.split == Split::All {
            outputs.extend(node.result_outputs());
        }
        Ok(())
    }

    fn possible_splits(&self, node: &Node) -> Option<Vec<Vec<u32>>> {
        (node.split == Split::All).then(|| vec![node.result_outputs().collect()])
    }
}
