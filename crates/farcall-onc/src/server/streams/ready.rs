//! Which of many sockets can be read or written. Whoever is told of one is the only one, until it is armed again.
//!
//! Linux is asked by epoll; other systems by poll(2), to which all sockets are named each time.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(any(not(target_os = "linux"), test))]
mod poll;

#[cfg(target_os = "linux")]
pub(super) use epoll::Ready;
#[cfg(not(target_os = "linux"))]
pub(super) use poll::Ready;

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interest {
    /// There is something to read, or the peer has gone.
    pub(super) read: bool,
    /// There is room to write.
    pub(super) write: bool,
}

#[cfg(test)]
mod tests;
