//! Where calls come from.

use std::net::SocketAddr;
use std::sync::Arc;

use super::fate::PeerFate;
use crate::Client;

/// How a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// As a datagram.
    Udp,
    /// Over a connection.
    Tcp,
    /// Over a connection within the machine.
    Unix,
}

/// Where calls come from.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) transport: Transport,
    /// None of a Unix socket's peer.
    pub(crate) address: Option<SocketAddr>,
    /// Known of a Unix socket's peer alone.
    pub(crate) user: Option<u32>,
    /// None of datagrams.
    pub(crate) connection: Option<Arc<dyn PeerConnection>>,
}

impl Peer {
    /// A peer of whom only the address is known.
    pub(crate) const fn at(transport: Transport, address: Option<SocketAddr>) -> Peer {
        Peer { transport, address, user: None, connection: None }
    }
}

/// The connection that a call came by.
pub(crate) trait PeerConnection: Send + Sync {
    /// What became of it.
    fn fate(&self) -> &Arc<PeerFate>;

    /// A client of whoever is at the other end; none if the system lacks what it takes.
    fn client(self: Arc<Self>) -> Option<Client>;
}
