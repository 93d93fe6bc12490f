//! A [`Runtime`] binds callers to servers. It owns sockets, a registry of names, and settings.
//!
//! ```text
//! settings    the builder, and FARCALL_* variables
//! export      exports an interface;  advertise: chooses the address that is published
//! bind        binds a name to an export at some address;  bound: the present binding of an importer
//! resolve     resolves the name of a host
//! same_user   who may call a server without keys
//! restarts    whether an import may be bound to another server than before
//! import      the channel of an imported interface: calls, binds again, repeats calls
//! answerer    who answers at an address, as a handshake shows
//! group       the instances of a type, as the registry lists them
//! kernel      the XDP program that answers readers of segments
//! memory      the services of a runtime that segments and clerks use
//! started     started calls of an imported interface;  sent: a call that was sent to its server;
//!             retry_task: a call that must be bound first, or made again
//! exchanging  a started call whose signals are answered
//! lookup      asks the registry, within a deadline;  tasks: runs tasks that wait
//! within      one time for all calls of a piece of program
//! woken       an executor without threads, for exports whose calls are taken from a queue
//! watched     interceptors around the channel of an imported interface
//! ```

mod advertise;
#[cfg(feature = "secure")]
mod answerer;
mod bind;
mod bound;
mod builder;
mod exchanging;
mod export;
mod group;
mod import;
mod kernel;
mod lookup;
mod memory;
mod place;
mod resolve;
mod restarts;
mod retry_task;
mod same_user;
mod sent;
mod settings;
mod silence;
mod started;
mod tasks;
mod variables;
mod watched;
#[cfg(feature = "secure")]
mod watched_keys;
mod within;
mod woken;

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use farcall_names::Registry;
use farcall_proto::{ClientConfig, ServerConfig};

#[cfg(feature = "secure")]
pub use answerer::Answerer;
pub use builder::Builder;
pub use export::Export;
use export::Terms;
#[doc(inline)]
pub use farcall_core::stopper::Stopper;

use crate::balancers::Balancers;
use crate::builtin::Shown;
use crate::client::{Endpoint, bind_address};
use crate::conversations::Conversations;
use crate::env::{Env, SocketOptions, Time};
use crate::idl::Interface;
use crate::intercept::Interceptors;
#[cfg(feature = "secure")]
use crate::keys;
use crate::keys::Access;
use crate::messages::say_no_host;
use crate::multi::{Fixed, Group, Roster};
use crate::origins::Origins;
use crate::requests::Requests;
use crate::server::{Server, Task};
use crate::shm::{Host, Link, Offers, Watcher};
use crate::stats::Stats;
use crate::stub::{self, AsyncServer, Binding};
use crate::sys::fork;
use crate::{CallFailed, Kind, Ran, lock};
use farcall_memory::clerk::Locator;
use lookup::Lookups;
use resolve::Resolver;
use settings::Settings;
use tasks::Tasks;

