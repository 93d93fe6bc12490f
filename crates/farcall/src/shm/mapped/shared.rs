//! The memory of a segment at its exporter: a memory file that importers may map. When the exporter takes the
//! memory away from them, it continues with a copy.
//!
//! `tests/shared_mapping.rs` includes this file, and gives it loom's types, and memory that is not mapped,
//! through `super::parts`.

use std::io;
use std::ops::Range;

use super::parts::{
    AccessRights, AsFd, AtomicU64, MappedFile, Ordering, OwnedFd, Pinned, PoisonError, RwLock,
    RwLockReadGuard, RwLockWriteGuard, UnixChannel, ZeroedWords, ask_for_huge_pages, fence, fork,
    next_written, own_pages, punch_hole,
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
    File(MappedFile, OwnedFd, Writes),
    /// Memory of this process alone, because no file could be made when the words were moved.
    Alone(ZeroedWords),
}

/// Where this process's writes to a file's memory go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    /// To the file, which importers may have.
    ToFile,
    /// To copies of its pages, which are this process's alone. Importers could only read the file, so nobody
    /// writes it any more. No page is copied before it is written.
    ToCopies,
}

/// The bytes of memory that are moved before the memory that they had is given back.
const MOVED_AT_ONCE: usize = 4 << 20;
/// The bytes of memory about which the system is asked at once which pages were written.
const ASKED_AT_ONCE: usize = 256 << 20;
const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();

