//! What the network has reported of a socket's destinations. All reports are taken out of the socket's error
//! queue at once, because they take the room of its receive buffer, and wait here until a thread receives.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
use farcall_base::canonical;
use farcall_base::{Obstacle, lock};

use crate::env::obstacle;

#[cfg(target_os = "linux")]
use crate::sys;

/// The most reports that wait. Further ones are dropped, because they are only hints.
const MAX_WAITING_HINTS: usize = 1024;
/// The most reports that are taken out of the error queue before the thread does something else.
const MAX_DRAINED_REPORTS: usize = 4096;
/// The bytes that are kept of the datagram that a report quotes: as many as any protocol here needs to know
/// its own datagram.
pub(crate) const MAX_QUOTED_BYTES: usize = 48;

/// The reports of one socket that no thread has received yet.
#[derive(Default)]
pub(crate) struct Hints {
    /// Whether a report waits, here or in the error queue.
    is_waiting: AtomicBool,
    list: Mutex<VecDeque<Hint>>,
}

/// One report.
pub(crate) struct Hint {
    /// The destination of the datagram that raised the report.
    pub(crate) about: SocketAddr,
    /// The system's number of the error.
    pub(crate) code: i32,
    /// The path's MTU, if the error is that a datagram was too long for it.
    mtu: u32,
    /// Whether a filter refuses the datagrams.
    is_filtered: bool,
    quoted: [u8; MAX_QUOTED_BYTES],
    quoted_bytes: usize,
}

impl Hint {
    /// Returns the beginning of the datagram that raised the report.
    pub(crate) fn quoted(&self) -> &[u8] {
        &self.quoted[..self.quoted_bytes]
    }

    /// Returns what the report says of the path.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        /// The headers of IPv4 and IPv6, with that of UDP.
        const HEADERS: [u32; 2] = [28, 48];
        if self.is_filtered {
            return Some(Obstacle::Filtered);
        }
        match obstacle(&io::Error::from_raw_os_error(self.code))? {
            Obstacle::TooNarrow { .. } => {
                let headers = HEADERS[usize::from(self.about.is_ipv6())];
                Some(Obstacle::TooNarrow { max_bytes: self.mtu.checked_sub(headers) })
            }
            Obstacle::Forbidden => Some(Obstacle::Filtered),
            other => Some(other),
        }
    }
}

impl Hints {
    /// Returns whether a thread that receives should call [`Hints::take`] first.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Takes the reports out of the error queue. Whoever gets an error of the socket calls this: the kernel
    /// tells one thread once that there are reports.
    #[cold]
    pub(crate) fn drain(&self, socket: &impl AsFd) {
        let mut list = lock(&self.list);
        let is_empty = drain_into(&mut list, socket);
        self.is_waiting.store(!is_empty || !list.is_empty(), Ordering::Relaxed);
    }

    /// Takes the oldest report.
    #[cold]
    pub(crate) fn take(&self, socket: &impl AsFd) -> Option<Hint> {
        let mut list = lock(&self.list);
        let hint = list.pop_front();
        if list.is_empty() {
            let is_empty = drain_into(&mut list, socket);
            self.is_waiting.store(!is_empty || !list.is_empty(), Ordering::Relaxed);
        }
        hint
    }
}

/// Returns whether the error queue is empty now.
#[cfg(target_os = "linux")]
fn drain_into(list: &mut VecDeque<Hint>, socket: &impl AsFd) -> bool {
    for _ in 0..MAX_DRAINED_REPORTS {
        let mut quoted = [0; MAX_QUOTED_BYTES];
        let Ok(incoming) = sys::receive_error(socket, &mut quoted) else { return true };
        // A report of this host about a datagram that was too long comes back from the send as well.
        let (Some(about), Some(code)) = (incoming.from, incoming.report) else { continue };
        if list.len() < MAX_WAITING_HINTS {
            let quoted_bytes = incoming.len.min(MAX_QUOTED_BYTES);
            let (about, mtu, is_filtered) = (canonical(about), incoming.mtu, incoming.is_filtered);
            list.push_back(Hint { about, code, mtu, is_filtered, quoted, quoted_bytes });
        }
    }
    false
}

/// Other systems have no error queue.
#[cfg(not(target_os = "linux"))]
fn drain_into(_: &mut VecDeque<Hint>, _: &impl AsFd) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn reports_that_no_thread_receives_are_bounded_and_further_ones_are_dropped() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        sys::report_icmp_errors(&socket, false).unwrap();
        // Nobody receives at this port, so the system reports each datagram.
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let hints = Hints::default();
        for _ in 0..MAX_WAITING_HINTS + 100 {
            // A report that has come already is returned by the send, which then sends nothing.
            while socket.send_to(b"datagram", closed).is_err() {}
            hints.drain(&socket);
        }
        assert_eq!(lock(&hints.list).len(), MAX_WAITING_HINTS);
        let first = hints.take(&socket).unwrap();
        assert_eq!((first.about, first.quoted()), (closed, &b"datagram"[..]));
    }
}
