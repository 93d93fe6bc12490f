//! Closes sockets in which a peer has left something: in threads that nobody waits for, because it may be a
//! file whose closing blocks (a TCP socket with SO_LINGER and unsent data, a file of a file system that
//! hangs).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads that close at the same time, in the whole process.
const MAX_THREADS: usize = 8;

static DISPOSAL: Mutex<Disposal> = Mutex::new(Disposal { left: Vec::new(), closing: 0 });

struct Disposal {
    left: Vec<OwnedFd>,
    /// Each thread closes one after the other, and ends when none is left.
    closing: usize,
}

/// Closes it some time. Never blocks.
pub(crate) fn close(socket: OwnedFd) {
    let mut disposal = lock();
    disposal.left.push(socket);
    if disposal.closing == MAX_THREADS {
        return;
    }
    disposal.closing += 1;
    drop(disposal);
    if std::thread::Builder::new().name("farcall-close".into()).spawn(live).is_err() {
        // It is left to whoever comes next.
        lock().closing -= 1;
    }
}

/// How many are not closed yet.
pub fn unclosed() -> usize {
    let disposal = lock();
    disposal.left.len() + disposal.closing
}

fn live() {
    loop {
        let mut disposal = lock();
        let Some(socket) = disposal.left.pop() else {
            disposal.closing -= 1;
            return;
        };
        drop(disposal);
        drop(socket);
    }
}

fn lock() -> MutexGuard<'static, Disposal> {
    DISPOSAL.lock().unwrap_or_else(PoisonError::into_inner)
}
