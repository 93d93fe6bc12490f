//! Replaces the shared-memory driver on systems without shared memory. Every call goes by UDP.

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

/// The segments that other processes may map. There are none.
#[derive(Default)]
pub(crate) struct Offers;

/// A type without values. It replaces each type of the driver that has no values here.
#[derive(Clone)]
pub(crate) enum Nothing {}

pub(crate) type Host = Nothing;
pub(crate) type Link = Nothing;
pub(crate) type Started = Nothing;
pub(crate) type Watcher = Nothing;

/// The reason why there is no connection.
pub(crate) enum NoLink {
    /// The server offers no connection through shared memory.
    NotOffered,
    /// The process that answers is not the server.
    #[allow(dead_code)]
    Unproven,
}

impl Offers {
    pub(crate) fn share(&self, _: usize, _: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        None
    }

    #[cfg(feature = "secure")]
    pub(crate) fn take_from(
        &self,
        _: &dyn Env,
        _: impl Fn(u64, &std::sync::Arc<crate::Principal>, bool) -> bool,
    ) {
    }
}

/// Refuses to export memory of the program's.
#[cfg(unix)]
pub(crate) fn memory_of_file(
    _: &std::os::fd::OwnedFd,
    _: u64,
    _: usize,
) -> Result<Box<dyn SharedMemory>, CallFailed> {
    let why = "memory of the program's can be exported on Linux only";
    Err(CallFailed::new(crate::Kind::Local, crate::Ran::No).because(why))
}

/// Returns `served`, because nothing can be mapped.
pub(crate) fn map(
    _: &Arc<Peer>,
    _: u64,
    _: &Facts,
    _: Option<Arc<Watcher>>,
    served: Arc<dyn Carrier>,
) -> Arc<dyn Carrier> {
    served
}

impl Nothing {
    pub(crate) fn spawn(_: &Arc<dyn Env>) -> std::io::Result<Watcher> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn new(_: &Arc<Server>, _: &Arc<Offers>, _: Duration) -> std::io::Result<Host> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn connect(
        _: &Arc<dyn Env>,
        _: &Arc<Peer>,
        _: u64,
        _: &ClientConfig,
        _: Duration,
        _: Duration,
    ) -> Result<Arc<Link>, NoLink> {
        Err(NoLink::NotOffered)
    }

    pub(crate) fn start(
        link: &Arc<Link>,
        _: (u64, &CallRequest<'_>),
    ) -> Result<Option<Arc<Started>>, CallFailed> {
        match **link {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }

    #[cfg(feature = "secure")]
    pub(crate) fn end_forgotten(&self) {
        match *self {}
    }

    pub(crate) fn is_for(&self, _: &Peer, _: u64) -> bool {
        match *self {}
    }

    pub(crate) fn is_drained(&self, _: u64) -> bool {
        match *self {}
    }

    pub(crate) fn admit(&self, _: u64) {
        match *self {}
    }

    #[cfg(feature = "secure")]
    pub(crate) fn distrust_if_rejected(&self) {
        match *self {}
    }

    #[cfg(feature = "secure")]
    pub(crate) fn distrust_rejected(&self) {
        match *self {}
    }

    pub(crate) fn is_sound(&self) -> bool {
        match *self {}
    }

    pub(crate) fn answers(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn stats(&self) -> crate::stats::Link {
        match *self {}
    }

    pub(crate) fn call(
        &self,
        _: (u64, &CallRequest<'_>),
        _: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<bool, CallFailed> {
        match *self {}
    }

    pub(crate) fn wait(&self, _: Taker<'_>) -> Result<(), CallFailed> {
        match *self {}
    }

    pub(crate) fn poll(&self, _: &mut Context<'_>, _: Taker<'_>) -> Poll<Result<(), CallFailed>> {
        match *self {}
    }

    pub(crate) fn cancel(&self) {
        match *self {}
    }

    pub(crate) fn detach(&self) {
        match *self {}
    }
}