/// The sockets, the registry of names and the settings with which a process calls and is called.
///
/// Most programs need not name a runtime: [`export`] and [`import`] use a default one, which is made at the
/// first use. Clones are handles of the same runtime. It ends, with its threads, when all its handles,
/// exports and user-stubs are dropped.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> farcall::Result<()> {
/// let runtime = farcall::Runtime::builder().workers(2).patience(Duration::from_secs(3)).build()?;
/// # drop(runtime);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// This runtime, for threads that must not keep it.
    me: Weak<Inner>,
    env: Arc<dyn Env>,
    settings: Settings,
    origins: Origins,
    /// The registry. If this runtime has keys, what it publishes there is signed, and what it finds is
    /// checked.
    registry: Arc<dyn Registry>,
    /// The registry as it was given, without signatures, for other runtimes, which may have other keys.
    plain_registry: Arc<dyn Registry>,
    /// The interceptors of calls that this runtime makes.
    calls: Interceptors,
    /// The interceptors of calls that this runtime serves.
    serving: Interceptors,
    /// Identifies the process in which the runtime was made, so that a forked process is noticed.
    generation: u64,
    /// Tasks that bind, and make calls again.
    tasks: Tasks,
    /// Segments that may be mapped.
    offers: Arc<Offers>,
    /// The balancers of the groups that this runtime follows.
    balancers: Arc<Balancers>,
    /// Names of hosts that are being resolved.
    resolver: Arc<Resolver>,
    /// The registry and the plain one, as those ask them that must not keep the runtime.
    lookups: Arc<Lookups>,
    plain_lookups: Arc<Lookups>,
    /// The address of this machine's clerk.
    locator: Mutex<Locator>,
    /// Decides which servers are accepted, and knows those that were.
    #[cfg(feature = "secure")]
    accepted_servers: Option<Arc<keys::Trusting>>,
    /// The clients that this runtime has accepted, if it has keys.
    #[cfg(feature = "secure")]
    accepted_clients: Option<Arc<keys::Trusting>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The client sockets, by the address to which each is bound. Each address family has one for its
    /// loopback addresses and one for all others.
    endpoints: Vec<(SocketAddr, Arc<Endpoint>)>,
    server: Option<Arc<Server>>,
    /// Accepts callers through shared memory.
    host: Option<Host>,
    /// Why calls through shared memory are not offered or not made, although the settings allow them.
    no_memory_reason: Option<String>,
    /// Where the kernel answers readers of segments, or why it does not although the settings ask for it.
    kernel: Option<Result<String, String>>,
    /// Notices when the exporters of mapped memory end.
    watcher: Option<Arc<Watcher>>,
    /// Whether a thread watches the keys.
    #[cfg(feature = "secure")]
    watches_keys: bool,
    /// The connections through shared memory, by the address of the server.
    links: Vec<(SocketAddr, Weak<Link>)>,
}

thread_local! {
    static CURRENT: RefCell<Option<Weak<Inner>>> = const { RefCell::new(None) };
}

static DEFAULT: Mutex<Option<Runtime>> = Mutex::new(None);

/// Exports an interface under a name: a type (`"Store"`), or a type and an instance (`"Store/ebbets"`). The
/// export lasts until the handle is dropped.
///
/// # Errors
/// When the name is malformed or taken, no socket can be bound, or the registry fails.
pub fn export<T: ?Sized + stub::Interface>(name: &str, server: Arc<T>) -> crate::Result<Export> {
    Runtime::current()?.export(name, server)
}

/// Exports an interface whose procedures are `async fn`s. They run on the tokio runtime that this thread is
/// in.
///
/// If that runtime has one thread, a blocking call of the export on that thread would wait for itself. Such a
/// call is refused as [`Kind::Local`]. A blocking wait there for a started call fails in the same way after a
/// second. Make such calls with `.start()` and `.await`, or in `spawn_blocking`.
///
/// # Errors
/// As [`export`], and when this thread is in no tokio runtime.
#[cfg(feature = "tokio")]
pub fn export_async<S: AsyncServer>(name: &str, server: S) -> crate::Result<Export> {
    Runtime::current()?.export_async(name, server)
}

/// Imports an interface, and returns its user-stub. The name is a type (`"Store"`: the instance that answers
/// first), a type and an instance (`"Store/ebbets"`), or an address (`"udp://10.0.0.7:7000/Store"`, which
/// needs no registry).
///
/// The import asks all servers that export the name, and returns when the first answers. If none answers,
/// because a machine is down or a process has stopped, the import fails after the whole
/// [patience](Builder::patience), 10 s by default; [`import_within`] sets another limit. `within` of the
/// user-stub limits the stub's calls, not the import.
///
/// # Errors
/// When no server exports the name, none answers, or the interfaces differ.
pub fn import<T: ?Sized + stub::Interface>(name: &str) -> crate::Result<T::Client> {
    Runtime::current()?.import::<T>(name)
}

/// Imports an interface as [`import`] does, but waits at most `time` for the servers to answer. A registry
/// that blocks is not interrupted.
///
/// ```no_run
/// # #[farcall::interface]
/// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
/// # use std::time::Duration;
/// # fn main() -> farcall::Result<()> {
/// let second = Duration::from_secs(1);
/// let store = farcall::import_within::<dyn Store>("Store", second)?.within(second);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`import`], and [`Kind::Deadline`] if no server has answered in time.
pub fn import_within<T: ?Sized + stub::Interface>(name: &str, time: Duration) -> crate::Result<T::Client> {
    Runtime::current()?.import_within::<T>(name, time)
}

