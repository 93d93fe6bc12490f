//! Who is called by one call to many: names, each with what its stub is bound to.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::binding::Binding;

/// The members of a group at one time, in order.
#[derive(Clone)]
pub struct Members(Arc<[Member]>);

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Member {
    name: Arc<str>,
    binding: Binding,
}

impl Member {
    /// A member with the name by which outcomes speak of it.
    pub fn new(name: impl Into<Arc<str>>, binding: Binding) -> Member {
        Member { name: name.into(), binding }
    }

    /// Its name: in a group from the registry `Type/instance`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, shared.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// What its stub is bound to.
    #[inline]
    pub fn binding(&self) -> &Binding {
        &self.binding
    }
}

impl Members {
    /// These, in this order.
    pub fn new(members: Vec<Member>) -> Members {
        Members(members.into())
    }

    /// More than half of them.
    pub(crate) fn majority(&self) -> usize {
        self.len() / 2 + 1
    }
}

impl Deref for Members {
    type Target = [Member];

    #[inline]
    fn deref(&self) -> &[Member] {
        &self.0
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Member::name)).finish()
    }
}
