//! What binds callers to servers: a [`Runtime`] owns sockets, names and settings.
//!
//! ```text
//! settings    the builder, and FARCALL_* variables
//! export      offering an interface;  advertise: at which address
//! bind        from a name to an export at some address;  bound: what an importer is bound to
//! resolve     from the name of a host to its addresses
//! import      the channel of an imported interface: calls, rebinding, repeating
//! group       the instances of a type, followed in the registry
//! memory      what segments and clerks need of a runtime
//! started     its started calls;  sent: by what carries them;  retry_task: those that must be bound first, or made again
//! question    what many wait for, as a bind that is under way;  tasks: the threads that do all this
//! watched     interceptors around it
//! ```

mod advertise;
mod bind;
mod bound;
mod export;
mod group;
mod import;
mod memory;
mod question;
mod resolve;
mod retry_task;
mod sent;
mod settings;
mod started;
mod tasks;
mod watched;

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use farcall_names::Registry;
use farcall_proto::{ClientConfig, ServerConfig};

pub use export::{Export, Stopper};
pub use settings::Builder;

use crate::client::{Endpoint, bind_address};
use crate::env::{Env, SocketOptions};
use crate::idl::Interface;
use crate::intercept::Interceptors;
use crate::multi::{Fixed, Group, Roster};
use crate::server::{Server, Task};
use crate::shm::{Host, Link, Offers, Watcher};
use crate::stats::Stats;
use crate::stub::{self, AsyncServer, Binding};
use crate::sys::fork;
use crate::{CallFailed, Kind, Ran, lock};
use farcall_memory::clerk::Locator;
use resolve::Resolver;
use settings::Settings;
use tasks::Tasks;

/// What a process needs to call and to be called: sockets, a registry of names, settings.
///
/// Most programs never meet one: [`export`] and [`import`] use a default one, made when it is first
/// needed. Clones are the same runtime. It ends, with its threads, when the last of it, of its
/// exports and of its user-stubs is dropped.
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
    env: Arc<dyn Env>,
    settings: Settings,
    registry: Arc<dyn Registry>,
    /// What watches calls that are made, and calls that are served.
    calls: Interceptors,
    serving: Interceptors,
    /// The process it was made in.
    generation: u64,
    /// Started calls for which there was no binding.
    tasks: Tasks,
    /// Segments that may be mapped.
    offers: Arc<Offers>,
    /// Names of hosts that are being resolved.
    resolver: Arc<Resolver>,
    /// Which clerk is this machine's.
    locator: Mutex<Locator>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the address that they are bound to: one for the loopback addresses of a family, one for
    /// all others.
    endpoints: Vec<(SocketAddr, Arc<Endpoint>)>,
    server: Option<Arc<Server>>,
    /// What meets the server's callers on this machine.
    host: Option<Host>,
    /// Why calls through shared memory are not offered, or not made, though they were to be.
    no_memory: Option<String>,
    /// What hears of the end of those whose memory is mapped.
    watcher: Option<Arc<Watcher>>,
    /// By the address of the server.
    links: Vec<(SocketAddr, Weak<Link>)>,
}

thread_local! {
    static CURRENT: RefCell<Option<Weak<Inner>>> = const { RefCell::new(None) };
}

static DEFAULT: Mutex<Option<Runtime>> = Mutex::new(None);

/// Offers an interface under a name: a type (`"Store"`), or a type and an instance
/// (`"Store/ebbets"`). It is offered until the handle is dropped.
///
/// # Errors
/// When the name is no name or is taken, no socket can be had, or the registry fails.
pub fn export<T: ?Sized + stub::Interface>(name: &str, server: Arc<T>) -> crate::Result<Export> {
    Runtime::current()?.export(name, server)
}

