//! Deliberate faults of what a runtime knows of keys. Each breaks one rule, so that the simulation can show
//! that it would notice. Without the feature `mutants` a [`Mutant`] is empty, and breaks nothing.

/// A rule about keys that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A decision counts for what a client has shown in its conversation, not for its key.
    DecisionOfConversation,
    /// Nothing that is known of a client changes before it has proven itself.
    NothingBeforeProof,
    /// A conversation ends when what its client has shown counts no more.
    ConversationRechecked,
    /// A decision is made again when the keys have changed, or a grant has expired.
    DecisionRemade,
    /// A server is judged by what it has shown in its conversation for the name, not by what its key has
    /// shown last, to whomever.
    ServerOfConversation,
    /// What a server has shown is judged again when the keys have changed, or a grant has expired.
    ServerRechecked,
}

/// The fault that keys have, if any.
pub type Mutant = farcall_core::mutant::Mutant<Rule>;
