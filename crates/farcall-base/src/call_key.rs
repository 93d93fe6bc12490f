//! What a server's user calls one call by.

/// A call that is to be executed, exactly once: the name under which its outcome is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The conversation, by the server's identifier.
    pub conversation: u64,
    /// The caller's activity.
    pub activity: u32,
    /// The call's number.
    pub sequence: u64,
}
