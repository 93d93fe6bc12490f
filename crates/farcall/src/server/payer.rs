//! Who pays for calls and accesses that wait at a server, and which caller of the payer they belong to.

use std::net::SocketAddr;

use farcall_proto::server::HostName;

/// Who pays for a call or an access that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A host that sends datagrams.
    Host(HostName),
    /// The user of this process, who alone may call it through shared memory.
    User,
}

impl Payer {
    /// The host that sends datagrams from this address.
    #[inline]
    pub(crate) fn at(from: &SocketAddr) -> Payer {
        Payer::Host(HostName::at(from))
    }
}

/// The caller, among those of a payer, that a waiting call or access belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Conversation(u64),
    /// A process that calls through shared memory, by however many connections.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Process(i32),
}
