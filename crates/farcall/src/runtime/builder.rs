//! Makes a runtime of what the program sets, of what variables fill in, and of defaults.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_names::{File, Registry};
use farcall_proto::ArgumentBudget;

use super::settings::Settings;
use super::variables::Variables;
use super::{CURRENT, Runtime};
use crate::env::Env;
use crate::intercept::{Interceptor, Interceptors};
use crate::origins::{Origins, misspelt_variables};
use crate::{CallFailed, Kind, Ran, System};

/// The settings of a [`Runtime`] that is to be made. An environment variable fills in a setting that the
/// program leaves unset, so that an operator can choose it. The documentation of each setting gives the name
/// of its variable. [`Runtime::origins`] and `farcall debug` show which settings came from where.
pub struct Builder {
    settings: Settings,
    origins: Origins,
    reads_variables: bool,
    registry: Option<Arc<dyn Registry>>,
    env: Option<Arc<dyn Env>>,
    calls: Interceptors,
    serving: Interceptors,
}

impl Builder {
    pub(super) fn new() -> Builder {
        let (calls, serving) = (Interceptors::default(), Interceptors::default());
        let origins = Origins::default();
        let settings = Settings::new();
        Builder { settings, origins, reads_variables: true, registry: None, env: None, calls, serving }
    }

    /// Makes the runtime as the program says, and by defaults where it says nothing: no `FARCALL_*` variable
    /// has an effect.
    #[must_use]
    pub fn ignore_variables(mut self) -> Builder {
        self.reads_variables = false;
        self
    }

