//! The services of a runtime that segments and clerks use.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_memory::clerk::{ClerkRuntime, Locator, Names, Signatures};
use farcall_memory::{
    Access, AccessHandler, ImportedMemory, Map, MemoryExport, MemoryRuntime, SharedMemory, SharingTerms,
};
use farcall_names::{Entry, Label, Registration, Registry};

use super::Runtime;
use super::bind::parse;
use super::export::{Export, export_unlisted};
use super::import::binding_to;
use super::lookup::Wanted;
use crate::env::Env;
use crate::idl;
use crate::intercept::Interceptors;
use crate::stub::{Binding, Interface as _};
use crate::{CallFailed, Kind, Ran, context, shm};

// Accesses are calls by numbers that the protocol knows, and posted writes fit its frames.
const _: () = assert!(farcall_memory::ACCESSES == farcall_proto::ACCESSES);
const _: () = assert!(farcall_memory::READINGS == farcall_proto::READINGS);
const _: () = assert!(farcall_memory::MAX_POST_BYTES == farcall_proto::MAX_POST);

impl MemoryRuntime for Runtime {
    fn env(&self) -> &Arc<dyn Env> {
        &self.0.env
    }

    fn export_memory(
        &self,
        name: &str,
        handler: Arc<dyn AccessHandler>,
    ) -> Result<Box<dyn MemoryExport>, CallFailed> {
        Ok(Box::new(export_unlisted::<dyn Access>(self, name, Arc::new(()), Some(handler))?))
    }

    fn share_memory(&self, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        if let Some(memory) = self.0.share_with_kernel(len, &terms) {
            return Some(memory);
        }
        let shares = self.0.settings.shared_memory && self.0.env.shares_memory();
        shares.then(|| self.0.offers.share(len, terms))?
    }

    #[cfg(unix)]
    fn memory_of_file(
        &self,
        file: std::os::fd::OwnedFd,
        offset: u64,
        len: usize,
    ) -> Result<Box<dyn SharedMemory>, CallFailed> {
        shm::memory_of_file(&file, offset, len)
    }

    fn import_memory(&self, url: &str) -> Result<ImportedMemory, CallFailed> {
        let (inner, name, interface) = (&self.0, parse(url)?, Cow::Borrowed(<dyn Access>::interface()));
        let target = inner.bind(&name, &interface, context::inherited().0)?;
        let map = target.link.as_ref().map(|_| -> Map {
            let (peer, export, watcher) = (target.peer.clone(), target.export, inner.watcher());
            Box::new(move |facts, served| shm::map(&peer, export, facts, watcher, served))
        });
        Ok(ImportedMemory { binding: binding_to(inner, name, interface, Some(target)), map })
    }
}

impl ClerkRuntime for Runtime {
    fn registry(&self) -> &Arc<dyn Registry> {
        Runtime::registry(self)
    }

    fn listed(
        &self,
        signatures: Signatures,
        kind: &Label,
        instance: Option<&Label>,
    ) -> Result<Vec<Entry>, CallFailed> {
        let lookups = match signatures {
            Signatures::Checked => &self.0.lookups,
            Signatures::Unchecked => &self.0.plain_lookups,
        };
        let wanted = match instance {
            None => Wanted::Instances(kind.clone()),
            Some(instance) => Wanted::Instance(kind.clone(), instance.clone()),
        };
        Ok(lookups.ask(&wanted, context::inherited().0)?.into_entries())
    }

    fn key_prefix(&self) -> Option<u64> {
        self.0.settings.key_prefix()
    }

    fn machine(&self) -> Result<IpAddr, CallFailed> {
        if let Some(address) = self.address() {
            return Ok(self.0.advertised(address)?[0].ip());
        }
        // Only the address by which other machines reach this one matters, not a port.
        let anywhere = SocketAddr::new(self.0.settings.address.ip(), 0);
        let socket = self.0.env.bind(anywhere, &self.0.socket_options());
        let socket = socket.map_err(|why| CallFailed::local(&format!("binding {anywhere}"), why))?;
        Ok(self.0.advertised(socket.local_address())?[0].ip())
    }

    fn spin(&self) -> Duration {
        self.0.settings.spin
    }

    fn export_names(&self, name: &str, names: Arc<dyn Names>) -> Result<Box<dyn MemoryExport>, CallFailed> {
        Ok(Box::new(export_unlisted(self, name, names, None)?))
    }

    fn bind_later(&self, url: &str, interface: &'static idl::Interface) -> Result<Binding, CallFailed> {
        Ok(binding_to(&self.0, parse(url)?, Cow::Borrowed(interface), None))
    }

    fn locator(&self) -> &Mutex<Locator> {
        &self.0.locator
    }

    fn share(&self) -> Arc<dyn ClerkRuntime> {
        Arc::new(self.clone())
    }

    fn sibling(&self) -> Arc<dyn ClerkRuntime> {
        let mut settings = self.0.settings.clone();
        settings.address.set_port(0);
        // An interface has one XDP program.
        settings.kernel_served.clear();
        settings.advertise.iter_mut().for_each(|address| address.set_port(0));
        let (env, registry) = (self.0.env.clone(), self.0.plain_registry.clone());
        let origins = self.origins().clone();
        let (calls, serving) = (Interceptors::default(), Interceptors::default());
        Arc::new(Runtime::new(env, settings, origins, registry, calls, serving))
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

    fn check_principal(&self, name: &str) -> Result<(), CallFailed> {
        let wrong = |why: String| CallFailed::new(Kind::Local, Ran::No).because(why);
        if !self.runtime().0.settings.has_keys() {
            return Err(wrong(format!("nobody can be {name:?}: this runtime has no keys (FARCALL_KEYS)")));
        }
        check_principal_name(name).map_err(wrong)
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let inside = self.runtime().clone();
        self.runtime().0.env.spawn(name, Box::new(move || inside.enter(run)))
    }
}

/// Returns an error if no principal can have this name.
#[cfg(feature = "secure")]
fn check_principal_name(name: &str) -> Result<(), String> {
    name.parse::<farcall_keys::PrincipalName>().map(drop).map_err(|why| why.to_string())
}

#[cfg(not(feature = "secure"))]
fn check_principal_name(_: &str) -> Result<(), String> {
    Ok(())
}
