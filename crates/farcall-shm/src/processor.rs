//! The word by which each end of a connection tells the other on which processor it runs, so that no thread
//! polls for a thread that needs the same processor.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::sched_getcpu;

/// The processor on which a thread of one end last ran when it was about to poll or to wake the other end,
/// counted from 1. The word is 0 until then.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct ProcessorWord(AtomicU32);

impl ProcessorWord {
    /// Notes in this end's word on which processor the calling thread runs. Returns whether the other end's
    /// word names the same one.
    ///
    /// Either end may have moved meanwhile, and a hostile peer writes what it likes. So the answer may only
    /// decide whether a thread polls, and whether it wakes the other end early.
    #[inline]
    pub(crate) fn note_and_compare(&self, other: &ProcessorWord) -> bool {
        // Miri cannot tell on which processor a thread runs.
        if cfg!(miri) {
            return false;
        }
        let here = (sched_getcpu() as u32).wrapping_add(1);
        // A word that does not change stays in the cache of the other end's processor.
        if self.0.load(Ordering::Relaxed) != here {
            self.0.store(here, Ordering::Relaxed);
        }
        other.0.load(Ordering::Relaxed) == here
    }
}

/// Binds the calling thread to a processor on which it may run, so that a test knows where it runs.
#[cfg(all(test, not(miri)))]
pub(crate) fn bind_this_thread() {
    tests::move_to(tests::allowed()[0]);
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// Returns the processors on which this thread may run.
    pub(super) fn allowed() -> Vec<usize> {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect()
    }

    pub(super) fn move_to(processor: usize) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).unwrap();
    }

    #[test]
    fn ends_share_a_processor_if_the_other_end_last_waited_where_this_thread_runs() {
        let processors = allowed();
        let (caller, server) = (ProcessorWord::default(), ProcessorWord::default());
        move_to(processors[0]);
        assert!(!caller.note_and_compare(&server), "the server has not waited yet");
        assert!(server.note_and_compare(&caller));
        assert!(caller.note_and_compare(&server));
        if let Some(other) = processors.get(1) {
            move_to(*other);
            assert!(!caller.note_and_compare(&server), "the caller has moved");
            assert!(server.note_and_compare(&caller), "now both have moved");
        }
    }
}
