//! The places at which a server listens for connections.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use farcall::env::{Address, Env, Listener};

/// The listeners of a server that starts, and where they listen.
pub(crate) struct Listening {
    pub(crate) listeners: Vec<Arc<dyn Listener>>,
    pub(crate) bound: Bound,
}

/// The places at which a server listens. The drop removes the Unix sockets.
#[derive(Default)]
pub(crate) struct Bound {
    /// The TCP addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    paths: Vec<PathBuf>,
}

impl Listening {
    /// Listens at these places.
    ///
    /// # Errors
    /// The system refuses one of them.
    pub(crate) fn at(env: &dyn Env, places: &[Address]) -> io::Result<Listening> {
        let (mut listeners, mut bound) = (Vec::new(), Bound::default());
        for place in places {
            let listener =
                env.listen(place).map_err(|why| io::Error::new(why.kind(), format!("{place}: {why}")))?;
            bound.addresses.extend(listener.local_address());
            if let Address::Unix(path) = place {
                bound.paths.push(path.clone());
            }
            listeners.push(listener);
        }
        Ok(Listening { listeners, bound })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}
