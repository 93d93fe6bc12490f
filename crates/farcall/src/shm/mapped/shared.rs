//! The memory of a segment at its exporter: a memory file that importers may map. When the exporter takes the
//! memory away from them, it continues with a copy.
//!
//! `tests/shared_mapping.rs` includes this file, and gives it loom's types, and memory that is not mapped,
//! through `super::parts`.

use std::io;

use super::parts::{
    AccessRights, AsFd, AtomicU64, MappedFile, Ordering, OwnedFd, Pinned, PoisonError, RwLock,
    RwLockReadGuard, RwLockWriteGuard, UnixChannel, ask_for_huge_pages, fence, fork, punch_hole,
    written_ranges, zeros,
};

/// The memory of one segment, in a file that is passed to importers.
///
/// Another file holds the control word, which only the exporter can write: the generation of the segment that
/// uses the first file, or zero once no segment does. Importers read the control word after each access.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    control: MappedFile,
    control_file: OwnedFd,
    others: AccessRights,
    len: usize,
    /// The memory now in use. Every access of the exporter holds this lock for reading. Otherwise a write
    /// would be lost if the memory were moved meanwhile.
    current: RwLock<Current>,
    /// The fork generation of the process that made the mapping.
    process: u64,
}

#[derive(Debug)]
struct Current {
    /// Set while the memory is pinned. It is dropped before the memory.
    pinned: Option<Pinned>,
    /// Whether the system was asked to use huge pages.
    huge_pages: bool,
    words: Words,
    /// The generation that importers may ask for. `None` if the memory is not passed to importers.
    offered: Option<u64>,
    /// Whether any importer has the file.
    passed: bool,
}

#[derive(Debug)]
enum Words {
    File(MappedFile, OwnedFd),
    /// Memory of this process alone: the words are no longer offered, or no file could be made when they were
    /// moved.
    Alone(Box<[AtomicU64]>),
}

impl SharedMapping {
    /// Makes memory of this generation that other processes can map. Returns `None` if the system cannot
    /// provide it.
    pub(crate) fn new(len: usize, others: AccessRights, generation: u64) -> Option<SharedMapping> {
        let (control, control_file) = MappedFile::create(size_of::<u64>(), AccessRights::Read).ok()?;
        let (area, file) = MappedFile::create(len, others).ok()?;
        let (words, offered) = (Words::File(area, file), Some(generation));
        let current = Current { pinned: None, huge_pages: false, words, offered, passed: false };
        let mapping = SharedMapping {
            control,
            control_file,
            others,
            len,
            current: RwLock::new(current),
            process: fork::generation(),
        };
        mapping.publish(generation);
        Some(mapping)
    }

    /// Returns whether importers may write to the memory.
    pub(crate) fn is_written_by_others(&self) -> bool {
        self.others == AccessRights::Write
    }

    /// Calls `access` with the words of the memory, which are not moved meanwhile.
    #[inline(never)]
    pub(crate) fn with<R>(&self, access: impl FnOnce(&[AtomicU64]) -> R) -> R {
        access(self.read().words.all())
    }

    /// Copies bytes out of the memory, in no particular order. Returns false, without copying, if copying
    /// word by word is better.
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool {
        match &self.read().words {
            Words::File(area, _) => area.copy_out(offset, into),
            Words::Alone(_) => false,
        }
    }

