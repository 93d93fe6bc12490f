//! A tree for more servers than one caller should call: each node calls many servers, and answers for all of
//! them.

use farcall::Group;
use farcall::multi::{Fixed, Next};

/// A server that counts the servers below it.
#[farcall::interface]
pub trait Census {
    /// Returns how many servers are here and below, and how many of the expected ones have not answered.
    #[idempotent]
    #[blocking]
    fn count(&self) -> farcall::Result<Counted>;
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Counted {
    /// The number of servers that answered.
    pub present: u64,
    /// The number of servers that did not answer. A node that did not answer counts as all servers below it.
    pub missing: u64,
}

/// A leaf, which counts as one.
#[derive(Clone, Copy, Debug)]
pub struct Leaf;

impl Census for Leaf {
    fn count(&self) -> farcall::Result<Counted> {
        Ok(Counted { present: 1, missing: 0 })
    }
}

/// A node, which calls others. The caller's deadline applies to these calls too.
#[derive(Debug)]
pub struct Node(pub Group<CensusClient, Fixed>);

impl Census for Node {
    fn count(&self) -> farcall::Result<Counted> {
        Ok(self.0.multi().count().collate(Counted::default(), |sum, reply| {
            let counted = reply.result.unwrap_or(Counted { present: 0, missing: 1 });
            sum.present = sum.present.saturating_add(counted.present);
            sum.missing = sum.missing.saturating_add(counted.missing);
            Next::Continue
        }))
    }
}
