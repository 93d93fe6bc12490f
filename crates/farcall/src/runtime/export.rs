//! Exports an interface: offers it at the server's socket, and publishes it in the registry.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_names::{Entry, Label, Name, Registration};
use farcall_proto::server as proto;

use super::{Inner, Runtime, registry_failed};
use crate::server::{Direct, Executor, Exported, Server, Spawned, Task, watched};
use crate::stub::{AsyncServer, Interface};
use crate::sys::fork;
use crate::{CallFailed, Kind, Ran, idl};
use farcall_core::stopper::Stopper;
use farcall_memory::AccessHandler;

/// An exported interface. Dropping it withdraws the export: calls that have begun are finished, and later
/// calls fail as not exported, `Ran::No`.
#[must_use = "dropping an Export takes the offer back; `wait()` keeps it for ever"]
pub struct Export {
    runtime: Runtime,
    server: Arc<Server>,
    /// The addresses that are published, at least one.
    addresses: Vec<SocketAddr>,
    exported: Arc<Exported>,
    name: String,
    /// The entry for the registry.
    entry: Entry,
    stopper: Stopper,
}

/// How an interface is exported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    /// Calls are admitted as long as the export lasts.
    Usual,
    /// Calls are admitted only while this process surely owns the name.
    Exclusive,
}

pub(super) fn export<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
    server: Arc<T>,
    terms: Terms,
) -> Result<Export, CallFailed> {
    let mut export = offer::<T>(runtime, name, Executor::Here(Box::new(Direct(server))), None, terms)?;
    export.list()?;
    Ok(export)
}

/// Exports an interface, and perhaps memory, without publishing the export. Callers must know its address.
pub(super) fn export_unlisted<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
    server: Arc<T>,
    handler: Option<Arc<dyn AccessHandler>>,
) -> Result<Export, CallFailed> {
    offer::<T>(runtime, name, Executor::Here(Box::new(Direct(server))), handler, Terms::Usual)
}

pub(super) fn export_async<S: AsyncServer>(
    runtime: &Runtime,
    name: &str,
    server: S,
    executor: impl Fn(Task) + Send + Sync + 'static,
    terms: Terms,
) -> Result<Export, CallFailed> {
    let spawned = Spawned { server: Arc::new(server), executor };
    let executor = Executor::Elsewhere(Box::new(spawned));
    let mut export = offer::<S::Interface>(runtime, name, executor, None, terms)?;
    export.list()?;
    Ok(export)
}

fn offer<T: ?Sized + Interface>(
    runtime: &Runtime,
    name: &str,
    executor: Executor,
    handler: Option<Arc<dyn AccessHandler>>,
    terms: Terms,
) -> Result<Export, CallFailed> {
    let inner = &runtime.0;
    inner.check_process()?;
    let (type_name, instance) = inner.name_of_export(name, terms)?;
    let server = inner.server()?;
    let addresses = inner.advertised(server.address())?;
    let id = inner.random();
    let described = inner.settings.describe.then(T::interface);
    let executor = watched(&inner.serving, T::NAME, T::PROCEDURES, &inner.env, executor);
    let procedures = (T::PROCEDURES, T::interface().has_oneway());
    let exported = Exported::new(id, procedures, described, executor, &inner.env).with_memory(handler);
    let exported = exported.with_access(inner.access(type_name.as_str(), instance.as_str()));
    let exported = Arc::new(exported.exclusively(terms == Terms::Exclusive));
    let fingerprints = T::interface().fingerprints();
    let on_wire =
        |&idl::Fingerprint { number, types, name }: &_| farcall_proto::Fingerprint { number, types, name };
    let listed =
        |&idl::Fingerprint { number, types, name }: &_| farcall_names::Fingerprint { number, types, name };
    let offer = proto::Export {
        id,
        type_name: type_name.as_str().to_owned(),
        instance: instance.as_str().to_owned(),
        procedures: fingerprints.iter().map(on_wire).collect(),
    };
    server.export(offer, exported.clone());
    let name = format!("{type_name}/{instance}");
    let mut entry = Entry::new(type_name, instance, addresses[0].into(), id);
    entry.other_addresses = addresses[1..].iter().copied().map(Into::into).collect();
    entry.fingerprints = fingerprints.iter().map(listed).collect();
    let (runtime, stopper) = (runtime.clone(), Stopper::new(&inner.env));
    Ok(Export { runtime, server, addresses, exported, name, entry, stopper })
}

