//! An interface of one procedure for tests, and its server.

#[farcall::interface]
pub trait Echo {
    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
}

/// A server that does what the interface says.
pub struct Honest;

impl Echo for Honest {
    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.iter().rev().copied().collect())
    }
}
