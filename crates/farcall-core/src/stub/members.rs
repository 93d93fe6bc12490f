//! The members of a group that one call addresses: the name and the binding of each.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::binding::Binding;
use super::handlers::Handler;

/// The members of a group at one time, in order.
#[derive(Clone)]
pub struct Members(Arc<[Member]>);

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Member {
    name: Arc<str>,
    binding: Binding,
}

/// Knows the members of a group.
pub trait Roster: Send + Sync {
    /// Returns the present members.
    fn members(&self) -> Members;
}

impl Roster for Members {
    fn members(&self) -> Members {
        self.clone()
    }
}

impl Member {
    /// Returns a member. Outcomes of group calls show its name.
    pub fn new(name: impl Into<Arc<str>>, binding: Binding) -> Member {
        Member { name: name.into(), binding }
    }

    /// Returns the member's name. In a group from the registry it is `Type/instance`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member's name without copying it.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Returns the binding that carries the member's calls.
    #[inline]
    pub fn binding(&self) -> &Binding {
        &self.binding
    }
}

impl Members {
    /// Returns a group's members, in this order.
    pub fn new(members: Vec<Member>) -> Members {
        Members(members.into())
    }

    /// Returns the same members, each with a handler of its own for the signals of its calls. `handler` makes
    /// it of the member's name. Called by generated stubs.
    #[doc(hidden)]
    #[must_use]
    pub fn catching<H: Handler>(&self, handler: impl Fn(&str) -> H) -> Members {
        let catching = |member: &Member| Member {
            name: member.name.clone(),
            binding: member.binding.catching(handler(&member.name)),
        };
        Members(self.iter().map(catching).collect())
    }

    /// Returns the least number of members that is more than half of them.
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
