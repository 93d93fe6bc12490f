//! No memory of others' can be mapped on this system: segments are served.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::carrier::Carrier;
use super::segment::Rights;
use super::served::Served;
use crate::client::Peer;
use crate::env::Env;

/// There is none.
#[derive(Debug)]
pub(crate) struct Ground(Infallible);

/// There is none.
pub(crate) struct Watcher(Infallible);

/// There is none.
pub(crate) struct Guest(Infallible);

pub(super) fn ground(_: usize, _: Rights, _: u64) -> Option<Ground> {
    None
}

pub(super) fn map(
    _: &Arc<Peer>,
    _: u64,
    _: (u64, u64, Rights),
    _: Option<Arc<Watcher>>,
    served: Served,
) -> Arc<dyn Carrier> {
    Arc::new(served)
}

impl Watcher {
    pub(crate) fn new(_: &Arc<dyn Env>) -> std::io::Result<Watcher> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }
}

impl Ground {
    pub(super) fn is_written_by_others(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn with<R>(&self, _: impl FnOnce(&[AtomicU64]) -> R) -> R {
        match self.0 {}
    }

    pub(super) fn copy_out(&self, _: usize, _: &mut [u8]) -> bool {
        match self.0 {}
    }

    pub(super) fn copy_in(&self, _: usize, _: &[u8]) -> bool {
        match self.0 {}
    }

    pub(super) fn withdraw(&self) {
        match self.0 {}
    }

    pub(super) fn part(&self, _: Option<u64>) {
        match self.0 {}
    }

    pub(super) fn pass(&self, _: u64, _: bool, _: &[u8; 16], guest: &Guest) -> bool {
        match guest.0 {}
    }
}