    /// Sets the address at which exports listen. The default is a free port of 127.0.0.1, at which processes
    /// of this process's user may call. An address that other machines can reach needs
    /// [`open`](Builder::open) or keys as well. `FARCALL_ADDRESS`.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Builder {
        self.origins.set_by_program("FARCALL_ADDRESS");
        self.settings.address = address;
        self
    }

    /// Adds an address that exports publish, if callers need another address than the one at which exports
    /// [listen](Builder::address): behind a forwarded port, or on a host of several addresses. Port 0 stands
    /// for the port at which exports listen. Up to [`MAX_ADDRESSES`](crate::names::MAX_ADDRESSES) may be
    /// added, the one to try first before the others. By default exports publish the address at which they
    /// listen. If that is a wildcard (`0.0.0.0`, `[::]`), they publish the addresses from which this machine
    /// sends to the registry ([`Registry::routes`]). `FARCALL_ADVERTISE`: `ADDRESS` or `ADDRESS:PORT`,
    /// several with commas between them.
    #[must_use]
    pub fn advertise(mut self, address: SocketAddr) -> Builder {
        self.origins.set_by_program("FARCALL_ADVERTISE");
        self.settings.advertise.push(address);
        self
    }

    /// Lets only processes of this process's user call, or those that keys let. This is the default, but said
    /// so, `FARCALL_OPEN` has no effect.
    #[must_use]
    pub fn closed(mut self) -> Builder {
        self.origins.set_by_program("FARCALL_OPEN");
        self.settings.open = false;
        self
    }

    /// Lets every process that can reach the [address](Builder::address) call, and allows an address that
    /// other machines can reach. Without this, and without keys, only processes of this process's user may
    /// call (`docs/security.md`, "Servers without keys"). `FARCALL_OPEN=1`.
    #[must_use]
    pub fn open(mut self) -> Builder {
        self.origins.set_by_program("FARCALL_OPEN");
        self.settings.open = true;
        self
    }

    /// Sets the keys. Everything that this runtime sends is sealed then, and it accepts nothing that is not
    /// sealed by a key that it accepts. Other machines may call without [`open`](Builder::open), if their
    /// keys let them. `FARCALL_KEYS`, a directory of key files.
    #[cfg(feature = "secure")]
    #[must_use]
    pub fn keys(mut self, keys: crate::Keys) -> Builder {
        self.origins.set_by_program("FARCALL_KEYS");
        self.settings.keys = Some(keys);
        self
    }

    /// Sets how much seals protect at least, if this runtime has [keys](Builder::keys). By default nobody but
    /// the two ends can read what passes; with [`Level::Authenticated`](crate::Level) both ends may agree
    /// that everybody can, but that nobody can change it. `FARCALL_LEVEL`: `secure` or `authenticated`.
    #[cfg(feature = "secure")]
    #[must_use]
    pub fn level(mut self, level: crate::Level) -> Builder {
        self.origins.set_by_program("FARCALL_LEVEL");
        self.settings.level = level;
        self
    }

    /// Sets how the lengths of datagrams hide those of what this runtime sends in them, at the level
    /// *secure*. By default they do not. Both ends choose for what they send. Padding to 64 bytes costs
    /// little; padding to the datagram makes all short calls and results look the same. `FARCALL_PADDING`:
    /// `none`, `64` or `datagram`.
    #[cfg(feature = "secure")]
    #[must_use]
    pub fn padding(mut self, padding: crate::Padding) -> Builder {
        self.origins.set_by_program("FARCALL_PADDING");
        self.settings.padding = padding;
        self
    }

    /// Sets the registry in which names are published and looked up. The default is the registry of the
    /// thread's current runtime, or else a file that the processes of this user on this machine share.
    /// `FARCALL_REGISTRY`: `memory`, a directory, `etcd://HOST[:PORT][,HOST…][/PREFIX]` with the feature
    /// `etcd` (and `FARCALL_ETCD_USER`, `FARCALL_ETCD_PASSWORD`), `etcds://…` with the feature `etcd-tls`
    /// (and `FARCALL_ETCD_CA`, `FARCALL_ETCD_CERT`, `FARCALL_ETCD_KEY`), or one that can only be read:
    /// `file:///PATH`, or `dns://DOMAIN[?server=IP[:PORT],…][&local-addresses]` with the feature `dns` (and
    /// `FARCALL_DNS_SERVER`, `FARCALL_DNS_LOCAL_ADDRESSES`).
    #[must_use]
    pub fn registry(mut self, registry: impl Registry + 'static) -> Builder {
        self.origins.set_by_program("FARCALL_REGISTRY");
        self.registry = Some(Arc::new(registry));
        self
    }

    /// Sets how long a thread that waits for a datagram polls before it blocks. By default it blocks at once.
    /// Polling is faster if caller and server each have a processor to spare. `FARCALL_SPIN_US`,
    /// microseconds.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Builder {
        self.origins.set_by_program("FARCALL_SPIN_US");
        self.settings.spin = spin;
        self
    }

    /// Sets how many procedures may execute at the same time, at least 1. A procedure does not count
    ///
    /// - while it waits in a call of its own;
    /// - if it is marked `#[blocking]`;
    /// - after 20 to 40 ms of running, if another call waits for a worker. The watchdog looks every 20 ms.
    ///
    /// The default is two for each processor, at least 4. `FARCALL_WORKERS`.
    ///
    /// `workers(1)` does not make procedures execute one at a time. As soon as the executing procedure no
    /// longer counts, the next one begins, even if the first one still computes. Guard the data that
    /// procedures share by a [`Mutex`](std::sync::Mutex), whatever the number of workers.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.origins.set_by_program("FARCALL_WORKERS");
        self.settings.limits.workers = workers.max(1);
        self
    }

    /// Sets how many threads may serve calls, whether by UDP or through shared memory. Threads that wait
    /// count too. The receiving threads do not count, of which there is one for each caller through shared
    /// memory. While all threads are taken and a call holds a receiving thread too, one more takes its place
    /// and executes accesses to memory, but no calls. If every thread waits in a call of its own, a further
    /// call that needs a thread is refused as overloaded, `Ran::No`, because otherwise all threads might wait
    /// for one another. Idle threads end after 10 s. The default is 1024. There is always at least one more
    /// thread than [workers](Builder::workers). `FARCALL_THREADS`.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.origins.set_by_program("FARCALL_THREADS");
        self.settings.limits.threads = threads;
        self
    }

    /// Sets how many calls may wait for a worker. Further calls are refused as overloaded, `Ran::No`. The
    /// default is 1024. `FARCALL_QUEUE`.
    #[must_use]
    pub fn queue(mut self, calls: usize) -> Builder {
        self.origins.set_by_program("FARCALL_QUEUE");
        self.settings.limits.queue = calls;
        self
    }

    /// Sets how long a call may wait for a worker. After that it is refused as overloaded, `Ran::No`. The
    /// default is 10 s. `FARCALL_QUEUE_MS`, milliseconds.
    #[must_use]
    pub fn queue_time(mut self, time: Duration) -> Builder {
        self.origins.set_by_program("FARCALL_QUEUE_MS");
        self.settings.limits.queue_time = time;
        self
    }

    /// Sets how many bytes of arguments the calls that wait for a worker may hold together. The default is 64
    /// MiB. `FARCALL_QUEUE_BYTES`.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Builder {
        self.origins.set_by_program("FARCALL_QUEUE_BYTES");
        self.settings.limits.queue_bytes = bytes;
        self
    }

    /// Sets how long a server may leave probes unanswered before a call fails. A server that receives nothing
    /// from this client for 1.2 times the patience cancels the client's calls. The default is 10 s. With any
    /// other value each call takes a little longer, because its datagram carries the value.
    /// `FARCALL_PATIENCE_MS`, milliseconds.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.origins.set_by_program("FARCALL_PATIENCE_MS");
        self.settings.patience = patience;
        self
    }

    /// Sets how long servers wait for this client when they receive nothing from it, before they cancel its
    /// calls. The default, and the least, is 1.2 times the [patience](Builder::patience). A server waits an
    /// hour at most. With a value of its own each call takes a little longer, because its datagram carries
    /// the value.
    ///
    /// Set some minutes for a program that is run in a debugger, or is stopped (SIGSTOP) and continued: its
    /// calls go on meanwhile, and it has their results when it continues. The price is that servers also
    /// execute calls for so long whose client has died. Older servers do not know the setting. Callers
    /// through shared memory do not need it. `FARCALL_SERVER_PATIENCE_MS`, milliseconds.
    #[must_use]
    pub fn server_patience(mut self, patience: Duration) -> Builder {
        self.origins.set_by_program("FARCALL_SERVER_PATIENCE_MS");
        self.settings.server_patience = Some(patience);
        self
    }

    /// Makes callers wait for the whole [patience](Builder::patience), even if the server's host reports that
    /// no process listens at the server's port. Use this for servers that are stopped and started again while
    /// callers wait. By default a call fails after the host has refused three probes in a row, within a
    /// silence of at least half a second. `FARCALL_FULL_PATIENCE`: `on` or `off`.
    #[must_use]
    pub fn full_patience(mut self) -> Builder {
        self.origins.set_by_program("FARCALL_FULL_PATIENCE");
        self.settings.full_patience = true;
        self
    }

    /// Sets the size in bytes of the send and receive buffers to request for each socket. The system may
    /// grant less. The default is 4 MiB. `FARCALL_SOCKET_BUFFER`.
    #[must_use]
    pub fn socket_buffer(mut self, bytes: usize) -> Builder {
        self.origins.set_by_program("FARCALL_SOCKET_BUFFER");
        self.settings.socket_buffer = bytes;
        self
    }

    /// Sets how many bytes of arguments unfinished calls keep. A call keeps its arguments until it has ended,
    /// because it may have to send them again; the calls of a group call share one copy. The calls to one
    /// server may keep as much as is left. Further started calls and group calls fail for this server alone,
    /// as [`Overloaded`](Kind::Overloaded), [`Ran::No`]. The only call to a server may keep any arguments,
    /// and arguments of at most 2 KiB are not counted. The default is 512 MiB. `FARCALL_ARGUMENT_BYTES`.
    #[must_use]
    pub fn argument_bytes(mut self, bytes: usize) -> Builder {
        self.origins.set_by_program("FARCALL_ARGUMENT_BYTES");
        self.settings.arguments = Arc::new(ArgumentBudget::new(bytes));
        self
    }

    /// Sets whether exports describe their interfaces to callers that ask, such as tools. By default they do.
    /// `FARCALL_DESCRIBE=0`.
    #[must_use]
    pub fn describe(mut self, describe: bool) -> Builder {
        self.origins.set_by_program("FARCALL_DESCRIBE");
        self.settings.describe = describe;
        self
    }

    /// Sets whether calls between two processes of one user on this machine go through shared memory instead
    /// of datagrams, if both ends allow it (Linux only). By default they do. `FARCALL_SHM`: `on` or `off`.
    #[must_use]
    pub fn shared_memory(mut self, allowed: bool) -> Builder {
        self.origins.set_by_program("FARCALL_SHM");
        self.settings.shared_memory = allowed;
        self
    }

    /// Lets the kernel answer short reads of segments that arrive at this network interface, without a thread
    /// of this process (the feature `xdp`, Linux on x86-64, `CAP_BPF` and `CAP_NET_ADMIN`). Only segments
    /// that anyone may read are served so, and only to importers without keys. If the kernel cannot, this
    /// process serves, and [`Stats::kernel`](crate::stats::Stats::kernel) says why. Several interfaces may be
    /// added. By default the kernel answers nothing. `FARCALL_XDP`: interfaces, with commas between them. An
    /// interface may be followed by the mode in which the program is attached (`eth0:native`,
    /// `eth0:generic`).
    #[must_use]
    pub fn kernel_served(mut self, interface: impl Into<String>) -> Builder {
        self.origins.set_by_program("FARCALL_XDP");
        self.settings.kernel_served.push(interface.into());
        self
    }

    /// Logs to standard error each call that takes at least this long at the server, including its wait for a
    /// worker. The line gives both times: how long the call waited, and how long it ran. By default no call
    /// is logged. `FARCALL_SLOW_MS`, milliseconds.
    #[must_use]
    pub fn slow(mut self, slow: Duration) -> Builder {
        self.origins.set_by_program("FARCALL_SLOW_MS");
        self.settings.limits.slow = Some(slow);
        self
    }

    /// Adds an interceptor of the calls that the runtime makes.
    #[must_use]
    pub fn intercept_calls(mut self, interceptor: impl Interceptor) -> Builder {
        self.calls.add(Arc::new(interceptor));
        self
    }

    /// Adds an interceptor of the calls that the runtime serves.
    #[must_use]
    pub fn intercept_serving(mut self, interceptor: impl Interceptor) -> Builder {
        self.serving.add(Arc::new(interceptor));
        self
    }

    /// Sets the environment that replaces the operating system, for simulators. The default is the
    /// environment of the thread's current runtime, or else the operating system.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Builder {
        self.env = Some(env);
        self
    }

    /// Makes the runtime. It binds sockets and starts threads only when they are first used.
    ///
    /// # Errors
    /// Returns an error if a `FARCALL_*` variable has a value that is not valid, or if the address to
    /// [advertise](Builder::advertise) does not name one host.
    pub fn build(mut self) -> crate::Result<Runtime> {
        let current = CURRENT.with_borrow(|current| current.as_ref()?.upgrade());
        let (env, registry) = match current {
            Some(current) => (
                self.env.or(Some(current.env.clone())),
                self.registry.or(Some(current.plain_registry.clone())),
            ),
            None => (self.env, self.registry),
        };
        let env = env.unwrap_or_else(|| Arc::new(System));
        let variables = self.reads_variables.then_some(&*env);
        let variables = Variables::new(variables, &self.origins.program);
        variables.fill_in(&mut self.settings)?;
        let registry = match registry {
            Some(registry) => registry,
            None => registry_of(&variables)?,
        };
        self.origins.variables = variables.used();
        if self.reads_variables {
            self.origins.misspelt = misspelt_variables(&*env);
            self.origins.misspelt.iter().for_each(farcall_core::messages::note_misspelt);
        }
        self.settings.finish(&*env)?;
        Ok(Runtime::new(env, self.settings, self.origins, registry, self.calls, self.serving))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Opens the registry that FARCALL_REGISTRY names, or else the user's file.
fn registry_of(variables: &Variables<'_>) -> Result<Arc<dyn Registry>, CallFailed> {
    let Some(place) = variables.value("FARCALL_REGISTRY") else { return Ok(Arc::new(File::of_user())) };
    farcall_names::open(&place, |name| variables.value(name))
        .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(format!("FARCALL_REGISTRY: {why}")))
}