/// Imports all instances of a type, as a group of their user-stubs. The group follows the registry. All its
/// members are bound at once, for UDP alone (`docs/multi.md`, "By which carrier the calls go").
///
/// # Errors
/// When the registry fails, or no server exports the type.
pub fn import_all<T: ?Sized + stub::Interface>(name: &str) -> crate::Result<Group<T::Client>> {
    Runtime::current()?.import_all::<T>(name)
}

/// Imports these names, as a group of their user-stubs. The members of the group never change. A member that
/// is down is called like the others, and answers when it is back. So the number of names alone decides what
/// a [majority](crate::Multi::majority) is. The members are bound as those of [`import_all`].
///
/// ```no_run
/// # #[farcall::interface]
/// # pub trait Store { fn put(&self, key: &str, value: u64) -> farcall::Result<()>; }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stores = farcall::import_each::<dyn Store>(&["Store/a", "Store/b", "udp://10.0.0.7:7000/Store/c"])?;
/// stores.multi().put("answer", 42).majority()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When a name is malformed. If no server exports a name, the call of that member fails, not the import.
pub fn import_each<T: ?Sized + stub::Interface>(names: &[&str]) -> crate::Result<Group<T::Client, Fixed>> {
    Runtime::current()?.import_each::<T>(names)
}