impl Inner {
    /// Returns the type and the instance of a name. Makes up a unique instance if the name has none.
    fn name_of_export(&self, name: &str, terms: Terms) -> Result<(Label, Label), CallFailed> {
        match super::bind::parse(name)? {
            Name::Type(_) if terms == Terms::Exclusive => {
                let why =
                    format!("{name:?} names no instance, and an exclusive export owns one: {name}/main");
                Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why))
            }
            Name::Type(type_name) => Ok((type_name, self.unique_instance())),
            Name::Instance { type_name, instance } => Ok((type_name, instance)),
            _ => {
                let why = format!("{name:?} is an address; export a type, or a type and an instance");
                Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why))
            }
        }
    }

    fn unique_instance(&self) -> Label {
        let label = format!("{}-{:08x}", self.env.process_id(), self.random() as u32);
        label.parse().unwrap_or_else(|_| unreachable!("digits make a label"))
    }

    /// Returns a random number that is not zero.
    pub(super) fn random(&self) -> u64 {
        loop {
            let mut bytes = [0; 8];
            self.env.entropy(&mut bytes);
            match u64::from_ne_bytes(bytes) {
                0 => {}
                number => return number,
            }
        }
    }
}

impl Export {
    /// Keeps the export until the process ends, or [`Stopper::stop`] is called.
    ///
    /// # Errors
    /// When this process is a forked child of the process that made the export.
    pub fn wait(self) -> crate::Result<()> {
        self.server.check_process()?;
        self.stopper.wait();
        Ok(())
    }

    /// Serves until the process is asked to end, by SIGTERM or SIGINT, or until [`Stopper::stop`] is called.
    /// Then [drains](Export::drain) the export, at most 25 s, and returns: less than the 30 s after which
    /// Kubernetes kills a container. This is the line with which the `main` of a server ends.
    ///
    /// From the first call of this on, or of [`take_signals`](crate::take_signals), with which a `main` can
    /// begin, the two signals do nothing but this, also if the process is the first
    /// one of a container, where they have no effect by default. A second signal ends the process at once.
    /// (Other systems than Unix have no such signals: there only [`Stopper::stop`] ends this.)
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
    /// # struct Server;
    /// # impl Echo for Server { fn echo(&self, text: &str) -> farcall::Result<String> { Ok(text.to_owned()) } }
    /// fn main() -> farcall::Result<()> {
    ///     farcall::export::<dyn Echo>("Echo", std::sync::Arc::new(Server))?.until_signal()
    /// }
    /// ```
    ///
    /// # Errors
    /// When calls had not ended after 25 s, when this process is a forked child of the process that made the
    /// export, or when the system lets no thread take the signals.
    #[cfg(feature = "signals")]
    pub fn until_signal(self) -> crate::Result<()> {
        self.server.check_process()?;
        let stopper = self.stopper();
        farcall_core::signals::serve_until_signal(&stopper, |time| self.drain(time))
    }

    /// Serves until a signal comes, as [`Export::until_signal`] does, without blocking the task. A thread of
    /// tokio's waits meanwhile.
    ///
    /// # Errors
    /// Those of [`Export::until_signal`].
    ///
    /// # Panics
    /// Outside tokio's runtime.
    #[cfg(all(feature = "signals", feature = "tokio"))]
    pub async fn until_signal_async(self) -> crate::Result<()> {
        let served = tokio::task::spawn_blocking(move || self.until_signal()).await;
        served.unwrap_or_else(|why| Err(CallFailed::new(Kind::Stopped, Ran::Maybe).caused_by(why).into()))
    }

