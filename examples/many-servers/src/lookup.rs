//! Name servers, any of which may know: the first answer will do.

use std::collections::BTreeMap;

/// Knows where people are.
#[farcall::interface]
pub trait NameServer {
    /// Where somebody is.
    #[idempotent]
    fn lookup(&self, person: &str) -> farcall::Result<String, Unknown>;
}

/// This server does not know of them; another one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Unknown;

impl NameServer for BTreeMap<String, String> {
    fn lookup(&self, person: &str) -> farcall::Result<String, Unknown> {
        self.get(person).cloned().ok_or_else(|| Unknown.into())
    }
}
