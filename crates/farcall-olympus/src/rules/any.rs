//! Joins of what is there, and splits to each output whose condition is true (inclusive or).

use super::rule::{Blocked, Look, Rule};
use crate::expression::{EvaluationError, Scope};
use crate::model::{Join, Node, Split};

/// The most conditional outputs of a node of which all combinations are explored.
pub const MAX_EXPLORED_CONDITIONS: usize = 8;

/// The join that takes from every input that has enough tokens, and the split to each output whose condition
/// is true. An output without a condition always gets tokens.
#[derive(Clone, Copy, Debug)]
pub struct Any;

impl Rule for Any {
    fn applies(&self, node: &Node) -> bool {
        node.join == Join::Any || node.split == Split::Any
    }

    fn begin(&self, look: &Look<'_>, inputs: &mut Vec<u32>) -> Result<(), Blocked> {
        if look.node.join != Join::Any {
            return Ok(());
        }
        inputs
            .extend(look.takes().filter(|(index, _)| look.has_tokens(*index)).map(|(index, _)| index as u32));
        if inputs.is_empty() { Err(Blocked::Change) } else { Ok(()) }
    }

    fn split(&self, node: &Node, scope: &dyn Scope, outputs: &mut Vec<u32>) -> Result<(), EvaluationError> {
        if node.split != Split::Any {
            return Ok(());
        }
        for index in node.result_outputs() {
            if node.outputs[index as usize].condition.as_ref().map_or(Ok(true), |when| when.holds(scope))? {
                outputs.push(index);
            }
        }
        Ok(())
    }

    fn possible_splits(&self, node: &Node) -> Option<Vec<Vec<u32>>> {
        if node.split != Split::Any {
            return None;
        }
        let conditional = |index: &u32| node.outputs[*index as usize].condition.is_some();
        let (some, always): (Vec<u32>, Vec<u32>) = node.result_outputs().partition(conditional);
        let explored = some.len().min(MAX_EXPLORED_CONDITIONS);
        let choice = |chosen: usize| {
            let taken =
                some.iter().enumerate().filter(|(bit, _)| chosen >> (bit % usize::BITS as usize) & 1 == 1);
            let mut outputs: Vec<u32> =
                always.iter().copied().chain(taken.map(|(_, index)| *index)).collect();
            outputs.sort_unstable();
            outputs
        };
        Some((0..1usize << explored).map(choice).collect())
    }
}
