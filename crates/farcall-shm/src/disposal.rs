//! Closes sockets in which a peer has left something. Threads for which no other thread waits do this,
//! because the peer can have left a file whose closing blocks (a TCP socket with SO_LINGER and unsent data,
//! or a file on a file system that hangs).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of threads that close sockets, in the whole process.
const MAX_THREADS: usize = 8;

static DISPOSAL: Mutex<Disposal> = Mutex::new(Disposal { waiting: Vec::new(), closing: 0 });

struct Disposal {
    /// Sockets that wait to be closed.
    waiting: Vec<OwnedFd>,
    /// The number of closing threads. Each closes one socket after the other, and ends when no socket waits.
    closing: usize,
}

/// Lets a closing thread close the socket. Never blocks.
pub(crate) fn close(socket: OwnedFd) {
    let mut disposal = lock();
    disposal.waiting.push(socket);
    if disposal.closing == MAX_THREADS {
        return;
    }
    disposal.closing += 1;
    drop(disposal);
    if std::thread::Builder::new().name("farcall-close".into()).spawn(close_all).is_err() {
        // The socket waits until the next call of this function, which tries again to start a thread.
        lock().closing -= 1;
    }
}

/// Returns how many sockets are not closed yet.
pub fn unclosed() -> usize {
    let disposal = lock();
    disposal.waiting.len() + disposal.closing
}

fn close_all() {
    loop {
        let mut disposal = lock();
        let Some(socket) = disposal.waiting.pop() else {
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
