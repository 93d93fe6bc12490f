//! A slot's turn: the number of the last request that was answered, and whether the caller sleeps or has somebody watch.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, sleep, wake_one};

/// The caller sleeps on the word.
const ASLEEP: u32 = 1;
/// The caller's service thread is to be told.
const WATCHED: u32 = 2;
const FLAGS: u32 = ASLEEP | WATCHED;

/// One word decides: the caller adds a flag only to the word of an answer that is not there, and the server puts its
/// answer's number by an exchange, so it sees every flag that was added before.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU32);

impl Turn {
    #[cfg(test)]
    #[allow(dead_code, reason = "only the loom tests that include this file call it")]
    pub(crate) fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "a test of `caller` calls it; loom tests that include this file do not")]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.0.load(Ordering::Acquire) & ASLEEP != 0
    }

    /// Whether the answer of that number is there: then everything that belongs to it is.
    #[inline]
    pub(crate) fn is(&self, number: u64) -> bool {
        same(self.0.load(Ordering::Acquire), number)
    }

    /// Says that the answer of that number is there. True: the service thread is to be told.
    #[inline]
    pub(crate) fn give(&self, number: u64) -> bool {
        let former = self.0.swap(turn(number), Ordering::AcqRel);
        if former & ASLEEP != 0 {
            wake_one(&self.0);
        }
        former & WATCHED != 0
    }

    /// Wakes the caller before its answer is there: it has something to do already, written before.
    pub(crate) fn nudge(&self) {
        if self.0.fetch_and(!ASLEEP, Ordering::AcqRel) & ASLEEP != 0 {
            wake_one(&self.0);
        }
    }

    /// Sleeps until the answer of that number may be there, or for `most`; perhaps shorter. Not if there is something to do
    /// before it, for which it could have been nudged.
    pub(crate) fn sleep(&self, number: u64, most: Duration, has_work: impl FnOnce() -> bool) {
        let Some(word) = self.add(number, ASLEEP) else { return };
        // Either this sees the work, or the nudge sees the flag, takes it away, and the word is another one.
        if !has_work() {
            sleep(&self.0, word, most);
        }
    }

    /// Has the service thread told of the answer of that number. False: it may be there already.
    pub(crate) fn watch(&self, number: u64) -> bool {
        self.add(number, WATCHED).is_some()
    }

    /// Adds a flag, once: with an honest peer it fails only when the answer comes.
    fn add(&self, number: u64, flag: u32) -> Option<u32> {
        let word = self.0.load(Ordering::Acquire);
        if same(word, number) {
            return None;
        }
        if word & flag != 0 {
            return Some(word);
        }
        let flagged = word | flag;
        self.0.compare_exchange(word, flagged, Ordering::AcqRel, Ordering::Acquire).ok().map(|_| flagged)
    }
}

#[inline]
fn same(word: u32, number: u64) -> bool {
    word & !FLAGS == turn(number)
}

/// The 30 lowest bits of a number: those before it are all answered, so there is no other that it could be.
#[inline]
fn turn(number: u64) -> u32 {
    (number as u32) << 2
}
