//! The variables of a node: what its inputs' tokens, its result and its exception are called in expressions.

use std::borrow::Cow;

use serde_json::Value;

use crate::expression::Scope;
use crate::marking::Marking;
use crate::model::{InputKind, Node, Token};

/// The variables of a node that has not begun: the first tokens of its places.
#[derive(Debug)]
pub(crate) struct Peek<'a> {
    pub node: &'a Node,
    /// For each input, how many tokens of its place belong to inputs before it.
    pub offsets: &'a [u32],
    /// The inputs from which tokens would be taken.
    pub inputs: &'a [u32],
    pub marking: &'a Marking,
}

/// The variables of a firing.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub node: &'a Node,
    /// The inputs from which tokens were taken.
    pub inputs: &'a [u32],
    /// The tokens that were taken, input by input.
    pub taken: &'a [Token],
    /// The tokens that were read, input by input.
    pub read: &'a [Token],
    /// `result` or `error`, and its value.
    pub outcome: Option<(&'static str, &'a Value)>,
}

impl Scope for Peek<'_> {
    fn variable(&self, name: &str) -> Option<Cow<'_, Value>> {
        let (index, input) = find(self.node, name)?;
        if input.kind == InputKind::Take && !self.inputs.contains(&(index as u32)) {
            return Some(Cow::Owned(Value::Null));
        }
        let tokens = &self.marking.get(input.place)?.tokens;
        let from = self.offsets.get(index).copied().unwrap_or(0) as usize;
        if input.weight == 1 {
            return Some(tokens.get(from).map_or(Cow::Owned(Value::Null), Cow::Borrowed));
        }
        let values = tokens.iter().skip(from).take(input.weight as usize).cloned().collect();
        Some(Cow::Owned(Value::Array(values)))
    }
}

impl Scope for Held<'_> {
    fn variable(&self, name: &str) -> Option<Cow<'_, Value>> {
        if let Some((outcome, value)) = self.outcome
            && outcome == name
        {
            return Some(Cow::Borrowed(value));
        }
        let (wanted, input) = find(self.node, name)?;
        let weight = |index: usize| self.node.inputs.get(index).map_or(0, |input| input.weight as usize);
        let (tokens, from): (&[Token], usize) = match input.kind {
            InputKind::Take => {
                let Some(at) = self.inputs.iter().position(|index| *index as usize == wanted) else {
                    return Some(Cow::Owned(Value::Null));
                };
                (self.taken, self.inputs[..at].iter().map(|index| weight(*index as usize)).sum())
            }
            _ => {
                let before = self.node.inputs[..wanted].iter().filter(|input| input.kind == InputKind::Read);
                (self.read, before.map(|input| input.weight as usize).sum())
            }
        };
        let tokens = tokens.get(from..from + input.weight as usize)?;
        match tokens {
            [token] => Some(Cow::Borrowed(token)),
            tokens => Some(Cow::Owned(Value::Array(tokens.to_vec()))),
        }
    }
}

fn find<'a>(node: &'a Node, name: &str) -> Option<(usize, &'a crate::model::Input)> {
    let named = |input: &crate::model::Input| {
        input.kind != InputKind::Inhibit && input.variable.as_deref() == Some(name)
    };
    node.inputs.iter().enumerate().find(|(_, input)| named(input))
}
