//! All unsafe code of this crate: a clock, socket options, datagrams with control messages, a page of memory
//! that the kernel clears in a forked child process, and pinned and huge pages.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
pub(crate) use linux::{boot_time, report_icmp_errors};
#[cfg(target_os = "linux")]
pub use message::{Incoming, Outgoing, receive, report_destinations, send};
#[cfg(target_os = "linux")]
pub(crate) use message::{receive_batches, receive_error};
pub use pages::{Pinned, ask_for_huge_pages};
pub use zeroed::ZeroedWords;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd as _};

    /// Returns the time since the machine was started, in nanoseconds. The time for which the machine was
    /// suspended counts too.
    ///
    /// This uses libc, because rustix crashes under valgrind, where the kernel's vDSO is missing.
    #[inline]
    pub(crate) fn boot_time() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local timespec, which the call fills. The clock exists since Linux
        // 2.6.39.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        debug_assert_eq!(result, 0);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Makes the kernel report the ICMP errors that a socket's datagrams raise. `v6` says whether it is an
    /// IPv6 socket.
    pub(crate) fn report_icmp_errors(socket: &impl AsFd, v6: bool) -> io::Result<()> {
        let (level, option) = match v6 {
            false => (libc::IPPROTO_IP, libc::IP_RECVERR),
            true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        turn_on(socket, level, option)
    }

    /// Sets a socket option of type int to 1.
    pub(super) fn turn_on(socket: &impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open while `socket` is borrowed; the value is an int that
        // outlives the call, and its length is given.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                level,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(target_os = "linux")]
mod message;
#[cfg_attr(not(target_os = "linux"), path = "sys/no_pages.rs")]
mod pages;
mod zeroed;

pub mod fork {
    //! Detects by one load from memory that this process is a forked child.
    //!
    //! Every use of a handle checks that the handle was made in this process. `getpid` would cost a system
    //! call. Instead, a number that identifies the process is kept in a page of memory of its own, which the
    //! kernel clears in a forked child (madvise(2), MADV_WIPEONFORK, Linux 4.14). `pthread_atfork` would not
    //! notice a raw `clone`. Where the system has no such pages, the number follows from the process
    //! identifier.

    use std::sync::atomic::{AtomicU64, Ordering};

    /// Returns the number that a handle made in this process keeps. A process that inherits the handle has
    /// another number. The number is constant while the process lives, and never zero.
    ///
    /// Two processes can have equal numbers if neither has inherited a handle from the other.
    pub fn generation() -> u64 {
        let Some(page) = page() else {
            return u64::from(std::process::id()) + 1;
        };
        match page.load(Ordering::Relaxed) {
            0 => next_generation(page),
            generation => generation,
        }
    }

    #[cold]
    fn next_generation(page: &AtomicU64) -> u64 {
        // A child inherits this counter and increments it, so its number differs from every number that an
        // ancestor took before the fork, and thus from the numbers in all handles that the child inherits. An
        // ancestor that takes its number after the fork, or a sibling, may get the same number.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(first) => first,
        }
    }

    #[cfg(target_os = "linux")]
    #[inline]
    fn page() -> Option<&'static AtomicU64> {
        use std::sync::OnceLock;
        static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        *PAGE.get_or_init(map)
    }

    #[cfg(not(target_os = "linux"))]
    fn page() -> Option<&'static AtomicU64> {
        None
    }

    #[cfg(target_os = "linux")]
    fn map() -> Option<&'static AtomicU64> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        /// The length of the mapping in bytes. The kernel rounds it up to a page.
        const LEN: usize = size_of::<AtomicU64>();
        // SAFETY: this is a new private mapping at an address that the kernel chooses. The advice concerns
        // only this mapping, which no other code knows and which is never unmapped. A page is aligned for a
        // u64, all bit patterns of a u64 are valid, and this one is only used as an atomic.
        unsafe {
            let start = mmap_anonymous(
                std::ptr::null_mut(),
                LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .ok()?;
            madvise(start, LEN, Advice::LinuxWipeOnFork).ok()?;
            Some(&*start.cast::<AtomicU64>())
        }
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn a_process_keeps_its_generation() {
            assert_ne!(super::generation(), 0);
            assert_eq!(super::generation(), super::generation());
        }
    }
}
