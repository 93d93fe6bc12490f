//! Stands for the shared-memory driver on systems that have none: every call goes by UDP.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farcall_proto::ClientConfig;
use farcall_proto::client::Outcome;

use crate::CallFailed;
use crate::client::{CallRequest, Peer, Taker};
use crate::env::Env;
use crate::server::Server;
use farcall_memory::{Carrier, Facts, SharedMemory, SharingTerms};

/// The segments that other processes may map: none.
#[derive(Default)]
pub(crate) struct Offers;

/// There is none.
pub(crate) struct Watcher(Infallible);

/// There is none.
pub(crate) struct Link(Infallible);

/// Why there is no connection.
pub(crate) enum NoLink {
    /// The server offers none.
    NotOffered,
    /// The process that answers is not the server.
    #[allow(dead_code)]
    Unproven,
}

/// There is none.
pub(crate) struct Started(Infallible);

/// There is none.
pub(crate) struct Host(Infallible);

impl Offers {
    pub(crate) fn share(&self, _: usize, _: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        None
    }
}

impl Watcher {
    pub(crate) fn new(_: &Arc<dyn Env>) -> std::io::Result<Watcher> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }
}

/// Maps nothing.
pub(crate) fn map(
    _: &Arc<Peer>,
    _: u64,
    _: &Facts,
    _: Option<Arc<Watcher>>,
    served: Arc<dyn Carrier>,
) -> Arc<dyn Carrier> {
    served
}

impl Link {
    pub(crate) fn connect(
        _: &Arc<dyn Env>,
        _: &Arc<Peer>,
        _: u64,
        _: &ClientConfig,
        _: Duration,
    ) -> Result<Arc<Link>, NoLink> {
        Err(NoLink::NotOffered)
    }

    pub(crate) fn is_sound(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn answers(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn stats(&self) -> crate::stats::Link {
        match self.0 {}
    }

    pub(crate) fn call(
        &self,
        _: (u64, &CallRequest<'_>),
        _: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<bool, CallFailed> {
        match self.0 {}
    }
}

impl Started {
    pub(crate) fn start(
        link: &Arc<Link>,
        _: (u64, &CallRequest<'_>),
    ) -> Result<Option<Arc<Started>>, CallFailed> {
        match link.0 {}
    }

    pub(crate) fn wait(&self, _: Taker<'_>) -> Result<(), CallFailed> {
        match self.0 {}
    }

    pub(crate) fn poll(&self, _: &mut Context<'_>, _: Taker<'_>) -> Poll<Result<(), CallFailed>> {
        match self.0 {}
    }

    pub(crate) fn cancel(&self) {
        match self.0 {}
    }

    pub(crate) fn detach(&self) {
        match self.0 {}
    }
}

impl Host {
    pub(crate) fn new(_: &Arc<Server>, _: &Arc<Offers>, _: Duration) -> std::io::Result<Host> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }
}