impl Runtime {
    fn new(
        env: Arc<dyn Env>,
        settings: Settings,
        origins: Origins,
        registry: Arc<dyn Registry>,
        calls: Interceptors,
        serving: Interceptors,
    ) -> Runtime {
        let plain_registry = registry.clone();
        #[cfg(feature = "secure")]
        let registry: Arc<dyn Registry> = match &settings.keys {
            Some(keys) => Arc::new(keys::SignedNames::new(registry, keys, &env, |env, line| env.say(line))),
            None => registry,
        };
        let lookups = Arc::new(Lookups::new(&env, &registry));
        let plain_lookups = match Arc::ptr_eq(&registry, &plain_registry) {
            true => lookups.clone(),
            false => Arc::new(Lookups::new(&env, &plain_registry)),
        };
        Runtime(Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            tasks: Tasks::new(&*env),
            #[cfg(feature = "secure")]
            accepted_servers: settings.keys.as_ref().map(|keys| keys::Trusting::of_client(keys, &env)),
            #[cfg(feature = "secure")]
            accepted_clients: settings.keys.as_ref().map(|keys| keys::Trusting::of_server(keys, &env)),
            env,
            settings,
            origins,
            registry,
            plain_registry,
            calls,
            serving,
            generation: fork::generation(),
            offers: Arc::default(),
            balancers: Arc::default(),
            resolver: Arc::default(),
            lookups,
            plain_lookups,
            locator: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Returns a builder with the default settings, which `FARCALL_*` variables fill in.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the runtime that [`export`] and [`import`] use in this thread: the one that the thread runs
    /// [inside](Runtime::enter), or else the default one of the process.
    ///
    /// # Errors
    /// When a `FARCALL_*` variable has a value that is not valid.
    pub fn current() -> crate::Result<Runtime> {
        if let Some(inner) = CURRENT.with_borrow(|current| current.as_ref().and_then(Weak::upgrade)) {
            return Ok(Runtime(inner));
        }
        let mut default = lock(&DEFAULT);
        if let Some(runtime) = &*default {
            if runtime.0.generation == fork::generation() {
                return Ok(runtime.clone());
            }
            // This process was forked, and the runtime's threads run only in the parent. The runtime is not
            // dropped, because that would act on files and memory that the parent still uses.
            std::mem::forget(default.take());
        }
        let runtime = Runtime::builder().build()?;
        *default = Some(runtime.clone());
        Ok(runtime)
    }

    /// Returns which settings the program has made, and which ones variables have filled in.
    pub fn origins(&self) -> &Origins {
        &self.0.origins
    }

    /// Runs `f` with this runtime as the thread's current one. The threads that serve the runtime's exports
    /// run inside it too.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        enter(Arc::downgrade(&self.0), f)
    }

    /// Exports an interface from this runtime, as [`export`](crate::export) does.
    ///
    /// # Errors
    /// Those of [`export`](crate::export).
    pub fn export<T: ?Sized + stub::Interface>(&self, name: &str, server: Arc<T>) -> crate::Result<Export> {
        Ok(export::export(self, name, server, Terms::Usual)?)
    }

    /// Exports an instance that has one owner at a time among all processes that share the registry. The name
    /// must have an instance (`"Store/main"`).
    ///
    /// The export admits calls only while this process surely owns the name: with etcd, until the lease ends,
    /// counted from when the last request to prolong it was sent that was answered. After that calls are
    /// refused as not exported, `Ran::No`, until etcd has given the process the name again. So a process that
    /// was stopped for long, or was cut off, refuses calls before another process can own the name. Other
    /// exports of the process go on.
    ///
    /// A call that was admitted in time may still run when the lease has ended. So a procedure passes
    /// [`context().fence()`](crate::Context::fence) to the resource that it writes to, and the resource
    /// refuses what comes with a lesser number than it has seen.
    ///
    /// All exporters of the name must export it exclusively. A usual [export](Runtime::export) has no fence,
    /// and admits calls although it has lost the name.
    ///
    /// In the registry of one machine the operating system says whether the owner lives, and the ownership
    /// lasts as long as the process and the export.
    ///
    /// ```no_run
    /// # use std::{sync::Arc, thread, time::Duration};
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # struct Server;
    /// # impl Store for Server { fn get(&self, _: &str) -> farcall::Result<u64> { Ok(1) } }
    /// # fn main() -> farcall::Result<()> {
    /// # let runtime = farcall::Runtime::builder().build()?;
    /// # let server = Arc::new(Server);
    /// // A process that stands by until the present owner is gone.
    /// let export = loop {
    ///     match runtime.export_exclusive::<dyn Store>("Store/main", server.clone()) {
    ///         Ok(export) => break export,
    ///         Err(taken) => eprintln!("standing by: {taken}"),
    ///     }
    ///     thread::sleep(Duration::from_secs(1));
    /// };
    /// export.until_signal()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`export`](crate::export); [`Kind::Registry`] while another process owns the name, or if the
    /// registry cannot keep two processes from owning it.
    pub fn export_exclusive<T: ?Sized + stub::Interface>(
        &self,
        name: &str,
        server: Arc<T>,
    ) -> crate::Result<Export> {
        Ok(export::export(self, name, server, Terms::Exclusive)?)
    }

    /// Exports an instance as [`export_exclusive`](Runtime::export_exclusive) does, with procedures that are
    /// `async fn`s, which `executor` runs as in [`export_async_on`](Runtime::export_async_on).
    ///
    /// # Errors
    /// Those of [`export_exclusive`](Runtime::export_exclusive).
    pub fn export_exclusive_async_on<S: AsyncServer>(
        &self,
        name: &str,
        server: S,
        executor: impl Fn(Task) + Send + Sync + 'static,
    ) -> crate::Result<Export> {
        Ok(export::export_async(self, name, server, executor, Terms::Exclusive)?)
    }

    /// Exports an interface whose procedures are `async fn`s. Each call becomes a future. `executor` gets the
    /// future and must run it, on any executor of the program. [`context`] stays valid across `.await`s.
    ///
    /// Farcall cannot know how many threads the executor has. If it has one, a blocking call of the export on
    /// that thread waits for itself, for ever. `export_async`, on tokio, refuses such a call.
    ///
    /// [`context`]: crate::context()
    ///
    /// # Errors
    /// Those of [`export`](crate::export).
    pub fn export_async_on<S: AsyncServer>(
        &self,
        name: &str,
        server: S,
        executor: impl Fn(Task) + Send + Sync + 'static,
    ) -> crate::Result<Export> {
        Ok(export::export_async(self, name, server, executor, Terms::Usual)?)
    }

    /// Exports an interface whose calls are taken from a queue, in whatever order the program chooses. A call
    /// may be answered later, by another thread, or passed on to another server. The limits on workers and on
    /// the queue, added up, bound how many calls wait; further calls are refused as overloaded.
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # struct Server;
    /// # impl Store for Server { fn get(&self, _: &str) -> farcall::Result<u64> { Ok(1) } }
    /// # fn main() -> farcall::Result<()> {
    /// # let runtime = farcall::Runtime::builder().build()?;
    /// let (export, requests) = runtime.export_requests::<dyn Store>("Store")?;
    /// std::thread::spawn(move || {
    ///     while let Some(request) = requests.next() {
    ///         request.serve(&Server);
    ///     }
    /// });
    /// # drop(export);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`export`](crate::export).
    pub fn export_requests<T: ?Sized + stub::Interface>(
        &self,
        name: &str,
    ) -> crate::Result<(Export, Requests<T>)> {
        let (requests, server) = Requests::new();
        Ok((self.export_async_on(name, server, woken::run)?, requests))
    }

    /// Exports an interface from this runtime, as [`export_async`](crate::export_async) does.
    ///
    /// # Errors
    /// Those of [`export`](crate::export), and when this thread is in no tokio runtime.
    #[cfg(feature = "tokio")]
    pub fn export_async<S: AsyncServer>(&self, name: &str, server: S) -> crate::Result<Export> {
        let tokio = tokio::runtime::Handle::try_current();
        let tokio = tokio.map_err(|why| CallFailed::new(Kind::Local, Ran::No).caused_by(why))?;
        let executor = tokio.clone();
        let export = self.export_async_on(name, server, move |task| drop(executor.spawn(task)))?;
        let exported = export.exported();
        crate::self_wait::note(exported.id, Arc::downgrade(exported) as _, &tokio);
        Ok(export)
    }

    /// Imports an interface with this runtime, as [`import`](crate::import) does.
    ///
    /// # Errors
    /// Those of [`import`](crate::import).
    pub fn import<T: ?Sized + stub::Interface>(&self, name: &str) -> crate::Result<T::Client> {
        Ok(import::import::<T>(self, name, None)?)
    }

    /// Imports an interface with this runtime, as [`import_within`](crate::import_within) does.
    ///
    /// # Errors
    /// Those of [`import_within`](crate::import_within).
    pub fn import_within<T: ?Sized + stub::Interface>(
        &self,
        name: &str,
        time: Duration,
    ) -> crate::Result<T::Client> {
        Ok(import::import::<T>(self, name, Some(time))?)
    }

    /// Imports all instances of a type with this runtime, as [`import_all`](crate::import_all) does.
    ///
    /// # Errors
    /// Those of [`import_all`](crate::import_all).
    pub fn import_all<T: ?Sized + stub::Interface>(&self, name: &str) -> crate::Result<Group<T::Client>> {
        Ok(group::import_all::<T>(self, name)?)
    }

    /// Imports these names with this runtime, as [`import_each`](crate::import_each) does.
    ///
    /// # Errors
    /// Those of [`import_each`](crate::import_each).
    pub fn import_each<T: ?Sized + stub::Interface>(
        &self,
        names: &[&str],
    ) -> crate::Result<Group<T::Client, Fixed>> {
        Ok(group::import_each::<T>(self, names)?)
    }

    /// Binds to a server that exports a name. `interface` describes the interface, perhaps only in part.
    /// Waits until the deadline at most.
    pub(crate) fn binding(
        &self,
        name: &str,
        interface: Cow<'static, Interface>,
        deadline: Option<Time>,
    ) -> crate::Result<Binding> {
        Ok(import::binding(self, bind::parse(name)?, interface, deadline)?)
    }

    /// Returns the time after `within`.
    pub(crate) fn after(&self, within: Duration) -> Time {
        self.0.env.now() + within
    }

    /// Returns the exporters of a name. `interface` describes their interface, perhaps only in part. Waits
    /// until the deadline at most.
    pub(crate) fn roster(
        &self,
        name: &str,
        interface: Cow<'static, Interface>,
        deadline: Option<Time>,
    ) -> crate::Result<Arc<dyn Roster>> {
        Ok(group::roster(self, name, interface, deadline)?)
    }

    /// Returns the registry in which this runtime publishes and looks up names.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.0.registry
    }

