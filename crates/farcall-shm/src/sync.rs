//! The futexes by which `wake_word` and `answer_word` sleep and wake. `tests/wakeups.rs` replaces this module
//! by one for loom, which tests all interleavings of threads.
//!
//! A hostile peer can move a sleeping thread of this process to another word (FUTEX_REQUEUE). It can also let
//! its own threads wait by FUTEX_LOCK_PI at the same word, so that a wake-up by this process fails with
//! EINVAL. So no thread sleeps where only the peer could wake it: either the sleep has a time limit, or the
//! thread also sleeps at a second word, which is private to this process (futex_waitv).

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Wait, WaitFlags, WaitPtr, WaitvFlags, wait, waitv, wake};
use rustix::thread::{ClockId, Timespec};

pub(super) use std::sync::atomic::{AtomicU32, Ordering};

/// The longest sleep that only the peer can end.
const MAX_SHARED_SLEEP: Duration = Duration::from_millis(250);

/// Whether futex_waitv cannot be used: the system is older than Linux 5.16, or a filter forbids the call.
static NO_WAITV: AtomicBool = AtomicBool::new(cfg!(miri));

/// Sleeps while the word has that value, for at most the shorter of `most` and [`MAX_SHARED_SLEEP`]. May
/// return earlier.
pub(super) fn sleep(word: &AtomicU32, value: u32, most: Duration) {
    let most = Timespec::try_from(most.min(MAX_SHARED_SLEEP)).ok();
    debug_assert!(most.is_some(), "so short a time fits a timespec");
    let _ = wait(word, Flags::empty(), value, most.as_ref());
}

/// Sleeps while a shared and a private word both have the values given with them. May return earlier.
pub(super) fn sleep_at_either(shared: (&AtomicU32, u32), private: (&AtomicU32, u32)) {
    if !NO_WAITV.load(Ordering::Relaxed) {
        let words = [waiter(shared, WaitFlags::empty()), waiter(private, WaitFlags::PRIVATE)];
        match waitv(&words, WaitvFlags::empty(), None, ClockId::Monotonic) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return,
            // A filter that forbids the call reports PERM.
            Err(Errno::NOSYS | Errno::PERM) => NO_WAITV.store(true, Ordering::Relaxed),
            // Perhaps the system has no memory for the call now.
            Err(_) => {}
        }
    }
    if private.0.load(Ordering::Acquire) == private.1 {
        sleep(shared.0, shared.1, MAX_SHARED_SLEEP);
    }
}

/// Wakes one thread that sleeps at a shared word.
pub(super) fn wake_one(word: &AtomicU32) {
    let _ = wake(word, Flags::empty(), 1);
}

/// Wakes all threads that sleep at a private word.
pub(super) fn wake_private(word: &AtomicU32) {
    let _ = wake(word, Flags::PRIVATE, i32::MAX as u32);
}

fn waiter((word, value): (&AtomicU32, u32), flags: WaitFlags) -> Wait {
    let mut waiter = Wait::new();
    waiter.uaddr = WaitPtr::new(word.as_ptr().cast());
    (waiter.val, waiter.flags) = (value.into(), WaitFlags::SIZE_U32 | flags);
    waiter
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The kernel must accept the way in which futex_waitv is called here. If it refused, every idle thread
    /// would sleep for at most 250 ms at a time, and wake up four times a second. Only a system that lacks
    /// futex_waitv, or whose filter forbids it, may refuse.
    #[test]
    fn the_system_accepts_a_wait_at_two_words() {
        let (shared, private) = (AtomicU32::new(7), AtomicU32::new(u32::MAX));
        let long_ago = Timespec { tv_sec: 0, tv_nsec: 0 };
        for (value, expected) in [(u32::MAX, Errno::TIMEDOUT), (0, Errno::AGAIN)] {
            let at_private = waiter((&private, value), WaitFlags::PRIVATE);
            let words = [waiter((&shared, 7), WaitFlags::empty()), at_private];
            let waited = waitv(&words, WaitvFlags::empty(), Some(&long_ago), ClockId::Monotonic);
            let errors = [expected, Errno::NOSYS, Errno::PERM];
            assert!(matches!(waited, Err(why) if errors.contains(&why)), "{waited:?}");
        }
    }
}
