//! The fate of a connection: whether and how it has ended. The server's memory of earlier calls needs this to
//! recognise a call that is sent again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A connection that has not ended, as far as the server has seen.
pub(crate) trait Lasting: Send + Sync {
    /// Asks the system whether the client has gone before it received all its replies. Such a client may send
    /// its calls again on another connection.
    fn is_broken_off(&self) -> bool;
}

/// Whether and how a connection has ended. The connection shares it with the remembered calls that came by
/// that connection.
#[derive(Default)]
pub(crate) struct PeerFate(Mutex<Ended>);

#[derive(Default)]
enum Ended {
    /// As far as the server has seen, the connection has not ended.
    NotYet(Weak<dyn Lasting>),
    /// The client closed the connection after it had received all its replies. It will not send its calls
    /// again, so equal calls from its host come from another client.
    InOrder,
    /// The connection ended in another manner.
    #[default]
    Otherwise,
}

impl PeerFate {
    /// Notes that the connection has begun.
    pub(super) fn begin(&self, connection: &Arc<impl Lasting + 'static>) {
        let connection: Arc<dyn Lasting> = connection.clone();
        *self.lock() = Ended::NotYet(Arc::downgrade(&connection));
    }

    /// Notes that the client has closed the connection, and has all its replies.
    pub(super) fn end_in_order(&self) {
        *self.lock() = Ended::InOrder;
    }

    /// Notes that the connection has ended. If the client closed it in order, that stays known.
    pub(super) fn end(&self) {
        let mut ended = self.lock();
        if let Ended::NotYet(_) = *ended {
            *ended = Ended::Otherwise;
        }
    }

    /// Returns whether the client has closed the connection, and has all its replies.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(*self.lock(), Ended::InOrder)
    }

    /// Returns whether the client may send its calls again on another connection. If the server has not seen
    /// the connection end, calls `look`, which can ask the system.
    pub(super) fn may_come_again(&self, look: impl FnOnce(Arc<dyn Lasting>) -> bool) -> bool {
        let connection = match &*self.lock() {
            Ended::NotYet(connection) => connection.upgrade(),
            Ended::InOrder => return false,
            Ended::Otherwise => return true,
        };
        connection.is_none_or(look)
    }

    /// Notes that the connection did not end in order, even if an orderly end was noted before.
    #[cfg(test)]
    pub(super) fn break_off(&self) {
        *self.lock() = Ended::Otherwise;
    }

    fn lock(&self) -> MutexGuard<'_, Ended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
