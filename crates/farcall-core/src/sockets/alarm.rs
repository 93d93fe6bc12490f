//! What wakes a thread that sleeps until one of several descriptors is ready.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::{Alarm, Source};

/// One thread sleeps on its descriptor, any others ring it.
pub(crate) struct Bell {
    ringer: UnixStream,
    sleeper: UnixStream,
    /// It was rung, and nobody has looked since.
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let (ringer, sleeper) = UnixStream::pair()?;
        ringer.set_nonblocking(true)?;
        sleeper.set_nonblocking(true)?;
        Ok(Bell { ringer, sleeper, rung: AtomicBool::new(false) })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }
}

impl Alarm for Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // If it is full, it rings already.
            let _ = (&self.ringer).write(&[1]);
        }
    }

    fn quiet(&self) {
        // Read in any case: the byte of one who rang may come after its flag was taken back.
        let _ = (&self.sleeper).read(&mut [0; 16]);
        self.rung.store(false, Ordering::SeqCst);
    }

    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.descriptor())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn rings(alarm: &Bell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let descriptor = alarm.descriptor();
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_byte_that_comes_after_its_flag_was_taken_back_is_read() {
        let alarm = Bell::new().unwrap();
        alarm.ring();
        alarm.quiet();
        assert!(!rings(&alarm));
        // One who rang said so first, and was stopped before it wrote; meanwhile the sleeper forgot that.
        assert_eq!((&alarm.ringer).write(&[1]).unwrap(), 1);
        alarm.quiet();
        assert!(!rings(&alarm));
        alarm.ring();
        assert!(rings(&alarm));
    }
}
