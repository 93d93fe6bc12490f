//! Calls between two processes of one machine that go through memory which both processes map, instead of
//! datagrams.
//!
//! ```text
//! link       the caller's end of a connection;  call: a call whose thread waits for it;
//!            started: a call for which no thread waits
//! long       long arguments and results at the caller's end;  large, outflow: the same at the server's end
//! watch      checks whether the server is still there
//! service    a thread that waits for outcomes that tasks await;  handover: keeps an outcome for its caller
//! host       the server's end: accepts callers, watches over receivers, notices dead callers;
//!            meet: the meeting with one caller;  host_signal: wakes the host's thread
//! proof      proves to an importer that it meets the server that answered it over UDP
//! budget     bounds what peer processes make the host hold, and gives each a share
//! mapped     the carrier of accesses to mapped memory;  offers: this runtime's segments that may be mapped
//! elsewhere  a thread for work that a peer may block
//! drains     tells callers that the server takes no more calls
//! session    one caller, and the threads that receive from it in turn;  bulk: its long arguments and results
//! ```
//!
//! `farcall-shm` defines the layout of the memory, and `docs/shared-memory.md` gives the rules. A call
//! through shared memory has the same meaning as a call over UDP, and the same code executes it (`server/`).
//! Binding always goes by UDP.

mod budget;
mod bulk;
mod call;
mod drains;
mod elsewhere;
mod given;
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
    //! The synchronisation types that `handover` and `service` use. `tests/awaited.rs` replaces this module
    //! by loom's types.
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

    pub(super) use farcall_shm::Caller;
}

pub(crate) use given::memory_of_file;
pub(crate) use host::Host;
pub(crate) use link::{Link, NoLink};
pub(crate) use mapped::{Watcher, map};
pub(crate) use offers::Offers;
pub(crate) use proof::answer;
pub(crate) use started::Started;

use std::hint::spin_loop;
use std::time::Duration;

use crate::env::Env;

/// Returns how long a thread polls for the next part of a long message, which the other side is copying.
/// Between two processors the part arrives before a sleeping thread could be woken.
fn brisk(spin: Duration) -> Duration {
    const MIN_POLL_TIME: Duration = Duration::from_micros(20);
    spin.max(MIN_POLL_TIME)
}

/// Polls `is_there` for about `most`, or only once if the other side needs this processor
/// (`shares_processor`). Returns whether it became true.
#[inline]
fn spin(
    env: &dyn Env,
    most: Duration,
    shares_processor: impl FnOnce() -> bool,
    mut is_there: impl FnMut() -> bool,
) -> bool {
    /// The number of polls between two readings of the clock, because one reading costs as much as several
    /// polls.
    const POLLS_PER_CLOCK_READING: u32 = 128;
    if most.is_zero() || shares_processor() {
        return is_there();
    }
    let mut began = None;
    loop {
        for _ in 0..POLLS_PER_CLOCK_READING {
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
