//! The alarm that wakes a thread which waits for several descriptors: a pair of connected Unix sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::{Alarm, Source};

/// An alarm. One thread waits until the receiving socket is readable; any thread sets the alarm by a byte.
pub(crate) struct SystemAlarm {
    sender: UnixStream,
    receiver: UnixStream,
    /// Whether the alarm was set since it was last cleared. This saves the system call that sets the alarm
    /// again.
    is_set: AtomicBool,
}

impl SystemAlarm {
    pub(crate) fn new() -> io::Result<SystemAlarm> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        Ok(SystemAlarm { sender, receiver, is_set: AtomicBool::new(false) })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Alarm for SystemAlarm {
    fn ring(&self) {
        // AcqRel: a thread that finds the flag set relies on the byte of the thread that set it. The thread
        // that clears the alarm still sees what this thread wrote before, because `quiet` reads the flag too.
        if !self.is_set.swap(true, Ordering::AcqRel) {
            // If the socket's buffer is full, it is readable already.
            let _ = (&self.sender).write(&[1]);
        }
    }

    fn quiet(&self) {
        // This reads even if the flag is not set, because another thread's byte may arrive after its flag was
        // cleared.
        let _ = (&self.receiver).read(&mut [0; 16]);
        self.is_set.swap(false, Ordering::AcqRel);
    }

    fn source(&self) -> Source<'_> {
        Source::Descriptor(self.descriptor())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_set(alarm: &SystemAlarm) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let descriptor = alarm.descriptor();
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_byte_that_comes_after_its_flag_was_taken_back_is_read() {
        let alarm = SystemAlarm::new().unwrap();
        alarm.ring();
        alarm.quiet();
        assert!(!is_set(&alarm));
        // This is as if a thread had set the flag and had been stopped before it wrote its byte, and
        // meanwhile the flag had been cleared.
        assert_eq!((&alarm.sender).write(&[1]).unwrap(), 1);
        alarm.quiet();
        assert!(!is_set(&alarm));
        alarm.ring();
        assert!(is_set(&alarm));
    }
}
