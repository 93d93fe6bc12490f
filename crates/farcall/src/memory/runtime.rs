//! What segments and clerks need of a runtime.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::env::Env;
use crate::idl::Interface;
use crate::names::{Label, Registration, Registry};
use crate::runtime::{Export, Near};
use crate::stub::Binding;
use crate::{CallFailed, Runtime, shm};
use farcall_memory::clerk::{ClerkRuntime, Locator, Names};
use farcall_memory::{
    Access, AccessHandler, ImportedMemory, Map, MemoryExport, MemoryRuntime, SharedMemory, SharingTerms,
};

// Accesses are calls by numbers that the protocol knows, and posted writes fit its frames.
const _: () = assert!(farcall_memory::ACCESSES == farcall_proto::ACCESSES);
const _: () = assert!(farcall_memory::READINGS == farcall_proto::READINGS);
const _: () = assert!(farcall_memory::MAX_POST_BYTES == farcall_proto::MAX_POST);

impl MemoryRuntime for Runtime {
    fn env(&self) -> &Arc<dyn Env> {
        Runtime::env(self)
    }

    fn export_memory(
        &self,
        name: &str,
        handler: Arc<dyn AccessHandler>,
    ) -> Result<Box<dyn MemoryExport>, CallFailed> {
        Ok(Box::new(self.export_unlisted::<dyn Access>(name, Arc::new(()), Some(handler))?))
    }

    fn share_memory(&self, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        self.shares_memory().then(|| self.offers().share(len, terms))?
    }

    fn import_memory(&self, url: &str) -> Result<ImportedMemory, CallFailed> {
        let (binding, near) = self.import_near::<dyn Access>(url)?;
        let map = near.map(|Near { peer, export, watcher }| -> Map {
            Box::new(move |facts, served| shm::map(&peer, export, facts, watcher, served))
        });
        Ok(ImportedMemory { binding, map })
    }
}

impl ClerkRuntime for Runtime {
    fn registry(&self) -> &Arc<dyn Registry> {
        Runtime::registry(self)
    }

    fn machine(&self) -> Result<IpAddr, CallFailed> {
        self.host()
    }

    fn spin(&self) -> Duration {
        Runtime::spin(self)
    }

    fn export_names(&self, name: &str, names: Arc<dyn Names>) -> Result<Box<dyn MemoryExport>, CallFailed> {
        Ok(Box::new(self.export_unlisted(name, names, None)?))
    }

    fn bind_later(&self, url: &str, interface: &'static Interface) -> Result<Binding, CallFailed> {
        Runtime::bind_later(self, url, interface)
    }

    fn locator(&self) -> &Mutex<Locator> {
        Runtime::locator(self)
    }

    fn share(&self) -> Arc<dyn ClerkRuntime> {
        Arc::new(self.clone())
    }

    fn sibling(&self) -> Arc<dyn ClerkRuntime> {
        Arc::new(Runtime::sibling(self))
    }
}

impl MemoryExport for Export {
    fn id(&self) -> u64 {
        Export::id(self)
    }

    fn address(&self) -> SocketAddr {
        Export::address(self)
    }

    fn list_as(&self, instance: Label) -> Result<Registration, CallFailed> {
        Export::list_as(self, instance)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let inside = self.runtime().clone();
        self.runtime().env().spawn(name, Box::new(move || inside.enter(run)))
    }
}
