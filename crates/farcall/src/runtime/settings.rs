//! The settings of a runtime.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall_names::{MAX_ADDRESSES, canonical};
use farcall_proto::ArgumentBudget;

use super::advertise::names_one_host;
use crate::env::Env;
use crate::server::Limits;
use crate::{CallFailed, Kind, Ran};

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) address: SocketAddr,
    /// The address to publish instead of `address`. Port 0 stands for the port at which exports listen.
    pub(super) advertise: Vec<SocketAddr>,
    /// Whether everybody who can reach `address` may call.
    pub(super) open: bool,
    /// How long a thread that waits for a datagram polls before it blocks.
    pub(super) spin: Duration,
    /// The limits of the server. `workers` is 0 if the program has not set it; `build` then derives it from
    /// the number of processors.
    pub(super) limits: Limits,
    /// How long a server may leave probes unanswered before a call fails.
    pub(super) patience: Duration,
    /// How long servers are to wait for this client when it is silent, if that does not follow from the
    /// patience.
    pub(super) server_patience: Option<Duration>,
    /// Whether calls wait for the whole patience even if the server's host refuses probes.
    pub(super) full_patience: bool,
    /// The size in bytes of each socket's send and receive buffers to request.
    pub(super) socket_buffer: usize,
    /// The bytes of arguments that unfinished calls keep.
    pub(super) arguments: Arc<ArgumentBudget>,
    /// Whether exports describe their interfaces.
    pub(super) describe: bool,
    /// Whether calls may go through shared memory.
    pub(super) shared_memory: bool,
    /// The interfaces at which the kernel is to answer readers of segments.
    pub(super) kernel_served: Vec<String>,
    /// The keys, if this runtime has any.
    #[cfg(feature = "secure")]
    pub(super) keys: Option<crate::Keys>,
    /// How much seals protect at least.
    #[cfg(feature = "secure")]
    pub(super) level: crate::Level,
    /// How long sealed datagrams are made.
    #[cfg(feature = "secure")]
    pub(super) padding: crate::Padding,
}

impl Settings {
    /// The defaults.
    pub(super) fn new() -> Settings {
        Settings {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: Vec::new(),
            open: false,
            spin: Duration::ZERO,
            limits: Limits {
                workers: 0,
                threads: 1024,
                queue: 1024,
                queue_bytes: 64 << 20,
                queue_time: Duration::from_secs(10),
                slow: None,
                spins: false,
            },
            patience: Duration::from_secs(10),
            server_patience: None,
            full_patience: false,
            socket_buffer: 4 << 20,
            arguments: Arc::default(),
            describe: true,
            shared_memory: true,
            kernel_served: Vec::new(),
            #[cfg(feature = "secure")]
            keys: None,
            #[cfg(feature = "secure")]
            level: crate::Level::Secure,
            #[cfg(feature = "secure")]
            padding: crate::Padding::None,
        }
    }

    /// Returns whether the runtime has keys.
    pub(super) fn has_keys(&self) -> bool {
        #[cfg(feature = "secure")]
        return self.keys.is_some();
        #[cfg(not(feature = "secure"))]
        false
    }

    /// Returns the first eight bytes of the runtime's public key, if it has keys.
    pub(super) fn key_prefix(&self) -> Option<u64> {
        #[cfg(feature = "secure")]
        return self
            .keys
            .as_ref()?
            .keyring()
            .identity()
            .public()
            .as_bytes()
            .first_chunk()
            .copied()
            .map(u64::from_be_bytes);
        #[cfg(not(feature = "secure"))]
        None
    }

    /// Derives what is unset from the machine, and checks what is set.
    pub(super) fn finish(&mut self, env: &dyn Env) -> Result<(), CallFailed> {
        if self.limits.workers == 0 {
            self.limits.workers = (2 * env.processors()).max(4);
        }
        self.limits.spins = !self.spin.is_zero();
        self.address = canonical(self.address);
        self.check_advertised()
    }

    /// Checks that the addresses to publish name one host each, and that there are not too many.
    fn check_advertised(&mut self) -> Result<(), CallFailed> {
        self.advertise.iter_mut().for_each(|address| *address = canonical(*address));
        let wrong = self.advertise.iter().find(|address| !names_one_host(address.ip()));
        let why = match wrong {
            Some(address) => format!(
                "callers cannot use the advertised address {} (the builder's `advertise()`, or \
                 FARCALL_ADVERTISE): it must name one host, and must not be link-local",
                address.ip()
            ),
            None if self.advertise.len() > MAX_ADDRESSES => format!(
                "{} addresses are advertised (the builder's `advertise()`, or FARCALL_ADVERTISE); at most \
                 {MAX_ADDRESSES} are allowed",
                self.advertise.len()
            ),
            None => return Ok(()),
        };
        Err(CallFailed::new(Kind::Local, Ran::No).because(why))
    }
}
