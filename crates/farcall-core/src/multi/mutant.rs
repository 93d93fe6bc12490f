//! Deliberate faults of group calls. Each breaks one rule, so that the simulation can show that it would
//! notice. Without the feature `mutants` a [`Mutant`] is empty, and breaks nothing.

/// A rule about group calls that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A call that hangs holds no room: further members are called although none has replied.
    HungHoldsNoRoom,
    /// No more calls are under way than the path carries.
    PathShared,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 2] = [Rule::HungHoldsNoRoom, Rule::PathShared];
}

/// The fault that a group call has, if any.
pub type Mutant = crate::mutant::Mutant<Rule>;
