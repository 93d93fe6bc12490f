//! Joins of one input, and splits to one output (exclusive or).

use super::rule::{Blocked, Look, Rule};
use crate::expression::{EvaluationError, Scope};
use crate::model::{Join, Node, PlaceId, Split};

/// The join that takes from the first input that has enough tokens, and the split to the first output whose
/// condition is true. An output without a condition is what remains if no condition before it is true.
#[derive(Clone, Copy, Debug)]
pub struct One;

impl Rule for One {
    fn applies(&self, node: &Node) -> bool {
        node.join == Join::One || node.split == Split::One
    }

    fn begin(&self, look: &Look<'_>, inputs: &mut Vec<u32>) -> Result<(), Blocked> {
        if look.node.join != Join::One {
            return Ok(());
        }
        let found = look.takes().find(|(index, _)| look.has_tokens(*index));
        let (index, _) = found.ok_or(Blocked::Change)?;
        inputs.push(index as u32);
        Ok(())
    }

    fn split(&self, node: &Node, scope: &dyn Scope, outputs: &mut Vec<u32>) -> Result<(), EvaluationError> {
        if node.split != Split::One {
            return Ok(());
        }
        for index in node.result_outputs() {
            if node.outputs[index as usize].condition.as_ref().map_or(Ok(true), |when| when.holds(scope))? {
                outputs.push(index);
                break;
            }
        }
        Ok(())
    }

    fn possible_splits(&self, node: &Node) -> Option<Vec<Vec<u32>>> {
        if node.split != Split::One {
            return None;
        }
        let mut choices = Vec::new();
        for index in node.result_outputs() {
            choices.push(vec![index]);
            if node.outputs[index as usize].condition.is_none() {
                return Some(choices);
            }
        }
        choices.push(Vec::new());
        Some(choices)
    }

    fn most_put(&self, node: &Node, place: PlaceId) -> Option<u32> {
        if node.split != Split::One {
            return None;
        }
        let outputs = node.result_outputs().map(|index| &node.outputs[index as usize]);
        Some(outputs.filter(|output| output.place == place).map(|output| output.weight).max().unwrap_or(0))
    }
}
