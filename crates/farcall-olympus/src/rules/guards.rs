//! Conditions on the tokens that a node would take.

use super::rule::{Blocked, Look, Rule};
use crate::model::Node;

/// The guard of a node, which must be true for the first tokens of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Guards;

impl Rule for Guards {
    fn applies(&self, node: &Node) -> bool {
        node.guard.is_some()
    }

    fn begin(&self, look: &Look<'_>, inputs: &mut Vec<u32>) -> Result<(), Blocked> {
        let Some(guard) = &look.node.guard else { return Ok(()) };
        match guard.holds(&look.scope(inputs)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Blocked::Change),
            Err(error) => Err(Blocked::Failed(format!("the guard {guard}: {error}"))),
        }
    }
}
