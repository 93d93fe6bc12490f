//! The key that names one call at its server.

/// Names a call that a server executes. The program that drives the server gives the outcome back with this
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The conversation, by the server's identifier.
    pub conversation: u64,
    /// The caller's activity: the slot of the conversation in which the call is made.
    pub activity: u32,
    /// The call's number.
    pub sequence: u64,
}
