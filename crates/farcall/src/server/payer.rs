//! Who pays for what waits at a server, and whom of a payer's it waits for.

use farcall_proto::server::HostName;

/// Who pays for what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A host that sends datagrams.
    Host(HostName),
    /// The user of this process, who alone may call it through shared memory.
    User,
}

/// Who of a payer's callers it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Conversation(u64),
    /// A process that calls through shared memory, by however many connections.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Process(i32),
}
