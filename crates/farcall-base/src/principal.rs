//! Who the other end of a conversation is.

use std::sync::Arc;

/// An end of a conversation in a scheme with secrets, as the keys of this end name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The name that the key has, in a file of keys or in a grant.
    pub name: Arc<str>,
    /// The public key that the other end has proven to hold.
    pub key: [u8; 32],
}
