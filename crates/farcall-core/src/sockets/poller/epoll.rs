//! The poller for Linux, which uses epoll.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, write};

use super::descriptor;
use crate::env::{Interest, Poller, Source};

/// An epoll instance, and the descriptor that wakes its threads.
pub(crate) struct SystemPoller {
    epoll: OwnedFd,
    /// A descriptor that is readable once all waiting threads must return.
    wake: OwnedFd,
}

/// The key of the descriptor that wakes all threads. No source has it.
const WAKE_KEY: u64 = u64::MAX;

impl SystemPoller {
    pub(crate) fn new() -> io::Result<SystemPoller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE_KEY), EventFlags::IN)?;
        Ok(SystemPoller { epoll, wake })
    }
}

impl Poller for SystemPoller {
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor(&source)?, EventData::new_u64(key), EventFlags::ONESHOT)?)
    }

    fn arm(&self, source: Source<'_>, key: u64, interest: Interest) -> io::Result<()> {
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN, interest.read);
        flags.set(EventFlags::OUT, interest.write);
        Ok(epoll::modify(&self.epoll, descriptor(&source)?, EventData::new_u64(key), flags)?)
    }

    fn remove(&self, source: Source<'_>, _: u64) {
        let _ = descriptor(&source).map(|descriptor| epoll::delete(&self.epoll, descriptor));
    }

    #[inline]
    fn wait(&self) -> Option<(u64, Interest)> {
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
        (key != WAKE_KEY).then_some((key, interest))
    }

    fn wake(&self) {
        let _ = write(&self.wake, &1u64.to_ne_bytes());
    }
}
