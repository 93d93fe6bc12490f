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
        let mut choices: Vec<Vec<u32>> = reachable(node).map(|index| vec![index]).collect();
        let sure = choices.last().is_some_and(|last| node.outputs[last[0] as usize].condition.is_none());
        if !sure {
            choices.push(Vec::new());
        }
        Some(choices)
    }

    fn most_put(&self, node: &Node, place: PlaceId) -> Option<u32> {
        if node.split != Split::One {
            return None;
        }
        let outputs = reachable(node).map(|index| &node.outputs[index as usize]);
        Some(outputs.filter(|output| output.place == place).map(|output| output.weight).max().unwrap_or(0))
    }
}

/// Returns the outputs for results up to the first one without a condition. Those behind it never get tokens.
fn reachable(node: &Node) -> impl Iterator<Item = u32> {
    let mut sure = false;
    node.result_outputs().take_while(move |index| {
        let before = sure;
        sure = node.outputs[*index as usize].condition.is_none();
        !before
    })
}
