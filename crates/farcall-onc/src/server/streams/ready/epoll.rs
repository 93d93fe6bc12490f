//! Asks Linux, by epoll.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, write};

use super::Interest;

/// The sockets.
pub(in crate::server::streams) struct Ready {
    epoll: OwnedFd,
    /// Readable once everybody is to wake.
    bell: OwnedFd,
}

/// That of the bell.
const BELL: u64 = u64::MAX;

impl Ready {
    pub(in crate::server::streams) fn new() -> io::Result<Ready> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Ready { epoll, bell })
    }

    /// Adds a socket, unarmed.
    pub(in crate::server::streams) fn add(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(key), EventFlags::ONESHOT)?)
    }

    /// Tells one thread, once, when the socket is ready for one of these.
    pub(in crate::server::streams) fn arm(
        &self,
        socket: impl AsFd,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN, interest.read);
        flags.set(EventFlags::OUT, interest.write);
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(key), flags)?)
    }

    pub(in crate::server::streams) fn remove(&self, socket: impl AsFd, _: u64) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits for a socket; none once the bell has been rung, and now and then without a reason.
    #[inline]
    pub(in crate::server::streams) fn wait(&self) -> Option<(u64, Interest)> {
        let mut events = Vec::<epoll::Event>::with_capacity(1);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => return None,
            Err(_) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                return None;
            }
        }
        let event = events.first()?;
        let (key, flags) = (event.data.u64(), event.flags);
        let gone = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let interest =
            Interest { read: gone || flags.contains(EventFlags::IN), write: flags.contains(EventFlags::OUT) };
        (key != BELL).then_some((key, interest))
    }

    /// Has everybody who waits, now or later, return.
    pub(in crate::server::streams) fn ring(&self) {
        let _ = write(&self.bell, &1u64.to_ne_bytes());
    }
}
