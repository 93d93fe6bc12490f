//! More servers than one caller should call: a tree, whose nodes call many and answer for all of them.

use farcall::Group;
use farcall::multi::{Fixed, Next};

/// Can be asked how many there are.
#[farcall::interface]
pub trait Census {
    /// How many are here and below, and how many of those that should be have not answered.
    #[idempotent]
    #[blocking]
    fn count(&self) -> farcall::Result<Counted>;
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Counted {
    /// Who has answered.
    pub present: u64,
    /// Who has not; a node that has not stands for all below it.
    pub missing: u64,
}

/// One who is counted.
#[derive(Clone, Copy, Debug)]
pub struct Leaf;

impl Census for Leaf {
    fn count(&self) -> farcall::Result<Counted> {
        Ok(Counted { present: 1, missing: 0 })
    }
}

/// One who asks others. The deadline of whoever asks goes down with the calls.
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