    /// Returns a handle with which another thread can end [`Export::wait`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Withdraws the export, tells its clients, and waits until the calls that have begun are finished and no
    /// new one has come for 100 ms (for a second, if clients have lately lacked results, because the network
    /// loses datagrams), but no longer than `time`. Returns whether those that have begun are finished. If
    /// the result of a call is a stream, and the stream has no items to send, it ends as
    /// [`Kind::Draining`](crate::Kind::Draining), so that a client that watches something does not hold up
    /// the drain.
    pub fn drain(self, time: Duration) -> bool {
        self.runtime.0.generation == fork::generation() && self.server.drain(Some(&self.exported), time)
    }

    /// Returns the address at which the export can be called: the first one that is published.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the addresses that are published ([`Builder::advertise`](crate::Builder::advertise)), the one
    /// to try first before the others.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the answer of this server to a process that connects to it for shared memory and sends
    /// `hello`. For tests in which an impostor answers in place of the server.
    #[doc(hidden)]
    #[cfg(target_os = "linux")]
    pub fn answer_meeting(&self, hello: &[u8]) -> Option<[u8; 16]> {
        Some(crate::shm::answer(&self.server, &farcall_shm::Hello::from_bytes(hello)?, self.server.address()))
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the export as the server knows it.
    #[cfg(feature = "tokio")]
    pub(super) fn exported(&self) -> &Arc<Exported> {
        &self.exported
    }

    /// Returns the export's identifier.
    pub(crate) fn id(&self) -> u64 {
        self.exported.id
    }

    /// Returns the fence of an [exclusive](Runtime::export_exclusive) export, if this process surely owns the
    /// name now: a number that is greater than those of all earlier owners. Procedures read the fence under
    /// which their call was admitted by [`Context::fence`](crate::Context::fence). A forked child owns
    /// nothing.
    pub fn fence(&self) -> Option<u64> {
        let is_forked = self.runtime.0.generation != fork::generation();
        self.exported.fence().filter(|_| !is_forked)
    }

    /// Returns the export's type and instance, as in `Store/ebbets`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a name of the export that needs no registry, as in `udp://127.0.0.1:7000/Store/ebbets`.
    pub fn url(&self) -> String {
        format!("udp://{}/{}", self.address(), self.name())
    }

    /// Publishes the export. This is the last step, so that the server serves every caller that finds the
    /// name. If it fails, the drop of the export withdraws the export.
    fn list(&mut self) -> Result<(), CallFailed> {
        if !self.exported.is_exclusive() {
            self.exported.list(self.publish(&self.entry)?);
            return Ok(());
        }
        let published = self.runtime.0.registry.publish_exclusively(&self.entry);
        let registration = published.map_err(registry_failed)?;
        let ownership = registration.ownership().ok_or_else(|| {
            let why = "this registry does not keep two processes from owning one name, so it has no \
                       exclusive exports";
            CallFailed::new(Kind::Registry, Ran::No).because(why)
        })?;
        self.exported.owned(ownership);
        self.exported.list(registration);
        Ok(())
    }

    /// Publishes the export under another instance as well, until the registration is dropped.
    pub(crate) fn list_as(&self, instance: Label) -> Result<Registration, CallFailed> {
        let mut entry = self.entry.clone();
        entry.instance = instance;
        self.publish(&entry)
    }

    fn publish(&self, entry: &Entry) -> Result<Registration, CallFailed> {
        let published = self.runtime.0.registry.publish(entry);
        published.map_err(registry_failed)
    }

    fn take_back(&mut self) {
        // The name is withdrawn first, so that no caller finds an export that is gone.
        self.exported.unlist();
        self.server.withdraw(self.exported.id);
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if self.runtime.0.generation == fork::generation() {
            self.take_back();
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("name", &self.name())
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
