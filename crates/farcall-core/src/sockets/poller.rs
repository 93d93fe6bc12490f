//! Pollers: several threads wait for many sockets, and each socket that becomes ready is reported to one
//! thread.
//!
//! On Linux a poller is an epoll instance. Other systems use poll(2), which is passed all armed sockets each
//! time. Pollers are used by the ONC RPC server.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(any(not(target_os = "linux"), test))]
mod poll;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use crate::env::{Interest, Source};

#[cfg(target_os = "linux")]
pub(crate) use epoll::SystemPoller;
#[cfg(not(target_os = "linux"))]
pub(crate) use poll::SystemPoller;

/// Returns the descriptor of a source.
///
/// # Errors
/// The source belongs to a simulation, so the operating system cannot wait for it.
pub(super) fn descriptor<'a>(source: &Source<'a>) -> io::Result<BorrowedFd<'a>> {
    match source {
        Source::Descriptor(descriptor) => Ok(*descriptor),
        Source::Simulated(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "the source belongs to a simulation"))
        }
    }
}

/// Converts kinds of readiness to the flags of poll(2).
pub(super) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.read);
    flags.set(PollFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests;
