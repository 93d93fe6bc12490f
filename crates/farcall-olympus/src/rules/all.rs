//! The rule of Petri nets: tokens are taken from all inputs, and all outputs get tokens.

use super::rule::Rule;
use crate::model::{Input, InputKind, Join, Node, Split};

/// The join and the split that concern all arcs.
#[derive(Clone, Copy, Debug)]
pub struct All;

impl Rule for All {
    fn applies(&self, node: &Node) -> bool {
        node.join == Join::All || node.split == Split::All
    }

    fn fixed_inputs(&self, node: &Node) -> Option<Vec<u32>> {
        let takes = |(_, input): &(usize, &Input)| input.kind == InputKind::Take;
        let indices = node.inputs.iter().enumerate().filter(takes).map(|(index, _)| index as u32);
        (node.join == Join::All).then(|| indices.collect())
    }

    fn possible_splits(&self, node: &Node) -> Option<Vec<Vec<u32>>> {
        (node.split == Split::All).then(|| vec![node.result_outputs().collect()])
    }
}