    /// Withdraws the names of all exports, tells their clients, and refuses every new call from now on: the
    /// call fails as draining, and has not run. Waits at most `time` until the calls that have begun are
    /// finished and no new one has come for 100 ms (for a second, if clients have lately lacked results,
    /// because the network loses datagrams). Returns whether those that have begun are finished. After that
    /// the runtime cannot serve calls again. If the result of a call is a stream, and the stream has no items
    /// to send, it ends as [`Kind::Draining`](crate::Kind::Draining), so that a client that watches something
    /// does not hold up the drain.
    ///
    /// In a forked child it does nothing, and returns false: the clients are those of its parent.
    pub fn drain(&self, time: Duration) -> bool {
        // (Before the lock, which a thread of the parent may have held.)
        if self.0.check_process().is_err() {
            return false;
        }
        let server = self.0.lock().server.clone();
        server.is_none_or(|server| server.drain(None, time))
    }

    /// Returns the counters of this runtime: calls, outcomes, running times of procedures, and the protocol's
    /// counters.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        let (server, endpoints, links) = {
            let state = self.0.lock();
            stats.no_shared_memory.clone_from(&state.no_memory_reason);
            stats.kernel.clone_from(&state.kernel);
            let links = state.links.iter().filter_map(|(_, link)| link.upgrade());
            (state.server.clone(), state.endpoints.clone(), links.collect::<Vec<_>>())
        };
        if let Some(server) = server {
            let (protocol, exports) = server.stats();
            (stats.server, stats.exports) = (Some(protocol), exports);
        }
        endpoints.iter().for_each(|(_, endpoint)| endpoint.stats(&mut stats.peers));
        stats.links = links.iter().map(|link| link.stats()).collect();
        stats
    }

    /// Returns the address at which the runtime's exports listen, or `None` before the first export.
    /// [`Export::address`] is the address that is published.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.lock().server.as_ref().map(|server| server.address())
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

