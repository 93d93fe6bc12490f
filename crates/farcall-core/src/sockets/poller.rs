//! Which of many sockets can be read or written. Whoever is told of one is the only one, until it is armed again.
//!
//! Linux is asked by epoll; other systems by poll(2), to which all sockets are named each time.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(any(not(target_os = "linux"), test))]
mod poll;

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use crate::env::{Interest, Source};

#[cfg(target_os = "linux")]
pub(crate) use epoll::Ready;
#[cfg(not(target_os = "linux"))]
pub(crate) use poll::Ready;

/// The descriptor of a source of this system. One of a simulation does not meet the system.
pub(super) fn descriptor<'a>(source: &Source<'a>) -> BorrowedFd<'a> {
    match source {
        Source::Descriptor(descriptor) => *descriptor,
        Source::Simulated(_) => unreachable!("a simulated source is asked of the operating system"),
    }
}

/// What poll(2) is asked.
pub(super) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.read);
    flags.set(PollFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests;
