//! Watches whether the exporters of mapped memory are still there, and are still accepted. One thread sleeps
//! until the socket of an exporter closes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farcall_shm::{EpollSet, UnixChannel};

use crate::client::{Peer, Standing};
use crate::env::Env;
use crate::lock;
use crate::shm::host_signal::HostSignal;
use crate::sys::fork;

/// Watches exporters in a thread. The thread ends when the watcher is stopped.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    env: Arc<dyn Env>,
}

struct Shared {
    epoll: EpollSet,
    signal: HostSignal,
    next: AtomicU64,
    exporters: Mutex<HashMap<u64, Weak<Exporter>>>,
}

/// Tells whether one exporter is still there, for as long as its memory is mapped.
pub(super) struct Liveness {
    exporter: Arc<Exporter>,
    name: u64,
    shared: Arc<Shared>,
}

struct Exporter {
    channel: UnixChannel,
    /// [`THERE`], [`GONE`] or [`DISTRUSTED`].
    state: AtomicU8,
    /// The conversation with the exporter, the export, and who the exporter is if this end has keys.
    #[cfg_attr(not(feature = "secure"), allow(dead_code))]
    stands_on: (Arc<Peer>, u64, Option<Standing>),
    /// Identifies the process that mapped the memory, so that a forked child is noticed.
    process: u64,
}

/// The exporter is there, and accepted.
const THERE: u8 = 0;
/// The exporter has ended.
const GONE: u8 = 1;
/// The exporter is no longer accepted for this segment.
#[cfg_attr(not(feature = "secure"), allow(dead_code))]
const DISTRUSTED: u8 = 2;

const ALARM: u64 = 0;

impl Watcher {
    /// Starts the thread.
    pub(crate) fn spawn(env: &Arc<dyn Env>) -> std::io::Result<Watcher> {
        let shared = Arc::new(Shared {
            epoll: EpollSet::new()?,
            signal: HostSignal::new()?,
            next: AtomicU64::new(ALARM + 1),
            exporters: Mutex::default(),
        });
        shared.epoll.add(&shared.signal.alarm, ALARM)?;
        let body = shared.clone();
        env.spawn("farcall-ties", Box::new(move || body.live()))?;
        Ok(Watcher { shared, env: env.clone() })
    }

    pub(crate) fn stop(&self) {
        self.shared.signal.stop();
    }

    pub(super) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Makes accesses to memory go by calls from now on whose exporters are no longer accepted for it.
    #[cfg(feature = "secure")]
    pub(crate) fn distrust_rejected(&self) {
        let exporters: Vec<_> = lock(&self.shared.exporters).values().filter_map(Weak::upgrade).collect();
        for exporter in exporters {
            let (peer, export, server) = &exporter.stands_on;
            if !peer.is_served_by(*server, *export) {
                let _ =
                    exporter.state.compare_exchange(THERE, DISTRUSTED, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Watches the exporter at the other end of a socket, of an export of `peer`. `server` says who it is, if
    /// this end has keys.
    pub(super) fn watch(
        &self,
        channel: UnixChannel,
        (peer, export): (&Arc<Peer>, u64),
        server: Option<Standing>,
    ) -> std::io::Result<Liveness> {
        let shared = &self.shared;
        let name = shared.next.fetch_add(1, Ordering::Relaxed);
        let (state, process) = (AtomicU8::new(THERE), fork::generation());
        let exporter =
            Arc::new(Exporter { channel, state, stands_on: (peer.clone(), export, server), process });
        lock(&shared.exporters).insert(name, Arc::downgrade(&exporter));
        let liveness = Liveness { exporter, name, shared: shared.clone() };
        shared.epoll.add(&liveness.exporter.channel, name)?;
        Ok(liveness)
    }
}

impl Shared {
    fn live(&self) {
        let mut ready = Vec::new();
        while !self.signal.is_stopped() {
            self.epoll.wait(None, &mut ready);
            for name in ready.drain(..) {
                if name == ALARM {
                    self.signal.alarm.clear();
                } else if let Some(exporter) = self.exporter(name) {
                    // A proper exporter never sends anything on this socket any more. If the socket is ready,
                    // it was closed or the exporter breaks the rules.
                    exporter.state.store(GONE, Ordering::Release);
                    self.epoll.remove(&exporter.channel);
                }
            }
        }
    }

    fn exporter(&self, name: u64) -> Option<Arc<Exporter>> {
        lock(&self.exporters).get(&name).and_then(Weak::upgrade)
    }
}

impl Liveness {
    /// Returns whether the exporter is there and accepted, and this is the process that mapped its memory.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        self.exporter.state.load(Ordering::Relaxed) == THERE && self.is_ours()
    }

    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.exporter.state.load(Ordering::Relaxed) == GONE
    }

    #[inline(always)]
    pub(super) fn is_ours(&self) -> bool {
        self.exporter.process == fork::generation()
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        // The socket need not be removed from the epoll set, because the set forgets it when it is closed. A
        // forked child does not touch the map, because another thread may have held the map's lock at the
        // fork.
        if self.is_ours() {
            lock(&self.shared.exporters).remove(&self.name);
        }
    }
}
