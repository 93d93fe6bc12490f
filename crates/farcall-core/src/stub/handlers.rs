//! A caller's handlers: they answer the signals that the servers of its calls raise.

use std::fmt;
use std::sync::Arc;

use super::answer::{Handled, Handler, Raised};
use super::catching;
use super::signal::pass_on;
use crate::xdr::Decoder;
use crate::{CallFailed, Kind};

/// The handlers of a user-stub, the nearest first.
#[derive(Clone, Default)]
pub struct Handlers(Option<Arc<Node>>);

/// No handlers.
pub static NO_HANDLERS: Handlers = Handlers(None);

struct Node {
    handler: Box<dyn Handler + Send + Sync>,
    outer: Handlers,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.iter().count()).finish()
    }
}

impl Handlers {
    /// Returns these handlers with another one, which is asked first.
    #[must_use]
    pub fn with(&self, handler: impl Handler + Send + Sync + 'static) -> Handlers {
        Handlers(Some(Arc::new(Node { handler: Box::new(handler), outer: self.clone() })))
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Handler> {
        std::iter::successors(self.0.as_deref(), |node| node.outer.0.as_deref())
            .map(|node| &*node.handler as &dyn Handler)
    }

    /// Answers a signal: by the nearest handler that does not pass it on, by one that this thread has set for
    /// all its calls, or by the caller of the call that this thread serves, if that is of the same interface.
    /// Returns `None` if nobody catches the signal.
    pub(super) fn handle(&self, raised: &Raised, arguments: &[u8]) -> Result<Option<Handled>, CallFailed> {
        for handler in self.iter() {
            match handler.handle(raised, &mut Decoder::new(arguments))? {
                Handled::Pass => {}
                handled => return Ok(Some(handled)),
            }
        }
        if let Some(handled) = catching::handle(raised, arguments)? {
            return Ok(Some(handled));
        }
        match pass_on(raised.signal, arguments) {
            Ok(value) => Ok(Some(Handled::Resume(value))),
            Err(why) if why.kind() == Kind::Unwound => Ok(None),
            Err(why) => Err(why),
        }
    }
}
