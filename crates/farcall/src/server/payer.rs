//! Names the hosts, users and callers among which a server's queues are shared fairly.

use std::net::SocketAddr;

use farcall_proto::server::HostName;

/// The host or user whose share of a queue a waiting call or access uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A host that sends datagrams.
    Host(HostName),
    /// The user of this process. Only processes of this user may call through shared memory.
    User,
}

impl Payer {
    /// Returns the host that sends datagrams from this address.
    #[inline]
    pub(crate) fn at(from: &SocketAddr) -> Payer {
        Payer::Host(HostName::at(from))
    }
}

/// The caller to which a waiting call or access belongs. A payer can have several callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Conversation(u64),
    /// A process that calls through shared memory, with all its connections.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Process(i32),
}