fn enter<R>(inner: Weak<Inner>, f: impl FnOnce() -> R) -> R {
    /// Restores the former current runtime, also when `f` panics.
    struct Restore(Option<Weak<Inner>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = CURRENT.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), &mut self.0));
        }
    }
    let _restore = Restore(CURRENT.with_borrow_mut(|current| current.replace(inner)));
    f()
}

/// Returns the failure of a call for which the registry has failed.
fn registry_failed(why: farcall_names::Error) -> CallFailed {
    let kind = match why {
        farcall_names::Error::NotPermitted { .. } | farcall_names::Error::NotGenuine { .. } => {
            Kind::NotPermitted
        }
        _ => Kind::Registry,
    };
    CallFailed::new(kind, Ran::No).caused_by(why)
}

impl Inner {
    /// Returns the registry, for an importer. If this runtime has keys, they decide which entries count, so
    /// they are watched from now on.
    fn names(&self) -> Result<&dyn Registry, CallFailed> {
        #[cfg(feature = "secure")]
        if self.settings.has_keys() {
            self.watch_keys(&mut self.lock())?;
        }
        Ok(&*self.registry)
    }

    /// Returns the socket from which the server at `to` is called. Makes it at the first use.
    fn endpoint(&self, to: SocketAddr) -> Result<Arc<Endpoint>, CallFailed> {
        let from = bind_address(to);
        let mut state = self.lock();
        if let Some((_, endpoint)) = state.endpoints.iter().find(|(address, _)| *address == from) {
            return Ok(endpoint.clone());
        }
        let socket = self.env.bind(from, &self.socket_options());
        let socket = socket.map_err(|why| CallFailed::local("binding a socket", why))?;
        #[cfg(feature = "secure")]
        self.watch_keys(&mut state)?;
        let config = ClientConfig { same_user: self.proves_user(from), ..self.client_config() };
        let endpoint = Endpoint::new(self.env.clone(), socket, config);
        state.endpoints.push((from, endpoint.clone()));
        Ok(endpoint)
    }

