//! The executor of an export's calls: the worker's own thread, or an executor of futures that the exporter
//! chose.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::stub::{AsyncDispatched, AsyncServer, Dispatched, Interface};
use crate::xdr::{Decoder, Encoder};

/// Executes a call on the thread that asks for it.
pub(crate) trait Dispatch: Send + Sync + 'static {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// A server whose procedures run on the worker's thread.
pub(crate) struct Direct<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized + Interface> Dispatch for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

/// Where the calls of an export are executed.
pub(crate) enum Executor {
    /// On the worker's thread, as ordinary functions.
    Here(Box<dyn Dispatch>),
    /// In an executor that the exporter chose, as futures.
    Elsewhere(Box<dyn Spawn>),
    /// No executor, because the export is being dropped.
    Gone,
}

/// A future that serves one call, for an executor.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a future from each call, and passes the future to an executor.
pub(crate) trait Spawn: Send + Sync + 'static {
    fn begin(&self, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched;
    fn spawn(&self, task: Task);
}

/// A server whose procedures are `async fn`s, and the executor that runs them.
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
