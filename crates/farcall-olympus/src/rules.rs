//! The rules by which nodes fire. Each is a file of its own, and users may add theirs.
//!
//! `rule` says what a rule decides. `all`, `any` and `one` are the joins and splits, `test_arcs` the arcs
//! that only look at places, `guards` the conditions on tokens, `priorities` and `timed` what their names
//! say.

pub mod all;
pub mod any;
pub mod guards;
pub mod one;
pub mod priorities;
pub mod rule;
pub mod test_arcs;
pub mod timed;

use std::sync::Arc;

pub use rule::{Blocked, Look, Rule};

/// The rules of an interpreter, in the order in which they are asked.
#[derive(Clone, Debug)]
pub struct Rules(Vec<Arc<dyn Rule>>);

impl Rules {
    /// Returns the rules that the text format and the page offer.
    pub fn standard() -> Rules {
        Rules(vec![
            Arc::new(all::All),
            Arc::new(any::Any),
            Arc::new(one::One),
            Arc::new(test_arcs::TestArcs),
            Arc::new(guards::Guards),
            Arc::new(priorities::Priorities),
            Arc::new(timed::Timed),
        ])
    }

    /// Adds a rule, which is asked after the others.
    pub fn with(mut self, rule: impl Rule + 'static) -> Rules {
        self.0.push(Arc::new(rule));
        self
    }

    /// Returns the rules.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Rule>> {
        self.0.iter()
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::standard()
    }
}
