//! The alarm that wakes a thread which waits for several descriptors: an eventfd, or a pipe.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{ioctl_fionbio, read, write};

use crate::env::{Alarm, Source};

/// An alarm. A thread waits until the descriptor is readable; any thread sets the alarm by a write.
pub(crate) struct SystemAlarm {
    /// An eventfd, or the end of a pipe that is read.
    readable: OwnedFd,
    /// The end of a pipe that is written. `None` for an eventfd.
    written: Option<OwnedFd>,
    /// Whether the alarm was set since it was last cleared. This saves the system call that sets the alarm
    /// again.
    is_set: AtomicBool,
}

impl SystemAlarm {
    /// Returns an alarm that takes one descriptor: an eventfd.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<SystemAlarm> {
        use rustix::event::{EventfdFlags, eventfd};
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(SystemAlarm { readable, written: None, is_set: AtomicBool::new(false) })
    }

    /// Returns an alarm that takes two descriptors, because not all of these systems have an eventfd.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<SystemAlarm> {
        SystemAlarm::piped()
    }

    /// Returns an alarm whose descriptor can raise SIGIO, which an eventfd cannot: a pipe.
    pub(crate) fn piped() -> io::Result<SystemAlarm> {
        let (readable, written) = io::pipe()?;
        ioctl_fionbio(&readable, true)?;
        ioctl_fionbio(&written, true)?;
        let (readable, written) = (readable.into(), Some(written.into()));
        Ok(SystemAlarm { readable, written, is_set: AtomicBool::new(false) })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Makes the descriptor readable.
    fn write(&self) {
        // A full pipe is readable already. An eventfd counts further than a program can write.
        let _ = write(self.written.as_ref().unwrap_or(&self.readable), &1_u64.to_ne_bytes());
    }
}

impl Alarm for SystemAlarm {
    fn ring(&self) {
        // AcqRel: a thread that finds the flag set relies on the write of the thread that set it. The thread
        // that clears the alarm still sees what this thread wrote before, because `quiet` reads the flag too.
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.write();
        }
    }

    fn quiet(&self) {
        // This reads even if the flag is not set, because another thread's write may come after its flag was
        // cleared.
        let _ = read(&self.readable, &mut [0; 128]);
        self.is_set.swap(false, Ordering::AcqRel);
    }

    fn raise(&self) {
        self.write();
    }

    fn lower(&self) {
        // The other thread has written once, so this reads all that it has written.
        let _ = read(&self.readable, &mut [0; 8]);
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
    fn a_write_that_comes_after_its_flag_was_taken_back_is_read() {
        for alarm in [SystemAlarm::new().unwrap(), SystemAlarm::piped().unwrap()] {
            alarm.ring();
            alarm.quiet();
            assert!(!is_set(&alarm));
            // This is as if a thread had set the flag and had been stopped before it wrote, and meanwhile the
            // flag had been cleared.
            alarm.write();
            assert!(is_set(&alarm));
            alarm.quiet();
            assert!(!is_set(&alarm));
            alarm.ring();
            assert!(is_set(&alarm));
            alarm.quiet();
            alarm.raise();
            assert!(is_set(&alarm));
            alarm.lower();
            assert!(!is_set(&alarm));
        }
    }
}
