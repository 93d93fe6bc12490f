//! A bell: how one sleeps until the other side has left work, and costs it no system call while one is awake.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, sleep, wake_one};

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
    #[allow(dead_code)]
    pub(crate) fn new() -> Bell {
        Bell(AtomicU32::new(AWAKE))
    }

    /// From now on the bell is to be rung. Look for work once more before [`Bell::sleep`].
    pub(crate) fn lie_down(&self) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
    }

    /// Sleeps until it is rung, or for `most`; perhaps shorter.
    pub(crate) fn sleep(&self, most: Option<Duration>) {
        sleep(&self.0, ASLEEP, most);
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

    /// Wakes the listener whatever the word says: the other side may have written it.
    pub(crate) fn force(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
        wake_one(&self.0);
    }
}
