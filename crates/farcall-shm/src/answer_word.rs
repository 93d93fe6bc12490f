//! The word of a slot that says which request was answered last, whether the caller sleeps, and whether the
//! caller's service thread watches for the answer.
//!
//! A slot holds one request and its reply. The caller's service thread waits for the answers of many slots at
//! once.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, sleep, wake_one};

/// Flag: the caller sleeps at the word.
const ASLEEP: u32 = 1;
/// Flag: the server must wake the caller's service thread when it answers.
const WATCHED: u32 = 2;
const FLAGS: u32 = ASLEEP | WATCHED;

/// The number of the last answered request, and two flags.
///
/// The caller adds a flag only while the word shows that the answer has not come. The server publishes an
/// answer's number by an atomic exchange, so it sees every flag that was added before.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct AnswerWord(AtomicU32);

impl AnswerWord {
    #[cfg(test)]
    #[allow(dead_code, reason = "only the loom tests that include this file call it")]
    pub(crate) fn new() -> AnswerWord {
        AnswerWord(AtomicU32::new(0))
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "a test of `caller` calls it; loom tests that include this file do not")]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.0.load(Ordering::Acquire) & ASLEEP != 0
    }

    /// Returns whether the request of that number was answered. If so, everything that belongs to the answer
    /// can be read.
    #[inline]
    pub(crate) fn has(&self, number: u64) -> bool {
        has_number(self.0.load(Ordering::Acquire), number)
    }

    /// Publishes the answer of that number, and wakes the caller if it sleeps. Returns whether the caller's
    /// service thread must be woken too.
    #[inline]
    pub(crate) fn publish(&self, number: u64) -> bool {
        let former = self.0.swap(number_bits(number), Ordering::AcqRel);
        if former & ASLEEP != 0 {
            wake_one(&self.0);
        }
        former & WATCHED != 0
    }

    /// Wakes the caller before its answer is complete, because the caller has something to do already.
    pub(crate) fn wake_early(&self) {
        if self.0.fetch_and(!ASLEEP, Ordering::AcqRel) & ASLEEP != 0 {
            wake_one(&self.0);
        }
    }

    /// Sleeps until the answer of that number may have come, for at most `most`. Does not sleep if `has_work`
    /// returns true: then there is something to do before the answer. May return earlier.
    pub(crate) fn sleep(&self, number: u64, most: Duration, has_work: impl FnOnce() -> bool) {
        let Some(word) = self.add(number, ASLEEP) else { return };
        // Either this thread sees the work, or `wake_early` sees the flag and removes it, so that the word
        // differs from `word` and the futex does not sleep.
        if !has_work() {
            sleep(&self.0, word, most);
        }
    }

    /// Asks the server to wake the service thread when it answers. Returns false if the answer of that number
    /// may have come already.
    pub(crate) fn watch(&self, number: u64) -> bool {
        self.add(number, WATCHED).is_some()
    }

    /// Adds a flag and returns the new word. Tries only once: if the peer is honest, this fails only if the
    /// answer has come.
    fn add(&self, number: u64, flag: u32) -> Option<u32> {
        let word = self.0.load(Ordering::Acquire);
        if has_number(word, number) {
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
fn has_number(word: u32, number: u64) -> bool {
    word & !FLAGS == number_bits(number)
}

/// Returns the lowest 30 bits of a number, above the flags. All requests with smaller numbers are answered,
/// so these bits identify the request.
#[inline]
fn number_bits(number: u64) -> u32 {
    (number as u32) << 2
}
