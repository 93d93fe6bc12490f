//! Segments of one well-known name that a clerk has imported from others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Fault;
use crate::remote::Remote;
use crate::runtime::MemoryRuntime;
use farcall_core::Result;

/// Imported segments, by their clerk.
pub(super) struct Neighbours {
    name: &'static str,
    held: Mutex<BTreeMap<SocketAddr, Remote>>,
}

/// The most segments that are kept; one that is dropped is imported again.
const MAX_KEPT: usize = 1024;

impl Neighbours {
    pub(super) fn new(name: &'static str) -> Neighbours {
        Neighbours { name, held: Mutex::default() }
    }

    /// Does something with the segment at an address. Imports it if it was not imported yet, and again if an access to the
    /// imported one fails.
    pub(super) fn with<T>(
        &self,
        runtime: &dyn MemoryRuntime,
        at: SocketAddr,
        act: &dyn Fn(&Remote) -> crate::Result<T>,
    ) -> Result<T, Fault> {
        if let Some(known) = self.known(at) {
            if let Ok(done) = act(&known) {
                return Ok(done);
            }
            self.held().remove(&at);
        }
        let fresh = Remote::import(runtime, format_args!("udp://{at}"), self.name);
        let fresh = fresh.map_err(|why| silent(at, &why))?;
        let done = act(&fresh).map_err(|why| silent(at, &why))?;
        self.keep(at, fresh);
        Ok(done)
    }

    /// The segment at an address, if it was imported before.
    pub(super) fn known(&self, at: SocketAddr) -> Option<Remote> {
        self.held().get(&at).cloned()
    }

    pub(super) fn forget(&self, at: SocketAddr) {
        self.held().remove(&at);
    }

    fn keep(&self, at: SocketAddr, segment: Remote) {
        let mut held = self.held();
        if held.len() >= MAX_KEPT {
            held.pop_first();
        }
        held.insert(at, segment);
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Remote>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silent(at: SocketAddr, why: &dyn std::fmt::Display) -> farcall_core::Error<Fault> {
    Fault::Silent(format!("the clerk at {at}: {why}")).into()
}
