//! Mapped memory that is taken away, under loom: in every interleaving the segment keeps what was written
//! before.
//!
//! This is a binary of its own, because it compiles the library's files with loom's types.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../src/shm/mapped/control.rs"]
mod control;
mod modelled;
#[path = "../src/shm/mapped/shared.rs"]
#[allow(dead_code)]
mod shared;

mod parts {
    //! A model of memory files, and of the sockets that pass them.
    use std::ops::Range;
    use std::sync::Arc;

    pub(super) use crate::modelled::AtomicU64;
    pub(super) use farcall_shm::AccessRights;
    pub(super) use loom::sync::atomic::{Ordering, fence};
    pub(super) use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(super) use std::sync::PoisonError;

    /// A file of words. A process that has the file has it mapped.
    #[derive(Clone, Debug)]
    pub(super) struct OwnedFd(Arc<[AtomicU64]>);

    #[derive(Debug)]
    pub(super) struct MappedFile(OwnedFd);

    /// The files passed by this socket, in order.
    #[derive(Default)]
    pub(super) struct UnixChannel(pub(super) std::sync::Mutex<Vec<OwnedFd>>);

    pub(super) trait AsFd {
        fn as_fd(&self) -> &Self {
            self
        }
    }

    impl AsFd for OwnedFd {}

    impl OwnedFd {
        pub(super) fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    impl MappedFile {
        pub(super) fn create(len: usize, _: AccessRights) -> std::io::Result<(MappedFile, OwnedFd)> {
            let file = OwnedFd(zeros(len).into());
            Ok((MappedFile(file.clone()), file))
        }

        /// Returns a copy, because the model has no pages that are copied when they are written.
        pub(super) fn copy_on_write(file: &OwnedFd, _: usize) -> std::io::Result<MappedFile> {
            let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
            Ok(MappedFile(OwnedFd(file.0.iter().map(copy).collect())))
        }

        pub(super) fn words(&self) -> Option<&[AtomicU64]> {
            Some(self.0.words())
        }

        pub(super) fn copy_out(&self, _: usize, _: &mut [u8]) -> bool {
            false
        }

        pub(super) fn copy_in(&self, _: usize, _: &[u8]) -> bool {
            false
        }
    }

    impl UnixChannel {
        pub(super) fn send(&self, _: &[u8], file: Option<&OwnedFd>) -> bool {
            self.0.lock().unwrap().extend(file.cloned());
            true
        }
    }

    /// Pinned memory, which the model does not move.
    #[derive(Debug)]
    pub(super) struct Pinned;

    impl Pinned {
        pub(super) fn new(_: &[AtomicU64]) -> std::io::Result<Pinned> {
            Ok(Pinned)
        }
    }

    pub(super) fn ask_for_huge_pages(_: &[AtomicU64], _: bool) -> std::io::Result<()> {
        Ok(())
    }

    fn zeros(len: usize) -> Box<[AtomicU64]> {
        (0..len / size_of::<u64>()).map(|_| AtomicU64::new(0)).collect()
    }

    /// Memory of the exporter alone.
    #[derive(Debug)]
    pub(super) struct ZeroedWords(Box<[AtomicU64]>);

    impl ZeroedWords {
        pub(super) fn new(len: usize) -> std::io::Result<ZeroedWords> {
            Ok(ZeroedWords(zeros(len)))
        }
    }

    impl std::ops::Deref for ZeroedWords {
        type Target = [AtomicU64];

        fn deref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    /// Returns everything: only the operating system knows which parts were never written.
    pub(super) fn next_written(_: &OwnedFd, at: usize, len: usize, _: usize) -> Option<Range<usize>> {
        (at < len).then_some(at..len)
    }

    pub(super) fn own_pages(_: &[AtomicU64], part: &Range<usize>) -> std::io::Result<Vec<usize>> {
        Ok((0..part.len().div_ceil(4096)).collect())
    }

    pub(super) fn punch_hole(file: &OwnedFd, _: Range<usize>) {
        file.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub(super) mod fork {
        pub(in super::super) fn generation() -> u64 {
            0
        }
    }
}

use std::sync::Arc;

use farcall_shm::AccessRights;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;

use control::{has_read, has_written};
use modelled::{AtomicU64, check};
use parts::{OwnedFd, UnixChannel};
use shared::SharedMapping;

/// An importer: a model of `Mapped`, of one word.
struct Mapped {
    control: OwnedFd,
    data: OwnedFd,
    generation: u64,
}

impl Mapped {
    /// Maps a generation, if that is the one on offer.
    fn map(mapping: &SharedMapping, generation: u64) -> Option<Mapped> {
        let wire = UnixChannel::default();
        if !mapping.pass(generation, false, &[0; 16], &wire) {
            return None;
        }
        let [control, data] = wire.0.into_inner().unwrap().try_into().expect("two files are passed");
        Some(Mapped { control, data, generation })
    }

