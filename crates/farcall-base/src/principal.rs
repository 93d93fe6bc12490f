//! Who the other end of a conversation is.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An end of a conversation in a scheme with secrets, as the keys of this end name it.
///
/// Two principals are equal if their names and keys are. The rights of equal principals may still differ: a
/// key can have several grants, and a conversation has the rights of those that it was opened with.
#[derive(Clone)]
pub struct Principal {
    /// The name that the key has, in a file of keys or in a grant.
    pub name: Arc<str>,
    /// The public key that the other end has proven to hold.
    pub key: [u8; 32],
    evidence: Option<Evidence>,
}

/// What the other end has shown of itself, as this end has judged it. Only the part of a program that has
/// made the evidence can read it. Clones are the same evidence.
#[derive(Clone)]
pub struct Evidence {
    judged: Arc<dyn Any + Send + Sync>,
    digest: [u8; 32],
}

impl Principal {
    /// Returns a principal that has shown nothing but its key.
    pub fn new(name: impl Into<Arc<str>>, key: [u8; 32]) -> Principal {
        Principal { name: name.into(), key, evidence: None }
    }

    /// Makes this the principal that has shown this evidence.
    #[must_use]
    pub fn with_evidence(self, evidence: Evidence) -> Principal {
        Principal { evidence: Some(evidence), ..self }
    }

    /// Returns what the principal has shown.
    #[inline]
    pub fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    /// Returns the principal's key, and the place of its evidence: while the principal is kept, no principal
    /// with other rights has the same.
    pub fn key_and_evidence(&self) -> ([u8; 32], Option<usize>) {
        (self.key, self.evidence().map(Evidence::place))
    }
}

impl Evidence {
    /// Makes evidence of what was judged. The digest names who has shown what.
    pub fn new(judged: Arc<dyn Any + Send + Sync>, digest: [u8; 32]) -> Evidence {
        Evidence { judged, digest }
    }

    /// Returns what was judged, if it is of this type.
    pub fn judged<T: Any>(&self) -> Option<&T> {
        self.judged.downcast_ref()
    }

    /// Returns the digest of who has shown what. Evidence with the same digest gives the same rights.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns a number that no other evidence has while this or a clone of it is kept.
    #[inline]
    pub fn place(&self) -> usize {
        Arc::as_ptr(&self.judged).cast::<()>().addr()
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Principal) -> bool {
        (&self.name, self.key) == (&other.name, other.key)
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.key).hash(state);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal").field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Evidence").finish_non_exhaustive()
    }
}
