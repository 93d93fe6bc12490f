//! Name servers, each of which may know a name. The first answer suffices.

use std::collections::BTreeMap;

/// A server that knows the places of people.
#[farcall::interface]
pub trait NameServer {
    /// Returns the place of a person.
    #[idempotent]
    fn lookup(&self, person: &str) -> farcall::Result<String, Unknown>;
}

/// This server does not know the person; another one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Unknown;

impl NameServer for BTreeMap<String, String> {
    fn lookup(&self, person: &str) -> farcall::Result<String, Unknown> {
        self.get(person).cloned().ok_or_else(|| Unknown.into())
    }
}
