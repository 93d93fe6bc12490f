//! A clerk's imports of the segments with one well-known name from other clerks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use super::Fault;
use crate::remote::Remote;
use crate::runtime::MemoryRuntime;
use farcall_core::{Result, lock};

/// The imported segments with one name, by the address of their clerk.
pub(super) struct Neighbours {
    name: &'static str,
    held: Mutex<BTreeMap<SocketAddr, Remote>>,
}

/// The most imported segments. A segment that was dropped is imported again when it is needed.
const MAX_IMPORTS: usize = 1024;

impl Neighbours {
    pub(super) fn new(name: &'static str) -> Neighbours {
        Neighbours { name, held: Mutex::default() }
    }

    /// Calls `act` with the segment at an address. Imports the segment if it was not imported before. If it
    /// was, and `act` fails, imports it again and calls `act` again.
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
            self.forget(at);
        }
        let fresh = Remote::import(runtime, format_args!("udp://{at}"), self.name);
        let fresh = fresh.map_err(|why| silent(at, &why))?;
        let done = act(&fresh).map_err(|why| silent(at, &why))?;
        let mut held = lock(&self.held);
        if held.len() >= MAX_IMPORTS {
            held.pop_first();
        }
        held.insert(at, fresh);
        Ok(done)
    }

    /// Returns the segment at an address if it was imported before.
    pub(super) fn known(&self, at: SocketAddr) -> Option<Remote> {
        lock(&self.held).get(&at).cloned()
    }

    pub(super) fn forget(&self, at: SocketAddr) {
        lock(&self.held).remove(&at);
    }
}

fn silent(at: SocketAddr, why: &dyn std::fmt::Display) -> farcall_core::Error<Fault> {
    Fault::Silent(format!("the clerk at {at}: {why}")).into()
}