    /// Loads a word as `ReadOnlyWord::load` does.
    fn look(file: &OwnedFd) -> u64 {
        let word = file.words()[0].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        word
    }

    fn is_current(&self) -> bool {
        has_read(self.generation, || Mapped::look(&self.control))
    }

    /// Reads as `Mapped::read` does. Returns the word if it was read from the segment.
    fn read(&self) -> Option<u64> {
        let word = Mapped::look(&self.data);
        self.is_current().then_some(word)
    }

    /// Reads as `Mapped::read_bytes` does: the copying instruction orders nothing.
    fn read_bytes(&self) -> Option<u64> {
        let word = self.data.words()[0].load(Ordering::Relaxed);
        self.is_current().then_some(word)
    }

    /// Changes the word, and returns whether that was done to the segment.
    fn change(&self, change: impl FnOnce(&AtomicU64)) -> bool {
        if !self.is_current() {
            return false;
        }
        change(&self.data.words()[0]);
        has_written(self.generation, || Mapped::look(&self.control))
    }

    /// Writes as `Mapped::write` does.
    fn write(&self, new: u64) -> bool {
        self.change(|word| word.store(new, Ordering::Release))
    }

    /// Writes as `Mapped::write_bytes` does.
    fn write_bytes(&self, new: u64) -> bool {
        self.change(|word| word.store(new, Ordering::Relaxed))
    }

    /// Swaps as `Mapped::compare_and_swap` does.
    fn swap(&self, new: u64) -> bool {
        self.change(|word| {
            word.swap(new, Ordering::AcqRel);
        })
    }
}

/// Returns a segment of one word, of generation 1, that an importer has mapped.
fn mapped(word: u64) -> (Arc<SharedMapping>, Mapped) {
    let mapping = SharedMapping::new(size_of::<u64>(), AccessRights::Write, 1).unwrap();
    mapping.with(|words| words[0].store(word, Ordering::Release));
    let mapped = Mapped::map(&mapping, 1).expect("it is offered");
    (Arc::new(mapping), mapped)
}

fn word(mapping: &SharedMapping) -> u64 {
    mapping.with(|words| words[0].load(Ordering::Acquire))
}

#[test]
fn what_was_written_is_there_when_the_memory_was_taken_away() {
    for write in [Mapped::write, Mapped::write_bytes, Mapped::swap] {
        for offer in [None, Some(2)] {
            check(3, move || {
                let (mapping, importer) = mapped(7);
                let importer = thread::spawn(move || write(&importer, 8));
                mapping.take_away(offer).unwrap();
                let found = word(&mapping);
                let done = importer.join().unwrap();
                assert!(!done || found == 8, "it was done, and {found} is there");
                assert_eq!(word(&mapping), found, "and nothing is written afterwards");
            });
        }
    }
}

#[test]
fn nobody_reads_what_was_taken_away() {
    for read in [Mapped::read, Mapped::read_bytes] {
        check(3, move || {
            let (mapping, importer) = mapped(7);
            let parted = Arc::new(AtomicBool::new(false));
            let told = parted.clone();
            let importer = thread::spawn(move || {
                let is_told = told.load(Ordering::Acquire);
                let found = read(&importer);
                assert!(found.is_none_or(|word| word == 7), "what the exporter gave back to the system");
                assert!(!is_told || found.is_none() && !importer.write(9), "after it was taken away");
            });
            mapping.take_away(None).unwrap();
            mapping.with(|words| words[0].store(8, Ordering::Release));
            parted.store(true, Ordering::Release);
            importer.join().unwrap();
            assert_eq!(word(&mapping), 8);
        });
    }
}

/// One thread offers the segment again and another takes it away, while a third maps it.
#[test]
fn what_was_written_is_there_when_two_take_the_memory_away() {
    check(2, || {
        let (mapping, _) = mapped(7);
        let others = [Some(2), None].map(|offer| {
            let mapping = mapping.clone();
            thread::spawn(move || mapping.take_away(offer).unwrap())
        });
        let done = Mapped::map(&mapping, 2).is_some_and(|importer| importer.write(8));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(!done || word(&mapping) == 8, "it was done, and {} is there", word(&mapping));
    });
}
