//! The name of one call at its server.

/// The name of a call that a server executes. The server's driver gives the outcome back under this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The conversation, by the server's identifier.
    pub conversation: u64,
    /// The caller's activity.
    pub activity: u32,
    /// The call's number.
    pub sequence: u64,
}
