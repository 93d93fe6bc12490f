//! What executes the calls of an export: the worker's thread, or an executor of futures that the exporter
//! chose.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::stub::{AsyncDispatched, AsyncServer, Dispatched, Interface};
use crate::xdr::{Decoder, Encoder};

/// What executes calls.
pub(crate) trait Dispatch: Send + Sync + 'static {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// A server that is called on the worker's thread.
pub(crate) struct Direct<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized + Interface> Dispatch for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

/// Where an interface's calls are executed.
pub(crate) enum Executor {
    /// On the worker's thread.
    Here(Box<dyn Dispatch>),
    /// As futures.
    Elsewhere(Box<dyn Spawn>),
    /// Nowhere: the export is being dropped.
    Gone,
}

/// A future that serves one call, for an executor.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What makes futures of calls, and has them executed.
pub(crate) trait Spawn: Send + Sync + 'static {
    fn begin(&self, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched;
    fn spawn(&self, task: Task);
}

/// A server of `async fn`s, and the executor that runs them.
pub(crate) struct Spawned<S, F> {
    pub(crate) server: Arc<S>,
    pub(crate) executor: F,
}

impl<S: AsyncServer, F: Fn(Task) + Send + Sync + 'static> Spawn for Spawned<S, F> {
    fn begin(&self, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched {
        self.server.clone().dispatch(procedure, arguments)
    }

    fn spawn(&self, task: Task) {
        (self.executor)(task);
    }
}
