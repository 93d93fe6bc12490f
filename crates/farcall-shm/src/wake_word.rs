//! A word at which a thread sleeps until the other process has work for it. While that thread is awake,
//! waking it costs no system call.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, sleep, sleep_at_either, wake_one, wake_private};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// A word that says whether the thread that waits for work is asleep.
///
/// The waiting thread announces its sleep, looks for work once more, and sleeps. The other process leaves
/// work, then wakes the thread. Both change the word only by atomic exchanges. So the later one sees what the
/// earlier one had written: either the waiting thread sees the work, or the other process sees the
/// announcement.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct WakeWord(AtomicU32);

/// A thread's announcement that it is about to sleep. Holds how many private wake-ups the thread had seen
/// before.
#[derive(Clone, Copy, Debug)]
pub struct SleepIntent(pub(crate) u32);

impl WakeWord {
    #[cfg(test)]
    #[allow(dead_code, reason = "only the loom tests that include this file call it")]
    pub(crate) fn new() -> WakeWord {
        WakeWord(AtomicU32::new(AWAKE))
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "a test of `bulk_ring` calls it; loom tests that include this file do not")]
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Ordering::Acquire) == AWAKE
    }

    /// Announces that the calling thread is about to sleep. The thread must look for work once more before it
    /// calls [`WakeWord::sleep`].
    pub(crate) fn announce_sleep(&self) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
    }

    /// Sleeps until [`WakeWord::wake`], for at most `most`. May return earlier.
    pub(crate) fn sleep(&self, most: Duration) {
        sleep(&self.0, ASLEEP, most);
    }

    /// Sleeps until [`WakeWord::wake`], or until there are more private wake-ups than the intent has seen.
    /// May return earlier.
    pub(crate) fn sleep_until_private_wake(&self, private: &PrivateWake, SleepIntent(seen): SleepIntent) {
        sleep_at_either((&self.0, ASLEEP), (&private.0, seen));
    }

    /// Announces that the calling thread is awake again, so that no other thread needs to wake it.
    ///
    /// This is an exchange too: a plain store would overwrite a wake-up, and hide from this thread's next
    /// announcement what was written before that wake-up.
    pub(crate) fn announce_awake(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// Wakes the waiting thread if it sleeps. The caller has written the work before.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.0.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            wake_one(&self.0);
        }
    }

    /// Wakes the waiting thread whatever the word says. A hostile peer can still prevent that.
    fn force(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
        wake_one(&self.0);
    }
}

/// Wakes a thread of this process that sleeps at a [`WakeWord`], even if a hostile peer has tampered with
/// that word.
///
/// The wake-ups are counted in a word that the peer can neither write nor reach by a futex operation.
#[derive(Debug)]
pub(crate) struct PrivateWake(AtomicU32);

impl PrivateWake {
    pub(crate) fn new() -> PrivateWake {
        PrivateWake(AtomicU32::new(0))
    }

    /// Announces at the word that the calling thread is about to sleep. The thread must look once more for a
    /// reason to stay awake.
    pub(crate) fn announce_sleep(&self, word: &WakeWord) -> SleepIntent {
        // Read first: a wake-up that comes after the thread's last look must end its sleep.
        let seen = self.0.load(Ordering::Acquire);
        word.announce_sleep();
        SleepIntent(seen)
    }

    /// Wakes the thread that sleeps at this word. The caller has written the reason before.
    pub(crate) fn wake(&self, word: &WakeWord) {
        self.0.fetch_add(1, Ordering::AcqRel);
        wake_private(&self.0);
        // Without futex_waitv the thread sleeps at the shared word alone.
        word.force();
    }
}
