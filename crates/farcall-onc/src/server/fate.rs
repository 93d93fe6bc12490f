//! What became of a connection, as the memory of earlier calls sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A connection that has not ended as far as the server has seen.
pub(crate) trait Lasting: Send + Sync {
    /// Asks the system whether the client has gone without all its replies. Such a client may send its calls
    /// again on another connection.
    fn is_broken_off(&self) -> bool;
}

/// What became of a connection: shared by the connection and all that is kept of it.
#[derive(Default)]
pub(crate) struct PeerFate(Mutex<Ended>);

#[derive(Default)]
enum Ended {
    /// The connection lasts as far as the server has seen.
    NotYet(Weak<dyn Lasting>),
    /// The client closed the connection after it had all its replies. It will not send its calls again:
    /// whoever comes from there with the same identifiers is another client.
    InOrder,
    /// The connection ended in another manner.
    #[default]
    Otherwise,
}

impl PeerFate {
    /// The connection begins.
    pub(super) fn begin(&self, connection: &Arc<impl Lasting + 'static>) {
        let connection: Arc<dyn Lasting> = connection.clone();
        *self.lock() = Ended::NotYet(Arc::downgrade(&connection));
    }

    /// The client has closed the connection, and has all its replies.
    pub(super) fn end_in_order(&self) {
        *self.lock() = Ended::InOrder;
    }

    /// The connection has ended. If the client closed it in order, that stays known.
    pub(super) fn end(&self) {
        let mut ended = self.lock();
        if let Ended::NotYet(_) = *ended {
            *ended = Ended::Otherwise;
        }
    }

    /// Whether the client has closed the connection, and has all its replies.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(*self.lock(), Ended::InOrder)
    }

    /// Whether its client may send its calls again on another connection. `look` may look at the socket.
    pub(super) fn may_come_again(&self, look: impl FnOnce(Arc<dyn Lasting>) -> bool) -> bool {
        let connection = match &*self.lock() {
            Ended::NotYet(connection) => connection.upgrade(),
            Ended::InOrder => return false,
            Ended::Otherwise => return true,
        };
        connection.is_none_or(look)
    }

    /// The connection ended otherwise, whatever was seen of it.
    #[cfg(test)]
    pub(super) fn break_off(&self) {
        *self.lock() = Ended::Otherwise;
    }

    fn lock(&self) -> MutexGuard<'_, Ended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
