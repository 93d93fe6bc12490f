//! A bell: how one sleeps until the other side has left work, and costs it no system call while one is awake.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, sleep, sleep_at_either, wake_one, wake_private};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Who listens lies down, looks for work once more, and sleeps. Who leaves work rings afterwards. Both do so by an
/// exchange of the one word: whoever comes second sees what the first did before, so either the listener sees the
/// work or the other sees it lie.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    #[cfg(test)]
    #[allow(dead_code, reason = "only the loom tests that include this file call it")]
    pub(crate) fn new() -> Bell {
        Bell(AtomicU32::new(AWAKE))
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "a test of `lane` calls it; loom tests that include this file do not")]
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Ordering::Acquire) == AWAKE
    }

    /// From now on the bell is to be rung. Look for work once more before [`Bell::sleep`].
    pub(crate) fn lie_down(&self) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
    }

    /// Sleeps until it is rung, or for `most`; perhaps shorter.
    pub(crate) fn sleep(&self, most: Duration) {
        sleep(&self.0, ASLEEP, most);
    }

    /// Sleeps until it is rung, or the recall has been made more often than so many times; perhaps shorter.
    pub(crate) fn sleep_until_recalled(&self, recall: &Recall, made: u32) {
        sleep_at_either((&self.0, ASLEEP), (&recall.0, made));
    }

    /// Awake again: nobody needs to ring. (By an exchange too: a plain store would hide from the next lying down what
    /// was written before the ring that it overwrites.)
    pub(crate) fn get_up(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// There is work, written before.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.0.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            wake_one(&self.0);
        }
    }

    /// Wakes the listener whatever the word says, as far as the other side lets that happen.
    fn force(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
        wake_one(&self.0);
    }
}

/// How a process wakes its own thread that sleeps at a bell, whatever the peer did to the bell: a word that
/// the peer can neither write nor reach by a futex operation. It counts how often that was done.
#[derive(Debug)]
pub(crate) struct Recall(AtomicU32);

impl Recall {
    pub(crate) fn new() -> Recall {
        Recall(AtomicU32::new(0))
    }

    /// How often it was made: to be read before the last look for a reason not to sleep.
    pub(crate) fn made(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Wakes who sleeps at this bell; the reason was written before.
    pub(crate) fn make(&self, bell: &Bell) {
        self.0.fetch_add(1, Ordering::AcqRel);
        wake_private(&self.0);
        // Where there is no futex_waitv who sleeps there does not hear of the first.
        bell.force();
    }
}