/// Offers an interface that is served by `async fn`s, on the tokio runtime that this thread is in.
///
/// Where that runtime has one thread, a blocking call of the export on that thread would wait for itself.
/// Such a call is refused, as [`Kind::Local`]; a blocking wait there for a call that was started fails
/// likewise after a second. Make such calls with `.start()` and `.await`, or in `spawn_blocking`.
///
/// # Errors
/// As [`export`], and when this thread is in no tokio runtime.
#[cfg(feature = "tokio")]
pub fn export_async<S: AsyncServer>(name: &str, server: S) -> crate::Result<Export> {
    Runtime::current()?.export_async(name, server)
}

/// The user-stub of an interface that somebody exports under a name: a type (`"Store"`, any
/// instance, the most responsive), a type and an instance (`"Store/ebbets"`), or an address
/// (`"udp://10.0.0.7:7000/Store"`, which asks no registry).
///
/// It asks who exports the name, and returns when the first of them answers. If none does, because a machine
/// is down or a process stopped, that takes the whole [patience](Builder::patience), 10 s by default:
/// [`import_within`] bounds it. (`within` of the user-stub bounds its calls, not this.)
///
/// # Errors
/// When nobody exports the name, nobody answers, or the interfaces differ.
pub fn import<T: ?Sized + stub::Interface>(name: &str) -> crate::Result<T::Client> {
    Runtime::current()?.import::<T>(name)
}

/// As [`import`], but waits no longer than `time` for those who export the name to answer. (A registry that
/// blocks is not interrupted.)
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
/// As [`import`]; if nobody has answered when the time is up it is [`Kind::Deadline`].
pub fn import_within<T: ?Sized + stub::Interface>(name: &str, time: Duration) -> crate::Result<T::Client> {
    Runtime::current()?.import_within::<T>(name, time)
}

/// The user-stubs of all instances of a type.
///
/// # Errors
/// When the registry fails, or nobody exports the type.
pub fn import_all<T: ?Sized + stub::Interface>(name: &str) -> crate::Result<Group<T::Client>> {
    Runtime::current()?.import_all::<T>(name)
}

/// The user-stubs of these names, as a group that stays these: whoever of them is down now is called like the
/// others, and answers when it is back. Only the names decide what a [majority](crate::Multi::majority) is.
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
/// When something is not a name. That nobody exports it is what its call says.
pub fn import_each<T: ?Sized + stub::Interface>(names: &[&str]) -> crate::Result<Group<T::Client, Fixed>> {
    Runtime::current()?.import_each::<T>(names)
}

