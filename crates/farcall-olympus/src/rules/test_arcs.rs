//! Arcs that look at a place and take nothing: some need tokens there, and inhibitors need that there are
//! few.

use super::rule::{Blocked, Look, Rule};
use crate::model::{InputKind, Node};

/// Arcs that read, and arcs that inhibit.
#[derive(Clone, Copy, Debug)]
pub struct TestArcs;

impl Rule for TestArcs {
    fn applies(&self, node: &Node) -> bool {
        node.inputs.iter().any(|input| input.kind != InputKind::Take)
    }

    fn begin(&self, look: &Look<'_>, _: &mut Vec<u32>) -> Result<(), Blocked> {
        for input in &look.node.inputs {
            let enough = look.marking.count(input.place) >= input.weight;
            match input.kind {
                InputKind::Read if !enough => return Err(Blocked::More(input.place)),
                InputKind::Inhibit if enough => return Err(Blocked::Fewer(input.place)),
                _ => {}
            }
        }
        Ok(())
    }
}
