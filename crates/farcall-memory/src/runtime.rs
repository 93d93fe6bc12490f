//! The interface between segments and the runtime that they belong to.

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
use farcall_core::{CallFailed, Principal, guard};
use farcall_names::{Label, Registration};

/// A runtime that exports and imports segments.
pub trait MemoryRuntime: Send + Sync {
    /// Returns the clock, events, threads and entropy that the runtime uses.
    fn env(&self) -> &Arc<dyn Env>;

    /// Exports a segment under a type and an instance (`Memory/Load`), without publishing it in the registry.
    /// The handler executes the accesses.
    ///
    /// # Errors
    /// When the name is not well-formed, or no socket can be opened.
    fn export_memory(
        &self,
        name: &str,
        handler: Arc<dyn AccessHandler>,
    ) -> Result<Box<dyn MemoryExport>, CallFailed>;

    /// Returns memory of `len` bytes that processes of the same user may map, or that the kernel serves.
    /// Returns `None` if there is no such memory, or if it cannot grant exactly these rights.
    fn share_memory(&self, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>>;

    /// Returns memory of `len` bytes that the program has already: the file's, from this offset on. Importers
    /// cannot map it.
    ///
    /// # Errors
    /// When such memory cannot be exported.
    #[cfg(unix)]
    fn memory_of_file(
        &self,
        file: std::os::fd::OwnedFd,
        offset: u64,
        len: usize,
    ) -> Result<Box<dyn SharedMemory>, CallFailed>;

    /// Binds to the segment that is exported at a URL (`udp://10.0.0.7:7000/Memory/Load`).
    ///
    /// # Errors
    /// When no server answers there, or the segment is not exported there.
    fn import_memory(&self, url: &str) -> Result<ImportedMemory, CallFailed>;
}

/// The terms on which memory is shared with other processes of the same user.
#[derive(Clone, Copy, Debug)]
pub struct SharingTerms {
    /// The rights of the other processes.
    pub others: crate::Rights,
    /// The rights of every process that can send a packet.
    pub anyone: crate::Rights,
    /// Whether the exporter is notified of writes that ask for it.
    pub hears: bool,
    /// The first generation in which the memory is offered.
    pub generation: u64,
}

/// The export of a segment. Dropping it ends the export.
pub trait MemoryExport: Send + Sync + Debug {
    /// Returns the identifier of the export.
    fn id(&self) -> u64;

    /// Returns the address at which the export can be called.
    fn address(&self) -> SocketAddr;

    /// Publishes the export in the registry as this instance, until the registration is dropped.
    ///
    /// # Errors
    /// When the name is taken, or the registry fails.
    fn list_as(&self, instance: Label) -> Result<Registration, CallFailed>;

    /// Checks that the exporting runtime can learn that an importer is the principal of this name.
    ///
    /// # Errors
    /// When the runtime has no keys, or no principal can have that name.
    fn check_principal(&self, name: &str) -> Result<(), CallFailed>;

    /// Starts a thread in which the exporting runtime is the current one.
    ///
    /// # Errors
    /// When no thread can be started.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;
}

/// A segment to which a runtime is bound.
pub struct ImportedMemory {
    /// Carries accesses as calls.
    pub binding: Binding,
    /// Maps the memory, if the exporter is a process of the same user on this machine.
    pub map: Option<Map>,
}

/// A function that maps the memory of a segment with these facts. It returns a carrier that uses the given
/// carrier where mapping does not suffice, or the given carrier itself if the memory cannot be mapped.
pub type Map = Box<dyn FnOnce(&Facts, Arc<dyn Carrier>) -> Arc<dyn Carrier>>;

/// The process that accesses a segment, and the tasks to wake afterwards.
#[derive(Default)]
pub struct Accessor {
    /// The source address, if the access came over a network.
    pub from: Option<SocketAddr>,
    /// Whether the system says that the accessing process belongs to the same user.
    pub same_user: bool,
    /// Who the accessing process is, if its key is known.
    pub principal: Option<Arc<Principal>>,
    /// Tasks to wake once no lock is held, because wakers are the user's code, and may use the segment or the
    /// server.
    pub woken: Vec<Waker>,
}

impl Accessor {
    /// Returns the name of the principal that the accessing process is, if its key is known.
    pub(crate) fn principal_name(&self) -> Option<&Arc<str>> {
        self.principal.as_ref().map(|principal| &principal.name)
    }

    /// Wakes the tasks. The caller must not hold a lock.
    pub fn wake(self) {
        for waker in self.woken {
            guard::run_alone("a waker", || waker.wake());
        }
    }
}

/// Executes the accesses to a segment. No method blocks, or takes longer than it takes to copy the accessed
/// bytes.
pub trait AccessHandler: Send + Sync + 'static {
    /// Executes an access.
    fn access(
        &self,
        by: &mut Accessor,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched;

    /// Returns the length of the result in bytes if the result can be long, and otherwise 0.
    fn result_bytes(&self, number: u32, arguments: &[u8]) -> usize;

    /// Executes a posted write if it is the next one of its stream.
    fn post(&self, by: &mut Accessor, bytes: &[u8]);

    /// Answers a read that arrived in a packet: writes the result, and returns its length in bytes, a
    /// multiple of four. Returns `None` if the result has no room or there is none. Then the read is to be
    /// executed by [`AccessHandler::access`]. `principal` is the reader, if its key is known.
    fn read(
        &self,
        principal: Option<&Principal>,
        number: u32,
        arguments: &[u8],
        result: &mut [u8],
    ) -> Option<usize>;

    /// Returns whether a process may map the memory: to read it, or to do everything if it `writes`.
    fn may_map(&self, by: &Accessor, writes: bool) -> bool;

    /// Returns how many reads the kernel has answered, if it serves the segment.
    fn answered_by_kernel(&self) -> Option<u64> {
        None
    }
}