impl Runtime {
    fn new(
        env: Arc<dyn Env>,
        settings: Settings,
        registry: Arc<dyn Registry>,
        calls: Interceptors,
        serving: Interceptors,
    ) -> Runtime {
        Runtime(Arc::new(Inner {
            tasks: Tasks::new(&*env),
            env,
            settings,
            registry,
            calls,
            serving,
            generation: fork::generation(),
            offers: Arc::default(),
            resolver: Arc::default(),
            locator: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// A builder with the default settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The runtime that [`export`] and [`import`] use in this thread: the one that it runs
    /// [inside](Runtime::enter), else the process's default one.
    ///
    /// # Errors
    /// When a `FARCALL_*` variable makes no sense.
    pub fn current() -> crate::Result<Runtime> {
        if let Some(inner) = CURRENT.with_borrow(|current| current.as_ref().and_then(Weak::upgrade)) {
            return Ok(Runtime(inner));
        }
        let mut default = lock(&DEFAULT);
        if let Some(runtime) = &*default {
            if runtime.0.generation == fork::generation() {
                return Ok(runtime.clone());
            }
            // It is our parent's: its threads are not here. It stays, because to drop it would be
            // to act on what the parent still uses.
            std::mem::forget(default.take());
        }
        let runtime = Runtime::builder().build()?;
        *default = Some(runtime.clone());
        Ok(runtime)
    }

    /// Runs `f` with this as the thread's current runtime. Threads that serve its exports run
    /// inside it too.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        enter(Arc::downgrade(&self.0), f)
    }

    /// As [`export`](crate::export), from this runtime.
    ///
    /// # Errors
    /// As [`export`](crate::export).
    pub fn export<T: ?Sized + stub::Interface>(&self, name: &str, server: Arc<T>) -> crate::Result<Export> {
        Ok(export::export(self, name, server)?)
    }

    /// Offers an interface that is served by `async fn`s. Each call becomes a future that
    /// `executor` is given, to run it on whatever executor the program has. [`context`] holds across
    /// its `.await`s.
    ///
    /// Farcall cannot know how many threads the executor has. If it has one, a blocking call of the export on
    /// that thread waits for itself, for ever. (`export_async`, on tokio, refuses such a call.)
    ///
    /// [`context`]: crate::context()
    ///
    /// # Errors
    /// As [`export`](crate::export).
    pub fn export_async_on<S: AsyncServer>(
        &self,
        name: &str,
        server: S,
        executor: impl Fn(Task) + Send + Sync + 'static,
    ) -> crate::Result<Export> {
        Ok(export::export_async(self, name, server, executor)?)
    }

    /// As [`Runtime::export_async_on`], on the tokio runtime that this thread is in.
    ///
    /// # Errors
    /// As [`export`](crate::export), and when this thread is in no tokio runtime.
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

    /// As [`import`](crate::import), from this runtime.
    ///
    /// # Errors
    /// As [`import`](crate::import).
    pub fn import<T: ?Sized + stub::Interface>(&self, name: &str) -> crate::Result<T::Client> {
        Ok(import::import::<T>(self, name, None)?)
    }

    /// As [`import_within`](crate::import_within), from this runtime.
    ///
    /// # Errors
    /// As [`import_within`](crate::import_within).
    pub fn import_within<T: ?Sized + stub::Interface>(
        &self,
        name: &str,
        time: Duration,
    ) -> crate::Result<T::Client> {
        Ok(import::import::<T>(self, name, Some(time))?)
    }

    /// As [`import_all`](crate::import_all), from this runtime.
    ///
    /// # Errors
    /// As [`import_all`](crate::import_all).
    pub fn import_all<T: ?Sized + stub::Interface>(&self, name: &str) -> crate::Result<Group<T::Client>> {
        Ok(group::import_all::<T>(self, name)?)
    }

    /// As [`import_each`](crate::import_each), from this runtime.
    ///
    /// # Errors
    /// As [`import_each`](crate::import_each).
    pub fn import_each<T: ?Sized + stub::Interface>(
        &self,
        names: &[&str],
    ) -> crate::Result<Group<T::Client, Fixed>> {
        Ok(group::import_each::<T>(self, names)?)
    }

    /// A binding to whoever exports that interface, as far as it is known, under a name.
    pub(crate) fn binding(&self, name: &str, interface: Cow<'static, Interface>) -> crate::Result<Binding> {
        Ok(import::binding(self, bind::parse(name)?, interface, None)?)
    }

    /// Who exports that interface, as far as it is known, under a name: all instances of a type.
    pub(crate) fn roster(
        &self,
        name: &str,
        interface: Cow<'static, Interface>,
    ) -> crate::Result<Arc<dyn Roster>> {
        Ok(group::roster(self, name, interface)?)
    }

    /// The registry that it publishes to and asks.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.0.registry
    }

    /// Refuses every call that comes from now on, as draining, `Ran::No`, and waits until those that
    /// have begun are finished, but no longer than `time`. True if they are. There is no way back.
    pub fn drain(&self, time: Duration) -> bool {
        let server = self.0.lock().server.clone();
        server.is_none_or(|server| server.drain(time))
    }

    /// What it did so far: calls, outcomes, how long procedures ran, what the protocol did.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        let (server, endpoints, links) = {
            let state = self.0.lock();
            stats.no_shared_memory.clone_from(&state.no_memory);
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

    /// Where its exports listen, once there is one. What they publish is [`Export::address`].
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
    /// Restores what was current before, also when `f` panics.
    struct Restore(Option<Weak<Inner>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = CURRENT.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), &mut self.0));
        }
    }
    let _restore = Restore(CURRENT.with_borrow_mut(|current| current.replace(inner)));
    f()
}

