//! The word by which each end of a connection tells the other on which processor it waits, so that no thread
//! polls for a thread that needs the same processor.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::sched_getcpu;

/// The processor on which a thread of one end last began to wait, counted from 1. The word is 0 until a
/// thread of that end has waited.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct ProcessorWord(AtomicU32);

impl ProcessorWord {
    /// Notes in this end's word on which processor the calling thread runs. Returns whether the other end's
    /// word names the same one.
    ///
    /// Either end may have moved meanwhile, and a hostile peer writes what it likes. So the answer may only
    /// decide how a thread waits.
    #[inline]
    pub(crate) fn note_and_compare(&self, other: &ProcessorWord) -> bool {
        let here = (sched_getcpu() as u32).wrapping_add(1);
        // A word that does not change stays in the cache of the other end's processor.
        if self.0.load(Ordering::Relaxed) != here {
            self.0.store(here, Ordering::Relaxed);
        }
        other.0.load(Ordering::Relaxed) == here
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn ends_share_a_processor_if_the_other_end_last_waited_where_this_thread_runs() {
        let allowed = sched_getaffinity(None).unwrap();
        let move_to = |processor| {
            let mut only = CpuSet::new();
            only.set(processor);
            sched_setaffinity(None, &only).unwrap();
        };
        let (caller, server) = (ProcessorWord::default(), ProcessorWord::default());
        let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        move_to(processors.next().unwrap());
        assert!(!caller.note_and_compare(&server), "the server has not waited yet");
        assert!(server.note_and_compare(&caller));
        assert!(caller.note_and_compare(&server));
        if let Some(other) = processors.next() {
            move_to(other);
            assert!(!caller.note_and_compare(&server), "the caller has moved");
            assert!(server.note_and_compare(&caller), "now both have moved");
        }
    }
}
