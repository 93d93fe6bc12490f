//! The sender of a call: the transport, the address and the connection.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall::host::Host;

use super::fate::PeerFate;
use crate::Client;

/// The transport by which a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP: the call is a datagram.
    Udp,
    /// A TCP connection.
    Tcp,
    /// A connection over a Unix socket, within the machine.
    Unix,
}

/// The sender of a call.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) transport: Transport,
    /// `None` for the peer of a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    /// The user at the other end; known only for a Unix socket.
    pub(crate) user: Option<u32>,
    /// `None` for datagrams.
    pub(crate) connection: Option<Arc<dyn PeerConnection>>,
}

impl Peer {
    /// Makes a peer of which only the address is known.
    pub(crate) const fn at(transport: Transport, address: Option<SocketAddr>) -> Peer {
        Peer { transport, address, user: None, connection: None }
    }

    pub(crate) fn host(&self) -> Host {
        Host::of(self.address, self.user)
    }
}

/// The connection by which a call came.
pub(crate) trait PeerConnection: Send + Sync {
    /// Returns whether and how the connection has ended.
    fn fate(&self) -> &Arc<PeerFate>;

    /// Returns a client that calls the other end of the connection, or `None` if the system lacks what it
    /// needs.
    fn client(self: Arc<Self>) -> Option<Client>;
}