impl Inner {
    /// The socket from which a server is called, made when first needed.
    fn endpoint(&self, to: SocketAddr) -> Result<Arc<Endpoint>, CallFailed> {
        let from = bind_address(to);
        let mut state = self.lock();
        if let Some((_, endpoint)) = state.endpoints.iter().find(|(address, _)| *address == from) {
            return Ok(endpoint.clone());
        }
        let socket = self
            .env
            .bind(from, &self.socket_options())
            .map_err(|why| CallFailed::local("binding a socket", why))?;
        let config = self.client_config();
        let endpoint = Endpoint::new(self.env.clone(), socket, config);
        state.endpoints.push((from, endpoint.clone()));
        Ok(endpoint)
    }

    /// The server of all exports, made when first needed.
    pub(crate) fn server(self: &Arc<Self>) -> Result<Arc<Server>, CallFailed> {
        let mut state = self.lock();
        if let Some(server) = &state.server {
            return Ok(server.clone());
        }
        let address = self.settings.address;
        if !address.ip().is_loopback() && !self.settings.open {
            let why = format!(
                "{address} can be reached from other machines: to let them call needs the builder's `open()`, or FARCALL_OPEN=1"
            );
            return Err(CallFailed::new(Kind::NotPermitted, Ran::No).because(why));
        }
        let socket = self.env.bind(address, &SocketOptions { answers: true, ..self.socket_options() });
        let socket = socket.map_err(|why| CallFailed::local(&format!("binding {address}"), why))?;
        let current = Arc::downgrade(self);
        let inside = Box::new(move |body: &mut dyn FnMut()| enter(current.clone(), body));
        let server =
            Server::new(self.env.clone(), socket, ServerConfig::default(), self.settings.limits, inside);
        let server = server.map_err(|why| CallFailed::local("starting a thread", why))?;
        if self.settings.describe {
            server.export_counters(self.random(), self.random());
        }
        if self.settings.shared_memory && self.env.shares_memory() {
            // Where it cannot be had callers do without.
            match Host::new(&server, &self.offers, self.settings.spin) {
                Ok(host) => state.host = Some(host),
                Err(why) => state.no_memory = Some(no_host(server.address(), &why)),
            }
        }
        state.server = Some(server.clone());
        Ok(server)
    }

    /// What hears of the end of those whose memory is mapped, started when first needed.
    fn watcher(&self) -> Option<Arc<Watcher>> {
        let mut state = self.lock();
        if state.watcher.is_none() {
            state.watcher = Watcher::spawn(&self.env).ok().map(Arc::new);
        }
        state.watcher.clone()
    }

    /// The protocol's defaults, and probes close enough for the number that must go unanswered to
    /// fit into the patience.
    fn client_config(&self) -> ClientConfig {
        let (patience, default) = (self.settings.patience, ClientConfig::default());
        let longest =
            (patience / default.patience_probes.max(1)).clamp(default.min_retransmit, default.max_retransmit);
        let heeds_refusals = !self.settings.full_patience;
        ClientConfig { patience, max_retransmit: longest, heeds_refusals, ..default }
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

/// Says on standard error, too, why calls to a server do not go through shared memory. A name that another
/// process has taken gets a message of its own: callers meet a process there that cannot prove to be this
/// server.
#[cold]
fn no_host(address: SocketAddr, why: &std::io::Error) -> String {
    let why = match why.kind() {
        std::io::ErrorKind::AddrInUse => {
            "its name for that is taken by another socket of this user".to_owned()
        }
        _ => why.to_string(),
    };
    let line = format!("{address} offers no calls through shared memory: {why}");
    say(&line);
    line
}

/// Says something on standard error. (Not by `eprintln`, which panics when nobody reads.)
#[cold]
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "farcall: {line}");
}
