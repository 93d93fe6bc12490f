//! Names the callers among which a host's share of a server's queues is divided fairly.

/// The caller to which a waiting call or access belongs. A host can have several callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Conversation(u64),
    /// A process that calls through shared memory, with all its connections.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Process(i32),
}
