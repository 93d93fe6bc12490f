//! The seam above segments: what they need of the runtime that they belong to, and what it hands them.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use crate::access::Facts;
use crate::carrier::{Carrier, SharedMemory};
use farcall_core::env::Env;
use farcall_core::stub::{Binding, Dispatched};
use farcall_core::xdr::{Decoder, Encoder};
use farcall_core::{CallFailed, guard};
use farcall_names::{Label, Registration};

/// A runtime that exports and imports segments.
pub trait MemoryRuntime: Send + Sync {
    /// The clock, events, threads and entropy that the runtime uses.
    fn env(&self) -> &Arc<dyn Env>;

    /// Exports a segment under a type and an instance (`Memory/Load`); the handler executes its accesses. No registry is told.
    ///
    /// # Errors
    /// When the name is no name, or no socket can be had.
    fn export_memory(
        &self,
        name: &str,
        handler: Arc<dyn AccessHandler>,
    ) -> Result<Box<dyn MemoryExport>, CallFailed>;

    /// Returns memory of `len` bytes that processes of the same user may map, or `None` where there is no such
    /// memory or it cannot express the rights of the others.
    fn share_memory(&self, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>>;

    /// Binds to the segment that is exported at a URL (`udp://10.0.0.7:7000/Memory/Load`).
    ///
    /// # Errors
    /// When no server answers there, or the segment is not exported there.
    fn import_memory(&self, url: &str) -> Result<ImportedMemory, CallFailed>;
}

/// How memory is shared with other processes of the same user.
#[derive(Clone, Copy, Debug)]
pub struct SharingTerms {
    /// What they may do with it.
    pub others: crate::Rights,
    /// Whether the exporter hears of a write if the writer asks for it.
    pub hears: bool,
    /// The first generation as which it is offered.
    pub generation: u64,
}

/// A segment's export. Dropping it takes the offer back.
pub trait MemoryExport: Send + Sync + Debug {
    /// The identifier of the export.
    fn id(&self) -> u64;

    /// Where it can be called.
    fn address(&self) -> SocketAddr;

    /// Tells the registry of it, as that instance, until the registration is dropped.
    ///
    /// # Errors
    /// When the name is taken, or the registry fails.
    fn list_as(&self, instance: Label) -> Result<Registration, CallFailed>;

    /// Starts a thread whose current runtime is the exporting one.
    ///
    /// # Errors
    /// When there can be no more threads.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;
}

/// A segment that a runtime is bound to.
pub struct ImportedMemory {
    /// Carries accesses as calls.
    pub binding: Binding,
    /// Maps the memory, if the exporter is a process of the same user on this machine.
    pub map: Option<Map>,
}

/// Maps the memory of an export that has these facts; gives a carrier that falls back on the one it was given, or
/// that one if the memory cannot be mapped.
pub type Map = Box<dyn FnOnce(&Facts, Arc<dyn Carrier>) -> Arc<dyn Carrier>>;

/// Who accesses memory, and which tasks the caller wakes when nothing is locked.
#[derive(Default)]
pub struct Accessor {
    /// The address, if the access came from one.
    pub from: Option<SocketAddr>,
    /// The system says that the accessing process is the same user's.
    pub same_user: bool,
    /// Tasks to wake once nothing is locked: wakers are the user's code, and may use the segment or the server.
    pub woken: Vec<Waker>,
}

impl Accessor {
    /// Wakes the tasks.
    pub fn wake(self) {
        for waker in self.woken {
            guard::run_alone("a waker", || waker.wake());
        }
    }
}

/// Executes the accesses to a segment. No method waits, or takes longer than copying the bytes that it is about.
pub trait AccessHandler: Send + Sync + 'static {
    /// Executes an access.
    fn access(
        &self,
        by: &mut Accessor,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched;

    /// Returns how many bytes the result has, if it can be long; 0 if it cannot.
    fn result_bytes(&self, number: u32, arguments: &[u8]) -> usize;

    /// Takes in a posted write.
    fn post(&self, by: &mut Accessor, bytes: &[u8]);

    /// Answers a reading that came in a packet: writes its result, and returns the result's length in bytes, a
    /// multiple of four. Returns `None` if there is no room or no result; then [`AccessHandler::access`] says which.
    fn read(&self, number: u32, arguments: &[u8], result: &mut [u8]) -> Option<usize>;
}