#[cfg(test)]
mod tests {
    use std::io;

    use farcall_names::{MAX_ADDRESSES, Memory};

    use super::*;
    use crate::env::{Event, Socket, SocketOptions};

    #[test]
    fn a_runtime_made_inside_another_has_its_environment_and_registry() {
        let names = Arc::new(Memory::new());
        let outer = Builder::new().registry(names.clone()).build().unwrap();
        let inner = outer.enter(|| Builder::new().build()).unwrap();
        assert!(Arc::ptr_eq(&outer.0.env, &inner.0.env));
        assert!(Arc::ptr_eq(&outer.0.registry, &inner.0.registry));
        assert!(inner.0.settings.limits.workers >= 4);
    }

    /// An operating system in which one variable is set.
    struct Variable(&'static str, String);

    impl Env for Variable {
        fn now(&self) -> crate::env::Time {
            System.now()
        }

        fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn event(&self) -> Arc<dyn Event> {
            System.event()
        }

        fn entropy(&self, _: &mut [u8]) {}

        fn variable(&self, name: &str) -> Option<String> {
            (name == self.0).then(|| self.1.clone())
        }
    }

    fn with(name: &'static str, value: &str, builder: Builder) -> crate::Result<Runtime> {
        builder.env(Arc::new(Variable(name, value.into()))).build()
    }

    fn filled_in(name: &'static str, value: &str) -> Result<Settings, CallFailed> {
        let builder = Builder::new().registry(Memory::new());
        with(name, value, builder).map(|runtime| runtime.0.settings.clone()).map_err(CallFailed::from)
    }

    #[test]
    fn variables_fill_in_settings() {
        assert_eq!(filled_in("FARCALL_SPIN_US", "50").unwrap().spin, Duration::from_micros(50));
        assert_eq!(filled_in("FARCALL_WORKERS", "0").unwrap().limits.workers, 1);
        assert_eq!(filled_in("FARCALL_ADDRESS", "[::1]:7").unwrap().address, "[::1]:7".parse().unwrap());
        assert!(filled_in("FARCALL_OPEN", "1").unwrap().open);
        assert!(!filled_in("FARCALL_OPEN", "").unwrap().open);
        assert!(filled_in("FARCALL_FULL_PATIENCE", "on").unwrap().full_patience);
        let silence = filled_in("FARCALL_SERVER_PATIENCE_MS", "600000").unwrap().server_patience;
        assert_eq!(silence, Some(Duration::from_secs(600)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_address_to_listen_at_may_name_a_network_interface() {
        let scoped = "[fe80::1%1]:7".parse().unwrap();
        for text in ["[fe80::1%1]:7", "[fe80::1%lo]:7"] {
            assert_eq!(filled_in("FARCALL_ADDRESS", text).unwrap().address, scoped, "{text}");
        }
        assert!(filled_in("FARCALL_ADDRESS", "[fe80::1%no-such-if]:7").is_err());
    }

    #[test]
    fn what_the_program_sets_wins_over_the_variable() {
        let program = || Builder::new().registry(Memory::new());
        let address = "127.0.0.1:7".parse().unwrap();
        let runtime = with("FARCALL_ADDRESS", "[::1]:9", program().address(address)).unwrap();
        assert_eq!(runtime.0.settings.address, address);
        assert_eq!(runtime.origins().program, ["FARCALL_REGISTRY", "FARCALL_ADDRESS"]);
        assert!(runtime.origins().variables.is_empty());
        assert!(!with("FARCALL_OPEN", "1", program().closed()).unwrap().0.settings.open);
        let runtime = with("FARCALL_REGISTRY", "/nowhere", program()).unwrap();
        assert!(!runtime.registry().is_shared());
        let plain = with("FARCALL_WORKERS", "7", program().ignore_variables()).unwrap();
        assert_ne!(plain.0.settings.limits.workers, 7);
        let filled_in = with("FARCALL_WORKERS", "7", program()).unwrap();
        assert_eq!(filled_in.origins().variables, ["FARCALL_WORKERS"]);
        assert_eq!(filled_in.0.settings.limits.workers, 7);
    }

    #[test]
    fn an_advertised_address_must_name_one_host() {
        let advertised = |value| {
            let addresses = filled_in("FARCALL_ADVERTISE", value).unwrap().advertise;
            addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            ["10.0.0.7", "10.0.0.7:7000,10.1.0.7", "fd00::7"].map(advertised),
            ["10.0.0.7:0", "10.0.0.7:7000 10.1.0.7:0", "[fd00::7]:0"]
        );
        let many = ["10.0.0.7"; MAX_ADDRESSES + 1].join(",");
        assert!(filled_in("FARCALL_ADVERTISE", &many).is_err());
        assert!(filled_in("FARCALL_ADVERTISE", "ebbets").is_err());
        for wrong in [
            "0.0.0.0:7000",
            "[::]:0",
            "[::ffff:0.0.0.0]:1",
            "224.0.0.1:7",
            "255.255.255.255:7",
            "[fe80::1]:7",
        ] {
            let why =
                Builder::new().registry(Memory::new()).advertise(wrong.parse().unwrap()).build().unwrap_err();
            assert!(why.to_string().contains("FARCALL_ADVERTISE"), "{wrong}: {why}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_variable() {
        let why = filled_in("FARCALL_QUEUE", "many").unwrap_err();
        assert_eq!(why.detail(), "the variable FARCALL_QUEUE cannot be \"many\"");
    }
}