impl SharedMapping {
    /// Makes memory of this generation that other processes can map. Returns `None` if the system cannot
    /// provide it.
    pub(crate) fn new(len: usize, others: AccessRights, generation: u64) -> Option<SharedMapping> {
        let (control, control_file) = MappedFile::create(size_of::<u64>(), AccessRights::Read).ok()?;
        let (area, file) = MappedFile::create(len, others).ok()?;
        let (words, offered) = (Words::File(area, file, Writes::ToFile), Some(generation));
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
            Words::File(area, ..) => area.copy_out(offset, into),
            Words::Alone(_) => false,
        }
    }

    /// Copies bytes into the memory, in no particular order. Returns false, without copying, if copying word
    /// by word is better.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        match &self.read().words {
            Words::File(area, ..) => area.copy_in(offset, bytes),
            Words::Alone(_) => false,
        }
    }

    /// Takes the memory away from all importers that have mapped it. After this has returned, no access of an
    /// importer reaches the segment, and every access that an importer reports as done was done to the
    /// segment. From then on the memory is offered as generation `offer`, or not at all.
    ///
    /// Memory that no importer has stays where it is. If importers could only read it, and it is not offered
    /// again, it stays too: pages that are written later are copied then. Otherwise the pages that were ever
    /// written move to other memory, some megabytes at a time.
    ///
    /// # Errors
    /// When the system has no other memory. Then importers that look at the control word reach the segment no
    /// more, but one that ignores it still does. The next change tries it again.
    pub(crate) fn take_away(&self, offer: Option<u64>) -> io::Result<()> {
        // The lock is held throughout. Otherwise another thread could offer the memory between the store of
        // the control word and the copy, and an importer's write in between would be lost.
        let current = &mut *self.write();
        // First the control word is written, then the memory is read. An importer first writes the memory,
        // then reads the control word. So at least one of the two sees what the other wrote.
        self.publish(0);
        fence(Ordering::SeqCst);
        current.offered = None;
        if current.passed || (offer.is_some() && !current.words.can_be_offered()) {
            let was_pinned = current.pinned.take().is_some();
            let replaced = self.replace(current, offer.is_some());
            // If the system refuses, `is_pinned` tells it.
            current.pinned = was_pinned.then(|| Pinned::new(current.words.all()).ok()).flatten();
            replaced?;
        }
        current.passed = false;
        current.offered = offer.filter(|_| current.words.can_be_offered());
        self.publish(current.offered.unwrap_or(0));
        Ok(())
    }

    /// Replaces the words by others with the same content, of which no importer has the memory.
    fn replace(&self, current: &mut Current, to_offer: bool) -> io::Result<()> {
        let can_stay = self.others == AccessRights::Read && !to_offer;
        if let (true, Words::File(area, file, writes)) = (can_stay, &mut current.words)
            && let Ok(mapped) = MappedFile::copy_on_write(file, self.len)
        {
            (*area, *writes) = (mapped, Writes::ToCopies);
            return Ok(());
        }
        let fresh = match MappedFile::create(self.len, self.others) {
            Ok((area, file)) => Words::File(area, file, Writes::ToFile),
            // It is this process's alone already, and is not offered.
            Err(_) if !current.words.can_be_offered() => return Ok(()),
            Err(_) => Words::Alone(ZeroedWords::new(self.len)?),
        };
        if current.huge_pages {
            let _ = fresh.ask_for_huge_pages();
        }
        match current.words.move_to(&fresh, self.len) {
            Ok(()) => current.words = fresh,
            Err(why) if current.words.can_be_offered() => return Err(why),
            // It stays this process's alone, and is not offered.
            Err(_) => {}
        }
        Ok(())
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
        let Words::File(_, file, Writes::ToFile) = &current.words else { return false };
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
            Words::File(area, ..) => area.words().unwrap_or_default(),
            Words::Alone(words) => words,
        }
    }

    /// Returns whether importers that map the file see what this process writes.
    fn can_be_offered(&self) -> bool {
        matches!(self, Words::File(_, _, Writes::ToFile))
    }

    fn ask_for_huge_pages(&self) -> io::Result<()> {
        ask_for_huge_pages(self.all(), !matches!(self, Words::Alone(_)))
    }

    /// Moves the content to other words, which are zeros. Only what was ever written moves. The memory of
    /// each part is given back when it has moved. The system refuses this for memory that importers can only
    /// read; such memory is freed when the last of them unmaps it.
    ///
    /// # Errors
    /// When the system does not tell which pages were written. Then nothing has moved.
    fn move_to(&self, other: &Words, len: usize) -> io::Result<()> {
        let (from, to) = (self.all(), other.all());
        match self {
            Words::File(_, file, Writes::ToFile) => {
                let mut at = 0;
                while let Some(part) = next_written(file, at, len, MOVED_AT_ONCE) {
                    at = part.end;
                    copy(from, to, part.start..part.end.min(len));
                    punch_hole(file, part);
                }
            }
            Words::File(_, file, Writes::ToCopies) => {
                for start in (0..len).step_by(ASKED_AT_ONCE) {
                    let end = len.min(start + ASKED_AT_ONCE);
                    copy_pages(from, to, start..end, &own_pages(from, &(start..end))?);
                    let mut at = start;
                    while let Some(part) = next_written(file, at, end, MOVED_AT_ONCE) {
                        at = part.end;
                        copy(from, to, part);
                    }
                }
            }
            Words::Alone(_) => {
                for start in (0..len).step_by(ASKED_AT_ONCE) {
                    let end = len.min(start + ASKED_AT_ONCE);
                    copy_pages(from, to, start..end, &own_pages(from, &(start..end))?);
                }
            }
        }
        Ok(())
    }
}

/// Copies the words of a range of bytes.
fn copy(from: &[AtomicU64], to: &[AtomicU64], part: Range<usize>) {
    // A file's last page may extend beyond the segment's end.
    let part = part.start / WORD_BYTES..part.end.div_ceil(WORD_BYTES);
    for (from, to) in from[part.clone()].iter().zip(&to[part]) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Copies those pages of a range of bytes.
fn copy_pages(from: &[AtomicU64], to: &[AtomicU64], range: Range<usize>, pages: &[usize]) {
    for start in pages.iter().map(|page| range.start + page * PAGE_BYTES) {
        copy(from, to, start..range.end.min(start + PAGE_BYTES));
    }
}