    /// Copies bytes into the memory, in no particular order. Returns false, without copying, if copying word
    /// by word is better.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        match &self.read().words {
            Words::File(area, _) => area.copy_in(offset, bytes),
            Words::Alone(_) => false,
        }
    }

    /// Takes the memory away from all importers that have mapped it. After this has returned, no access of an
    /// importer reaches the segment, and every access that an importer reports as done was done to the
    /// segment. From then on the memory is offered as generation `offer`, or not at all.
    pub(crate) fn take_away(&self, offer: Option<u64>) {
        // The lock is held throughout. Otherwise another thread could offer the memory between the store of
        // the control word and the copy, and an importer's write in between would be lost.
        let mut current = self.write();
        // First the control word is written, then the memory is read. An importer first writes the memory,
        // then reads the control word. So at least one of the two sees what the other wrote.
        self.publish(0);
        fence(Ordering::SeqCst);
        let is_alone = matches!(current.words, Words::Alone(_));
        if current.passed || (is_alone && offer.is_some()) {
            let was_pinned = current.pinned.take().is_some();
            let former = std::mem::replace(&mut current.words, self.fresh(offer));
            if current.huge_pages {
                let _ = current.words.ask_for_huge_pages();
            }
            former.copy_to(&current.words, self.len);
            former.abandon();
            // If the system refuses, `is_pinned` tells it.
            current.pinned = was_pinned.then(|| Pinned::new(current.words.all()).ok()).flatten();
        }
        current.passed = false;
        current.offered = offer.filter(|_| matches!(current.words, Words::File(..)));
        self.publish(current.offered.unwrap_or(0));
    }

    /// Keeps the memory in the machine's memory, also when it moves.
    pub(crate) fn pin(&self) -> io::Result<()> {
        let current = &mut *self.write();
        if current.pinned.is_none() {
            current.pinned = Some(Pinned::new(current.words.all())?);
        }
        Ok(())
    }

    pub(crate) fn unpin(&self) {
        self.write().pinned = None;
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.read().pinned.is_some()
    }

    /// Asks the system to use huge pages, also when the memory has moved.
    pub(crate) fn ask_for_huge_pages(&self) -> io::Result<()> {
        let current = &mut *self.write();
        current.huge_pages = true;
        current.words.ask_for_huge_pages()
    }

    /// Withdraws the memory from importers. Importers that have mapped it can keep what they read there.
    pub(crate) fn withdraw(&self) {
        let mut current = self.write();
        current.offered = None;
        self.publish(0);
    }

    /// Passes the memory to an importer that asks for this generation, with the proof of the exporter's
    /// identity. `hears` tells the importer whether the exporter is to be notified of writes that ask for a
    /// notice.
    pub(crate) fn pass(&self, generation: u64, hears: bool, proof: &[u8], channel: &UnixChannel) -> bool {
        let mut current = self.write();
        if current.offered != Some(generation) {
            return false;
        }
        let Words::File(_, file) = &current.words else { return false };
        let facts = [u8::from(self.others == AccessRights::Write), u8::from(hears)];
        let first = [proof, &facts].concat();
        let passed =
            channel.send(&first, Some(self.control_file.as_fd())) && channel.send(b"!", Some(file.as_fd()));
        current.passed = true;
        passed
    }

    /// Writes the control word, but not in a forked child, which has the word mapped too.
    fn publish(&self, generation: u64) {
        if let (true, Some([word, ..])) = (self.process == fork::generation(), self.control.words()) {
            // Release is enough: where the order of this and later reads matters, a SeqCst fence follows.
            word.store(generation, Ordering::Release);
        }
    }

    fn fresh(&self, offer: Option<u64>) -> Words {
        let file = offer.and_then(|_| MappedFile::create(self.len, self.others).ok());
        file.map_or_else(|| Words::Alone(zeros(self.len)), |(area, file)| Words::File(area, file))
    }

    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Words {
    #[inline]
    fn all(&self) -> &[AtomicU64] {
        match self {
            Words::File(area, _) => area.words().unwrap_or_default(),
            Words::Alone(words) => words,
        }
    }

    fn ask_for_huge_pages(&self) -> io::Result<()> {
        ask_for_huge_pages(self.all(), matches!(self, Words::File(..)))
    }

    fn copy_to(&self, other: &Words, len: usize) {
        const WORD: usize = size_of::<u64>();
        let parts = match self {
            Words::File(_, file) => written_ranges(file, len),
            Words::Alone(_) => std::iter::once(0..len).collect(),
        };
        for part in parts {
            // The file's last page may extend beyond the segment's end.
            let part = part.start / WORD..part.end.min(len).div_ceil(WORD);
            for (from, to) in self.all()[part.clone()].iter().zip(&other.all()[part]) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Frees the memory although importers still have it mapped. The system refuses this for memory that
    /// importers can only read; such memory is freed when they unmap it.
    fn abandon(self) {
        if let Words::File(area, file) = self {
            punch_hole(&file, area.len());
        }
    }
}
