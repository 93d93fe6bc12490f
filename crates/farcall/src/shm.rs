//! The driver for two processes of one machine: calls through memory that both map, instead of datagrams.
//!
//! ```text
//! link       the calling end of a connection;  call: a call that its thread waits for;  started: one that no
//!            thread waits for
//! long       what a slot cannot hold, at the calling end;  large, outflow: at the serving end
//! watch      whether the server is still there
//! service    a thread that waits for started calls which are awaited;  handover: where their outcomes wait
//!            until their caller asks
//! host       the serving end: who meets callers, looks after receivers, notices deaths;  meet: one caller's meeting
//! proof      how an importer knows that it meets the server that answered it over UDP
//! budget     what peers make the host hold, and the share of each
//! mapped     the carrier of accesses to memory that is mapped;  offers: the segments of this runtime that may be mapped
//! elsewhere  what a peer may block, in a thread that nobody waits for
//! session    one caller, and the threads that take turns at receiving from it;  bulk: its memory
//! ```
//!
//! `farcall-shm` has the memory itself, and `docs/shared-memory.md` the rules. What a call means here is what
//! it means over UDP; how it is executed is the same code (`server/`). Binding asks by UDP in any case.

mod budget;
mod bulk;
mod call;
mod elsewhere;
mod handover;
mod host;
mod host_signal;
mod large;
mod link;
mod long;
mod mapped;
mod meet;
mod offers;
mod outflow;
mod proof;
mod service;
mod session;
mod started;
mod watch;

mod sync {
    //! What `handover` and `service` are made of; loom's stand in its place in tests/awaited.rs.
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

    pub(super) use farcall_shm::Caller;
}

pub(crate) use host::Host;
pub(crate) use link::{Apart, Link};
pub(crate) use mapped::{Watcher, map};
pub(crate) use offers::Offers;
pub(crate) use proof::answer;
pub(crate) use started::Started;

use std::hint::spin_loop;
use std::time::Duration;

use crate::env::Env;

/// How long to look for the next part of something large, which the other side is copying: where there are
/// processors for both, this is over long before a thread could be woken. (The machine's: the two may be
/// bound to one each.)
fn brisk(spin: Duration) -> Duration {
    const BRISK: Duration = Duration::from_micros(20);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if online.contains(['-', ',']) { spin.max(BRISK) } else { spin }
}

/// Looks for something again and again, for about that long. True: it is there.
#[inline]
fn spin(env: &dyn Env, most: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    /// A look at the clock costs as much as some looks at memory.
    const LOOKS: u32 = 128;
    if most.is_zero() {
        return is_there();
    }
    let mut began = None;
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return true;
            }
            spin_loop();
        }
        let now = env.now();
        if now.since(*began.get_or_insert(now)) >= most {
            return false;
        }
    }
}
