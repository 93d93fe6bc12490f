//! Tells a client that keeps state at its server when another server has taken the place of that one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Another server has taken the place of the one that an import was bound to. Until [`Restart::accept`] is
/// called, every call of the import fails as [`Kind::ServerRestarted`](crate::Kind::ServerRestarted).
#[derive(Clone)]
pub struct Restart {
    was: SocketAddr,
    is: SocketAddr,
    accept: Arc<dyn Fn() + Send + Sync>,
}

impl Restart {
    /// Makes a restart, which `accept` is to be told of when the application accepts it.
    #[doc(hidden)]
    pub fn new(was: SocketAddr, is: SocketAddr, accept: Arc<dyn Fn() + Send + Sync>) -> Restart {
        Restart { was, is, accept }
    }

    /// Returns the address of the server that the import was bound to.
    pub fn was(&self) -> SocketAddr {
        self.was
    }

    /// Returns the address of the server that has taken its place. The two are equal if the server was
    /// restarted at its address.
    pub fn is(&self) -> SocketAddr {
        self.is
    }

    /// Lets calls be made to the new server. What the client kept at the old one is gone.
    pub fn accept(&self) {
        (self.accept)();
    }
}

impl fmt::Debug for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restart").field("was", &self.was).field("is", &self.is).finish_non_exhaustive()
    }
}

/// What an application does when another server has taken the place of the one that an import was bound to.
pub type RestartHook = Box<dyn Fn(Restart) + Send + Sync>;
