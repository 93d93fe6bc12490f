//! Asks Linux, by epoll.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, write};

use super::descriptor;
use crate::env::{Interest, Poller, Source};

/// The sockets.
pub(crate) struct Ready {
    epoll: OwnedFd,
    /// Readable once everybody is to wake.
    bell: OwnedFd,
}

/// That of the bell.
const BELL: u64 = u64::MAX;

impl Ready {
    pub(crate) fn new() -> io::Result<Ready> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Ready { epoll, bell })
    }
}

impl Poller for Ready {
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor(&source), EventData::new_u64(key), EventFlags::ONESHOT)?)
    }

    fn arm(&self, source: Source<'_>, key: u64, interest: Interest) -> io::Result<()> {
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN, interest.read);
        flags.set(EventFlags::OUT, interest.write);
        Ok(epoll::modify(&self.epoll, descriptor(&source), EventData::new_u64(key), flags)?)
    }

    fn remove(&self, source: Source<'_>, _: u64) {
        let _ = epoll::delete(&self.epoll, descriptor(&source));
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
        (key != BELL).then_some((key, interest))
    }

    fn wake(&self) {
        let _ = write(&self.bell, &1u64.to_ne_bytes());
    }
}