    /// Returns the server of all exports. Makes it at the first use.
    pub(crate) fn server(self: &Arc<Self>) -> Result<Arc<Server>, CallFailed> {
        let mut state = self.lock();
        if let Some(server) = &state.server {
            return Ok(server.clone());
        }
        let address = self.exporting_address()?;
        let socket = self.env.bind(address, &SocketOptions { answers: true, ..self.socket_options() });
        let socket = socket.map_err(|why| CallFailed::local(&format!("binding {address}"), why))?;
        let current = self.me.clone();
        let inside = Box::new(move |body: &mut dyn FnMut()| enter(current.clone(), body));
        let config =
            ServerConfig { same_user: self.same_user(socket.local_address())?, ..self.server_config() };
        let server = Server::new(self.env.clone(), socket, config, self.settings.limits, inside);
        let server = server.map_err(|why| CallFailed::local("starting a thread", why))?;
        if self.settings.describe {
            let access = self.access(farcall_memory::TYPE, farcall_memory::clerk::COUNTERS);
            #[cfg(feature = "secure")]
            let access = access.map(keys::Access::of_counters);
            server.export_counters(self.random(), self.random(), self.shown(&server), access);
        }
        if self.settings.shared_memory && self.env.shares_memory() {
            // If this fails, callers on this machine call by UDP.
            match Host::new(&server, &self.offers, self.settings.spin) {
                Ok(host) => state.host = Some(host),
                Err(why) => state.no_memory_reason = Some(say_no_host(&*self.env, server.address(), &why)),
            }
        }
        self.start_kernel(&mut state, &server);
        #[cfg(feature = "secure")]
        self.watch_keys(&mut state)?;
        state.server = Some(server.clone());
        Ok(server)
    }

    /// Returns the watcher of the exporters of mapped memory. Starts it at the first use.
    fn watcher(&self) -> Option<Arc<Watcher>> {
        let mut state = self.lock();
        if state.watcher.is_none() {
            state.watcher = Watcher::spawn(&self.env).ok().map(Arc::new);
        }
        state.watcher.clone()
    }

    /// Returns the protocol's settings for callers. They are the defaults, except that a server is given up
    /// after unanswered probes within the patience.
    fn client_config(&self) -> ClientConfig {
        let (patience, default) = (self.settings.patience, ClientConfig::default());
        let longest =
            (patience / default.patience_probes.max(1)).clamp(default.min_retransmit, default.max_retransmit);
        ClientConfig {
            patience,
            server_patience: self.settings.server_patience,
            max_retransmit: longest,
            heeds_refusals: !self.settings.full_patience,
            arguments: self.settings.arguments.clone(),
            #[cfg(feature = "secure")]
            trust: self.accepted_servers.clone().map(|accepted| accepted as _),
            #[cfg(feature = "secure")]
            level: self.settings.level,
            #[cfg(feature = "secure")]
            padding: self.settings.padding,
            ..default
        }
    }

    /// Returns the protocol's settings for exports.
    fn server_config(&self) -> ServerConfig {
        ServerConfig {
            #[cfg(feature = "secure")]
            trust: self.accepted_clients.clone().map(|accepted| accepted as _),
            #[cfg(feature = "secure")]
            level: self.settings.level,
            #[cfg(feature = "secure")]
            padding: self.settings.padding,
            ..ServerConfig::default()
        }
    }

    /// Returns what the server shows besides its counters.
    fn shown(&self, server: &Arc<Server>) -> Shown {
        let (balancers, origins) = (self.balancers.clone(), self.origins.clone());
        #[cfg(feature = "secure")]
        if let Some(keys) = &self.settings.keys {
            let conversations = server.show_conversations(keys.clone(), self.settings.level);
            return Shown { origins, balancers, conversations };
        }
        let _ = server;
        Shown { origins, balancers, conversations: Box::new(|_| Conversations::without_keys()) }
    }

    /// Returns what decides who may do what with an export, if this runtime has keys.
    fn access(&self, type_name: &str, instance: &str) -> Option<Access> {
        #[cfg(feature = "secure")]
        if let Some(clients) = &self.accepted_clients {
            return Some(Access::new(clients, type_name, instance));
        }
        let _ = (type_name, instance);
        None
    }

    fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            spin: self.settings.spin,
            buffer: self.settings.socket_buffer,
            ..SocketOptions::default()
        }
    }

    fn check_process(&self) -> Result<(), CallFailed> {
        if self.generation == fork::generation() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.endpoints.iter().for_each(|(_, endpoint)| endpoint.stop());
        if let Some(host) = &state.host {
            host.stop();
        }
        if let Some(server) = &state.server {
            server.stop();
        }
        if let Some(watcher) = &state.watcher {
            watcher.stop();
        }
    }
}
