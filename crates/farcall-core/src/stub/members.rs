//! The members of a group that one call addresses: the name and the binding of each.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::answer::Handler;
use super::binding::Binding;
use super::channel::{CarriedBy, Channel};
use super::subset::subset;
use crate::System;
use crate::env::Env;
use crate::member_state::ShowMembers;

/// The members of a group at one time, in order.
#[derive(Clone)]
pub struct Members {
    all: Arc<[Member]>,
    /// Binds those of the members that have joined and have not been bound yet.
    joining: Option<Arc<dyn Joining>>,
}

/// Binds members of a group that have joined.
#[doc(hidden)]
pub trait Joining: Send + Sync {
    /// Binds the members that are not bound, all at once. Waits for `most` at most. A member that does not
    /// answer in time is bound by its first call, which delays no other member.
    fn join(&self, most: Duration);
}

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Member {
    name: Arc<str>,
    binding: Binding,
    on_this_machine: bool,
}

/// Knows the members of a group.
pub trait Roster: Send + Sync {
    /// Returns the present members. Does not wait for any of them.
    fn members(&self) -> Members;

    /// Returns at most `most` of the present members, for a balancer. Which ones depends on their names and
    /// on `number`, so that balancers with other numbers use others. A group that binds its members binds
    /// only these. `within` is the time of the call that needs them, of which the question for them takes a
    /// part at most.
    fn at_most(&self, most: usize, number: u64, within: Option<Duration>) -> Members {
        let _ = within;
        let members = self.members();
        if members.len() <= most {
            return members;
        }
        let known = members.iter().map(|member| (member.name(), member.is_on_this_machine()));
        Members::new(subset(known, most, number).into_iter().map(|which| members[which].clone()).collect())
    }

    /// Makes the next question for members go to the registry itself, not to a copy. A member has said that
    /// it leaves, and another one may have joined before.
    #[doc(hidden)]
    fn ask_anew(&self) {}

    /// Returns whether there may be former members that the registry has ceased to list and that still take
    /// calls. They become members again while no other one takes calls.
    #[doc(hidden)]
    fn has_former(&self) -> bool {
        false
    }

    /// Notes that no member began a call in its part of the time. For a while, former members that still take
    /// calls are members for balancers, too.
    #[doc(hidden)]
    fn note_late(&self) {}

    /// Returns the environment in which the members are called.
    fn env(&self) -> Arc<dyn Env> {
        let first = |members: Members| members.first().map(|member| member.binding().channel().env());
        first(self.members()).unwrap_or_else(|| Arc::new(System))
    }

    /// Notes a balancer that has been made of the group, so that its members can be shown.
    #[doc(hidden)]
    fn note_balancer(&self, _balancer: Weak<dyn ShowMembers>) {}
}

impl Roster for Members {
    fn members(&self) -> Members {
        self.clone()
    }
}

impl Member {
    /// Returns a member. Outcomes of group calls show its name.
    pub fn new(name: impl Into<Arc<str>>, binding: Binding) -> Member {
        let on_this_machine = binding.channel().carried_by() == CarriedBy::Caller;
        Member { name: name.into(), binding, on_this_machine }
    }

    /// Returns the member with this knowledge of whether it is on this machine. Of a new member that is known
    /// only if it is in this process.
    #[must_use]
    pub fn on_this_machine(self, is: bool) -> Member {
        Member { on_this_machine: is, ..self }
    }

    /// Returns whether the member is known to be on this machine.
    #[inline]
    pub fn is_on_this_machine(&self) -> bool {
        self.on_this_machine
    }

    /// Returns the member's name. In a group from the registry it is `Type/instance`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member with another channel, which carries its calls to the same server.
    pub(crate) fn over(&self, channel: Arc<dyn Channel>) -> Member {
        Member { binding: self.binding.over(channel), ..self.clone() }
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
    /// How long a group call waits at most for members that have joined, so that they are bound all at once.
    /// It takes no more than a quarter of its time for that: a member that joined and is silent must cost the
    /// others little.
    pub(crate) const JOIN_TIME: Duration = Duration::from_millis(50);

    /// Returns a group's members, in this order.
    pub fn new(members: Vec<Member>) -> Members {
        Members { all: members.into(), joining: None }
    }

    /// Returns the same members, of which `joining` binds those that have joined.
    #[doc(hidden)]
    #[must_use]
    pub fn joining(self, joining: Arc<dyn Joining>) -> Members {
        Members { joining: Some(joining), ..self }
    }

    /// Binds the members that have joined, all at once. Waits for `most` at most.
    #[doc(hidden)]
    #[inline]
    pub fn join(&self, most: Duration) {
        if let Some(joining) = &self.joining {
            joining.join(most);
        }
    }

    /// Returns the same members, each with a handler of its own for the signals of its calls. `handler` makes
    /// it of the member's name. Called by generated stubs.
    #[doc(hidden)]
    #[must_use]
    pub fn catching<H: Handler + Send + Sync + 'static>(&self, handler: impl Fn(&str) -> H) -> Members {
        let catching = |member: &Member| Member {
            name: member.name.clone(),
            binding: member.binding.catching(handler(&member.name)),
            on_this_machine: member.on_this_machine,
        };
        Members { all: self.iter().map(catching).collect(), joining: self.joining.clone() }
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
        &self.all
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Member::name)).finish()
    }
}
